"""A tool's schema narrowed to the values that a request speaks of."""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from toolkit.local.extraction import (
    Number,
    find_dates,
    find_numbers,
    find_quotes,
    find_spans,
    find_times,
    find_values,
    whole,
)
from toolkit.retrieval.ranking import words

SPANS = "spans"  # the key of a narrowed string: a regular expression of the pieces of the request that it may be
_DEEPEST = 4


def narrow(parameters: Mapping[str, Any], request: str) -> dict[str, Any]:
    """The parameters with the values that `request` speaks of, and without the optional ones that it says nothing of.

    A required parameter keeps its whole range where nothing in the request could be meant. An optional one that the
    request names is required.
    """
    return _object(parameters, _Said(request, parameters), 0)


def count_named(parameters: Mapping[str, Any], request: str) -> int:
    """How many of the parameters the request names, or has the only value for."""
    narrowed, required = narrow(parameters, request), parameters.get("required", ())
    properties = narrowed.get("properties", {})
    return sum(
        key not in required
        or (
            isinstance(properties[key], Mapping)
            and len(properties[key].get("enum", ())) == 1
        )
        for key in narrowed.get("required", ())
        if key in properties
    )


class _Said:
    """A request, read once, with what is known of the whole schema."""

    def __init__(self, text: str, parameters: Mapping[str, Any]) -> None:
        definitions, names = parameters.get("$defs"), parameters.get("properties")
        self.text, self.definitions = (
            text,
            definitions if isinstance(definitions, Mapping) else {},
        )
        often = (
            Counter(word for name in names for word in set(words(name)))
            if isinstance(names, Mapping)
            else {}
        )
        self.shared = {
            word for word, count in often.items() if count > 1
        }  # it tells no parameter from another
        self.words = set(words(text))
        self.dates = find_dates(text)
        self.numbers = find_numbers(text)


def _object(schema: Mapping[str, Any], said: _Said, depth: int) -> dict[str, Any]:
    properties, required = schema.get("properties"), schema.get("required", ())
    if not isinstance(properties, Mapping):
        return dict(schema)
    known = {key: _resolved(value, said, depth) for key, value in properties.items()}
    counted = [
        key
        for key in known
        if key in required
        and _is_read(known[key])
        and known[key].get("type") in _NUMBERS
    ]
    # Fewer numbers than are needed: those that the request does not spell out ("a deck of cards") are the model's.
    is_short = len(counted) > len({number.value for number in said.numbers})
    narrowed, needed = {}, []
    for key, value in known.items():
        kept, is_said = _value(
            key,
            value,
            said,
            key in required and not (is_short and key in counted),
            depth,
        )
        if key in required or is_said is not False:
            narrowed[key] = kept
        if key in required or is_said:
            needed.append(key)
    return {**schema, "properties": narrowed, "required": needed}


_NUMBERS = ("integer", "number")


