"""The tools of a program by name: `ToolRegistry`, `@tool`, and the global registry."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar, get_args, overload

from toolkit.errors import ToolDefinitionError
from toolkit.messages import Permission, ToolResult, Verdict, copied
from toolkit.tools.tool import (
    MARK,
    TOOL,
    FunctionTool,
    Tool,
    ToolOptions,
    Toolset,
    as_tool,
    tool_entry,
)

_log = logging.getLogger("toolkit")

F = TypeVar("F", bound=Callable[..., Any])
OnDuplicate = Literal["error", "warn", "replace"]


class CallRunner(Protocol):
    """Runs one call of a registry's tool without a model; see `ToolRegistry.call`."""

    def call(
        self,
        registry: ToolRegistry,
        name: str,
        arguments: Any,
        verdict: Verdict | None,
        deps: Any,
    ) -> ToolResult: ...

    async def acall(
        self,
        registry: ToolRegistry,
        name: str,
        arguments: Any,
        verdict: Verdict | None,
        deps: Any,
    ) -> ToolResult: ...


class ToolRegistry:
    """Tools by name, in the order of their registration.

    `on_duplicate` says what a different function under a taken name does: "error" raises ToolDefinitionError, "warn"
    replaces with a log line, "replace" replaces quietly. The same function again (equal module and qualified name,
    as after a reload or a notebook cell run twice) always replaces quietly.
    """

    runner: ClassVar[CallRunner]
    """Set by `toolkit.calls`, which is imported with the package. The tools themselves know nothing of calls."""

    def __init__(
        self,
        tools: Iterable[Callable[..., Any] | Tool] = (),
        *,
        on_duplicate: OnDuplicate = "error",
    ) -> None:
        if on_duplicate not in get_args(OnDuplicate):
            raise ValueError(
                f"on_duplicate={on_duplicate!r} is none of {', '.join(get_args(OnDuplicate))}."
            )
        self._tools: dict[str, Tool] = {}
        self.on_duplicate = on_duplicate
        for one in tools:
            self.register_tool(one)

    def register_tool(self, tool: Callable[..., Any] | Tool, **options: Any) -> Tool:
        """Add a Tool, a decorated function, or any callable with the options of `@tool`; return the Tool."""
        return self._add(as_tool(tool, options))

    def register_function(
        self, name: str, description: str, function: Callable[..., Any], **options: Any
    ) -> Tool:
        """Add any callable under a name and description; one bare parameter without a hint takes a string."""
        return self._add(
            as_tool(
                function,
                {"name": name, "description": description, **options},
                unhinted=str,
            )
        )

    def register_methods(self, owner: object) -> list[Tool]:
        """Add the methods of an object that `@tool` marked in its class; return their Tools."""
        names = [name for kind in reversed(type(owner).__mro__) for name in vars(kind)]
        methods = [
            getattr(owner, name)
            for name in dict.fromkeys(names)
            if _is_marked(type(owner), name)
        ]
        if not methods:
            raise ToolDefinitionError(
                f"{type(owner).__name__} has no method marked with @tool. Decorate one."
            )
        return [self._add(as_tool(method)) for method in methods]

    def remove(self, name: str) -> Tool:
        """Take a tool out, and return it. Raises KeyError where there is none of that name."""
        tool = self[name]
        del self._tools[name]
        return tool

    def schemas(self, *, strict: bool = False) -> list[dict[str, Any]]:
        """The tools as the Chat Completions `tools` list."""
        return [copied(tool_entry(tool, strict)) for tool in self.snapshot().values()]

    def subset(
        self,
        *,
        names: Collection[str] | None = None,
        tags: Collection[str] | None = None,
        tiers: Collection[Permission] | None = None,
    ) -> ToolRegistry:
        """A registry of those tools that fit every condition given: a name, any of the tags, a permission tier.

        Raises KeyError for a name that no tool has.
        """
        names, tags = (
            (names,) if isinstance(names, str) else names,
            (tags,) if isinstance(tags, str) else tags,
        )
        if unknown := [name for name in names or () if name not in self._tools]:
            raise KeyError(
                f"No tool is named {unknown}; there are {list(self._tools)}."
            )
        chosen = ToolRegistry(on_duplicate=self.on_duplicate)
        for tool in self:
            fits_tags = tags is None or not set(tags).isdisjoint(tool.tags)
            if (
                (names is None or tool.name in names)
                and fits_tags
                and (tiers is None or tool.permission in tiers)
            ):
                chosen._tools[tool.name] = tool
        return chosen

    def call(
        self,
        name: str,
        arguments: Any,
        *,
        verdict: Verdict | None = None,
        deps: Any = None,
    ) -> ToolResult:
        """Run one call without a model. `arguments` is text as a model sends it, or an object.

        Whatever goes wrong comes back as an error result. A sensitive tool needs `verdict=Verdict("approve")`.
        """
        return self.runner.call(self, name, arguments, verdict, deps)

    async def acall(
        self,
        name: str,
        arguments: Any,
        *,
        verdict: Verdict | None = None,
        deps: Any = None,
    ) -> ToolResult:
        """As `call`, with the running event loop for coroutine functions."""
        return await self.runner.acall(self, name, arguments, verdict, deps)

    def get(self, name: str) -> Tool | None:
        """The tool of that name; None where there is none. `registry[name]` raises KeyError instead."""
        return self._tools.get(name)

    def __getitem__(self, name: str) -> Tool:
        if name not in self._tools:
            raise KeyError(f"No tool is named {name!r}; there are {list(self._tools)}.")
        return self._tools[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(list(self._tools.values()))

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"ToolRegistry({', '.join(self._tools) or 'no tools'})"

    def __str__(self) -> str:
        from toolkit.display import registry_text

        return registry_text(self) or repr(self)

    def _repr_html_(self) -> str:
        from toolkit.display import registry_html

        return registry_html(self)

    def snapshot(self) -> Toolset:
        """The tools of this moment; later registrations do not show in it."""
        return Toolset(self._tools.values())

    def _add(self, tool: Tool) -> Tool:
        old = self._tools.get(tool.name)
        if (
            old is not None
            and not _is_same(old, tool)
            and self.on_duplicate != "replace"
        ):
            if self.on_duplicate == "error":
                raise ToolDefinitionError(
                    f"The name {tool.name!r} is taken by another tool. Give one of them another name, "
                    'or make the registry with on_duplicate="replace".'
                )
            _log.warning("tool %r replaces another tool of that name", tool.name)
        self._tools[tool.name] = tool
        return tool


REGISTRY = ToolRegistry()
"""The global registry: where `@tool` registers by default, and what a run takes when it is given no tools."""


ToolsGiven = ToolRegistry | Iterable[Callable[..., Any] | Tool] | str | None
"""What `tools=` takes; a text refers to a module or something in it ("module:name"), None is the global registry."""


def registry_of(tools: ToolsGiven) -> ToolRegistry:
    """The registry that is meant, or a new one of the tools that are given."""
    if tools is None or isinstance(tools, ToolRegistry):
        return REGISTRY if tools is None else tools
    if isinstance(tools, str):
        return import_tools(tools)
    if callable(tools) or isinstance(tools, Tool):
        raise TypeError(
            f"tools is a list of tools or a ToolRegistry, not {tools!r}. Put it into a list."
        )
    if not isinstance(tools, Iterable) or isinstance(tools, (bytes, Mapping)):
        raise TypeError(
            f"tools is a list of tools, a ToolRegistry or 'module:name', not {tools!r}."
        )
    return ToolRegistry(tools)


def import_tools(reference: str) -> ToolRegistry:
    """The tools of a module ("package.module", "path/to/file.py"), or the one thing in it that "module:name" names.

    Of a module: what `@tool` decorated in it, its Tools and its registries. A name may stand for a registry, a tool, a
    function or a list of these. Raises ImportError or ToolDefinitionError, naming the reference.
    """
    place, _, name = reference.rpartition(":")
    if not place or name.endswith(
        ".py"
    ):  # no name, but perhaps the drive of a path on Windows
        place, name = reference.removesuffix(":"), ""
    module = _import(place)
    if name and not hasattr(module, name):
        raise ImportError(
            f"{place!r} has no {name!r}, which the reference {reference!r} names."
        )
    found = ToolRegistry(on_duplicate="replace")
    things = (
        [getattr(module, name)]
        if name
        else [v for v in vars(module).values() if _holds_tools(v, module)]
    )
    for thing in things:
        is_many = isinstance(thing, (ToolRegistry, list, tuple, set, frozenset))
        for one in thing if is_many else [thing]:
            found.register_tool(one)
    if not len(found):
        raise ToolDefinitionError(
            f"{reference!r} holds no tools. Decorate a function in it with @tool, or name one."
        )
    return found


def _import(place: str) -> Any:
    is_file = place.endswith(".py")
    told = f"There is no module {place!r}. A reference to tools is 'module', 'module:name' or a file."
    told = f"There is no file {place!r}." if is_file else told
    if not Path(place).is_file() if is_file else not place or place.startswith("."):
        raise ImportError(told)
    try:
        return (
            _import_file(Path(place).resolve())
            if is_file
            else importlib.import_module(place)
        )
    except (ImportError, ToolDefinitionError) as error:
        if isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(
            f"{error.name}."
        ):
            raise ImportError(told) from error
        raise
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}"
        raise ImportError(
            f"{place!r} failed while it was imported: {why}. Run it by itself to see where."
        ) from error


