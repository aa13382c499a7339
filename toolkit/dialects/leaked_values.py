"""What the pieces of a leaked call stand for: names, arguments, values, the tokens around them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from toolkit.calls.parsing import parse
from toolkit.dialects import JSONDict, JSONObject
from toolkit.tools.json_schema import alternatives, types_of

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
    values = _mended(raw)
    return (values[0], start + len(raw)) if values else None


def _mended(text: str) -> list[Any]:
    """The one value that `text` stands for, in a list; an empty list if it stands for none."""
    arguments = parse(f'{{"value": {text}}}').arguments
    return [arguments["value"]] if arguments.keys() == {"value"} else []


def typed(text: str, schema: Any, root: JSONObject) -> Any:
    """The value that `text` stands for, if a form writes all values as text.

    The schema decides: text stays text if a string is allowed or the parameter is not known.
    """
    if not isinstance(schema, Mapping):
        return text
    types = set(types_of(schema, root))
    for node in alternatives(schema, root):
        choices = [*node.get("enum", ()), node.get("const")]
        if any(isinstance(choice, str) for choice in choices):
            types.add("string")
    word = text.strip()
    is_null = "null" in types and word in ("null", "None")
    is_container = types & {"object", "array"} and word.startswith(("{", "["))
    if "string" in types and not is_null and not is_container:
        return text
    values = _mended(word)
    return values[0] if values else text
