"""What the pieces of a leaked call stand for: names, arguments, values, the tokens around them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from toolkit.calls.parsing import mended
from toolkit.dialects import JSONDict, JSONObject

Call = tuple[str, JSONDict | str]
"""A name with its arguments; with a text instead if they could not be read."""

Tools = Mapping[str, JSONObject]

Head = re.Match[str]
"""The beginning of a form, as its pattern matches it."""

Reading = tuple[int, list[Call]]
"""Where the form ends, and its calls of known tools."""

# `int` refuses NaN and Infinity, which are not JSON.
_JSON = json.JSONDecoder(strict=False, parse_constant=int)
# Patterns are texts, compiled where they are used: most replies hold no call and need none of them.
PREFIX = r"(?:[|｜]DSML[|｜] ?|antml:)?"
# What stands around calls and messages, whatever the family: tags with a bar, and the tags that name calls.
TOKEN = (
    rf"<\|(?:start|channel)\|>\w*|</?[|｜][^<>\n]{{1,50}}>|<\w+\|>|</?{PREFIX}(?:\w+:)?(?:(?:tool|function)_calls?|answer)>"
    r"|</?TOOLCALL>|<(?:start|end)_function_call>|</function>|</s>|\[/?TOOL_CALLS\]"
)
GAP = rf"(?:[\s;,]|{TOKEN})*"


def skip(pattern: str, text: str, start: int) -> int:
    """Where a match of `pattern` ends; `start` if there is none."""
    match = re.compile(pattern).match(text, start)
    return match.end() if match else start


def json_at(text: str, start: int) -> tuple[Any, int] | None:
    """The JSON value at `start`, and its end. One that is complete but was written as in Python is mended."""
    try:
        return _JSON.raw_decode(text, start)
    except (ValueError, RecursionError):
        stop = re.compile(rf"\n?```|{TOKEN}|\Z").search(text, start)
    raw = text[start : stop.start() if stop else None].rstrip()
    values = mended(raw)
    return (values[0], start + len(raw)) if values else None
