"""A tool's schema narrowed to the values that a request speaks of.

It looks into objects, arrays, references and unions with null. A schema that says more than is known here stays as it
is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolkit.local.lists import narrow_choices, narrow_numbers, narrow_texts
from toolkit.local.query import Narrowed, Query
from toolkit.local.scalars import (
    narrow_choice,
    narrow_flag,
    narrow_number,
    narrow_text,
)
from toolkit.retrieval.ranking import words
from toolkit.tools.json_schema import Schema, resolve

_DEEPEST = 4


def narrow(parameters: Schema, request: str) -> dict[str, Any]:
    """The parameters with the values that `request` speaks of, and without the optional ones that it does not mention.

    A required parameter keeps its whole range if nothing in the request could be meant. An optional one that the
    request names becomes required.
    """
    return _narrow_object(parameters, Query(request, parameters), 0)


def count_named(parameters: Schema, request: str) -> int:
    """How many of the parameters the request names, or has the only value for."""
    narrowed = narrow(parameters, request)
    properties = narrowed.get("properties", {})
    count = 0
    for key in narrowed.get("required", ()):
        if key not in properties:
            continue
        schema = properties[key]
        values = schema.get("enum", ()) if isinstance(schema, Mapping) else ()
        if len(values) == 1 or key not in parameters.get("required", ()):
            count += 1
    return count


def _narrow_object(schema: Schema, query: Query, depth: int) -> dict[str, Any]:
    properties, required = schema.get("properties"), schema.get("required", ())
    if not isinstance(properties, Mapping):
        return dict(schema)
    resolved = {
        key: _resolved(value, query, depth) for key, value in properties.items()
    }
    numbers = {
        key
        for key, value in resolved.items()
        if key in required and _is_known(value) and value.get("type") in _NUMBERS
    }
    # Fewer numbers than are needed: those that the request does not spell out ("a deck of cards") are the model's.
    if len(numbers) <= len({number.value for number in query.numbers}):
        numbers = set()
    narrowed, narrowed_required = {}, []
    for key, value in resolved.items():
        is_required = key in required
        is_needed = is_required and key not in numbers
        narrower, is_named = _narrow_value(
            key, value, query, depth=depth, needed=is_needed
        )
        if is_required or is_named is not False:
            narrowed[key] = narrower
        if is_required or is_named:
            narrowed_required.append(key)
    return {**schema, "properties": narrowed, "required": narrowed_required}


_NUMBERS = ("integer", "number")


def _narrow_value(
    key: str, schema: Any, query: Query, *, depth: int, needed: bool
) -> Narrowed:
    if not _is_known(schema):
        return Narrowed(schema)
    if schema.get("enum"):
        return narrow_choice(key, schema, query, needed=needed)
    match schema.get("type"):
        case "boolean":
            return narrow_flag(key, schema, query)
        case "integer" | "number":
            return narrow_number(key, schema, query, needed=needed)
        case "string":
            return narrow_text(key, schema, query, needed=needed)
        case "array" if "items" in schema:
            return _narrow_array(key, schema, query, depth=depth, needed=needed)
        case "object" if depth < _DEEPEST:
            return Narrowed(_narrow_object(schema, query, depth + 1))
    return Narrowed(schema)


def _narrow_array(
    key: str, schema: Schema, query: Query, *, depth: int, needed: bool
) -> Narrowed:
    items = _resolved(schema["items"], query, depth)
    if not _is_known(items):
        return Narrowed(schema)
    if items.get("enum"):
        return narrow_choices(schema, items, query)
    if items.get("type") in _NUMBERS:
        return narrow_numbers(key, schema, items, query)
    if items.get("type") == "string" and "format" not in items:
        if not needed and query.words.isdisjoint(words(key)):
            return Narrowed(schema)
        texts = narrow_texts(schema, items, query)
        if texts is not None:
            return texts
    item = _narrow_value(key, items, query, depth=depth + 1, needed=True)
    return Narrowed({**schema, "items": item.schema})


def _resolved(schema: Any, query: Query, depth: int) -> Any:
    """A reference followed, a union with null replaced by its other member."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return schema
    siblings = {
        keyword: value
        for keyword, value in schema.items()
        if keyword not in ("$ref", "anyOf")
    }
    if isinstance(schema.get("$ref"), str):
        target = resolve(schema["$ref"], query.parameters)
        return {**target, **siblings} if isinstance(target, Mapping) else schema
    member = _other_than(_NULL, schema.get("anyOf"))
    if isinstance(member, Mapping):
        return _resolved({**member, **siblings}, query, depth + 1)
    kind = _other_than("null", schema.get("type"))
    return schema if kind is None else {**schema, "type": kind}


_NULL = {"type": "null"}


def _other_than(null: Any, pair: Any) -> Any:
    """The other one of two members of which one is null; else None."""
    if not isinstance(pair, list) or len(pair) != 2 or null not in pair:
        return None
    return pair[1 - pair.index(null)]


def _is_known(schema: Any) -> bool:
    """Whether a schema says nothing but what is known here."""
    return isinstance(schema, Mapping) and all(
        isinstance(value, _KNOWN.get(keyword, ())) for keyword, value in schema.items()
    )


_KNOWN: dict[str, Any] = {
    **dict.fromkeys(("type", "title", "description", "format"), str),
    **dict.fromkeys(("minimum", "maximum"), (int, float)),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), (int, float)),
    **dict.fromkeys(("minItems", "maxItems"), int),
    **dict.fromkeys(("enum", "required"), list),
    **dict.fromkeys(("properties", "items"), Mapping),
    **dict.fromkeys(("default", "examples", "additionalProperties"), object),
}
