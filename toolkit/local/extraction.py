"""What a request mentions that could be a value: numbers, quotes and values of an enum."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.local.dates import date_positions
from toolkit.retrieval.ranking import words


def find_values(
    values: Sequence[Any], text: str, *, several: bool = False
) -> list[Any]:
    """The values of an enum that the text names best; with `several`, all that it names."""
    text_words = set(words(text))
    scores = {
        place: _likeness(value, text, text_words)
        for place, value in enumerate(values)
        if isinstance(value, str) and value
    }
    best = max(scores.values(), default=0)
    least = 0.5 if several else max(best, 0.5)
    return [values[place] for place, score in scores.items() if score >= least]


def _likeness(value: str, text: str, text_words: set[str]) -> float:
    """3 if the text has the value as written, 2 if in other case, else the share of its words that the text has."""
    whole_value = rf"(?<!\w){re.escape(value)}(?!\w)"
    if re.search(whole_value, text):
        return 3
    if len(value) == 1:
        # A single letter in other case says nothing.
        return 0
    if re.search(whole_value, text, re.IGNORECASE):
        return 2
    own_words = set(words(value))
    return len(own_words & text_words) / len(own_words) if own_words else 0


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a text, and where it stands there."""

    value: int | float
    start: int
    end: int
    is_percent: bool = False


def find_numbers(text: str) -> list[Number]:
    """The numbers of a text in its order, without those of dates: digits with signs, scales, percent; English words."""
    numbers = [
        Number(_NUMBER_NAMES[match[0].lower()], *match.span())
        for match in _NAMES.finditer(text)
    ]
    dated = date_positions(text)
    for match in _DIGITS.finditer(text):
        suffix = (match["suffix"] or "").strip(" °\t\n").lower()
        value = _parsed(match["digits"]) * _SCALES.get(suffix, 1)
        if match["sign"] or suffix in ("s", "w"):
            value = -value
        if match.start() not in dated and abs(value) < math.inf:
            is_percent = suffix in ("%", "percent")
            numbers.append(Number(whole(value), *match.span(), is_percent))
    return sorted(numbers, key=lambda number: number.start)


def _parsed(digits: str) -> int | float:
    digits = digits.replace(",", "")
    # Python refuses to read integers of thousands of digits.
    is_integer = digits.isdigit() and len(digits) < 400
    return int(digits) if is_integer else float(digits)


def whole(value: int | float) -> int | float:
    """3 for 3.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_DIGITS = re.compile(
    r"(?<![A-Za-z_\d.])(?<![A-Za-z_]-)(?P<sign>(?<![\w)])-)?"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"(?P<suffix>\s*(?:%|percent\b)|\s*°?\s*[NSEW]\b|\s*(?:thousand|million|billion)\b|k\b)?"
)
_SCALES = {"k": 10**3, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_FROM_ZERO = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_TENS = "thirty forty fifty sixty"
_NUMBER_NAMES = {
    **{name: number for number, name in enumerate(_FROM_ZERO.split())},
    **{name: 10 * number for number, name in enumerate(_TENS.split(), 3)},
    "once": 1,
    "twice": 2,
    "dozen": 12,
    "hundred": 100,
}
_NAMES = re.compile(rf"\b(?:{'|'.join(_NUMBER_NAMES)})\b", re.IGNORECASE)


def find_quotes(text: str) -> Iterator[re.Match[str]]:
    """What is quoted, as group 1, unless that is nearly all of the text."""
    for pattern in _QUOTED:
        for match in pattern.finditer(text):
            if len(match[0]) < 0.7 * len(text):
                yield match


_QUOTED = (
    re.compile(r"(?<!\w)'([^'\n]+)'(?!\w)"),
    re.compile(r"[\"“”]([^\"“”\n]+)[\"“”]"),
    re.compile(r"`([^`\n]+)`"),
)
