"""A type hint becomes a JSON Schema and a part of a validator.

Pydantic reads each hint once in the process: functions share few hints, and to put known pieces
together costs a tenth of building a model per function.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from toolkit.messages import copied
from toolkit.tools.json_schema import MutableSchema, Schema


@dataclass(frozen=True, slots=True)
class HintSchema:
    """What pydantic makes of one hint. Shared by all parameters with that hint: read it, never change it."""

    adapter: Any
    core: Any
    json: MutableSchema


def read_hint(hint: Any) -> HintSchema:
    """What pydantic makes of a hint. Raises whatever pydantic raises for a type without a JSON form."""
    # Unions in another order are equal, but not the same: the text belongs to the key of the cache.
    text = str(hint)
    # A TypeError of the cache: the hint has no hash, or is not a type.
    with contextlib.suppress(TypeError):
        return _read_hint(hint, text)
    return _read_hint.__wrapped__(hint, text)


@functools.lru_cache(maxsize=2048)
def _read_hint(hint: Any, text: str) -> HintSchema:
    from pydantic import TypeAdapter

    adapter: Any = TypeAdapter(hint)
    if not adapter.pydantic_complete:
        adapter.rebuild(raise_errors=True)
    core = adapter.core_schema
    if core["type"] == "is-subclass":
        # Pydantic writes a schema for it, which says nothing.
        raise TypeError("JSON has no classes")
    core = _careful(core)
    json_schema = adapter.json_schema(schema_generator=_generator())
    _drop_titles(json_schema.get("$defs", {}))
    if json_schema.get("title") == getattr(hint, "__name__", ""):
        json_schema.pop("title", None)
    return HintSchema(adapter, core, json_schema)


def _drop_titles(definitions: Schema) -> None:
    """Remove the names of classes, which tell a model nothing."""
    for definition in definitions.values():
        definition.pop("title", None)


def _careful(core: Any) -> Any:
    """The core schema as JSON needs it.

    Lists stand for what pydantic would check item by item while the function runs, floats are finite, and a member of
    an Enum is found by the JSON of its value.
    """
    if isinstance(core, list):
        return [_careful(part) for part in core]
    if not isinstance(core, dict):
        return core
    kind = core.get("type")
    if kind in ("enum", "literal"):
        members = core["members" if kind == "enum" else "expected"]
        return _by_json(core, members)
    parts = {
        key: part if key in ("metadata", "default") else _careful(part)
        for key, part in core.items()
    }
    if kind == "float":
        parts.setdefault("allow_inf_nan", False)
    return {**parts, "type": "list"} if kind == "generator" else parts


def holds_decimals(core: Any) -> bool:
    """Whether a core schema has decimals, and nothing that would take a number's text for a text."""
    kinds = set(_kinds(core))
    return "decimal" in kinds and not kinds & {"str", "any", "literal", "enum"}


def _kinds(core: Any) -> Iterator[str]:
    """The types of a core schema's parts, those of keys not among them."""
    if isinstance(core, dict):
        yield str(core.get("type"))
        core = [part for key, part in core.items() if key != "keys_schema"]
    if isinstance(core, list):
        for part in core:
            yield from _kinds(part)


def _by_json(core: Any, members: list[Any]) -> Any:
    """The core schema of a choice, which finds members by their JSON if pydantic does not."""
    from pydantic_core import core_schema, to_jsonable_python

    plain = (str, int, float, type(None))
    is_enum = core["type"] == "enum"
    values = [member.value if is_enum else member for member in members]
    if all(
        isinstance(value, plain) and not isinstance(value, Enum) for value in values
    ):
        return core
    members_by_json: dict[str, Any] = {}
    for member in members:
        # A value may be any object.
        with contextlib.suppress(Exception):
            members_by_json.setdefault(json.dumps(to_jsonable_python(member)), member)

    def find_member(value: Any) -> Any:
        with contextlib.suppress(Exception):
            return members_by_json.get(json.dumps(to_jsonable_python(value)), value)
        return value

    ref = core.get("ref")
    inner = {key: part for key, part in core.items() if key != "ref"}
    return core_schema.no_info_before_validator_function(find_member, inner, ref=ref)


@functools.cache
def _generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class Untitled(GenerateJsonSchema):
        def field_title_should_be_set(self, schema: Any) -> bool:
            return False

        def default_schema(self, schema: Any) -> Any:
            if "default" in schema and not default_entry(schema["default"]):
                return self.generate_inner(schema["schema"])
            return super().default_schema(schema)

    return Untitled


def default_entry(default: Any) -> MutableSchema:
    """{"default": …} for a JSON Schema, or {} if the default is secret or JSON cannot write it."""
    from pydantic_core import to_jsonable_python

    # A default may be any object.
    with contextlib.suppress(Exception):
        plain = to_jsonable_python(default, by_alias=True)
        json.dumps(plain, allow_nan=False)
        return {} if hasattr(default, "get_secret_value") else {"default": plain}
    return {}


def json_schemas(
    hints: Mapping[str, HintSchema],
) -> tuple[MutableSchema, MutableSchema]:
    """A copy of the JSON Schema of each hint, and the definitions of them all."""
    schemas = {name: copied(hint.json) for name, hint in hints.items()}
    definitions: MutableSchema = {}
    for schema in schemas.values():
        for name, definition in schema.pop("$defs", {}).items():
            if definitions.setdefault(name, definition) != definition:
                return _renamed_schemas(hints)
    return schemas, definitions


def _renamed_schemas(
    hints: Mapping[str, HintSchema],
) -> tuple[MutableSchema, MutableSchema]:
    """Two classes of one name: pydantic finds names for both."""
    from pydantic import TypeAdapter

    inputs: list[Any] = [(name, "validation", h.adapter) for name, h in hints.items()]
    schemas, shared = TypeAdapter.json_schemas(inputs, schema_generator=_generator())
    definitions = shared.get("$defs", {})
    _drop_titles(definitions)
    return {name: dict(schema) for (name, _), schema in schemas.items()}, definitions