def _resolved(schema: Any, said: _Said, depth: int) -> Any:
    """A reference followed, a union with null replaced by what else it may be."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return schema
    others = {
        key: value for key, value in schema.items() if key not in ("$ref", "anyOf")
    }
    union, kinds = schema.get("anyOf"), schema.get("type")
    if isinstance(reference := schema.get("$ref"), str):
        target = said.definitions.get(reference.removeprefix("#/$defs/"))
        return {**target, **others} if isinstance(target, Mapping) else schema
    if isinstance(union, list) and {"type": "null"} in union and len(union) == 2:
        other = union[union.index({"type": "null"}) - 1]
        return (
            _resolved({**other, **others}, said, depth + 1)
            if isinstance(other, Mapping)
            else schema
        )
    if isinstance(kinds, list) and "null" in kinds and len(kinds) == 2:
        return {**schema, "type": kinds[kinds.index("null") - 1]}
    return schema


def _value(
    key: str, schema: Any, said: _Said, needed: bool, depth: int
) -> tuple[Any, bool | None]:
    """The schema narrowed, and whether the request speaks of it: yes, no, or None where only the model can tell."""
    if not _is_read(schema):
        return schema, None
    if values := schema.get("enum"):
        return _choice(key, schema, values, said, needed)
    match schema.get("type"):
        case "boolean":
            return _flag(key, schema, said)
        case "integer" | "number":
            return _number(key, schema, said, needed)
        case "string":
            return _string(key, schema, said, needed)
        case "array" if "items" in schema:
            return _array(key, schema, said, needed, depth)
        case "object" if depth < _DEEPEST:
            return _object(schema, said, depth + 1), None
    return schema, None


def _is_read(schema: Any) -> bool:
    """A schema that says more than is known here is left as it is."""
    return isinstance(schema, Mapping) and all(
        isinstance(value, _READ.get(key, ())) for key, value in schema.items()
    )


_READ: dict[str, Any] = dict.fromkeys(("type", "title", "description", "format"), str)
_READ |= dict.fromkeys(
    ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), (int, float)
)
_READ |= dict.fromkeys(("minItems", "maxItems"), int) | dict.fromkeys(
    ("enum", "required"), list
)
_READ |= dict.fromkeys(("properties", "items"), Mapping)
_READ |= dict.fromkeys(("default", "examples", "additionalProperties"), object)


def _is_before(key: str, text: str, start: int) -> bool:
    """Whether a place in the text follows the name of a parameter: "the title should be ..."."""
    own, before = (
        set(words(key)) - _SAY_LITTLE,
        list(words(" ".join(_BORDER.split(text[:start])[-1].split()[-4:]))),
    )
    return bool(own) and own <= set(before) and before[-1] in own


def _is_beside(key: str, text: str, number: Number) -> bool:
    own, after = (
        set(words(key)) - _SAY_LITTLE,
        _BORDER.split(text[number.end :])[0].split()[:3],
    )
    return _is_before(key, text, number.start) or (
        bool(own) and own <= set(words(" ".join(after)))
    )


_BORDER = re.compile(r"[,;!?\n\"“”`]|\.\s|(?<!\w)'|'(?!\w)|\b(?:and|or|with)\b")
_SAY_LITTLE = set(
    words(
        "number count num include including is has show return returns format enable enabled use allow flag only"
    )
)


# One of several, yes or no


def _choice(
    key: str, schema: Mapping[str, Any], values: list[Any], said: _Said, needed: bool
) -> tuple[Any, bool | None]:
    by_text = {str(value).casefold(): value for value in values}
    if {"true", "false"} <= set(by_text):
        flag, is_said = _flag(key, {}, said)
        found = [by_text[str(flag["enum"][0]).casefold()]] if is_said else []
    elif any(text.isdigit() for text in by_text):
        numbers = [
            each
            for each in said.numbers
            if needed or each.value > 99 or _is_beside(key, said.text, each)
        ]
        found = [
            by_text[text] for each in numbers if (text := str(each.value)) in by_text
        ]
    else:
        found = find_values(values, said.text)
    return (
        ({**schema, "enum": list(dict.fromkeys(found))}, True)
        if found
        else (schema, False)
    )


def _flag(key: str, schema: Mapping[str, Any], said: _Said) -> tuple[Any, bool | None]:
    """Yes where the request has the words of its name, no where one of them follows a "without"."""
    own = set(words(key)) - _SAY_LITTLE - said.shared
    if not own or len(own & said.words) < len(own) / 2:
        return schema, False
    denied = " ".join(_DENIED.findall(said.text))
    return {**schema, "enum": [own.isdisjoint(words(denied))]}, True


_DENIED = re.compile(
    r"\b(?:(?:without|no|not|don't|doesn't|exclude|excluding|skip)\s+|non-)(\w+(?:\s+\w+){0,3})",
    re.IGNORECASE,
)


# Numbers


def _number(
    key: str, schema: Mapping[str, Any], said: _Said, needed: bool
) -> tuple[Any, bool | None]:
    """Where one is needed, those with a unit that the description names, else all; where not, those beside its name."""
    found = _permitted(said.numbers, key, schema)
    if needed:
        units = set(
            words(" ".join(_UNIT.findall(schema.get("description", ""))))
        ) | set(list(words(key))[-1:])
        measured = [
            each
            for each in said.numbers
            if not units.isdisjoint(words(_word_after(said.text, each)))
        ]
        found = _permitted(measured, key, schema) or found
    if needed or not found:
        return ({**schema, "enum": found}, None) if found else (schema, False)
    beside = _permitted(
        [each for each in said.numbers if _is_beside(key, said.text, each)], key, schema
    )
    return ({**schema, "enum": beside}, True) if beside else (schema, None)


_UNIT = re.compile(r"\bin (\w+)\b(?! per)", re.IGNORECASE)


def _word_after(text: str, number: Number) -> str:
    return next(iter(_BORDER.split(text[number.end :])[0].split()), "")


def _permitted(
    numbers: Sequence[Number], key: str, schema: Mapping[str, Any]
) -> list[int | float]:
    """Their values as this parameter may have them: 5 % is 0.05, unless it asks for a percentage or a whole number."""
    about = f"{key} {schema.get('description', '')}"
    is_fraction = schema["type"] == "number" and not re.search(
        r"percent(?!.*decimal)", about, re.IGNORECASE
    )
    values = [
        round(each.value / 100, 10) if each.is_percent and is_fraction else each.value
        for each in numbers
    ]
    return [
        value
        for value in dict.fromkeys(map(whole, values))
        if (schema["type"] == "number" or isinstance(value, int))
        and schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
        and schema.get("exclusiveMinimum", -math.inf)
        < value
        < schema.get("exclusiveMaximum", math.inf)
    ]


# Texts and dates


def _string(
    key: str, schema: Mapping[str, Any], said: _Said, needed: bool
) -> tuple[Any, bool | None]:
    about = schema.get("description", "")
    if form := _date_format(about, schema.get("format", "")):
        found = list(dict.fromkeys(_dates_for(key, form, said)))
        if found or not needed:
            return ({**schema, "enum": found}, None) if found else (schema, False)
    if "format" in schema:
        return schema, None
    if quoted := _quoted_beside(key, said.text):
        return {**schema, "enum": quoted}, True
    own = set(words(key))
    is_named = bool(own) and own <= said.words
    if (
        (needed or is_named)
        and not _CODE.search(about)
        and (spans := find_spans(said.text, without=own))
    ):
        schema = {
            **schema,
            SPANS: spans if not _PLACE.search(about) else _placed(spans, said.text),
        }
    return schema, is_named or None


# Of such a sample the request may say the long form.
_CODE = re.compile(
    r"""(?:e\.g\.|such as|for example|like)[\s,:]*['"`][A-Z]{2,3}['"`]""", re.IGNORECASE
)


