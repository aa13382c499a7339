"""What stands in a request that could be a value: its numbers, dates, times, quotes and other pieces."""

from __future__ import annotations

import contextlib
import datetime
import math
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from toolkit.retrieval.ranking import STOP_WORDS, words


def find_values(
    values: Sequence[Any], text: str, *, several: bool = False
) -> list[Any]:
    """Those of an enum that the text names: as written, else in other case, else most of its words."""
    said, scores = set(words(text)), {}
    for place, value in enumerate(values):
        if isinstance(value, str) and value:
            own, whole = set(words(value)), rf"(?<!\w){re.escape(value)}(?!\w)"
            share = len(own & said) / len(own) if own else 0
            # A single letter in other case says nothing.
            loose = (
                0
                if len(value) == 1
                else 2
                if re.search(whole, text, re.IGNORECASE)
                else share
            )
            scores[place] = 3 if re.search(whole, text) else loose
    best = max(scores.values(), default=0)
    return [
        values[place]
        for place, score in scores.items()
        if score >= (0.5 if several else max(best, 0.5))
    ]


@dataclass(frozen=True, slots=True)
class Number:
    value: int | float
    start: int
    end: int
    is_percent: bool = False


def find_numbers(text: str) -> list[Number]:
    """The numbers of a text in its order, but those of dates: digits with signs, scales, percent, and English words."""
    found = [
        Number(_NAMED[match[0].lower()], *match.span())
        for match in _NAMES.finditer(text)
    ]
    dated = {
        place
        for date in _DATES
        for match in date.finditer(text)
        for place in range(*match.span())
    }
    for match in _DIGITS.finditer(text):
        if match.start() in dated:
            continue
        digits, after = (
            match["digits"].replace(",", ""),
            (match["after"] or "").strip(" °\t\n").lower(),
        )
        scale = _SCALES.get(after, 1) * (
            -1 if match["sign"] or after in ("s", "w") else 1
        )
        value = scale * (
            int(digits) if digits.isdigit() and len(digits) < 400 else float(digits)
        )
        if abs(value) < math.inf:
            found.append(Number(whole(value), *match.span(), after in ("%", "percent")))
    return sorted(found, key=lambda number: number.start)


def whole(value: int | float) -> int | float:
    return int(value) if isinstance(value, float) and value.is_integer() else value


_DIGITS = re.compile(
    r"(?<![A-Za-z_\d.])(?<![A-Za-z_]-)(?P<sign>(?<![\w)])-)?"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"(?P<after>\s*(?:%|percent\b)|\s*°?\s*[NSEW]\b|\s*(?:thousand|million|billion)\b|k\b)?"
)
_SCALES = {"k": 10**3, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_FIRST_NAMES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_NAMED = {name: number for number, name in enumerate(_FIRST_NAMES.split())}
_NAMED |= {
    "once": 1,
    "twice": 2,
    "dozen": 12,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "hundred": 100,
}
_NAMES = re.compile(rf"\b(?:{'|'.join(_NAMED)})\b", re.IGNORECASE)


def find_dates(text: str) -> list[datetime.date]:
    """The dates of a text in its order, those with a year; 03/04/2025 both ways."""
    found = []
    for pattern in _DATES:
        for match in pattern.finditer(text):
            year, month, day = match["y"], match["m"], match["d"]
            month = (
                month if month.isdigit() else str(_MONTHS.index(month[:3].lower()) + 1)
            )
            for order in (
                [(month, day), (day, month)] if pattern is _DATES[0] else [(month, day)]
            ):
                with contextlib.suppress(ValueError):
                    found.append(
                        (match.start(), datetime.date(int(year), *map(int, order)))
                    )
    return list(
        dict.fromkeys(date for _, date in sorted(found, key=lambda each: each[0]))
    )


_MONTHS = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_MONTH, _DAY = (
    rf"(?P<m>(?:{'|'.join(_MONTHS)})[a-z]*)\.?,?\s*",
    r"(?P<d>\d{1,2})(?:st|nd|rd|th)?",
)
_DATES = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?<!\d)(?P<m>\d{1,2})(?P<s>[-/.])(?P<d>\d{1,2})(?P=s)(?P<y>\d{4})(?!\d)",
        r"(?<!\d)(?P<y>\d{4})(?P<s>[-/.])(?P<m>\d{1,2})(?P=s)(?P<d>\d{1,2})(?!\d)",
        rf"\b{_MONTH}{_DAY},?\s*(?P<y>\d{{4}})\b",
        rf"\b{_DAY}\s+(?:of\s+)?{_MONTH}(?P<y>\d{{4}})\b",
        r"(?P<y>\d{4})年(?P<m>\d{1,2})月(?P<d>\d{1,2})日",
    )
]


