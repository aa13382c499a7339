"""`Tool`, and how a function, a method or an object of a class becomes one."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import itertools
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypedDict, get_args

from toolkit.errors import ToolDefinitionError
from toolkit.messages import Permission, copied
from toolkit.tools.foreign import WrittenSignature
from toolkit.tools.parameter import ToolParameter
from toolkit.tools.schema import MISSING, Kind, Parameter, Signature, Values
from toolkit.tools.signatures import read_signature, without_partials
from toolkit.tools.strict import strict_form

_log = logging.getLogger("toolkit")


class Tool:
    """Something that a model can call. Subclass it for tools with state: implement `run` and `get_parameters`.

    Name, description and options are class attributes, or go to `super().__init__(name=…, description=…)`.
    `permission` is its tier: "read" runs, "write" runs and is audited, "sensitive" waits for a verdict. `timeout` is in
    seconds; None means no limit, and only then does a plain function run on the caller's own thread. `tags` and
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

    def __init__(
        self,
        name: str | None = None,
        description: str | None = None,
        **options: Any,
    ) -> None:
        """Set the name, the description and the options of `@tool` that the class does not set."""
        options = {"name": name, "description": description, **options}
        for option, value in checked_options(options).items():
            if value is not None:
                setattr(self, option, value)

    def run(self, parameters: dict[str, Any]) -> Any:
        """Do the work. `parameters` are validated and complete with their defaults."""
        raise NotImplementedError(f"{self!r} does not implement run(parameters).")

    def get_parameters(self) -> list[ToolParameter]:
        """The readable listing of the parameters, from which the schema of a class tool is made."""
        raise NotImplementedError(f"{self!r} does not implement get_parameters().")

    def call(self, values: Values, context: Any) -> Any:
        """Call the tool with validated values."""
        complete = self.signature.complete(values)
        left_out = complete.keys() - values.keys()
        return self.run(complete | {name: copied(complete[name]) for name in left_out})

    def replace(self, **changes: Any) -> Tool:
        """A copy with other attributes. Its calls still run on this tool, so that state stays in one place."""
        other = copy.copy(self)
        vars(other).update({"call": self.call, **changes})
        return other

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.run)

    @functools.cached_property
    def signature(self) -> Signature:
        parameters: dict[str, Parameter] = {}
        for listed in self.get_parameters():
            if listed.name in parameters:
                raise ToolDefinitionError(
                    f"{self.name!r} has two parameters {listed.name!r}. Rename one of them."
                )
            has_default = not listed.required and listed.default is not None
            parameters[listed.name] = Parameter(
                listed.name,
                listed.hint,
                Kind.KEYWORD_ONLY,
                listed.required,
                listed.default if has_default else MISSING,
                listed.description,
            )
        return Signature(self.name, tuple(parameters.values()))

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, an object."""
        return self.signature.json_schema

    @functools.cached_property
    def wire_name(self) -> str:
        """The name that goes over the wire: the tool's own if every wire takes it, else a stable alias."""
        return wire_name(self.name)

    @functools.cached_property
    def strict_parameters(self) -> dict[str, Any] | None:
        """The schema in strict form, or None if it has none; the log then says why."""
        is_written = isinstance(self.signature, WrittenSignature)
        try:
            return strict_form(self.parameters, unlisted_is_optional=not is_written)
        except ToolDefinitionError as error:
            _log.info("tool %r is sent without strict mode: %s", self.name, error)
            return None

    def __getstate__(self) -> dict[str, Any]:
        """What goes to another process. A function goes by module and name; what is derived is derived there again."""
        state = {}
        for name, value in vars(self).items():
            attribute = inspect.getattr_static(type(self), name, None)
            if not isinstance(attribute, functools.cached_property):
                state[name] = value
        return state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} ({self.permission})>"


