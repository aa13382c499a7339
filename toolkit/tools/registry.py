"""The tools of a program by name: `ToolRegistry`, and the global one."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, get_args

from toolkit.errors import ToolDefinitionError
from toolkit.messages import Permission, ToolResult, Verdict, copied
from toolkit.tools.loading import find_target
from toolkit.tools.parameter import json_type_name
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

if TYPE_CHECKING:
    from typing_extensions import Unpack

_log = logging.getLogger("toolkit")

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
    as after a reload or a notebook cell run twice) always replaces quietly. `permission` and `timeout` (seconds) are
    those of functions that are registered here without their own. `str(registry)` lists the tools for a person,
    `describe()` for a prompt.
    """

    runner: ClassVar[CallRunner]
    """Set by `toolkit.calls`, which is imported with the package. The tools themselves know nothing of calls."""

    def __init__(
        self,
        tools: Iterable[Callable[..., Any] | Tool] = (),
        *,
        on_duplicate: OnDuplicate = "error",
        permission: Permission | None = None,
        timeout: float | None = None,
    ) -> None:
        if on_duplicate not in get_args(OnDuplicate):
            raise ValueError(
                f"on_duplicate={on_duplicate!r} is not one of {', '.join(get_args(OnDuplicate))}."
            )
        self._tools: dict[str, Tool] = {}
        self.on_duplicate = on_duplicate
        defaults = {"permission": permission, "timeout": timeout}
        self.defaults = {
            name: value for name, value in defaults.items() if value is not None
        }
        for tool in tools:
            self.register_tool(tool)

    def register_tool(
        self, tool: Callable[..., Any] | Tool, **options: Unpack[ToolOptions]
    ) -> Tool:
        """Add a Tool, a decorated function, or any callable with the options of `@tool`; return the Tool."""
        return self._add(as_tool(tool, options, defaults=self.defaults))

    def register_function(
        self, name: str, description: str, function: Callable[..., Any], **options: Any
    ) -> Tool:
        """Add any callable under a name and a description. A single parameter without a type hint takes a string."""
        options = {"name": name, "description": description, **options}
        return self._add(
            as_tool(function, options, unhinted=str, defaults=self.defaults)
        )

    def register_methods(self, owner: object) -> list[Tool]:
        """Add the methods of an object that `@tool` marked in its class; return their Tools."""
        kind = type(owner)
        names = dict.fromkeys(
            name for base in reversed(kind.__mro__) for name in vars(base)
        )
        methods = [getattr(owner, name) for name in names if _is_marked(kind, name)]
        if not methods:
            raise ToolDefinitionError(
                f"{kind.__name__} has no method marked with @tool. Decorate one."
            )
        return [
            self._add(as_tool(method, defaults=self.defaults)) for method in methods
        ]

    def remove(self, name: str) -> Tool:
        """Take a tool out of the registry, and return it. Raises KeyError if no tool has that name."""
        tool = self[name]
        del self._tools[name]
        return tool

    def schemas(self, *, strict: bool = False) -> list[dict[str, Any]]:
        """The tools as the Chat Completions `tools` list."""
        return [copied(tool_entry(tool, strict)) for tool in self.snapshot().values()]

    def describe(self) -> str:
        """The tools as text for a prompt: each with its description and its parameters."""
        lines = []
        for tool in self.snapshot().values():
            lines.append(f"- {tool.wire_name}: {tool.description}")
            for parameter in tool.get_parameters():
                need = "required" if parameter.required else "optional"
                kind = json_type_name(parameter.type)
                about = f"{parameter.name} ({kind}, {need}): {parameter.description}"
                lines.append(f"  - {about}")
        return "\n".join(lines)

    def subset(
        self,
        *,
        names: Collection[str] | None = None,
        tags: Collection[str] | None = None,
        tiers: Collection[Permission] | None = None,
    ) -> ToolRegistry:
        """A registry of the tools that meet every condition: one of the names, any of the tags, one of the tiers.

        Raises KeyError for a name that no tool has.
        """
        names = {names} if isinstance(names, str) else names
        tags = {tags} if isinstance(tags, str) else tags
        for name in names or ():
            self[name]
        chosen = ToolRegistry(on_duplicate=self.on_duplicate)
        for tool in self:
            has_name = names is None or tool.name in names
            has_tag = tags is None or not set(tags).isdisjoint(tool.tags)
            has_tier = tiers is None or tool.permission in tiers
            if has_name and has_tag and has_tier:
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
        """The tool of that name, or None. `registry[name]` raises KeyError instead."""
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
        """The tools of this moment. Later registrations do not change it."""
        return Toolset(self._tools.values())

    def _add(self, tool: Tool) -> Tool:
        old = self._tools.get(tool.name)
        if old is not None and not _is_same(old, tool):
            if self.on_duplicate == "error":
                raise ToolDefinitionError(
                    f"The name {tool.name!r} is taken by another tool. Give one of them another name, "
                    'or make the registry with on_duplicate="replace".'
                )
            if self.on_duplicate == "warn":
                _log.warning("tool %r replaces another tool of that name", tool.name)
        self._tools[tool.name] = tool
        return tool


