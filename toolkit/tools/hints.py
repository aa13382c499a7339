"""A type hint becomes a JSON Schema and a part of a validator.

Pydantic reads each hint once in the process: functions share few hints, and to put known pieces
together costs a tenth of building a model per function.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
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
    if "Iterable" in text or "Generator" in text:
        core = _eager(core)
    json_schema = adapter.json_schema(schema_generator=_generator())
    _drop_titles(json_schema.get("$defs", {}))
    if json_schema.get("title") == getattr(hint, "__name__", ""):
        json_schema.pop("title", None)
    return HintSchema(adapter, core, json_schema)


def _drop_titles(definitions: Schema) -> None:
    """Remove the names of classes, which tell a model nothing."""
    for definition in definitions.values():
        definition.pop("title", None)


def _eager(core: Any) -> Any:
    """The core schema with lists for what pydantic would check item by item while the function runs."""
    if isinstance(core, list):
        return [_eager(part) for part in core]
    if not isinstance(core, dict):
        return core
    parts = {key: _eager(part) for key, part in core.items()}
    return {**parts, "type": "list"} if parts.get("type") == "generator" else parts


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
