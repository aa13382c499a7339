"""One value of a schema narrowed to a request: a choice, a flag, a number or a text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from toolkit.local.dates import date_format, dates_in_form
from toolkit.local.extraction import Number, find_quotes, find_values, whole
from toolkit.local.query import Narrowed, Query, telling_words
from toolkit.local.spans import SPANS, find_spans
from toolkit.retrieval.ranking import words
from toolkit.tools.json_schema import Schema


def narrow_choice(key: str, schema: Schema, query: Query, *, needed: bool) -> Narrowed:
    """An enum: the values that the request names."""
    values = _chosen_values(key, schema["enum"], query, needed=needed)
    if not values:
        return Narrowed(schema, is_named=False)
    return Narrowed({**schema, "enum": _distinct(values)}, is_named=True)


def _chosen_values(
    key: str, values: Sequence[Any], query: Query, *, needed: bool
) -> list[Any]:
    by_text = {str(value).casefold(): value for value in values}
    if by_text.keys() >= {"true", "false"}:
        flag = _flag_of(key, query)
        return [] if flag is None else [by_text[str(flag).casefold()]]
    if not any(text.isdigit() for text in by_text):
        return find_values(values, query.text)
    # A small number may count something else; one such as 2014 seldom does.
    texts = [
        str(number.value)
        for number in query.numbers
        if needed or number.value > 99 or query.names_beside(key, number)
    ]
    return [by_text[text] for text in texts if text in by_text]


def narrow_flag(key: str, schema: Schema, query: Query) -> Narrowed:
    """A boolean: true if the request names it, false if the request denies it."""
    flag = _flag_of(key, query)
    if flag is None:
        return Narrowed(schema, is_named=False)
    return Narrowed({**schema, "enum": [flag]}, is_named=True)


def _flag_of(key: str, query: Query) -> bool | None:
    """False if a word of the flag's name follows a "without" or the like; None if most of the name is not said."""
    name = telling_words(key) - query.shared_words
    if not name or len(name & query.words) < len(name) / 2:
        return None
    denied = " ".join(_DENIED.findall(query.text))
    return name.isdisjoint(words(denied))


_DENIED = re.compile(
    r"\b(?:(?:without|no|not|don't|doesn't|exclude|excluding|skip)\s+|non-)(\w+(?:\s+\w+){0,3})",
    re.IGNORECASE,
)


def narrow_number(key: str, schema: Schema, query: Query, *, needed: bool) -> Narrowed:
    """A number: if needed, those with a unit that the description names, else all; if not, those beside its name."""
    values = permitted_values(query.numbers, key, schema)
    if not values:
        return Narrowed(schema, is_named=False)
    if needed:
        measured = _measured_numbers(key, schema, query)
        values = permitted_values(measured, key, schema) or values
        return Narrowed({**schema, "enum": values})
    beside = [each for each in query.numbers if query.names_beside(key, each)]
    values = permitted_values(beside, key, schema)
    if not values:
        return Narrowed(schema)
    return Narrowed({**schema, "enum": values}, is_named=True)


def _measured_numbers(key: str, schema: Schema, query: Query) -> list[Number]:
    """The numbers before a unit that the description names ("in minutes"), or before the last word of the name."""
    units = set(words(" ".join(_UNIT.findall(schema.get("description", "")))))
    units.update(list(words(key))[-1:])
    return [
        number
        for number in query.numbers
        if not units.isdisjoint(words(query.text_after(number, 1)))
    ]


_UNIT = re.compile(r"\bin (\w+)\b(?! per)", re.IGNORECASE)


def permitted_values(
    numbers: Iterable[Number], key: str, schema: Schema
) -> list[int | float]:
    """The values of numbers as a parameter may have them, each once.

    5 % is 0.05, unless the parameter asks for a percentage or a whole number.
    """
    about = f"{key} {schema.get('description', '')}"
    is_float = schema["type"] == "number"
    is_fraction = is_float and not _PERCENTAGE.search(about)
    values = []
    for number in numbers:
        value = number.value
        if number.is_percent and is_fraction:
            value = round(value / 100, 10)
        value = whole(value)
        if (is_float or isinstance(value, int)) and _is_in_range(value, schema):
            values.append(value)
    return _distinct(values)


_PERCENTAGE = re.compile(r"percent(?!.*decimal)", re.IGNORECASE)


def _is_in_range(value: int | float, schema: Schema) -> bool:
    above = schema.get("exclusiveMinimum", -math.inf)
    below = schema.get("exclusiveMaximum", math.inf)
    lowest = schema.get("minimum", -math.inf)
    highest = schema.get("maximum", math.inf)
    return bool(lowest <= value <= highest and above < value < below)


def narrow_text(key: str, schema: Schema, query: Query, *, needed: bool) -> Narrowed:
    """A string: a date in its form, what is quoted after its name, or a piece of the request."""
    description = schema.get("description", "")
    form = date_format(description, schema.get("format", ""))
    if form:
        dates = dates_in_form(key, form, query.dates, query.text)
        if dates:
            return Narrowed({**schema, "enum": dates})
        if not needed:
            return Narrowed(schema, is_named=False)
    if "format" in schema:
        return Narrowed(schema)
    quotes = sorted(find_quotes(query.text), key=lambda quote: quote.start())
    for quote in quotes:
        if query.names_before(key, quote.start()):
            return Narrowed({**schema, "enum": [quote[1]]}, is_named=True)
    name = set(words(key))
    is_named = bool(name) and name <= query.words
    if (needed or is_named) and not _CODE.search(description):
        spans = find_spans(query.text, without=name)
        if spans and _PLACE.search(description):
            spans = _with_state(spans, query.text)
        if spans:
            schema = {**schema, SPANS: spans}
    return Narrowed(schema, is_named=is_named or None)


# Of such a sample the request may say the long form.
_CODE = re.compile(
    r"""(?:e\.g\.|such as|for example|like)[\s,:]*['"`][A-Z]{2,3}['"`]""", re.IGNORECASE
)

# The form of a place whose second part the model may know.
_PLACE = re.compile(
    r"(?i:city,? (?:and )?state|\b(?:city|location|area|place)\b.*(?-i:\b[A-Z]\w+, [A-Z]{2}\b))"
)


def _with_state(spans: str, text: str) -> str:
    """The expression of a place with its state ("Reno, NV"), optional if the request has one itself."""
    is_complete = re.search(r"[A-Z]\w+, [A-Z]", text)
    return spans.removesuffix("$") + "(?:, [A-Z]{2})" + ("?$" if is_complete else "$")


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
