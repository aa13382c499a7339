"""Functions as tools: `Tool`, and what makes one of a function, a method or a class."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import itertools
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from toolkit.errors import ToolDefinitionError
from toolkit.messages import Permission, copied
from toolkit.tools.foreign import WrittenSignature
from toolkit.tools.schema import MISSING, Kind, Parameter, Signature
from toolkit.tools.signatures import read_signature, without_partials
from toolkit.tools.strict import strict_form

_log = logging.getLogger("toolkit")

JSON_TYPES: dict[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict, "any": Any,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToolParameter:
    """One parameter of a class tool.

    `type` is a JSON type by name ("string", "integer", "number", "boolean", "array", "object", "any") or a Python
    type or hint. `default` counts where `required` is False.
    """

    name: str
    type: Any
    description: str
    required: bool = True
    default: Any = None


class Tool:
    """Something a model can call. Subclass it for tools with state: implement `run` and `get_parameters`.

    `permission` is its tier: "read" runs, "write" runs and is audited, "sensitive" waits for a verdict. `timeout`
    is in seconds, None for none; only then does a plain function run on the caller's own thread. `tags` and
    `keywords` serve selection. `parallel=False` runs its calls one at a time, in order. `repeat_ok` exempts it from
    the guard against equal calls. `strict` is True or False to insist; None leaves it to the model's capabilities.
    """

    name: str = ""
    description: str = ""
    permission: Permission = "write"
    timeout: float | None = 60.0
    tags: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    parallel: bool = True
    repeat_ok: bool = False
    strict: bool | None = None

    def run(self, parameters: dict[str, Any]) -> Any:
        """Do the work. `parameters` are validated and complete with their defaults."""
        raise NotImplementedError(
            f"{type(self).__name__} does not implement run(parameters)."
        )

    def get_parameters(self) -> list[ToolParameter]:
        """The readable listing of the parameters, from which the schema of a class tool is made."""
        raise NotImplementedError(
            f"{type(self).__name__} does not implement get_parameters()."
        )

    def call(self, values: dict[str, Any], context: Any) -> Any:
        """Call the tool with validated values."""
        complete = self.signature.complete(values)
        left_out = complete.keys() - values.keys()
        return self.run(complete | {name: copied(complete[name]) for name in left_out})

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.run)

    @functools.cached_property
    def signature(self) -> Signature:
        parameters = []
        for p in self.get_parameters():
            default = MISSING if p.required or p.default is None else p.default
            parameters.append(
                Parameter(
                    p.name,
                    _hint(self, p),
                    Kind.KEYWORD_ONLY,
                    p.required,
                    default,
                    p.description,
                )
            )
        names = [parameter.name for parameter in parameters]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ToolDefinitionError(
                f"{self.name!r} has two parameters {twice[0]!r}. Rename one of them."
            )
        return Signature(self.name, tuple(parameters))

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, an object."""
        return self.signature.json_schema

    @functools.cached_property
    def wire_name(self) -> str:
        """The name that goes over the wire: the tool's own where every wire takes it, else a stable alias."""
        return wire_name(self.name)

    @functools.cached_property
    def strict_parameters(self) -> dict[str, Any] | None:
        """The schema in strict form, or None where it has none; the log then says why."""
        try:
            written = isinstance(self.signature, WrittenSignature)
            return strict_form(self.parameters, unlisted_is_optional=not written)
        except ToolDefinitionError as error:
            _log.info("tool %r is sent without strict mode: %s", self.name, error)
            return None

    def __getstate__(self) -> dict[str, Any]:
        """What goes to another process: a function by its module and name; what is made of it is made there anew."""
        of_class = [item for kind in type(self).__mro__ for item in vars(kind).items()]
        made = {
            name
            for name, value in of_class
            if isinstance(value, functools.cached_property)
        }
        return {
            name: value for name, value in self.__dict__.items() if name not in made
        }

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} ({self.permission})>"