def find_times(text: str) -> list[datetime.time]:
    times = []
    for match in _TIME.finditer(text):
        half, hour = (
            (match["half"] or match["part"] or "").lower(),
            int(match["hour"]) % 24,
        )
        hour += (
            12
            if half in ("p", "afternoon", "evening") and hour < 12
            else -12
            if half == "a" and hour == 12
            else 0
        )
        if match["minute"] or half:
            times.append(datetime.time(hour, int(match["minute"] or 0)))
    return times


_TIME = re.compile(
    r"(?<![\d:])(?P<hour>\d{1,2})(?::(?P<minute>[0-5]\d))?\s*"
    r"(?:(?P<half>[ap])\.?m\b|in the (?P<part>morning|afternoon|evening))?",
    re.IGNORECASE,
)


def find_quotes(text: str) -> Iterator[re.Match[str]]:
    """What is quoted, as the group 1, but not where that is nearly all."""
    for pattern in _QUOTED:
        yield from (
            match for match in pattern.finditer(text) if len(match[0]) < 0.7 * len(text)
        )


_QUOTED = [
    re.compile(pattern)
    for pattern in (
        r"(?<!\w)'([^'\n]+)'(?!\w)",
        r"[\"“”]([^\"“”\n]+)[\"“”]",
        r"`([^`\n]+)`",
    )
]