# The form of a place whose second part the model may know.
_PLACE = re.compile(
    r"(?i:city,? (?:and )?state|\b(?:city|location|area|place)\b.*(?-i:\b[A-Z]\w+, [A-Z]{2}\b))"
)


def _placed(spans: str, text: str) -> str:
    is_complete = re.search(r"[A-Z]\w+, [A-Z]", text)
    return spans.removesuffix("$") + "(?:, [A-Z]{2})" + ("?$" if is_complete else "$")


def _quoted_beside(key: str, text: str) -> list[str]:
    """What is quoted first after the name of a parameter."""
    quotes = sorted(find_quotes(text), key=lambda match: match.start())
    return [match[1] for match in quotes if _is_before(key, text, match.start())][:1]


def _date_format(about: str, form: str) -> str:
    """What `strftime` takes, by the form or the sample in a description. "" where it asks for no form."""
    if stated := _STATED.search(about):
        written = stated[0].replace("'", "")
        for pattern, code in (
            ("HH:mm", "%H:%M"),
            ("ss", "%S"),
            ("yyyy", "%Y"),
            ("dd", "%d"),
            ("mm", "%m"),
        ):
            written = re.sub(pattern, code, written, flags=re.IGNORECASE)
        return written
    sample = re.search(r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d)?(Z?)", about)
    if sample or form in ("date", "date-time") or re.search("ISO[- ]?8601", about):
        has_time = (
            sample[1] if sample else form == "date-time" or "time" in about.lower()
        )
        return "%Y-%m-%d" + (
            "T%H:%M:%S" + (sample[2] if sample else "Z") if has_time else ""
        )
    return ""