class FunctionTool(Tool):
    """A callable of any kind as a tool."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: ToolOptions,
        namespace: Mapping[str, Any] | None = None,
        unhinted: Any = Any,
    ) -> None:
        if isinstance(function, Tool) or (
            isinstance(function, type) and issubclass(function, Tool)
        ):
            kind = function if isinstance(function, type) else type(function)
            raise ToolDefinitionError(
                f"{kind.__name__} is a class of tools. Register an object of it: {kind.__name__}()."
            )
        if not callable(function):
            raise ToolDefinitionError(
                f"{function!r} is no tool: it cannot be called. Give a function or a method; "
                "for methods marked with @tool, register_methods(obj)."
            )
        self.function, self.options = function, options
        self.name = options.name if options.name is not None else _name_of(function)
        for option in (
            "permission",
            "timeout",
            "tags",
            "keywords",
            "parallel",
            "repeat_ok",
            "strict",
        ):
            setattr(self, option, getattr(options, option))
        self._namespace, self._unhinted = namespace, unhinted
        check_tool(self)

    @functools.cached_property
    def signature(self) -> Signature:
        try:
            signature = read_signature(
                self.function,
                name=self.name,
                namespace=self._namespace,
                unhinted=self._unhinted,
            )
        except NameError as error:
            raise ToolDefinitionError(
                f"A type hint of {self.name!r} names {error.name!r}, which is not defined. "
                "Define it before the tool is first used."
            ) from error
        return (
            signature
            if self.options.schema is None
            else WrittenSignature(signature, self.options.schema)
        )

    @functools.cached_property
    def description(self) -> str:  # type: ignore[override]  # a plain attribute of class tools, read late here
        return (
            self.options.description
            if self.options.description is not None
            else self.signature.description
        )

    @functools.cached_property
    def is_async(self) -> bool:
        call = getattr(self.function, "__call__", None)  # noqa: B004  # the method is wanted, not whether it is callable
        return inspect.iscoroutinefunction(
            self.function
        ) or inspect.iscoroutinefunction(call)

    def run(self, parameters: dict[str, Any]) -> Any:
        return self.call(parameters, None)

    def call(self, values: dict[str, Any], context: Any) -> Any:
        positional, named = self.signature.bind(values, context)
        return self.function(*positional, **named)

    def get_parameters(self) -> list[ToolParameter]:
        schema, listing = self.parameters, []
        required = schema.get("required", ())
        for name, entry in schema["properties"].items():
            entry = entry if isinstance(entry, Mapping) else {}
            about = (
                entry.get("type", "any"),
                entry.get("description", ""),
                name in required,
                entry.get("default"),
            )
            listing.append(ToolParameter(name, *about))
        return listing


class OutputTool(Tool):
    """The tool whose call is the answer of a run: it takes a value of a type, and gives it back."""

    description = (
        "Give the final answer. Call it once, when you have all that it needs."
    )
    permission: Permission = "read"
    timeout = None
    repeat_ok = True

    def __init__(self, output_type: Any, others: Collection[str] = ()) -> None:
        names = (f"final_answer{number or ''}" for number in itertools.count())
        self.name = next(name for name in names if name not in others)
        self._type = output_type
        check_tool(self)

    def get_parameters(self) -> list[ToolParameter]:
        return [ToolParameter("answer", self._type, "The answer.")]

    def run(self, parameters: dict[str, Any]) -> Any:
        return parameters["answer"]


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What `@tool(...)` was given. See `Tool` for the meaning of each."""

    name: str | None = None
    description: str | None = None
    schema: Mapping[str, Any] | None = None
    permission: Permission = "write"
    timeout: float | None = 60.0
    tags: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    parallel: bool = True
    repeat_ok: bool = False
    strict: bool | None = None

    def __post_init__(self) -> None:
        for name in ("tags", "keywords"):
            given = getattr(self, name)
            object.__setattr__(
                self, name, (given,) if isinstance(given, str) else tuple(given)
            )


MARK = "__tool_options__"
TOOL = "__tool__"