def _is_marked(kind: type, name: str) -> bool:
    attribute = inspect.getattr_static(kind, name, None)
    return hasattr(getattr(attribute, "__func__", attribute), MARK)


def _is_same(old: Tool, new: Tool) -> bool:
    """Whether a tool is only loaded again: its function, or its class. Two objects of one class are two tools."""
    if old is new:
        return True
    if isinstance(old, FunctionTool) and isinstance(new, FunctionTool):
        return _identity(old.function) == _identity(new.function)
    return type(old) is not type(new) and _identity(type(old)) == _identity(type(new))


def _identity(thing: Any) -> tuple[Any, ...]:
    name = getattr(thing, "__qualname__", id(thing))
    is_lambda = isinstance(name, str) and name.endswith("<lambda>")
    code = thing.__code__ if is_lambda else None
    owner = getattr(thing, "__self__", None)
    # Not by equality: owners of two methods may be equal, and yet two objects.
    is_owned = owner is not None
    return getattr(thing, "__module__", None), name, code, is_owned and id(owner)


REGISTRY = ToolRegistry()
"""The global registry: where `@tool` registers by default, and what a run uses if it is given no tools."""

ToolsGiven = ToolRegistry | Iterable[Callable[..., Any] | Tool] | str | None
"""What `tools=` takes. A string refers to a module or something in it ("module:name"); None is the global registry."""


def registry_of(tools: ToolsGiven) -> ToolRegistry:
    """The registry that `tools` is or refers to, or a new one of the tools in it."""
    if tools is None:
        return REGISTRY
    if isinstance(tools, ToolRegistry):
        return tools
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
    """The tools of a module ("package.module", "path/to/file.py"), or of one thing in it ("module:name").

    A module gives what `@tool` decorated in it, its Tools and its registries. A name stands for a registry, a tool, a
    function or a list of these. Raises ImportError or ToolDefinitionError, naming the reference.
    """
    module, name = find_target(reference)
    if name:
        sources = [getattr(module, name)]
    else:
        values = vars(module).values()
        sources = [each for each in values if _is_source(each, module.__name__)]
    registry = ToolRegistry(on_duplicate="replace")
    for source in sources:
        is_many = isinstance(source, (ToolRegistry, list, tuple, set, frozenset))
        for tool in source if is_many else [source]:
            registry.register_tool(tool)
    if not len(registry):
        raise ToolDefinitionError(
            f"{reference!r} contains no tools. Decorate a function in it with @tool, or name one."
        )
    return registry


def _is_source(value: Any, module: str) -> bool:
    if isinstance(value, ToolRegistry):
        return value is not REGISTRY
    is_decorated = inspect.isfunction(value) and TOOL in vars(value)
    return isinstance(value, Tool) or (is_decorated and value.__module__ == module)