_STATED = re.compile(
    r"(?:yyyy|mm|dd)([-/. ]?)(?:mm|dd)\1(?:yyyy|dd)(?:(?: |'?T'?)hh:mm(?::ss)?Z?)?|\bhh:mm(?::ss)?\b",
    re.IGNORECASE,
)


def _dates_for(key: str, form: str, said: _Said) -> list[str]:
    dates = said.dates
    if len(dates) > 1:
        dates = (
            dates[:-1]
            if _STARTS.search(key)
            else dates[1:]
            if _ENDS.search(key)
            else dates
        )
    times = find_times(said.text)
    if "%d" not in form:
        return [time.strftime(form) for time in times]
    if "%H" not in form or not times:
        times = [datetime.time(0)]
    return [
        datetime.datetime.combine(date, time).strftime(form)
        for date in dates
        for time in times
    ]


_STARTS = re.compile("(?<![a-z])(?:from|start|begin|depart|check_?in)", re.IGNORECASE)
_ENDS = re.compile("(?<![a-z])(?:to|end|until|return|arriv|check_?out)", re.IGNORECASE)


# Lists


def _array(
    key: str, schema: Mapping[str, Any], said: _Said, needed: bool, depth: int
) -> tuple[Any, bool | None]:
    items = _resolved(schema["items"], said, depth)
    if not _is_read(items):
        return schema, None
    if values := items.get("enum"):
        found = find_values(values, said.text, several=True)
        return (
            ({**schema, "enum": [found]}, True)
            if found and _has_room(schema, found)
            else (schema, bool(found))
        )
    if items.get("type") in _NUMBERS:
        found = _permitted(said.numbers, key, items)
        lists = [
            values
            for run in _enumerations(said)
            if _has_room(schema, values := _in_order(run, key, items))
        ]
        if lists:
            return {**schema, "enum": lists}, None
        if not found or len(found) < schema.get("minItems", 0):
            return schema, None if found else False
        return {
            "maxItems": len(found),
            **schema,
            "items": {**items, "enum": found},
        }, None
    if items.get("type") == "string" and "format" not in items:
        if not needed and not set(words(key)) & said.words:
            return schema, None
        # A sample such as "Bonn, Germany" says that the comma is no border.
        is_broken = not re.search(
            r"""["'`][^"'`]+,[^"'`]+["'`]""", schema.get("description", "")
        )
        if spans := find_spans(said.text, in_list=is_broken):
            most = max(2, schema.get("minItems", 0)) + len(
                re.findall(r"[,;、，\n]|\b(?:and|or)\b|&", said.text)
            )
            return {
                "minItems": 1,
                "maxItems": most,
                **schema,
                "items": {**items, SPANS: spans},
            }, None
    return {**schema, "items": _value(key, items, said, True, depth + 1)[0]}, None


def _has_room(schema: Mapping[str, Any], values: list[Any]) -> bool:
    return len(values) in range(
        max(1, schema.get("minItems", 0)), schema.get("maxItems", len(values)) + 1
    )


def _enumerations(said: _Said) -> list[list[Number]]:
    """Numbers with nothing but commas and an "and" between them."""
    runs: list[list[Number]] = []
    for number in said.numbers:
        if runs and re.fullmatch(
            r"\s*(?:[,;、，]|,?\s*and|&)\s*", said.text[runs[-1][-1].end : number.start]
        ):
            runs[-1].append(number)
        else:
            runs.append([number])
    return [run for run in runs if len(run) > 1]


def _in_order(
    run: Sequence[Number], key: str, items: Mapping[str, Any]
) -> list[int | float]:
    return [value for each in run for value in _permitted([each], key, items)]
