"""A JSON Schema that somebody wrote by hand, in place of one made from a signature."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from toolkit.errors import ToolDefinitionError
from toolkit.messages import copied
from toolkit.tools.object_root import check_references, object_root
from toolkit.tools.schema import InvalidArguments, Signature, Values


class WrittenSignature(Signature):
    """A signature whose JSON Schema somebody wrote by hand. Values reach the function as JSON has them."""

    def __init__(self, base: Signature, schema: Any) -> None:
        self.__dict__.update(base.__dict__)
        self._needs_care, self._adapters, self.decimals = True, {}, frozenset()
        try:
            from jsonschema import Draft202012Validator
            from jsonschema.exceptions import SchemaError
            from jsonschema.validators import validator_for
            from referencing import Registry
        except ImportError as error:
            raise ToolDefinitionError(
                f"{base.owner!r} has a hand-written schema, which the package jsonschema checks. "
                "Install it: pip install 'toolkit-agent[jsonschema]'."
            ) from error
        own = copied(dict(schema)) if isinstance(schema, Mapping) else schema
        try:
            kind = validator_for(own, default=Draft202012Validator)
            kind.check_schema(own)
        except SchemaError as error:
            raise ToolDefinitionError(
                f"The schema of {base.owner!r} is not a JSON Schema: {error.message}"
            ) from error
        check_references(own)
        self.json_schema = object_root(own)
        self._check_fit()
        required = self.json_schema.get("required", ())
        self.optional = self.json_schema["properties"].keys() - set(required)
        # The empty registry fetches nothing from elsewhere.
        self._checker = kind({"type": "object", **own}, registry=Registry())

    def read(self, text: str) -> None:
        """Arguments for hand-written schemas are always checked with care."""

    def validate(self, arguments: Mapping[str, Any]) -> tuple[Values, tuple[str, ...]]:
        schema, values = self.json_schema, copy.deepcopy(dict(arguments))
        errors = []
        if not (schema.get("additionalProperties") or schema.get("patternProperties")):
            for key in values.keys() - schema["properties"].keys():
                errors.append(
                    _error("extra_forbidden", (key,), "unexpected", values[key])
                )
        try:
            for error in self._checker.iter_errors(values):
                errors += _as_pydantic(error)
        except RecursionError:
            message = "cannot be checked: the schema refers to itself without end"
            errors.append(_error("schema_recursion", (), message, None))
        if errors:
            raise InvalidArguments(errors)
        return values, ()

    def _check_fit(self) -> None:
        """Refuse a schema whose arguments the function could not take."""
        properties = self.json_schema["properties"]
        names = {parameter.name for parameter in self.parameters}
        strangers = [name for name in properties if name not in names]
        if strangers and not self.extras:
            raise ToolDefinitionError(
                f"The schema of {self.owner!r} has {strangers}, which the function does not take."
            )
        required = [
            parameter.name for parameter in self.parameters if parameter.required
        ]
        missing = [name for name in required if name not in properties]
        if missing:
            raise ToolDefinitionError(
                f"The schema of {self.owner!r} lacks {missing}, which the function requires."
            )


def _as_pydantic(error: Any) -> list[dict[str, Any]]:
    """An error of jsonschema in the form of pydantic's, with the names that mending looks for."""
    location, value = tuple(error.absolute_path), error.instance
    keyword, expected = error.validator, error.validator_value
    if keyword == "required":
        return [
            _error("missing", (*location, name), "Field required", value)
            for name in expected
            if name not in value
        ]
    kind = expected[0] if isinstance(expected, list) else expected
    name = f"{keyword}_{kind}"
    if keyword == "type":
        name = {"array": "list_type", "object": "dict_type"}.get(kind, name)
    return [_error(name, location, error.message, value)]


def _error(
    kind: str, location: tuple[Any, ...], message: str, value: Any
) -> dict[str, Any]:
    return {"type": kind, "loc": location, "msg": message, "input": value}
