"""The forms in which model families write a call: a row each, and a small reader for each kind.

The forms are those of the models' chat templates and of the public tests of the parsers in vLLM, SGLang and llama.cpp,
as of 2026. Pure: nothing that a model wrote is run, nothing raises. A new form is a row of `_FORMS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from toolkit.calls.parsing import parse, resolve_name
from toolkit.dialects import JSONDict, JSONObject
from toolkit.dialects.leaked_python import whole_python
from toolkit.dialects.leaked_values import (
    GAP,
    PREFIX,
    Call,
    Tools,
    json_at,
    skip,
    typed,
)

THINK = (
    r"(?:<(?:seed:)?think>|\[THINK\]|<\|START_THINKING\|>|<\|channel>thought\b"
    r"|(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>)"
)
THOUGHT = r"(?:</(?:seed:)?think>|\[/THINK\]|<\|END_THINKING\|>|<channel\|>|<\|end\|>)"
MARK = (
    r"<[|｜]|<(?:[a-z]+:)?(?:tool_call|function|invoke|think)|\[(?:TOOL_CALLS|THINK)\]|functools\s*\[|to=functions\."
    r"|assistant(?:commentary|analysis)"
)


@dataclass(slots=True)
class Block:
    """A stretch of text that is calls or thoughts one after another; `calls` are those of known tools."""

    begin: int
    end: int = 0
    calls: list[Call] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)


_Head = re.Match[str]
"""The beginning of a form, as its pattern matches it."""

_Reading = tuple[int, list[Call]]
"""Where the form ends, and its calls of known tools."""

_Reader = Callable[[_Head, Tools], _Reading | None]
"""Reads on from the beginning of a form. None: the form is cut off or broken."""


def find_blocks(text: str, tools: Tools) -> list[Block]:
    """The blocks in `text`. One that is cut off or broken is its last: what follows may stand within that one."""
    blocks: list[Block] = []
    at = 0
    while mark := re.compile(MARK).search(text, at):
        at = mark.end()
        form = _form_at(text, mark.start())
        if form is None:
            continue
        head, reader = form
        at, calls = reader(head, tools) or (len(text), [])
        if not blocks or skip(GAP, text, blocks[-1].end) < head.start():
            blocks.append(Block(head.start()))
        block = blocks[-1]
        block.end = at
        block.calls += calls
        block.thoughts.append(head.groupdict().get("thought", ""))
    return blocks


def _form_at(text: str, start: int) -> tuple[_Head, _Reader] | None:
    for pattern, reader in _FORMS:
        head = re.compile(pattern, re.DOTALL).match(text, start)
        if head:
            return head, reader
    return None


def _read_thought(head: _Head, tools: Tools) -> _Reading:
    return head.end(), []


# --- JSON that holds the name and the arguments --------------------------------------------------

_ARGUMENTS = {"arguments", "parameters"}
_KEYS = _ARGUMENTS | {
    "name",
    "tool_name",
    "function",
    "type",
    "id",
    "index",
    "tool_call_id",
}


def _read_json(head: _Head, tools: Tools) -> _Reading | None:
    end, calls = _json_calls(head.string, head.end(), tools)
    if not calls:
        return None
    return end, [call for call in calls if call]


def whole_json(text: str, tools: Tools) -> list[Call]:
    """The calls of a text that is nothing but calls in JSON; none unless all of them name known tools."""
    end, candidates = _json_calls(text, 0, tools)
    calls = [call for call in candidates if call]
    is_whole = len(calls) == len(candidates) and skip(GAP, text, end) == len(text)
    has_arguments = "arguments" in text or "parameters" in text
    return calls if is_whole and has_arguments else []


def _json_calls(text: str, start: int, tools: Tools) -> tuple[int, list[Call | None]]:
    """An array, or objects one after another: where they end, and each as a call if it is one."""
    calls: list[Call | None] = []
    at = end = start
    while text.startswith(("[", "{"), at):
        json_value = json_at(text, at)
        if json_value is None:
            break
        value, end = json_value
        if isinstance(value, list):
            return end, [
                _json_call(item, tools, needs_arguments=True) for item in value
            ]
        calls.append(_json_call(value, tools, needs_arguments=False))
        at = skip(GAP, text, end)
    return end, calls


def _json_call(value: Any, tools: Tools, *, needs_arguments: bool) -> Call | None:
    """The call that a value is. In an array, an object without arguments is not a call."""
    if not isinstance(value, dict):
        return None
    # Nested as in OpenAI's API.
    inner = value.get("function")
    fields = inner if isinstance(inner, dict) else value
    has_arguments = not fields.keys().isdisjoint(_ARGUMENTS)
    if fields.keys() - _KEYS or (needs_arguments and not has_arguments):
        return None
    written_name = (
        fields.get("name") or fields.get("tool_name") or fields.get("function")
    )
    name = resolve_name(str(written_name), tools)
    parsed = parse(fields.get("arguments", fields.get("parameters", {})))
    if name is None or parsed.problem:
        return None
    # The definition of a tool, unless the tool has a parameter of that name.
    is_definition = parsed.arguments.keys() >= {"type", "properties"}
    if is_definition and "properties" not in tools[name].get("properties", ()):
        return None
    return name, parsed.arguments


# --- a name, then the arguments as JSON ----------------------------------------------------------

_SEPARATOR = r"<[|｜]tool[▁_](?:sep|call[▁_]argument[▁_]begin)[|｜]>"
# DeepSeek V3 writes "function", then the name; V3.1 the name; Kimi K2 functions.name:0.
_BEGIN = (
    rf"<[|｜]tool[▁_]call[▁_]begin[|｜]>\s*(?:function\s*{_SEPARATOR}\s*)?"
    rf"(?P<name>[\w.:-]+)\s*(?:{_SEPARATOR}|```\w*)\s*"
)
# A server may have stripped the tokens of Harmony.
_RECIPIENT = (
    r"(?:assistant)?(?:<\|channel\|>)?(?:\w+ )?to=(?P<name>[\w.-]+)\s*(?:<\|channel\|>\w+)?\s*"
    r"(?:<\|constrain\|>)?\s*(?:json|code)?\s*(?:<\|message\|>)?\s*"
)
_NOTHING = r"<\|(?:call|end)\|>|<[|｜]tool[▁_]call[▁_]end[|｜]>|</function>"


def _read_named(head: _Head, tools: Tools) -> _Reading | None:
    text = head.string
    arguments: Any = {}
    end = head.end()
    if not re.compile(_NOTHING).match(text, end):
        json_value = json_at(text, end)
        if json_value is None:
            return None
        arguments, end = json_value
    end = skip(r"\s*```(?=\s*<)", text, end)
    name = resolve_name(head["name"], tools)
    return end, [(name, arguments)] if name and isinstance(arguments, dict) else []


# --- keys and values between tags ----------------------------------------------------------------

_FUNCTION = (
    rf"(?:<{PREFIX}(?:(?:\w+_)?calls|(?:\w+:)?tool_call)>\s*)?"
    rf'<{PREFIX}(?:function=|invoke name=)"?(?P<name>[^\s"<>=/]+)"?\s*/?>'
)
_KEY = (
    rf'\s*(?:<{PREFIX}parameter(?:=| name=)"?(?P<key>[^\s"<>=]+)"?(?: string="(?P<is_text>true|false)")?\s*>'
    r"|<arg_key>\s*(?P<glm>[^<]+?)\s*</arg_key>\s*<arg_value>)"
)
_FUNCTION_END = rf"</{PREFIX}(?:function|invoke)>"
_CALL_END = r"</(?:\w+:)?tool_call>"
# A value may hold tags of its own, and its end tag may be missing: what follows tells where it ends.
_VALUE_END = (
    rf"</(?:{PREFIX}parameter|arg_value)>(?=\s*(?:<{PREFIX}parameter[ =]|<arg_key>|{_FUNCTION_END}|{_CALL_END}))"
    rf"|\n(?=<{PREFIX}parameter[ =]|<arg_key>[^<]+</arg_key>|{_FUNCTION_END}\s*{_CALL_END})"
)
_CLOSE = rf"(?<=/>)|\s*(?:{_FUNCTION_END}|{_CALL_END})"


def _read_tags(head: _Head, tools: Tools) -> _Reading | None:
    text = head.string
    at = head.end()
    name = resolve_name(head["name"], tools)
    schema = tools[name] if name else {}
    arguments: JSONDict = {}
    while key := re.compile(_KEY).match(text, at):
        end = re.compile(_VALUE_END).search(text, key.end())
        if not end:
            return None
        value = text[key.end() : end.start()]
        arguments[key["key"] or key["glm"]] = _tag_value(value, key, schema)
        at = end.end()
    close = re.compile(_CLOSE).match(text, at)
    if not close:
        return None
    # An `invoke` may have lost its wrapper, so it counts only with all that is required.
    required = set(schema.get("required") or ())
    is_meant = "invoke" not in head[0] or arguments.keys() >= required
    return close.end(), [(name, arguments)] if name and is_meant else []


def _tag_value(text: str, key: re.Match[str], schema: JSONObject) -> Any:
    """The value between two tags; the first tag may say whether it is text."""
    if key["is_text"] == "true":
        return text
    if text.startswith("\n"):
        # A newline on each side is markup.
        text = text[1:].removesuffix("\n")
    properties = schema.get("properties") or {}
    # A parameter that the schema does not know is text, unless the tag says that it is not.
    default: JSONDict | None = {} if key["is_text"] else None
    return typed(text, properties.get(key["key"] or key["glm"], default), schema)


# --- notations of their own ----------------------------------------------------------------------

_GEMMA = r'<\|tool_call>\s*call:(?P<name>[\w.-]+)\s*(?P<body>\{(?:<\|"\|>(?:(?!<\|"\|>).)*<\|"\|>|[^<])*\})?'
# A string, or a word; in a group if it is none of JSON.
_GEMMA_WORD = (
    r'<\|"\|>(?P<text>.*?)<\|"\|>|"(?:[^"\\]|\\.)*"|(?:true|false|null|-?\d[\d.eE+-]*)(?=\s*[,}\]])'
    r'|(?P<bare>[^\s{}\[\]:,"<][^{}\[\]:,"<]*)'
)
_PYTHON_END = (
    r"<\|tool_call_end\|>|<\|python_end\|>|</function_calls>|<\|eo[mt]_id\|>|\Z"
)


def _read_gemma(head: _Head, tools: Tools) -> _Reading | None:
    """JSON with bare keys, and strings between <|"|>."""
    if head["body"] is None:
        return None
    parsed = parse(re.compile(_GEMMA_WORD, re.DOTALL).sub(_as_json, head["body"]))
    if parsed.problem:
        return None
    name = resolve_name(head["name"], tools)
    return head.end(), [(name, parsed.arguments)] if name else []