def as_tool(
    thing: Any, changes: Mapping[str, Any] | None = None, unhinted: Any = Any
) -> Tool:
    """Make a Tool of a Tool, a decorated function, or any callable, its options changed. Raises ToolDefinitionError."""
    if isinstance(thing, Tool):
        if changes:
            raise ToolDefinitionError(
                f"{thing!r} is a tool already. Set {', '.join(changes)} on it, or in its class."
            )
        check_tool(thing)
        return thing
    decorated = without_partials(thing)
    made, (options, namespace) = (
        getattr(decorated, TOOL, None),
        getattr(decorated, MARK, (ToolOptions(), None)),
    )
    if isinstance(
        made, FunctionTool
    ):  # also behind functools.wraps: what was sensitive stays so
        if made.function is thing and not changes:
            return made
        options, namespace = made.options, made._namespace
    if inspect.ismethod(thing):  # postponed hints may name the class, or what it holds
        kind = (
            thing.__self__ if isinstance(thing.__self__, type) else type(thing.__self__)
        )
        held = {
            name: value for name, value in vars(kind).items() if isinstance(value, type)
        }
        namespace = {**(namespace or {}), **held, kind.__name__: kind}
    return FunctionTool(thing, replace(options, **changes or {}), namespace, unhinted)


def check_tool(tool: Tool) -> None:
    """Raise ToolDefinitionError where a model could not be offered the tool."""
    if not isinstance(tool.name, str) or not tool.name.strip():
        raise ToolDefinitionError(f'{tool!r} has no name. Give it one: name="…".')
    if tool.permission not in get_args(Permission):
        raise ToolDefinitionError(
            f"permission={tool.permission!r} of {tool.name!r} is none of {', '.join(map(repr, get_args(Permission)))}."
        )
    if tool.timeout is not None and not (
        isinstance(tool.timeout, (int, float)) and tool.timeout > 0
    ):
        raise ToolDefinitionError(
            f"timeout={tool.timeout!r} of {tool.name!r} is neither a number of seconds nor None."
        )
    try:
        tool.signature.check()
    except ToolDefinitionError as error:
        if not isinstance(error.__cause__, NameError):
            raise


def tool_entry(tool: Tool, strict: bool = False) -> dict[str, Any]:
    """The tool as an entry of the Chat Completions `tools` list."""
    wanted = strict if tool.strict is None else tool.strict
    function: dict[str, Any] = {
        "name": tool.wire_name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    if wanted and tool.strict_parameters is not None:
        function |= {"parameters": tool.strict_parameters, "strict": True}
    if not function["description"]:
        del function["description"]
    return {"type": "function", "function": function}


class Toolset(dict[str, Tool]):
    """The tools of one run by name, each with a name of its own on the wire."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        tools = list(tools)
        taken = {tool.name for tool in tools if tool.wire_name == tool.name}
        for tool in tools:
            if tool.wire_name != tool.name:
                alias = wire_name(tool.name, unique=wire_name(tool.name) in taken)
                if alias != tool.wire_name:
                    own, tool = tool, copy.copy(tool)
                    tool.__dict__ |= {
                        "wire_name": alias,
                        "call": own.call,
                    }  # its state stays in one place
                taken.add(alias)
            self[tool.name] = tool

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """The name of a tool by what a model may call it: its wire name, or the name itself."""
        return {
            **{tool.wire_name: tool.name for tool in self.values()},
            **{name: name for name in self},
        }

    @functools.cached_property
    def exempt(self) -> frozenset[str]:
        """The tools that may be called over and over."""
        return frozenset(tool.name for tool in self.values() if tool.repeat_ok)


_LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def wire_name(name: str, unique: bool = False) -> str:
    """A name that every wire takes (`^[a-zA-Z0-9_-]{1,64}$`), made of `name`; `unique` adds a hash of the whole."""
    if _LEGAL.fullmatch(name) and not unique:
        return name
    clean = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    if len(clean) <= 64 and not unique:
        return clean
    return f"{clean[:55]}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _name_of(function: Any) -> str:
    function = without_partials(function)
    name = getattr(function, "__name__", None) or type(function).__name__
    if name == "<lambda>":
        raise ToolDefinitionError(
            'A lambda has no name that a model could call. Give it one: name="…".'
        )
    return str(name)


def _hint(tool: Tool, parameter: ToolParameter) -> Any:
    if not isinstance(parameter.type, str):
        return parameter.type
    if parameter.type not in JSON_TYPES:
        raise ToolDefinitionError(
            f"Parameter {parameter.name!r} of {tool.name!r} has the type {parameter.type!r}; "
            f"known names are {', '.join(JSON_TYPES)}. A Python type or hint serves as well."
        )
    return JSON_TYPES[parameter.type]
