"""Matchers: what an argument must be, if one plain value says too much."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import to_jsonable_python


@dataclass(frozen=True, slots=True, repr=False)
class Matcher:
    """What an argument must be. Made by `contains`, `one_of` and the like."""

    kind: str
    wanted: Any
    tolerance: float | None = None
    optional: bool = False

    def __repr__(self) -> str:
        text = f"{self.kind}({self.wanted!r})"
        if self.kind == "one_of":
            text = " or ".join(map(repr, self.wanted))
        elif self.kind == "worded":
            text = repr(self.wanted)
        if self.optional:
            return f"{text}, or left out" if text else "left out"
        return text


def equal(value: Any) -> Matcher:
    """The argument is this value, as the tool's own validation reads both. A plain value means the same."""
    return one_of(value)


def contains(part: Any) -> Matcher:
    """The text contains this part, or the list this item."""
    return Matcher("contains", part)


def matches(pattern: str) -> Matcher:
    """The regular expression matches somewhere in the text. Raises ValueError if the pattern is invalid."""
    try:
        re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ValueError(
            f"'matches' takes a regular expression, not {pattern!r}: {error}."
        ) from error
    return Matcher("matches", pattern)


def one_of(*values: Any) -> Matcher:
    """The argument is one of these values or fits one of these matchers. Tool names can be given in this way too."""
    return Matcher("one_of", values)


def near(number: float, tolerance: float | None = None) -> Matcher:
    """The number differs by at most `tolerance` (default: one percent of it)."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"'near' takes a number, not {number!r}.")
    return Matcher("near", number, tolerance)


_LEFT_OUT = one_of()


def optional(wanted: Any = _LEFT_OUT) -> Matcher:
    """The argument may be left out; if it is sent, it must fit. Without `wanted` it must be left out."""
    matcher = wanted if isinstance(wanted, Matcher) else equal(wanted)
    return replace(matcher, optional=True)


def is_optional(wanted: Any) -> bool:
    return isinstance(wanted, Matcher) and wanted.optional


def fits(wanted: Any, value: Any, convert: Callable[[Any], Any]) -> bool:
    """Whether a value is the wanted one or fits the matcher.

    `convert` turns a plain value that is wanted into what the tool would get. Values inside of
    which matchers stand are compared in JSON form.
    """
    if isinstance(wanted, Matcher) and wanted.kind == "one_of":
        return any(fits(choice, value, convert) for choice in wanted.wanted)
    if _has_matcher(wanted):
        return _fits(wanted, to_jsonable_python(value, fallback=str))
    return _fits(convert(wanted), value)


def _has_matcher(wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        wanted = list(wanted.values())
    if isinstance(wanted, list | tuple):
        return any(map(_has_matcher, wanted))
    return isinstance(wanted, Matcher)


def _fits(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, Matcher):
        return _fits_matcher(wanted, value)
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value  # to Python, True is 1
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        return value.keys() <= wanted.keys() and all(
            _fits(each, value[key]) if key in value else is_optional(each)
            for key, each in wanted.items()
        )
    if isinstance(wanted, list | tuple) and isinstance(value, list | tuple):
        return len(wanted) == len(value) and all(map(_fits, wanted, value))
    return bool(wanted == value)


def _fits_matcher(matcher: Matcher, value: Any) -> bool:
    wanted = matcher.wanted
    match matcher.kind, value:
        case "one_of", _:
            return any(_fits(choice, value) for choice in wanted)
        case "contains", str():
            return str(wanted) in value
        case "contains", list():
            return any(_fits(wanted, item) for item in value)
        case "matches", _:
            text = value if isinstance(value, str) else json.dumps(value)
            return re.search(wanted, text) is not None
        case "near", int() | float() if not isinstance(value, bool):
            tolerance = matcher.tolerance
            if tolerance is None:
                tolerance = abs(wanted) / 100
            return math.isclose(value, wanted, rel_tol=1e-9, abs_tol=tolerance)
        case "worded", str():
            return _letters(wanted) == _letters(value)
    return False


def _letters(text: str) -> str:
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')
