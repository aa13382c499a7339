"""What a callable takes, read from its signature, its hints and its docstring."""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

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

    `namespace` holds further names for postponed hints (the locals of the place of decoration). `unhinted` is what a
    lone parameter without a hint is.
    Raises ToolDefinitionError, naming the parameter; NameError where a hint names what is not defined yet.
    """
    source = _innermost(function)
    try:
        declared = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError) as error:
        raise ToolDefinitionError(
            f"{name!r} tells nothing of its parameters. Wrap it in a function with type hints."
        ) from error
    if (
        inspect.isfunction(function)
        and declared
        and declared[0].name == "self"
        and declared[0].annotation is MISSING
    ):
        raise ToolDefinitionError(
            f"{name!r} is a method without its 'self'. Pass it bound to an object: tools=[obj.{name}]."
        )
    hints = _resolve_hints(source, declared, namespace, name)
    description, about = read_docstring(_docstring(function, source))
    parameters, context = [], ""
    for parameter in declared:
        hint = hints.get(parameter.name, parameter.annotation)
        if _is_context(hint, parameter, name):
            if context:
                raise ToolDefinitionError(
                    f"{name!r} has two ToolContext parameters. Keep one of them."
                )
            context = parameter.name
            continue
        parameters.append(_parameter(parameter, hint, about.get(parameter.name, "")))
    if len(parameters) == 1:
        lone = parameters[0]
        if (
            lone.hint is Any
            and lone.name not in hints
            and lone.kind is not Kind.VAR_KEYWORD
        ):
            parameters = [replace(lone, hint=unhinted)]
    return Signature(
        name, tuple(parameters), description, context, _by_position(declared)
    )


def _docstring(function: Any, source: Any) -> str:
    if isinstance(source, type):
        said = (
            source.__doc__ or ""
        )  # its own: none is inherited, and a dataclass that has none gets its signature
        return "" if said.startswith(f"{source.__name__}(") else inspect.cleandoc(said)
    if getattr(source, "__name__", "") != "__call__":
        return inspect.getdoc(source) or ""
    return inspect.cleandoc(
        source.__doc__ or type(without_partials(function)).__doc__ or ""
    )


def without_partials(function: Any) -> Any:
    """What lies behind all that functools.partial put before it."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _innermost(function: Callable[..., Any]) -> Any:
    """The function that holds the hints and the docstring: behind wrappers, partials, methods and callable objects."""
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
        elif isinstance(
            call := inspect.getattr_static(type(function), "__call__", None),
            types.FunctionType,
        ):
            function = call
        else:
            return function


def _resolve_hints(
    source: Any,
    declared: list[inspect.Parameter],
    namespace: Mapping[str, Any] | None,
    name: str,
) -> dict[str, Any]:
    if isinstance(source, type):
        source = vars(source).get("__init__", source)
    names = {parameter.name for parameter in declared}
    annotations = {
        n: a for n, a in getattr(source, "__annotations__", {}).items() if n in names
    }
    known = getattr(source, "__globals__", {})
    local = {**known, **namespace} if namespace else known
    type_parameters = getattr(source, "__type_params__", ())
    hints: dict[str, Any] = {}
    for (
        parameter,
        hint,
    ) in annotations.items():  # one by one, so that an error tells which
        holder = types.SimpleNamespace(
            __annotations__={parameter: hint}, __type_params__=type_parameters
        )
        try:
            hints |= typing.get_type_hints(holder, known, local, include_extras=True)
        except NameError:
            raise
        except Exception as error:
            raise ToolDefinitionError(
                f"The type hint {hint!r} of parameter {parameter!r} of {name!r} is no type: {error}. Mend the hint."
            ) from error
    return hints


def _is_context(hint: Any, parameter: inspect.Parameter, name: str) -> bool:
    bare = hint.__origin__ if typing.get_origin(hint) is typing.Annotated else hint
    is_union = typing.get_origin(bare) in (typing.Union, types.UnionType)
    members = (
        [member for member in typing.get_args(bare) if member is not type(None)]
        if is_union
        else [bare]
    )
    if members == [ToolContext] and parameter.kind not in (
        Kind.VAR_POSITIONAL,
        Kind.VAR_KEYWORD,
    ):
        return True
    if _mentions_context(hint):
        raise ToolDefinitionError(
            f"Parameter {parameter.name!r} of {name!r} mixes ToolContext with something else; "
            "a model can send no context. Annotate one plain parameter as ToolContext."
        )
    return False


def _mentions_context(hint: Any) -> bool:
    return hint is ToolContext or any(map(_mentions_context, typing.get_args(hint)))


def _by_position(declared: list[inspect.Parameter]) -> tuple[str, ...]:
    """The parameters that cannot go by keyword: those before a slash, and all before a star."""
    has_rest = any(parameter.kind is Kind.VAR_POSITIONAL for parameter in declared)
    kinds = (
        (Kind.POSITIONAL_ONLY, Kind.POSITIONAL_OR_KEYWORD)
        if has_rest
        else (Kind.POSITIONAL_ONLY,)
    )
    return tuple(parameter.name for parameter in declared if parameter.kind in kinds)


def _parameter(declared: inspect.Parameter, hint: Any, described: str) -> Parameter:
    if hint is MISSING:
        hint = Any
    required, default = declared.default is MISSING, declared.default
    description, aliases = "", list[str]()
    if typing.get_origin(hint) is typing.Annotated or not required:
        from pydantic.fields import FieldInfo

        if isinstance(default, FieldInfo):
            hint, default, required = (
                typing.Annotated[hint, default],
                MISSING,
                default.is_required(),
            )
        for extra in getattr(hint, "__metadata__", ()):
            if isinstance(extra, str):
                description = extra
            elif isinstance(extra, FieldInfo):
                description = extra.description or description
                required = required and extra.is_required()
                aliases = _aliases(extra) or aliases
        hint = _bare(hint)
    hint = list[hint] if declared.kind is Kind.VAR_POSITIONAL else hint
    required = required and declared.kind not in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD)
    return Parameter(
        declared.name,
        hint,
        declared.kind,
        required,
        default,
        description or described,
        tuple(aliases),
    )


def _bare(hint: Any) -> Any:
    """The hint without what is said of the parameter, not of its type: description, alias, plain text."""
    if typing.get_origin(hint) is not typing.Annotated:
        return hint
    from pydantic import Field
    from pydantic.fields import FieldInfo

    metadata: list[Any] = []
    for extra in hint.__metadata__:
        if isinstance(extra, FieldInfo):
            whole = extra.asdict()
            about_type = {
                k: v for k, v in whole["attributes"].items() if k in _ABOUT_TYPE
            }
            metadata += [
                *whole["metadata"],
                *([Field(**about_type)] if about_type else []),
            ]
        elif not isinstance(extra, str):
            metadata.append(extra)
    return (
        operator.getitem(typing.Annotated, (hint.__origin__, *metadata))
        if metadata
        else hint.__origin__
    )


_ABOUT_TYPE = {
    "default",
    "default_factory",
    "title",
    "examples",
    "json_schema_extra",
    "discriminator",
}


def _aliases(field: Any) -> list[str]:
    alias = field.validation_alias or field.alias
    if alias is None or isinstance(alias, str):
        return [alias] if alias else []
    paths = alias.convert_to_aliases()
    return [
        path[0]
        for path in (paths if isinstance(paths[0], list) else [paths])
        if len(path) == 1
    ]
