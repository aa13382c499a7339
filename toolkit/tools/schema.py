"""A signature and a docstring become a JSON Schema and a validator.

The types are read by pydantic, one hint at a time and each hint once in the process: functions
share few hints, and putting known pieces together costs a tenth of building a model per function.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from toolkit.errors import ToolDefinitionError, ToolError
from toolkit.messages import copied
from toolkit.tools.json_values import (
    is_scalar,
    json_form,
    may_be_dumped,
    needs_care,
)

Kind = inspect._ParameterKind
MISSING: Any = inspect.Parameter.empty


class InvalidArguments(Exception):
    """Arguments do not fit a tool. `errors` has `type, loc, msg, input` and at times `ctx` each, as pydantic's."""

    def __init__(self, errors: list[Any]) -> None:
        super().__init__(
            "; ".join(
                f"{'.'.join(map(str, error['loc']))}: {error['msg']}"
                for error in errors
            )
        )
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
    """What a tool takes. The JSON Schema and the validator are made when they are first asked for."""

    owner: str
    parameters: tuple[Parameter, ...]
    description: str = ""
    context: str = ""  # the name of the hidden parameter
    by_position: tuple[
        str, ...
    ] = ()  # names that must be passed by position, the context's among them

    def __post_init__(self) -> None:
        self.optional = frozenset(
            p.wire_name for p in self.parameters if not p.required
        )
        self.extras = next(
            (p for p in self.parameters if p.kind is Kind.VAR_KEYWORD), None
        )
        self._rest = next(
            (p for p in self.parameters if p.kind is Kind.VAR_POSITIONAL), None
        )
        self._defaults = {
            p.name: p.default for p in self.parameters if p.default is not MISSING
        }

    @functools.cached_property
    def json_schema(self) -> dict[str, Any]:
        """The parameters as a JSON Schema whose root is an object; as small as it can be."""
        fields = {p.name: self._adapt(p) for p in self.parameters}
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        definitions: dict[str, Any] = {}
        if _conflict([field.json for field in fields.values()]):
            definitions = _renamed(fields)
        for parameter in self.parameters:
            entry = copied(fields[parameter.name].json)
            definitions |= entry.pop("$defs", {})
            if parameter is self.extras:
                schema["additionalProperties"] = entry or True
                continue
            schema["properties"][parameter.wire_name] = entry
            if parameter.description:
                entry["description"] = parameter.description
            if parameter.default is not MISSING and "default" not in entry:
                entry |= _jsonable_default(parameter.default)
        if required := [p.wire_name for p in self.parameters if p.required]:
            schema["required"] = required
        return {**schema, "$defs": definitions} if definitions else schema

    @functools.cached_property
    def _validator(self) -> Any:
        """The compiled validator."""
        from pydantic_core import SchemaValidator, core_schema

        fields: dict[str, Any] = {}
        definitions: dict[str, Any] = {}
        others: dict[str, Any] = {"extra_behavior": "forbid"}
        for parameter in self.parameters:
            core = self._adapt(parameter).core
            if core["type"] == "definitions":
                definitions |= {
                    definition["ref"]: definition for definition in core["definitions"]
                }
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
            core_schema.definitions_schema(schema, list(definitions.values()))
        )

    def read(self, text: str) -> dict[str, Any] | None:
        """The values in a JSON text that fits as it is; None where it needs reading with more care."""
        # One letter is found twenty times as fast as a word.
        if (
            self.extras
            or ("N" in text and "NaN" in text)
            or ("I" in text and "Infinity" in text)
        ):
            return None
        try:
            return self._validator.validate_json(text, extra="forbid")  # type: ignore[no-any-return]
        except Exception:  # a validator of the user's may raise anything
            return None

    def validate(
        self, arguments: Mapping[str, Any]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the values as the function wants them, and the keys inside models that nobody declared.

        The arguments are read as JSON, so that what JSON writes as text (dates, bytes, sets, enums …)
        becomes what it stands for, also in models that are strict about Python values; and so that
        a tool which changes its arguments changes a copy. Raises InvalidArguments.
        """
        from pydantic_core import ValidationError, to_json

        text = to_json(arguments, inf_nan_mode="constants")
        try:  # keys that nobody declared are forbidden below the top as well
            return self._validator.validate_json(
                text, extra=None if self.extras else "forbid"
            ), ()
        except ValidationError as error:
            errors = error.errors(include_url=False)
        except (
            Exception
        ) as error:  # a validator of the user's that raised something else
            said = (
                str(error)
                if isinstance(error, ToolError)
                else f"{type(error).__name__} while it was checked"
            )
            raise InvalidArguments(
                [{"type": "raised", "loc": (), "msg": said, "input": None}]
            ) from error
        unlisted = [
            e["loc"]
            for e in errors
            if e["type"] == "extra_forbidden" and len(e["loc"]) > 1
        ]
        if len(unlisted) == len(
            errors
        ):  # what a model's own configuration makes of them is the tool's affair
            try:
                return self._validator.validate_json(text), tuple(
                    ".".join(map(str, loc)) for loc in unlisted
                )
            except ValidationError as error:
                errors = error.errors(include_url=False)
        raise InvalidArguments(errors)

    def complete(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Validated values with the defaults of the parameters that were left out, in the order of the parameters.

        Validation applies the defaults that pydantic knows (`Field`, factories), Python those of a function. A class
        tool gets None for an optional parameter without a default.
        """
        rest = dict(values)
        complete: dict[str, Any] = {}
        for parameter in self.parameters:
            if parameter.name in rest:
                complete[parameter.name] = rest.pop(parameter.name)
            elif parameter.default is not MISSING:
                complete[parameter.name] = parameter.default
            elif parameter.kind is Kind.KEYWORD_ONLY and not parameter.required:
                complete[parameter.name] = None
        return complete | rest

    def json_arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Validated values as JSON by the parameters' own names, defaults included: what the function gets.

        The same in every process. A value without a faithful form is shown by its type and a hash
        (`<SecretStr sha256:…>`) or its type alone (`<Client>`), never by its content. Never raises.
        """
        return self.json_form(values)[0]

    def unfaithful(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """The parameters whose form in `json_arguments` does not tell one value from another, by name."""
        return self.json_form(values)[1]

    def json_form(
        self, values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Both of the above at once."""
        from pydantic_core import from_json, to_json

        complete = self.complete(values)
        if not self._needs_care:
            # Bytes that are no UTF-8 are refused here, and hashed below.
            with contextlib.suppress(Exception):
                text = to_json(complete, by_alias=False, inf_nan_mode="strings")
                return from_json(text), ()
        parameters = {parameter.name: parameter for parameter in self.parameters}
        unfaithful: list[str] = []
        forms: dict[str, Any] = {}
        for name, value in complete.items():
            nameless: list[Any] = []
            forms[name] = json_form(value, nameless)
            is_nameless = any(each is value for each in nameless)
            if is_nameless and name in parameters and may_be_dumped(value):
                # The hint may say how the value is dumped, if the value does not.
                with contextlib.suppress(Exception):
                    forms[name] = self._adapt(parameters[name]).adapter.dump_python(
                        value, mode="json", by_alias=False, warnings=False
                    )
                    continue
            if nameless:
                unfaithful.append(name)
        return forms, tuple(unfaithful)

    @functools.cached_property
    def _needs_care(self) -> bool:
        defaults = [p.default for p in self.parameters if p.default is not MISSING]
        return not all(map(is_scalar, defaults)) or any(
            needs_care(self._adapt(p).core) for p in self.parameters
        )

    def check(self) -> None:
        """Raise ToolDefinitionError where a parameter has no JSON form; what is not defined yet may come later."""
        for parameter in self.parameters:
            if parameter.hint not in _PLAIN:
                try:
                    self._adapt(parameter)
                except ToolDefinitionError as error:
                    if not _is_undefined(error.__cause__):
                        raise

    def bind(
        self, values: dict[str, Any], context: Any = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Distribute validated values over positional and keyword arguments, with the context where one is wanted."""
        if self.context:
            values = {**values, self.context: context}
        if not self.by_position and not self._rest:
            return [], values
        values = dict(values)
        positional = []
        for name in self.by_position:
            if name not in values and name not in self._defaults:
                break
            positional.append(values.pop(name, self._defaults.get(name)))
        if self._rest:
            positional += values.pop(self._rest.name, ())
        return positional, values

    def _adapt(self, parameter: Parameter) -> _Adapted:
        hint, text = parameter.hint, str(parameter.hint)
        try:
            # Unions of other order are equal, and yet not the same: their text belongs to the key.
            with contextlib.suppress(
                TypeError
            ):  # of a hint that has no hash, or is no type
                return _adapt(hint, text)
            return _adapt.__wrapped__(hint, text)
        except Exception as error:
            raise ToolDefinitionError(
                _why_no_json(self.owner, parameter, error)
            ) from error


_PLAIN = (str, int, float, bool, list, dict, Any)


@dataclass(frozen=True, slots=True)
class _Adapted:
    adapter: Any
    core: Any
    json: dict[str, Any]


@functools.lru_cache(maxsize=2048)
def _adapt(hint: Any, text: str) -> _Adapted:
    """What pydantic makes of one hint. Shared by all parameters with that hint: read it, never change it."""
    from pydantic import TypeAdapter

    adapter: Any = TypeAdapter(hint)
    if not adapter.pydantic_complete:
        adapter.rebuild(raise_errors=True)
    core = (
        _eager(adapter.core_schema)
        if "Iterable" in text or "Generator" in text
        else adapter.core_schema
    )
    if adapter.core_schema["type"] == "is-subclass":
        raise TypeError(
            "JSON has no classes"
        )  # pydantic writes such a schema, which says nothing
    json_schema = adapter.json_schema(schema_generator=_generator())
    for schema in (json_schema, *json_schema.get("$defs", {}).values()):
        if schema is not json_schema or schema.get("title") == getattr(
            hint, "__name__", ""
        ):
            schema.pop("title", None)  # a class name, which tells a model nothing
    return _Adapted(adapter, core, json_schema)


def _eager(core: Any) -> Any:
    """The schema with lists for what pydantic would check item by item, while the function runs."""
    if isinstance(core, list):
        return [_eager(part) for part in core]
    if not isinstance(core, dict):
        return core
    whole = {key: _eager(part) for key, part in core.items()}
    return {**whole, "type": "list"} if whole.get("type") == "generator" else whole


@functools.cache
def _generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class Untitled(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

        def default_schema(self, schema: Any) -> Any:
            if "default" in schema and not _jsonable_default(schema["default"]):
                return self.generate_inner(schema["schema"])
            return super().default_schema(schema)

    return Untitled


def _jsonable_default(default: Any) -> dict[str, Any]:
    """{"default": …} as JSON writes it, or {} where JSON has no way to write it."""
    if default is None or type(default) in (str, int, bool):
        return {"default": default}
    from pydantic_core import to_jsonable_python

    with contextlib.suppress(Exception):  # a default is any object
        plain = to_jsonable_python(default, by_alias=True)
        json.dumps(plain, allow_nan=False)
        return {} if hasattr(default, "get_secret_value") else {"default": plain}
    return {}


def _conflict(schemas: list[dict[str, Any]]) -> bool:
    seen: dict[str, Any] = {}
    return any(
        seen.setdefault(name, d) != d
        for schema in schemas
        if "$defs" in schema
        for name, d in schema["$defs"].items()
    )


def _renamed(fields: dict[str, _Adapted]) -> dict[str, Any]:
    """Two classes of one name: let pydantic find names for both. Changes `fields`; returns the definitions."""
    from pydantic import TypeAdapter

    inputs: list[Any] = [
        (name, "validation", field.adapter) for name, field in fields.items()
    ]
    schemas, shared = TypeAdapter.json_schemas(inputs, schema_generator=_generator())
    for (name, _), schema in schemas.items():
        fields[name] = _Adapted(fields[name].adapter, fields[name].core, dict(schema))
    definitions = shared.get("$defs", {})
    for definition in definitions.values():
        definition.pop("title", None)
    return dict(definitions)


def _why_no_json(owner: str, parameter: Parameter, error: Exception) -> str:
    hint = parameter.hint
    shown = (
        hint.__name__
        if isinstance(hint, type) and not typing.get_args(hint)
        else str(hint)
    )
    if _is_undefined(error):
        return (
            f"The type {shown!r} of parameter {parameter.name!r} of {owner!r} names something that is not defined: "
            f"{str(error).splitlines()[0]} Define it before the tool is first used."
        )
    return (
        f"Parameter {parameter.name!r} of {owner!r} has the type {shown!r}, which has no JSON form, so that no model "
        "can send it. Use a type that JSON can write, or annotate it as ToolContext to hide it from the model."
    )


def _is_undefined(error: BaseException | None) -> bool:
    """Whether pydantic says that a class names something not defined (yet)."""
    return type(
        error
    ).__name__ == "PydanticUndefinedAnnotation" or "not fully defined" in str(error)