def find_spans(
    text: str, *, without: Set[str] = frozenset(), in_list: bool = False
) -> str:
    """A regular expression for the pieces of a text that can be a value: "" where there are none.

    A piece begins and ends at words, not at small ones ("the", "of"), and never inside quotes. Its first letters may
    be of either case, for a small model likes capitals. `without` are the stems that it does not begin with; in a list
    it ends before a comma or an "and".
    """
    tokens = _tokens(text)
    longest = min(40, max(6, _MOST_TOKENS // max(len(tokens), 1)))
    found: dict[str, None] = {}
    for first, (start, end) in enumerate(tokens):
        if not _is_small(text[start:end]) and not _is_own(text[start:end], without):
            last = min(first + longest, len(tokens)) - 1
            ends = (
                place
                for place in range(first, last)
                if in_list and _is_gap(text, tokens[place], tokens[place + 1])
            )
            found[_piece(text, tokens, first, next(ends, last))] = None
    return f"^(?:{'|'.join(found)})$" if found else ""


_MOST_TOKENS = 3_000  # of all pieces


def _is_own(token: str, name: Set[str]) -> bool:
    return token in ("'s", "’s") or (
        token.isalpha() and bool(own := set(words(token.lower()))) and own <= name
    )


def _is_gap(text: str, before: tuple[int, int], after: tuple[int, int]) -> bool:
    return bool(re.search(r"[,;、，\n]", text[before[1] : after[0]])) or text[
        slice(*after)
    ] in ("and", "or", "&")


def _piece(text: str, tokens: Sequence[tuple[int, int]], first: int, last: int) -> str:
    """The tokens from the first to at most the last, each but the first with what stands before it."""
    is_sentence = first == 0 or re.search(
        r"[.:!?\n]|\\n", text[tokens[first - 1][1] : tokens[first][0]]
    )
    rest = ""
    for place in range(last, first - 1, -1):
        start, end = tokens[place]
        gap, may_end = (
            text[tokens[place - 1][1] : start] if place > first else "",
            not _is_small(text[start:end]),
        )
        if rest or may_end:
            mark = (
                _literal(text[end])
                if is_sentence and text[end : end + 1] in tuple(".!?")
                else ""
            )
            more = "|".join(filter(None, (rest, mark)))
            rest = (
                _literal(gap)
                + _either_case(text[start:end])
                + (f"(?:{more})" + "?" * may_end if more else "")
            )
    return rest


def _is_small(token: str) -> bool:
    return token in STOP_WORDS or token in ("the", "of", "or")


def _either_case(token: str) -> str:
    first, other = token[:1], token[:1].swapcase()
    return (
        f"[{first}{other}]" if first != other and len(other) == 1 else _literal(first)
    ) + _literal(token[1:])


def _literal(text: str) -> str:
    """As `re.escape`, but only what has a meaning in the regular expressions of JSON Schema."""
    escaped = re.sub(r"[\^$.\[\]()|{}*+?\\]", r"\\\g<0>", text)
    return escaped.replace("\n", r"\n").replace("\t", r"\t").replace("\r", r"\r")


def _tokens(text: str) -> list[tuple[int, int]]:
    """Where the words of a text begin and end: each letter of scripts without spaces, a quoted text as a whole."""
    tokens = [match.span(1) for match in find_quotes(text)]
    quoted = {place for match in find_quotes(text) for place in range(*match.span())}
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        start += len(match[0]) - len(match[0].lstrip(_OPENING))
        while (
            end > start and text[end - 1] in _CLOSING and not _closes(text[start:end])
        ):
            end -= 1
        owner = end - 2 if text[start:end].endswith(("'s", "’s")) else end
        if start < end and quoted.isdisjoint(range(*match.span())):
            tokens += [
                part for part in ((start, owner), (owner, end)) if part[0] < part[1]
            ]
    return sorted(tokens)


_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0eff"
_TOKEN = re.compile(rf"[{_UNSPACED}]|(?:(?!\\[nt])[^\s{_UNSPACED}])+")
_OPENING, _CLOSING = "([{<\"'“‘«「¿¡`*", ".,;:!?)]}>\"'”’»」…。，、！？：；`*"


def _closes(token: str) -> bool:
    return token[-1] in ")]}" and "([{"[")]}".index(token[-1])] in token


# What came back


def verbatim(value: Any, schema: Any, request: str) -> Any:
    """The value, its free texts that stand in the request in other case as they stand there."""
    if not isinstance(schema, Mapping) or "enum" in schema or "const" in schema:
        return value
    if isinstance(value, str) and value and schema.get("type") == "string":
        found = re.search(re.escape(value), request, re.IGNORECASE)
        return found[0] if found else value
    if isinstance(value, list):
        return [verbatim(each, schema.get("items"), request) for each in value]
    properties = schema.get("properties")
    if isinstance(value, dict) and isinstance(properties, Mapping):
        return {
            key: verbatim(each, properties.get(key), request)
            for key, each in value.items()
        }
    return value


def is_said(key: str, value: Any, asked: str) -> bool:
    """Whether something in the request speaks for an optional argument."""
    if value in (None, "", [], {}):
        return False
    if isinstance(value, bool):
        return not set(words(asked)).isdisjoint(words(key))
    if isinstance(value, (int, float)):
        said = {abs(number.value) for number in find_numbers(asked)}
        return not said.isdisjoint(
            (abs(value), round(abs(value) * 100, 6))
        )  # 0.05 for 5 %
    if isinstance(value, str):
        return value.casefold() in asked.casefold() or not set(words(asked)).isdisjoint(
            words(value)
        )
    return isinstance(value, dict) or (
        isinstance(value, list) and all(is_said(key, each, asked) for each in value)
    )


def is_twice(value: Any, others: Sequence[Any]) -> bool:
    """Whether another argument holds a value, or a text that has it in it, already."""
    if isinstance(value, str) and value:
        texts = [
            str(other).casefold()
            for other in others
            if isinstance(other, (str, int, float))
        ]
        return any(
            other and (value.casefold() in other or other in value.casefold())
            for other in texts
        )
    return not isinstance(value, (bool, str, list, dict)) and value in others


def without_repetitions(value: Any, schema: Any, asked: str) -> Any:
    """A list with each value as often as the request says it, but at least once, and not shorter than it may be."""
    if not isinstance(value, list):
        return value
    often = [max(1, asked.casefold().count(str(each).casefold())) for each in value]
    kept = [
        each
        for place, each in enumerate(value)
        if value[:place].count(each) < often[place]
    ]
    least = schema.get("minItems", 0) if isinstance(schema, Mapping) else 0
    return kept if len(kept) >= least else value
