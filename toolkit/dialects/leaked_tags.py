"""Calls whose keys and values stand between tags: Qwen 3 Coder, Seed, MiniMax, MiniCPM 5, DeepSeek, GLM. Pure."""

from __future__ import annotations

import re
from typing import Any

from toolkit.calls.parsing import resolve_name, typed
from toolkit.dialects import JSONDict, JSONObject
from toolkit.dialects.leaked_values import PREFIX, Head, Reading, Tools

FUNCTION = (
    rf"(?:<{PREFIX}(?:(?:\w+_)?calls|(?:\w+:)?tool_call)>\s*)?"
    rf'<{PREFIX}(?:function=|(?:function|invoke) name=)"?(?P<name>[^\s"<>=/]+)"?\s*/?>'
)
_KEY = (
    rf'\s*(?:<{PREFIX}param(?:eter)?(?:=| name=)"?(?P<key>[^\s"<>=]+)"?(?: string="(?P<is_text>true|false)")?\s*>'
    r"|<arg_key>\s*(?P<glm>[^<]+?)\s*</arg_key>\s*<arg_value>)"
)
_FUNCTION_END = rf"</{PREFIX}(?:function|invoke)>"
_CALL_END = r"</(?:\w+:)?tool_call>"
# A value may hold tags of its own, and its end tag may be missing: what follows tells where it ends.
_END_TAG = rf"</(?:{PREFIX}param(?:eter)?|arg_value)>"
_VALUE_END = (
    rf"{_END_TAG}(?=\s*(?:<{PREFIX}param(?:eter)?[ =]|<arg_key>|{_FUNCTION_END}|{_CALL_END}))"
    rf"|\n(?=<{PREFIX}param(?:eter)?[ =]|<arg_key>[^<]+</arg_key>|{_FUNCTION_END}\s*{_CALL_END})"
)
# In a value: another call began, so the end of this one is missing.
_NEXT_CALL = rf"{_FUNCTION_END}\s*(?:{_CALL_END}\s*)?{FUNCTION}|{_CALL_END}\s*<(?:\w+:)?tool_call>"
_CLOSE = rf"(?<=/>)|\s*(?:{_FUNCTION_END}|{_CALL_END})"


def read_tags(head: Head, tools: Tools) -> Reading | None:
    """Reads on from `FUNCTION`, or from a name between the tags of GLM. None: the call is cut off or broken."""
    text = head.string
    at = head.end()
    name = resolve_name(head["name"], tools)
    schema = tools[name] if name else {}
    arguments: JSONDict = {}
    while key := re.compile(_KEY).match(text, at):
        bounds = _value_bounds(text, key.end(), schema)
        if not bounds:
            return None
        end, at = bounds
        value = text[key.end() : end]
        arguments[key["key"] or key["glm"]] = _tag_value(value, key, schema)
    close = re.compile(_CLOSE).match(text, at)
    if not close:
        return None
    # An `invoke` may have lost its wrapper, so it counts only with all that is required.
    required = set(schema.get("required") or ())
    is_meant = "invoke" not in head[0] or arguments.keys() >= required
    return close.end(), [(name, arguments)] if name and is_meant else []


def _value_bounds(text: str, start: int, schema: JSONObject) -> tuple[int, int] | None:
    """Where the value ends, and its end tag; None if that is not certain.

    A declared parameter that begins within the value ends it, unless the value or what follows has an end tag too many.
    """
    end = re.compile(_VALUE_END).search(text, start)
    if not end or re.compile(_NEXT_CALL).search(text, start, end.start()):
        return None
    properties = schema.get("properties") or {}
    for key in re.compile(_KEY).finditer(text, start, end.start()):
        if (key["key"] or key["glm"]) in properties:
            if re.compile(_END_TAG).search(text, start, end.start()):
                return None
            return key.start(), key.start()
    return end.start(), end.end()


def _tag_value(text: str, key: re.Match[str], schema: JSONObject) -> Any:
    """The value between two tags; the first tag may say whether it is text."""
    text = re.sub(r"\A<!\[CDATA\[(.*)\]\]>\Z", r"\1", text, flags=re.DOTALL)
    if key["is_text"] == "true":
        return text
    if text.startswith("\n"):
        # A newline on each side is markup.
        text = text[1:].removesuffix("\n")
    properties = schema.get("properties") or {}
    # A parameter that the schema does not know is text, unless the tag says that it is not.
    default: JSONDict | None = {} if key["is_text"] else None
    return typed(text, properties.get(key["key"] or key["glm"], default), schema)
