"""What a callable takes, read from its signature, its hints and its docstring."""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from toolkit.errors import ToolDefinitionError
from toolkit.messages import ToolContext
from toolkit.tools.docstrings import read_docstring
from toolkit.tools.schema import MISSING, Kind, Parameter, Signature


def read_signature(
    function: Callable[..., Any],
    *,
    name: str,
    namespace: Mapping[str, Any] | None = None,
    unhinted: Any = Any,
) -> Signature:
    """Read the signature, hints and docstring of any callable.

    `namespace` holds further names for postponed hints (the locals of the place of decoration). `unhinted` is the hint
    of a single parameter without one.
    Raises ToolDefinitionError, naming the parameter; NameError if a hint names something that is not defined yet.
    """
    source = _innermost(function)
    declared = _declared_parameters(function, name)
    hints = _resolved_hints(source, declared, namespace, name)
    description, descriptions = read_docstring(_docstring(function, source))
    parameters, contexts = [], []
    for parameter in declared:
        hint = hints.get(parameter.name, parameter.annotation)
        if _is_context(hint, parameter, name):
            contexts.append(parameter.name)
        else:
            about = descriptions.get(parameter.name, "")
            parameters.append(_parameter(parameter, hint, about))
    if len(contexts) > 1:
        raise ToolDefinitionError(
            f"{name!r} has two ToolContext parameters. Keep one of them."
        )
    if len(parameters) == 1:
        [single] = parameters
        is_unhinted = single.hint is Any and single.name not in hints
        if is_unhinted and single.kind is not Kind.VAR_KEYWORD:
            parameters = [replace(single, hint=unhinted)]
    context = contexts[0] if contexts else ""
    return Signature(
        name, tuple(parameters), description, context, _by_position(declared)
    )


def without_partials(function: Any) -> Any:
    """The function in a functools.partial, or in several."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _innermost(function: Callable[..., Any]) -> Any:
    """The function with the hints and the docstring: inside wrappers, partials, methods and callable objects."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif isinstance(
            function, (types.FunctionType, types.BuiltinFunctionType, type)
        ):
            return function
        else:
            call = inspect.getattr_static(type(function), "__call__", None)
            if not isinstance(call, types.FunctionType):
                return function
            function = call


def _declared_parameters(
    function: Callable[..., Any], name: str
) -> list[inspect.Parameter]:
    try:
        declared = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError) as error:
        raise ToolDefinitionError(
            f"{name!r} has no readable signature. Wrap it in a function with type hints."
        ) from error
    if declared and inspect.isfunction(function):
        first = declared[0]
        if first.name == "self" and first.annotation is MISSING:
            raise ToolDefinitionError(
                f"{name!r} is a method without its 'self'. Pass it bound to an object: tools=[obj.{name}]."
            )
    return declared


def _resolved_hints(
    source: Any,
    declared: list[inspect.Parameter],
    namespace: Mapping[str, Any] | None,
    name: str,
) -> dict[str, Any]:
    if isinstance(source, type):
        source = vars(source).get("__init__", source)
    annotations = getattr(source, "__annotations__", {})
    known = getattr(source, "__globals__", {})
    local = {**known, **namespace} if namespace else known
    hints: dict[str, Any] = {}
    # One by one, so that an error tells which.
    for parameter in [each.name for each in declared if each.name in annotations]:
        hint = annotations[parameter]
        holder = types.SimpleNamespace(
            __annotations__={parameter: hint},
            __type_params__=getattr(source, "__type_params__", ()),
        )
        try:
            hints |= typing.get_type_hints(holder, known, local, include_extras=True)
        except NameError:
            raise
        except Exception as error:
            raise ToolDefinitionError(
                f"The type hint {hint!r} of parameter {parameter!r} of {name!r} is not a type: {error}. Correct it."
            ) from error
    return hints


