"""A JSON Schema that somebody wrote by hand, in place of one made from a signature."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from toolkit.errors import ToolDefinitionError
from toolkit.messages import copied
from toolkit.tools.object_root import check_references, object_root
from toolkit.tools.schema import InvalidArguments, Signature


class WrittenSignature(Signature):
    """A signature whose JSON Schema somebody wrote by hand. Values reach the function as JSON has them."""

    def __init__(self, base: Signature, schema: Any) -> None:
        self.__dict__.update(base.__dict__)
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
        written = copied(dict(schema)) if isinstance(schema, Mapping) else schema
        try:
            kind = validator_for(written, default=Draft202012Validator)
            kind.check_schema(written)
        except SchemaError as error:
            raise ToolDefinitionError(
                f"The schema of {base.owner!r} is no JSON Schema: {error.message}"
            ) from error
        check_references(written)
        self.json_schema = object_root(written)
        _check_fit(base, self.json_schema)
        self.optional = frozenset(self.json_schema["properties"]) - frozenset(
            self.json_schema.get("required", ())
        )
        self._needs_care = False
        self._written = kind(
            {"type": "object", **written}, registry=Registry()
        )  # which fetches nothing from elsewhere

    def read(self, text: str) -> None:
        """Hand-written schemas are always checked with care."""

    def validate(
        self, arguments: Mapping[str, Any]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        schema, values = self.json_schema, copy.deepcopy(dict(arguments))
        is_open = schema.get("additionalProperties") or schema.get("patternProperties")
        errors = []
        for key in () if is_open else values.keys() - schema["properties"].keys():
            errors.append(
                {
                    "type": "extra_forbidden",
                    "loc": (key,),
                    "msg": "unexpected",
                    "input": values[key],
                }
            )
        try:
            for error in self._written.iter_errors(values):
                errors += _as_pydantic(error)
        except RecursionError:
            msg = "cannot be checked: the schema refers to itself with no end"
            errors.append(
                {"type": "schema_recursion", "loc": (), "msg": msg, "input": None}
            )
        if errors:
            raise InvalidArguments(errors)
        return values, ()


def _check_fit(signature: Signature, schema: Mapping[str, Any]) -> None:
    """Refuse a schema whose arguments the function could not take."""
    properties, names = (
        schema["properties"],
        {parameter.name for parameter in signature.parameters},
    )
    if (
        strangers := []
        if signature.extras
        else [name for name in properties if name not in names]
    ):
        raise ToolDefinitionError(
            f"The schema of {signature.owner!r} has {strangers}, which the function does not take."
        )
    wanted = [
        parameter.name for parameter in signature.parameters if parameter.required
    ]
    if missing := [name for name in wanted if name not in properties]:
        raise ToolDefinitionError(
            f"The schema of {signature.owner!r} lacks {missing}, which the function requires."
        )


def _as_pydantic(error: Any) -> list[dict[str, Any]]:
    """An error of jsonschema in the form of pydantic's, with its names where the mends look for them."""
    loc = tuple(error.absolute_path)
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return [
            {
                "type": "missing",
                "loc": (*loc, name),
                "msg": "Field required",
                "input": error.instance,
            }
            for name in missing
        ]
    kinds = (
        error.validator_value
        if isinstance(error.validator_value, list)
        else [error.validator_value]
    )
    kind = (
        {"array": "list_type", "object": "dict_type"}.get(kinds[0])
        if error.validator == "type"
        else None
    )
    return [
        {
            "type": kind or f"{error.validator}_{kinds[0]}",
            "loc": loc,
            "msg": error.message,
            "input": error.instance,
        }
    ]
