"""What the embedded model wrote, made into arguments: without what it invented, as the request spells it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.local.extraction import find_numbers
from toolkit.retrieval.ranking import words
from toolkit.tools.json_schema import Schema


def read_object(raw: str) -> tuple[dict[str, Any], str]:
    """The JSON object in a text, and what is wrong with it ("" if nothing is)."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        # The recursion error: nested too deeply.
        return {}, "The arguments are not complete JSON."
    if not isinstance(value, dict):
        return {}, "The arguments are not a JSON object."
    return value, ""


def verbatim(value: Any, schema: Any, request: str) -> Any:
    """The value, with free texts spelled as in the request if they differ in case only."""
    if not isinstance(schema, Mapping) or "enum" in schema or "const" in schema:
        return value
    if isinstance(value, str) and value and schema.get("type") == "string":
        spelled = re.search(re.escape(value), request, re.IGNORECASE)
        return spelled[0] if spelled else value
    if isinstance(value, list):
        return [verbatim(each, schema.get("items"), request) for each in value]
    properties = schema.get("properties")
    if isinstance(value, dict) and isinstance(properties, Mapping):
        return {
            key: verbatim(each, properties.get(key), request)
            for key, each in value.items()
        }
    return value


def without_guesses(
    arguments: Mapping[str, Any], parameters: Schema, request: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arguments without what a small model makes up, and the names of the repairs.

    A small model fills in everything. So an optional argument stays only if something in the request speaks for it,
    and for no other argument. A value stays in a list only as often as the request says it.
    """
    required = parameters.get("required", ())
    held = [value for key, value in arguments.items() if key in required]
    meant: dict[str, Any] = {}
    for key, value in arguments.items():
        if key in required:
            meant[key] = value
        elif _is_mentioned(key, value, request) and not _is_held(value, held):
            meant[key] = value
            held.append(value)
    schemas = parameters.get("properties", {})
    mended = {
        key: _without_repetitions(value, schemas.get(key), request)
        for key, value in meant.items()
    }
    repairs = []
    if meant != arguments:
        repairs.append("guess")
    if mended != meant:
        repairs.append("repetition")
    return mended, tuple(repairs)


def _is_mentioned(key: str, value: Any, request: str) -> bool:
    """Whether something in the request speaks for an optional argument."""
    if value in (None, "", [], {}):
        return False
    if isinstance(value, bool):
        return _shares_word(key, request)
    if isinstance(value, (int, float)):
        mentioned = {abs(number.value) for number in find_numbers(request)}
        # 0.05 for 5 %.
        return not mentioned.isdisjoint((abs(value), round(abs(value) * 100, 6)))
    if isinstance(value, str):
        is_quoted = value.casefold() in request.casefold()
        return is_quoted or _shares_word(value, request)
    if isinstance(value, list):
        return all(_is_mentioned(key, each, request) for each in value)
    return isinstance(value, dict)


def _shares_word(text: str, request: str) -> bool:
    return not set(words(request)).isdisjoint(words(text))


def _is_held(value: Any, others: Sequence[Any]) -> bool:
    """Whether another argument already holds a value, or a text that contains it or is part of it."""
    if not isinstance(value, str) or not value:
        return not isinstance(value, (bool, str, list, dict)) and value in others
    text = value.casefold()
    for other in others:
        if isinstance(other, (str, int, float)):
            other_text = str(other).casefold()
            if other_text and (text in other_text or other_text in text):
                return True
    return False


def _without_repetitions(value: Any, schema: Any, request: str) -> Any:
    """A list with each value as often as the request says it, at least once, unless it would become too short."""
    if not isinstance(value, list):
        return value
    kept: list[Any] = []
    for each in value:
        mentions = request.casefold().count(str(each).casefold())
        if kept.count(each) < max(1, mentions):
            kept.append(each)
    least = schema.get("minItems", 0) if isinstance(schema, Mapping) else 0
    return kept if len(kept) >= least else value