def _docstring(function: Any, source: Any) -> str:
    if isinstance(source, type):
        # Its own, not an inherited one. Python writes the signature of a dataclass that has none.
        own = source.__doc__ or ""
        is_written = not own.startswith(f"{source.__name__}(")
        return inspect.cleandoc(own) if is_written else ""
    if getattr(source, "__name__", "") != "__call__":
        return inspect.getdoc(source) or ""
    of_class = type(without_partials(function)).__doc__
    return inspect.cleandoc(source.__doc__ or of_class or "")


def _is_context(hint: Any, parameter: inspect.Parameter, name: str) -> bool:
    """Whether a parameter is the hidden one: `ToolContext`, also optional or annotated."""
    bare = hint.__origin__ if typing.get_origin(hint) is Annotated else hint
    members = [bare]
    if typing.get_origin(bare) in (typing.Union, types.UnionType):
        members = [each for each in typing.get_args(bare) if each is not type(None)]
    is_plain = parameter.kind not in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD)
    if members == [ToolContext] and is_plain:
        return True
    if _mentions_context(hint):
        raise ToolDefinitionError(
            f"Parameter {parameter.name!r} of {name!r} mixes ToolContext with something else; "
            "a model cannot send a context. Annotate one plain parameter as ToolContext."
        )
    return False


def _mentions_context(hint: Any) -> bool:
    return hint is ToolContext or any(map(_mentions_context, typing.get_args(hint)))


def _by_position(declared: list[inspect.Parameter]) -> tuple[str, ...]:
    """The parameters that cannot be passed by keyword: those before a slash, and all before a star."""
    kinds = [Kind.POSITIONAL_ONLY]
    if any(parameter.kind is Kind.VAR_POSITIONAL for parameter in declared):
        kinds.append(Kind.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in declared if parameter.kind in kinds)


def _parameter(declared: inspect.Parameter, hint: Any, description: str) -> Parameter:
    hint = Any if hint is MISSING else hint
    default = declared.default
    is_variadic = declared.kind in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD)
    required = default is MISSING and not is_variadic
    aliases: list[str] = []
    # Most parameters have neither, and then pydantic need not be imported.
    if typing.get_origin(hint) is Annotated or default is not MISSING:
        from pydantic.fields import FieldInfo

        if isinstance(default, FieldInfo):
            hint, default, required = Annotated[hint, default], MISSING, True
        for extra in getattr(hint, "__metadata__", ()):
            if isinstance(extra, str):
                description = extra
            elif isinstance(extra, FieldInfo):
                description = extra.description or description
                required = required and extra.is_required()
                aliases = _aliases(extra) or aliases
        hint = _hint_of_type(hint)
    if declared.kind is Kind.VAR_POSITIONAL:
        hint = list[hint]
    name, kind = declared.name, declared.kind
    return Parameter(name, hint, kind, required, default, description, tuple(aliases))


def _hint_of_type(hint: Any) -> Any:
    """The hint without what describes the parameter, not its type: description, alias, plain text."""
    if typing.get_origin(hint) is not Annotated:
        return hint
    from pydantic import Field
    from pydantic.fields import FieldInfo

    metadata: list[Any] = []
    for extra in hint.__metadata__:
        if isinstance(extra, FieldInfo):
            field = extra.asdict()
            attributes = field["attributes"]
            of_type = {key: attributes[key] for key in attributes if key in _OF_TYPE}
            metadata += field["metadata"]
            if of_type:
                metadata.append(Field(**of_type))
        elif not isinstance(extra, str):
            metadata.append(extra)
    if not metadata:
        return hint.__origin__
    return operator.getitem(Annotated, (hint.__origin__, *metadata))


_OF_TYPE = {
    *("default", "default_factory", "title"),
    *("examples", "json_schema_extra", "discriminator"),
}


def _aliases(field: Any) -> list[str]:
    alias = field.validation_alias or field.alias
    if alias is None or isinstance(alias, str):
        return [alias] if alias else []
    paths = alias.convert_to_aliases()
    # An AliasPath is one path, AliasChoices are several. Only a path of one step names a parameter.
    paths = paths if isinstance(paths[0], list) else [paths]
    return [path[0] for path in paths if len(path) == 1]