def _import_file(path: Path) -> Any:
    """The module of a file, run once in this process, under its own name where that is free."""
    hashed = f"{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    for name in (path.stem, hashed):
        known = sys.modules.get(name)
        if known is not None and getattr(known, "__file__", None) == str(path):
            return known
    spec = importlib.util.spec_from_file_location(
        hashed if path.stem in sys.modules else path.stem, path
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{str(path)!r} is no Python file.")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(
        spec
    )  # its functions may be sought by it
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def _holds_tools(thing: Any, module: Any) -> bool:
    if isinstance(thing, ToolRegistry):
        return thing is not REGISTRY
    is_decorated = inspect.isfunction(thing) and TOOL in vars(thing)
    return isinstance(thing, Tool) or (
        is_decorated and thing.__module__ == module.__name__
    )


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    schema: Mapping[str, Any] | None = ...,
    permission: Permission = ...,
    timeout: float | None = ...,
    tags: Collection[str] = ...,
    keywords: Collection[str] = ...,
    parallel: bool = ...,
    repeat_ok: bool = ...,
    strict: bool | None = ...,
    registry: ToolRegistry = ...,
) -> Callable[[F], F]: ...
def tool(
    function: Any = None, /, *, registry: ToolRegistry = REGISTRY, **options: Any
) -> Any:
    """Make a function a tool and return it unchanged: it stays callable, testable, stackable.

    Bare or with options: `name`, `description` (else from the docstring), `schema` (a hand-written JSON Schema),
    `permission` ("read", "write", "sensitive"), `timeout` (seconds, None for none), `tags`, `keywords`, `parallel`,
    `repeat_ok`, `strict`, `registry`; see `Tool`. The function gets `tool_schema`, its Chat Completions entry as a
    read-only mapping that is built on first access. In a class body the method is only marked: bind it with
    `registry.register_methods(obj)` or `tools=[obj.method]`.

    Raises ToolDefinitionError, naming the parameter, where a model could not call the function.
    """
    if unknown := options.keys() - {option.name for option in fields(ToolOptions)}:
        known = ", ".join(option.name for option in fields(ToolOptions))
        raise TypeError(
            f"@tool has no option {sorted(unknown)}. It has {known} and registry."
        )
    made = ToolOptions(**options)
    if function is None:
        return lambda function: _decorate(function, made, registry)
    return _decorate(function, made, registry)


