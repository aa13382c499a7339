"""The dates and times of a request, in the form that a parameter asks for."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterable

_MONTH_BEGINNINGS = "jan feb mar apr may jun jul aug sep oct nov dec"
_MONTHS = _MONTH_BEGINNINGS.split()
_MONTH_NAME = rf"(?P<month>(?:{'|'.join(_MONTHS)})[a-z]*)\.?,?\s*"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


# 03/04/2025: March or April.
_AMBIGUOUS = _pattern(
    r"(?<!\d)(?P<month>\d{1,2})(?P<mark>[-/.])(?P<day>\d{1,2})(?P=mark)(?P<year>\d{4})(?!\d)"
)
_PATTERNS = (
    _AMBIGUOUS,
    _pattern(
        r"(?<!\d)(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})(?!\d)"
    ),
    _pattern(rf"\b{_MONTH_NAME}{_DAY},?\s*(?P<year>\d{{4}})\b"),
    _pattern(rf"\b{_DAY}\s+(?:of\s+)?{_MONTH_NAME}(?P<year>\d{{4}})\b"),
    _pattern(r"(?P<year>\d{4})年(?P<month>\d{1,2})月(?P<day>\d{1,2})日"),
)


def find_dates(text: str) -> list[datetime.date]:
    """The dates of a text in its order, those with a year; 03/04/2025 both ways."""
    dates: list[tuple[int, datetime.date]] = []
    for match in _matches(text):
        year, month, day = int(match["year"]), _month(match["month"]), int(match["day"])
        readings = [(month, day)]
        if match.re is _AMBIGUOUS:
            readings.append((day, month))
        for reading in readings:
            # Not every month has a 30th.
            with contextlib.suppress(ValueError):
                dates.append((match.start(), datetime.date(year, *reading)))
    dates.sort(key=lambda found: found[0])
    return list(dict.fromkeys(date for _, date in dates))


def date_positions(text: str) -> set[int]:
    """The positions of all characters of dates."""
    return {place for match in _matches(text) for place in range(*match.span())}


def _matches(text: str) -> list[re.Match[str]]:
    return [match for pattern in _PATTERNS for match in pattern.finditer(text)]


def _month(text: str) -> int:
    return int(text) if text.isdigit() else _MONTHS.index(text[:3].lower()) + 1


def _find_times(text: str) -> list[datetime.time]:
    """The times of day of a text in its order: 16:30, 4:30 pm, 4 in the afternoon."""
    times = []
    for match in _TIME.finditer(text):
        half = (match["half"] or match["part"] or "").lower()
        if not match["minute"] and not half:
            continue
        hour = int(match["hour"]) % 24
        if half in ("p", "afternoon", "evening") and hour < 12:
            hour += 12
        elif half == "a" and hour == 12:
            hour = 0
        times.append(datetime.time(hour, int(match["minute"] or 0)))
    return times


_TIME = _pattern(
    r"(?<![\d:])(?P<hour>\d{1,2})(?::(?P<minute>[0-5]\d))?\s*"
    r"(?:(?P<half>[ap])\.?m\b|in the (?P<part>morning|afternoon|evening))?"
)


def date_format(description: str, format_name: str) -> str:
    """What `strftime` takes, by the form or the sample in a description, or by the schema's `format`; "" if none."""
    stated = _STATED_FORM.search(description)
    if stated:
        return _strftime_codes(stated[0])
    sample = _SAMPLE.search(description)
    if sample:
        return "%Y-%m-%d" + (f"T%H:%M:%S{sample['zone']}" if sample["time"] else "")
    if format_name not in ("date", "date-time") and not _ISO.search(description):
        return ""
    has_time = format_name == "date-time" or "time" in description.lower()
    return "%Y-%m-%dT%H:%M:%SZ" if has_time else "%Y-%m-%d"


_STATED_FORM = _pattern(
    r"(?:yyyy|mm|dd)([-/. ]?)(?:mm|dd)\1(?:yyyy|dd)(?:(?: |'?T'?)hh:mm(?::ss)?Z?)?|\bhh:mm(?::ss)?\b"
)
_SAMPLE = re.compile(r"\d{4}-\d\d-\d\d(?P<time>T\d\d:\d\d:\d\d)?(?P<zone>Z?)")
_ISO = re.compile("ISO[- ]?8601")


def _strftime_codes(form: str) -> str:
    """A form such as "dd/mm/yyyy HH:mm" as `strftime` writes it: "%d/%m/%Y %H:%M"."""
    form = form.replace("'", "")
    # Minutes come first: months are "mm", too.
    for written, code in _CODES.items():
        form = re.sub(written, code, form, flags=re.IGNORECASE)
    return form


_CODES = {"HH:mm": "%H:%M", "ss": "%S", "yyyy": "%Y", "dd": "%d", "mm": "%m"}


def dates_in_form(
    key: str, form: str, dates: list[datetime.date], text: str
) -> list[str]:
    """The dates of a text that a parameter of this name may mean, in a form of `strftime`.

    The first of two is the start, the last the end.
    """
    times = _find_times(text)
    if "%d" not in form:
        return _distinct(time.strftime(form) for time in times)
    if len(dates) > 1 and _STARTS.search(key):
        dates = dates[:-1]
    elif len(dates) > 1 and _ENDS.search(key):
        dates = dates[1:]
    if "%H" not in form or not times:
        times = [datetime.time(0)]
    return _distinct(
        datetime.datetime.combine(date, time).strftime(form)
        for date in dates
        for time in times
    )


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


_STARTS = _pattern("(?<![a-z])(?:from|start|begin|depart|check_?in)")
_ENDS = _pattern("(?<![a-z])(?:to|end|until|return|arriv|check_?out)")