class ToolOptions(TypedDict, total=False):
    """The options of `@tool(...)`: attributes of `Tool`, and `schema`, a JSON Schema written by hand."""

    name: str | None
    description: str | None
    schema: Mapping[str, Any] | None
    permission: Permission
    timeout: float | None
    tags: Collection[str]
    keywords: Collection[str]
    parallel: bool
    repeat_ok: bool
    strict: bool | None


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with tuples for their collections. Raises TypeError for an unknown one."""
    known = ToolOptions.__annotations__
    unknown = sorted(options.keys() - known.keys())
    if unknown:
        raise TypeError(
            f"@tool has no option {unknown}. It has {', '.join(known)} and registry."
        )
    checked = dict(options)
    for name in options.keys() & {"tags", "keywords"}:
        words = options[name]
        checked[name] = (words,) if isinstance(words, str) else tuple(words)
    return checked


class FunctionTool(Tool):
    """A callable of any kind as a tool."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: Mapping[str, Any],
        namespace: Mapping[str, Any] | None = None,
        unhinted: Any = Any,
    ) -> None:
        kind = function if isinstance(function, type) else type(function)
        if issubclass(kind, Tool):
            raise ToolDefinitionError(
                f"{kind.__name__} is a class of tools. Register an object of it: {kind.__name__}()."
            )
        if not callable(function):
            raise ToolDefinitionError(
                f"{function!r} is not a tool: it cannot be called. Pass a function or a method; "
                "for methods marked with @tool, register_methods(obj)."
            )
        self.function = function
        self.options = checked_options(options)
        attributes = self.options.keys() - {"name", "description", "schema"}
        vars(self).update({name: self.options[name] for name in attributes})
        name = self.options.get("name")
        self.name = _name_of(function) if name is None else name
        self.namespace, self._unhinted = namespace, unhinted
        _check_tool(self)

    @functools.cached_property
    def signature(self) -> Signature:
        try:
            signature = read_signature(
                self.function,
                name=self.name,
                namespace=self.namespace,
                unhinted=self._unhinted,
            )
        except NameError as error:
            raise ToolDefinitionError(
                f"A type hint of {self.name!r} names {error.name!r}, which is not defined. "
                "Define it before the tool is first used."
            ) from error
        schema = self.options.get("schema")
        return signature if schema is None else WrittenSignature(signature, schema)

    @functools.cached_property
    def description(self) -> str:  # type: ignore[override]  # a plain attribute of class tools, read late here
        description: str | None = self.options.get("description")
        return self.signature.description if description is None else description

    @functools.cached_property
    def is_async(self) -> bool:
        call = getattr(self.function, "__call__", None)  # noqa: B004  # the method is wanted, not whether it is callable
        return any(map(inspect.iscoroutinefunction, (self.function, call)))

    def run(self, parameters: dict[str, Any]) -> Any:
        return self.call(parameters, None)

    def call(self, values: Values, context: Any) -> Any:
        positional, named = self.signature.bind(values, context)
        return self.function(*positional, **named)

    def get_parameters(self) -> list[ToolParameter]:
        required = self.parameters.get("required", ())
        listing = []
        for name, schema in self.parameters["properties"].items():
            # A schema written by hand may be True: any value.
            entry = schema if isinstance(schema, Mapping) else {}
            kind, default = entry.get("type", "any"), entry.get("default")
            about = entry.get("description", "")
            is_required = name in required
            listing.append(ToolParameter(name, kind, about, is_required, default))
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
        _check_tool(self)

    def get_parameters(self) -> list[ToolParameter]:
        return [ToolParameter("answer", self._type, "The answer.")]

    def run(self, parameters: dict[str, Any]) -> Any:
        return parameters["answer"]


MARK = "__tool_options__"
"""The attribute of a method that `@tool` marked in a class body: its options, and the names around it."""
TOOL = "__tool__"
"""The attribute of a decorated function: its Tool."""