class ToolSchema(Mapping[str, Any]):
    """The Chat Completions entry of a decorated function, read-only, built when it is first looked at."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    def __getitem__(self, key: str) -> Any:
        return copied(tool_entry(self._tool)[key])

    def __iter__(self) -> Iterator[str]:
        return iter(tool_entry(self._tool))

    def __len__(self) -> int:
        return len(tool_entry(self._tool))

    def __repr__(self) -> str:
        return repr(tool_entry(self._tool))


def _decorate(function: Any, options: ToolOptions, registry: ToolRegistry) -> Any:
    if isinstance(function, (staticmethod, classmethod)):
        _decorate(function.__func__, options, registry)
        return function
    if _is_in_class_body(function):
        setattr(function, MARK, (options, _locals_of_decoration(function)))
        return function
    made = FunctionTool(function, options, _locals_of_decoration(function))
    registry._add(made)
    if inspect.isfunction(function):
        setattr(function, TOOL, made)
        function.tool_schema = ToolSchema(made)  # type: ignore[attr-defined]  # a function takes any attribute
    return function


def _is_in_class_body(function: Any) -> bool:
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    return (
        inspect.isfunction(function) and bool(owner) and not owner.endswith("<locals>")
    )


def _locals_of_decoration(function: Any) -> Mapping[str, Any] | None:
    """The names around a function defined inside another one: postponed hints may be among them."""
    if "<locals>" not in getattr(function, "__qualname__", ""):
        return None
    hints = getattr(inspect.unwrap(function), "__annotations__", {})
    if not any(isinstance(hint, str) for hint in hints.values()):
        return None
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals is globals():
        frame = frame.f_back
    inside = frame.f_locals
    if "__qualname__" in inside:  # its methods may be named as types: get, set, list
        inside = {
            name: value
            for name, value in inside.items()
            if not inspect.isfunction(value)
        }
    while frame.f_back and "__qualname__" in frame.f_locals:  # the body of a class
        frame = frame.f_back
    return {**frame.f_locals, **inside}


def _is_marked(kind: type, name: str) -> bool:
    found = inspect.getattr_static(kind, name, None)
    return hasattr(getattr(found, "__func__", found), MARK)


def _is_same(old: Tool, new: Tool) -> bool:
    if old is new:
        return True
    if isinstance(old, FunctionTool) and isinstance(new, FunctionTool):
        return _identity(old.function) == _identity(new.function)
    # A class that was loaded anew; two objects of one class are two tools.
    return type(old) is not type(new) and _identity(type(old)) == _identity(type(new))


def _identity(thing: Any) -> tuple[Any, ...]:
    name = getattr(thing, "__qualname__", id(thing))
    is_lambda = isinstance(name, str) and name.endswith("<lambda>")
    owner = getattr(thing, "__self__", None)
    return (
        getattr(thing, "__module__", None),
        name,
        thing.__code__ if is_lambda else None,
        owner is not None and id(owner),
    )
