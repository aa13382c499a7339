"""What a tool takes, as a JSON Schema and a validator. Both are built when they are first used."""

from __future__ import annotations

import contextlib
import functools
import inspect
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from toolkit.errors import ToolDefinitionError, ToolError
from toolkit.tools.hints import (
    HintSchema,
    default_entry,
    holds_decimals,
    json_schemas,
    read_hint,
)
from toolkit.tools.json_schema import MutableSchema
from toolkit.tools.json_values import is_scalar, json_form, may_overflow, needs_care

Kind = inspect._ParameterKind
MISSING: Any = inspect.Parameter.empty
Values = dict[str, Any]
"""Validated values by the names of their parameters."""

_PLAIN_HINTS = (str, int, float, bool, list, dict, Any)


class InvalidArguments(Exception):
    """Arguments do not fit a tool. `errors` are as pydantic's: `type, loc, msg, input` and sometimes `ctx` each."""

    def __init__(self, errors: list[Any]) -> None:
        lines = [f"{_path(error['loc'])}: {error['msg']}" for error in errors]
        super().__init__("; ".join(lines))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool: its hint with all that pydantic reads in it, and what stands in the schema."""

    name: str
    hint: Any = Any
    kind: Kind = Kind.KEYWORD_ONLY
    required: bool = True
    default: Any = MISSING
    description: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def wire_name(self) -> str:
        return self.aliases[0] if self.aliases else self.name


@dataclass(eq=False)
class Signature:
    """What a tool takes.

    `context` is the name of the hidden parameter, "" if there is none. `by_position` names the parameters that must be
    passed by position, the hidden one among them.
    """

    owner: str
    parameters: tuple[Parameter, ...]
    description: str = ""
    context: str = ""
    by_position: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        by_kind = {parameter.kind: parameter for parameter in self.parameters}
        self.extras = by_kind.get(Kind.VAR_KEYWORD)
        self._rest = by_kind.get(Kind.VAR_POSITIONAL)
        self.optional = frozenset(
            p.wire_name for p in self.parameters if not p.required
        )
        self._defaults = {
            p.name: p.default for p in self.parameters if p.default is not MISSING
        }

    @functools.cached_property
    def json_schema(self) -> MutableSchema:
        """The parameters as a JSON Schema whose root is an object; as small as it can be."""
        hints = {p.name: self._read_hint(p) for p in self.parameters}
        entries, definitions = json_schemas(hints)
        properties: MutableSchema = {}
        schema: MutableSchema = {"type": "object", "properties": properties}
        for parameter in self.parameters:
            entry = entries[parameter.name]
            if parameter is self.extras:
                if parameter.description:
                    entry = {**entry, "description": parameter.description}
                schema["additionalProperties"] = entry or True
                continue
            properties[parameter.wire_name] = entry
            if parameter.description:
                entry["description"] = parameter.description
            if parameter.default is not MISSING and "default" not in entry:
                entry |= default_entry(parameter.default)
        required = [p.wire_name for p in self.parameters if p.required]
        if required:
            schema["required"] = required
        if definitions:
            schema["$defs"] = definitions
        return schema

    @functools.cached_property
    def _validator(self) -> Any:
        from pydantic_core import SchemaValidator, core_schema

        fields: dict[str, Any] = {}
        definitions: dict[str, Any] = {}
        others: dict[str, Any] = {"extra_behavior": "forbid"}
        for parameter in self.parameters:
            core = self._read_hint(parameter).core
            if core["type"] == "definitions":
                definitions |= {each["ref"]: each for each in core["definitions"]}
                core = core["schema"]
            if parameter is self.extras:
                others = {"extra_behavior": "allow", "extras_schema": core}
                continue
            # A default of pydantic's own (a Field, a factory) is applied by the validator; Python fills in the rest.
            aliases: list[list[str | int]] = [[alias] for alias in parameter.aliases]
            fields[parameter.name] = core_schema.typed_dict_field(
                core, required=parameter.required, validation_alias=aliases or None
            )
        schema: Any = core_schema.typed_dict_schema(fields, **others)
        return SchemaValidator(
            core_schema.definitions_schema(schema, list(definitions.values())),
            # Else a model would be read by the validator of its class, which takes infinity.
            _use_prebuilt=False,
        )

    def read(self, text: str) -> Values | None:
        """The values in a JSON text that fits as it is; None if it has to be read with more care."""
        # One letter is found twenty times as fast as a word.
        has_nan = "N" in text and "NaN" in text
        has_infinity = "I" in text and "Infinity" in text
        if self.extras or has_nan or has_infinity or may_overflow(text):
            return None
        if "." in text and self.decimals:
            return None
        try:
            return self._validator.validate_json(text, extra="forbid")  # type: ignore[no-any-return]
        except Exception:  # a validator of the user's may raise anything
            return None

    def validate(self, arguments: Mapping[str, Any]) -> tuple[Values, tuple[str, ...]]:
        """Return the values as the function takes them, and the keys inside models that nobody declared.

        The arguments are read as JSON, so that what JSON writes as text (dates, bytes, sets, enums …) becomes what it
        stands for, also in models that are strict about Python values; and so that a tool which changes its arguments
        changes a copy. Raises InvalidArguments.
        """
        from pydantic_core import to_json

        text = to_json(arguments, inf_nan_mode="constants")
        try:
            # Undeclared keys are forbidden below the top as well.
            return self._validated(text, None if self.extras else "forbid"), ()
        except InvalidArguments as error:
            unlisted = [
                _path(each["loc"])
                for each in error.errors
                if each["type"] == "extra_forbidden" and len(each["loc"]) > 1
            ]
            if len(unlisted) < len(error.errors):
                raise
        # What a model's own configuration makes of them is the tool's affair.
        return self._validated(text, None), tuple(unlisted)

    def _validated(self, text: bytes, extra: str | None) -> Values:
        from pydantic_core import ValidationError

        try:
            return self._validator.validate_json(text, extra=extra)  # type: ignore[no-any-return]
        except ValidationError as error:
            raise InvalidArguments(error.errors(include_url=False)) from error
        except Exception as error:  # a validator of the user's may raise anything
            message = f"{type(error).__name__} while it was checked"
            if isinstance(error, ToolError):
                message = str(error)
            raise InvalidArguments(
                [{"type": "raised", "loc": (), "msg": message, "input": None}]
            ) from error

    def complete(self, values: Mapping[str, Any]) -> Values:
        """Validated values with the defaults of the parameters that were left out, in the order of the parameters.

        Validation applies the defaults that pydantic knows (`Field`, factories), Python those of a function. A class
        tool gets None for an optional parameter without a default.
        """
        rest = dict(values)
        complete: Values = {}
        for parameter in self.parameters:
            if parameter.name in rest:
                complete[parameter.name] = rest.pop(parameter.name)
            elif parameter.default is not MISSING:
                complete[parameter.name] = parameter.default
            elif parameter.kind is Kind.KEYWORD_ONLY and not parameter.required:
                complete[parameter.name] = None
        return complete | rest

    def json_arguments(self, values: Mapping[str, Any]) -> tuple[Values, list[str]]:
        """Return validated values as JSON, and the names of the parameters that this form does not tell apart.

        It is what the function gets: by the parameters' own names, defaults included; the same in every process. A
        value without a faithful form is shown by its type and a hash (`<SecretStr sha256:…>`) or its type alone
        (`<Client>`, whose parameter is named), never by its content. Never raises.
        """
        from pydantic_core import from_json, to_json

        complete = self.complete(values)
        if not self._needs_care:
            # Bytes that are not UTF-8 are refused here, and hashed below.
            with contextlib.suppress(Exception):
                text = to_json(complete, by_alias=False, inf_nan_mode="strings")
                return from_json(text), []
        forms: Values = {}
        unfaithful: list[str] = []
        for name, value in complete.items():
            nameless: list[Any] = []
            forms[name] = json_form(value, nameless, self._adapters.get(name))
            if nameless:
                unfaithful.append(name)
        return forms, unfaithful

    @functools.cached_property
    def _adapters(self) -> Mapping[str, Any]:
        return {p.name: self._read_hint(p).adapter for p in self.parameters}

    @functools.cached_property
    def _needs_care(self) -> bool:
        hints = map(self._read_hint, self.parameters)
        has_plain_defaults = all(map(is_scalar, self._defaults.values()))
        return not has_plain_defaults or any(needs_care(hint.core) for hint in hints)

    @functools.cached_property
    def decimals(self) -> frozenset[str]:
        """The parameters whose numbers are decimals, and keep their digits if they are given as text."""
        return frozenset(
            p.wire_name
            for p in self.parameters
            if p.hint not in _PLAIN_HINTS and holds_decimals(self._read_hint(p).core)
        )

    def check(self) -> None:
        """Raise ToolDefinitionError if a parameter has no JSON form. A name in a hint may still be defined later."""
        for parameter in self.parameters:
            if parameter.hint not in _PLAIN_HINTS:
                try:
                    self._read_hint(parameter)
                except ToolDefinitionError as error:
                    if not _is_undefined(error.__cause__):
                        raise

    def bind(self, values: Values, context: Any = None) -> tuple[list[Any], Values]:
        """Distribute validated values over positional and keyword arguments; add the context if the tool takes one."""
        if self.context:
            values = {**values, self.context: context}
        if not self.by_position and not self._rest:
            return [], values
        named = dict(values)
        positional = []
        for name in self.by_position:
            if name not in named and name not in self._defaults:
                break
            positional.append(named.pop(name, self._defaults.get(name)))
        if self._rest:
            positional += named.pop(self._rest.name, ())
        return positional, named

    def _read_hint(self, parameter: Parameter) -> HintSchema:
        try:
            return read_hint(parameter.hint)
        except Exception as error:
            raise ToolDefinitionError(
                _why_no_json(self.owner, parameter, error)
            ) from error


def _path(location: Iterable[Any]) -> str:
    return ".".join(map(str, location))


def _why_no_json(owner: str, parameter: Parameter, error: Exception) -> str:
    hint = parameter.hint
    is_class = isinstance(hint, type) and not typing.get_args(hint)
    name = hint.__name__ if is_class else str(hint)
    if _is_undefined(error):
        return (
            f"The type {name!r} of parameter {parameter.name!r} of {owner!r} names something that is not defined: "
            f"{str(error).splitlines()[0]} Define it before the tool is first used."
        )
    start = f"Parameter {parameter.name!r} of {owner!r}"
    message = str(error)
    if str(typing.get_origin(hint)).endswith(".Unpack"):
        name = typing.get_args(hint)[0].__name__
        return f"{start} is unpacked from {name!r}. Write its keys as keyword parameters instead."
    if "typing_extensions.TypedDict" in message:
        return (
            f"{start} has the type {name!r}, a typing.TypedDict, which pydantic cannot read before Python 3.12. "
            "Make it a typing_extensions.TypedDict."
        )
    if "regex parse error" in message:
        pattern = message.partition("regex parse error:")[2].strip().splitlines()[0]
        reason = message.splitlines()[-1].strip().removeprefix("error: ")
        return (
            f"{start} has the pattern {pattern!r}, which pydantic cannot compile: {reason}. "
            "Write it without look-around and backreferences, or check it in the function."
        )
    return (
        f"{start} has the type {name!r}, which has no JSON form, so that no model "
        "can send it. Use a type that JSON can write, or annotate it as ToolContext to hide it from the model."
    )


def _is_undefined(error: BaseException | None) -> bool:
    """Whether pydantic reports that a hint names something which is not defined (yet)."""
    is_annotation = type(error).__name__ == "PydanticUndefinedAnnotation"
    return is_annotation or "not fully defined" in str(error)