def _as_json(word: re.Match[str]) -> str:
    if not word.lastgroup:
        return word[0]
    return json.dumps(word["bare"].rstrip() if word["bare"] else word["text"])


def _read_python(head: _Head, tools: Tools) -> _Reading | None:
    """Calls in Python. The end mark may stand in a string too, so the first that makes sense counts."""
    text = head.string
    for end in islice(re.compile(_PYTHON_END).finditer(text, head.end()), 8):
        calls = whole_python(text[head.end() : end.start()], tools)
        if calls:
            return end.end(), calls
    return None


_FORMS: tuple[tuple[str, _Reader], ...] = (
    (rf"{THINK}(?P<thought>.*?)(?:{THOUGHT}|\Z)", _read_thought),
    # Hermes, Qwen 2.5 and 3; granite-20b; InternLM 2; Llama 3
    (r"<(?:tool_call|function_call|\|plugin\||\|python_tag\|)>\s*(?=\{)", _read_json),
    # Mistral up to v7; Granite 3; Phi 4 mini; Hunyuan; Command R7B
    (
        r"(?:\[TOOL_CALLS\]|<\|tool_call\|>|<tool_calls?>|functools|<\|START_ACTION\|>)\s*(?=\[\s*\{)",
        _read_json,
    ),
    # Mistral
    (
        r"\[TOOL_CALLS\]\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\]\s*[\w-]+\s*)?(?:\[ARGS\]\s*)?(?=\{)",
        _read_named,
    ),
    # DeepSeek V3 and V3.1, Kimi K2; gpt-oss
    (_BEGIN, _read_named),
    (_RECIPIENT, _read_named),
    # Functionary 3.1
    (r"<function=(?P<name>[\w.-]+)>\s*(?=\{)", _read_named),
    # Qwen 3 Coder, Seed, MiniMax, DeepSeek V3.2 and later; GLM
    (_FUNCTION, _read_tags),
    (r"<tool_call>\s*(?P<name>[\w.-]+)\s*(?=<arg_key>|</tool_call>)", _read_tags),
    # Gemma 4
    (_GEMMA, _read_gemma),
    # LFM 2, Llama 4, Olmo 3; the builtin tools of Llama 3
    (r"<\|(?:tool_call|python)_start\|>\s*(?=[\[\w])", _read_python),
    (r"<(?:function_calls|\|python_tag\|)>\s*(?=[\w.-]+\()", _read_python),
)