def as_tool(
    thing: Any,
    changes: Mapping[str, Any] | None = None,
    unhinted: Any = Any,
    defaults: Mapping[str, Any] | None = None,
) -> Tool:
    """The Tool of a Tool, a decorated function, or any callable, its options changed. Raises ToolDefinitionError.

    `defaults` are options that count if neither the decorator nor `changes` has them.
    """
    if isinstance(thing, Tool):
        if changes:
            raise ToolDefinitionError(
                f"{thing!r} is already a tool. Set {', '.join(changes)} on it, or in its class."
            )
        _check_tool(thing)
        return thing
    function = without_partials(thing)
    options, namespace = getattr(function, MARK, (dict[str, Any](), None))
    decorated = getattr(function, TOOL, None)
    # Also behind functools.wraps: what was sensitive stays so.
    if isinstance(decorated, FunctionTool):
        has_all = not (defaults or {}).keys() - decorated.options.keys()
        if decorated.function is thing and not changes and has_all:
            return decorated
        options, namespace = decorated.options, decorated.namespace
    if inspect.ismethod(thing):
        # Postponed hints may name the class, or a class in it.
        owner = thing.__self__
        kind = owner if isinstance(owner, type) else type(owner)
        inner = {name: v for name, v in vars(kind).items() if isinstance(v, type)}
        namespace = {**(namespace or {}), **inner, kind.__name__: kind}
    options = {**(defaults or {}), **options, **(changes or {})}
    return FunctionTool(thing, options, namespace, unhinted)


def _check_tool(tool: Tool) -> None:
    """Raise ToolDefinitionError if the tool cannot be offered to a model."""
    if not isinstance(tool.name, str) or not tool.name.strip():
        raise ToolDefinitionError(f'{tool!r} has no name. Give it one: name="…".')
    if tool.permission not in get_args(Permission):
        tiers = ", ".join(map(repr, get_args(Permission)))
        raise ToolDefinitionError(
            f"permission={tool.permission!r} of {tool.name!r} is not one of {tiers}."
        )
    kind = type(tool)
    for method in ("run", "get_parameters"):
        if getattr(kind, method) is getattr(Tool, method):
            raise ToolDefinitionError(
                f"{kind.__name__} does not implement {method}(). Every class of tools needs it."
            )
    is_number = isinstance(tool.timeout, (int, float))
    # Compared this way round, NaN is refused too.
    if tool.timeout is not None and not (is_number and tool.timeout > 0):
        raise ToolDefinitionError(
            f"timeout={tool.timeout!r} of {tool.name!r} is neither a number of seconds nor None."
        )
    try:
        tool.signature.check()
    except ToolDefinitionError as error:
        # What a hint names may be defined later.
        if not isinstance(error.__cause__, NameError):
            raise


def tool_entry(tool: Tool, strict: bool = False) -> dict[str, Any]:
    """The tool as an entry of the Chat Completions `tools` list."""
    function: dict[str, Any] = {
        "name": tool.wire_name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    is_strict = strict if tool.strict is None else tool.strict
    if is_strict and tool.strict_parameters is not None:
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
                taken.add(alias)
                if alias != tool.wire_name:
                    tool = tool.replace(wire_name=alias)
            self[tool.name] = tool

    @functools.cached_property
    def names(self) -> dict[str, str]:
        """The name of a tool by what a model may call it: its wire name, or the name itself."""
        by_wire_name = {tool.wire_name: tool.name for tool in self.values()}
        return by_wire_name | {name: name for name in self}

    @functools.cached_property
    def exempt(self) -> frozenset[str]:
        """The tools that may be called again and again."""
        return frozenset(tool.name for tool in self.values() if tool.repeat_ok)


def wire_name(name: str, unique: bool = False) -> str:
    """A name that every wire takes (`^[a-zA-Z0-9_-]{1,64}$`), made of `name`; `unique` adds a hash of the whole."""
    clean = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    if len(clean) <= 64 and not unique:
        return clean
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
    return f"{clean[:55]}_{digest[:8]}"


def _name_of(function: Any) -> str:
    function = without_partials(function)
    name = getattr(function, "__name__", None) or type(function).__name__
    if name == "<lambda>":
        raise ToolDefinitionError(
            'A lambda has no name that a model could call. Give it one: name="…".'
        )
    return str(name)
