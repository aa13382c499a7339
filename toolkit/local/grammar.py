"""The schema that llama.cpp makes a grammar of.

Every string and array has an end in it, because a small model does not always end one by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolkit.local.spans import SPANS
from toolkit.tools.json_schema import Schema

_MAX_ARGUMENT_TOKENS = 512
_MAX_STRING = 200
"""Characters of a string; a longer request allows more."""
_MAX_ARRAY = 32

_DEEPEST = 20
_TYPES = ("string", "integer", "number", "boolean", "array", "object")
# Of patterns llama.cpp takes few.
_NO_GRAMMAR = ("description", "title", "default", "examples", "pattern")


def argument_options(
    grammar: Schema, options: Mapping[str, Any], request: str
) -> dict[str, Any]:
    """The options of a request for arguments. What is taken from the user's request is not longer than it."""
    needed = 64 + 16 * len(grammar["properties"]) + len(request.encode())
    return {
        "temperature": 0,
        **options,
        "max_tokens": min(_MAX_ARGUMENT_TOKENS, needed),
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "arguments", "schema": grammar},
        },
    }


def grammars(parameters: Schema, request: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tool's schema, bounded; and one of its top level only, for a schema that llama.cpp cannot read."""
    limits = {
        "maxLength": max(_MAX_STRING, len(request)),
        "maxItems": min(_MAX_ARRAY, max(2, len(re.findall(r"\w+", request)))),
    }
    whole = _bounded(parameters, limits)
    whole["x-guidance"] = {
        "whitespace_flexible": False,
        "item_separator": ", ",
        "key_separator": ": ",
    }
    properties = parameters["properties"]
    required = parameters.get("required", ())
    top_level = {
        "type": "object",
        "properties": {
            key: _bounded(_type_only(schema), limits)
            for key, schema in properties.items()
        },
        "required": [key for key in required if key in properties],
        "additionalProperties": False,
    }
    return whole, top_level


def _type_only(schema: Any) -> dict[str, Any]:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return {"type": kind} if kind in _TYPES else {}


def _bounded(schema: Any, limits: Mapping[str, int], depth: int = 0) -> Any:
    """The schema with an end to every string and array, without what a grammar does not need.

    A walk of its own, because it stops at a depth: what lies deeper is left free.
    """
    if isinstance(schema, list):
        return [_bounded(each, limits, depth + 1) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    if depth > _DEEPEST:
        return {}
    if SPANS in schema:
        return {"type": "string", "pattern": schema[SPANS]}
    bounded = {
        keyword: _bounded_value(keyword, value, limits, depth + 1)
        for keyword, value in schema.items()
        if keyword not in _NO_GRAMMAR
    }
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "string" in kinds:
        bounded["maxLength"] = _limit(schema, "minLength", "maxLength", limits)
    if "array" in kinds:
        bounded["maxItems"] = _limit(schema, "minItems", "maxItems", limits)
    return bounded


def _bounded_value(
    keyword: str, value: Any, limits: Mapping[str, int], depth: int
) -> Any:
    if keyword in ("enum", "const"):
        return value
    holds_names = keyword in ("properties", "$defs", "definitions")
    if holds_names and isinstance(value, Mapping):
        return {name: _bounded(each, limits, depth) for name, each in value.items()}
    return _bounded(value, limits, depth)


def _limit(schema: Schema, least: str, most: str, limits: Mapping[str, int]) -> int:
    """The highest length: the schema's own or ours, but never below the lowest that the schema allows."""
    limit = limits[most]
    if isinstance(schema.get(most), int):
        limit = min(limit, schema[most])
    if isinstance(schema.get(least), int):
        limit = max(limit, schema[least])
    return limit
