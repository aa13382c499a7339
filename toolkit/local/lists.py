"""An array of a schema narrowed to a request: a list that the request enumerates, or the values it may hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from toolkit.local.extraction import Number, find_values
from toolkit.local.query import Narrowed, Query
from toolkit.local.scalars import permitted_values
from toolkit.local.spans import SPANS, find_spans
from toolkit.tools.json_schema import Schema


def narrow_choices(schema: Schema, items: Schema, query: Query) -> Narrowed:
    """An array of an enum: all values that the request names."""
    values = find_values(items["enum"], query.text, several=True)
    if values and _permits(schema, values):
        return Narrowed({**schema, "enum": [values]}, is_named=True)
    return Narrowed(schema, is_named=bool(values))


def narrow_numbers(key: str, schema: Schema, items: Schema, query: Query) -> Narrowed:
    """An array of numbers: the lists in the request, else any of its numbers."""
    lists = []
    for numbers in _enumerations(query):
        # One by one: a number may come twice.
        values = [
            value
            for number in numbers
            for value in permitted_values([number], key, items)
        ]
        if _permits(schema, values):
            lists.append(values)
    if lists:
        return Narrowed({**schema, "enum": lists})
    values = permitted_values(query.numbers, key, items)
    if not values:
        return Narrowed(schema, is_named=False)
    if len(values) < schema.get("minItems", 0):
        return Narrowed(schema)
    narrowed_items = {**items, "enum": values}
    return Narrowed({"maxItems": len(values), **schema, "items": narrowed_items})


def narrow_texts(schema: Schema, items: Schema, query: Query) -> Narrowed | None:
    """An array of strings: pieces of the request, as many as its commas and "and"s divide it into. None without any."""
    # A sample such as "Bonn, Germany" says that the comma is part of a value.
    has_comma = _SAMPLE_WITH_COMMA.search(schema.get("description", ""))
    spans = find_spans(query.text, in_list=not has_comma)
    if not spans:
        return None
    most = max(2, schema.get("minItems", 0)) + len(_BORDERS.findall(query.text))
    lengths = {"minItems": 1, "maxItems": most}
    return Narrowed({**lengths, **schema, "items": {**items, SPANS: spans}})


_SAMPLE_WITH_COMMA = re.compile(r"""["'`][^"'`]+,[^"'`]+["'`]""")
_BORDERS = re.compile(r"[,;、，\n]|\b(?:and|or)\b|&")


def _permits(schema: Schema, values: Sequence[Any]) -> bool:
    """Whether an array may have as many values, and it has any."""
    least = max(1, schema.get("minItems", 0))
    return bool(least <= len(values) <= schema.get("maxItems", len(values)))


def _enumerations(query: Query) -> list[list[Number]]:
    """The numbers of the request with nothing but commas and an "and" between them, two or more."""
    runs: list[list[Number]] = []
    for number in query.numbers:
        if runs and _JOINT.fullmatch(query.text[runs[-1][-1].end : number.start]):
            runs[-1].append(number)
        else:
            runs.append([number])
    return [run for run in runs if len(run) > 1]


_JOINT = re.compile(r"\s*(?:[,;、，]|,?\s*and|&)\s*")
