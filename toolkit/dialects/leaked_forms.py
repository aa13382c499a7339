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
from toolkit.dialects.leaked_python import whole_python
from toolkit.dialects.leaked_tags import FUNCTION, read_tags
from toolkit.dialects.leaked_values import (
    GAP,
    Call,
    Head,
    Reading,
    Tools,
    json_at,
    skip,
)

THINK = (
    r"(?:<(?:seed:)?think>|\[THINK\]|<\|START_THINKING\|>|<\|channel>thought\b"
    r"|(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>)"
)
THOUGHT = r"(?:</(?:seed:)?think>|\[/THINK\]|<\|END_THINKING\|>|<channel\|>|<\|end\|>)"
MARK = (
    r"<[|｜]|<(?:[a-z]+:)?(?:tool_call|TOOLCALL>|(?:start_)?function|invoke|think)|\[(?:TOOL_CALLS|THINK)\]"
    r"|functools\s*\[|function call<\||(?:(?:commentary|analysis) )?to=functions\."
    r"|assistant(?:commentary|analysis)|\Aanalysis"
)


@dataclass(slots=True)
class Block:
    """A stretch of text that is calls or thoughts one after another; `calls` are those of known tools."""

    begin: int
    end: int = 0
    calls: list[Call] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)


_END = (
    r"</(?:[\w|｜:]*)(?:tool_call|function|invoke)>|<\|(?:call|tool_call_end|python_end|END_ACTION)\|>|<tool_call\|>"
    r"|<end_function_call>|<[|｜]tool[▁_]call[▁_]end[|｜]>"
)

_Reader = Callable[[Head, Tools], Reading | None]
"""Reads on from the beginning of a form. None: the form is cut off or broken."""


def find_blocks(text: str, tools: Tools) -> list[Block]:
    """The blocks in `text`. A call that is cut off or broken keeps its source instead of arguments.

    It is the last one, for what follows may stand within it, unless its end tag and then the next call follow.
    """
    blocks: list[Block] = []
    at = 0
    while mark := re.compile(MARK).search(text, at):
        at = mark.end()
        form = _form_at(text, mark.start())
        if form is None:
            continue
        head, reader = form
        at, calls = reader(head, tools) or _read_broken(head, tools)
        if not blocks or skip(GAP, text, blocks[-1].end) < head.start():
            blocks.append(Block(head.start()))
        block = blocks[-1]
        block.end = at
        block.calls += calls
        block.thoughts.append(head.groupdict().get("thought", ""))
    return blocks


def _form_at(text: str, start: int) -> tuple[Head, _Reader] | None:
    for pattern, reader in _FORMS:
        head = re.compile(pattern, re.DOTALL).match(text, start)
        if head:
            return head, reader
    return None


def _read_broken(head: Head, tools: Tools) -> Reading:
    """A call that its reader refused: its name and its source, up to the call that follows."""
    text = head.string
    end = len(text)
    next_call = _next_form(text, head.end())
    if next_call < end:
        for close in islice(re.compile(_END).finditer(text, head.end(), next_call), 8):
            if next_call <= skip(GAP, text, close.end()):
                end = close.end()
    # With its markup, so that nothing reads it as arguments.
    source = text[head.start() : end]
    written_name = head.groupdict().get("name")
    if not written_name:
        key = re.search(r'"(?:tool_)?name"\s*:\s*"([^"\\]+)"', source)
        written_name = key[1] if key else ""
    name = resolve_name(written_name, tools)
    return end, [(name, source)] if name else []


def _next_form(text: str, start: int) -> int:
    """Where the next form begins; the end of the text if there is none."""
    for mark in islice(re.compile(MARK).finditer(text, start), 32):
        if _form_at(text, mark.start()):
            return mark.start()
    return len(text)


def _read_thought(head: Head, tools: Tools) -> Reading:
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


def _read_json(head: Head, tools: Tools) -> Reading | None:
    end, calls = _json_calls(head.string, head.end(), tools)
    if not calls:
        return None
    return end, [call for call in calls if call]


def _read_keyed(head: Head, tools: Tools) -> Reading | None:
    """An array of objects whose only key is the name."""
    json_value = json_at(head.string, head.end())
    if json_value is None or not isinstance(json_value[0], list):
        return None
    calls: list[Call] = []
    for item in json_value[0]:
        if not isinstance(item, dict) or len(item) != 1:
            return None
        [(written_name, arguments)] = item.items()
        name = resolve_name(written_name, tools)
        if name:
            is_object = isinstance(arguments, dict)
            calls.append((name, arguments if is_object else str(arguments)))
    return json_value[1], calls


def whole_json(text: str, tools: Tools) -> list[Call]:
    """The calls of a text that is nothing but calls in JSON; none unless all of them name known tools."""
    end, candidates = _json_calls(text, 0, tools)
    calls = [call for call in candidates if call and isinstance(call[1], dict)]
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
    raw = fields.get("arguments", fields.get("parameters", {}))
    parsed = parse(raw)
    if name is None:
        return None
    if parsed.problem:
        return name, str(raw)
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
    r"(?:<\|start\|>)?(?:assistant)?(?:<\|channel\|>)?(?:\w+ )?to=(?P<name>[\w.-]+)\s*(?:<\|channel\|>\w+)?\s*"
    r"(?:<\|constrain\|>)?\s*(?:json|code)?\s*(?:<\|message\|>)?\s*"
)
_NOTHING = r"<\|(?:call|end)\|>|<[|｜]tool[▁_]call[▁_]end[|｜]>|</function>"


def _read_named(head: Head, tools: Tools) -> Reading | None:
    text = head.string
    arguments: Any = {}
    end = head.end()
    if not re.compile(_NOTHING).match(text, end):
        json_value = json_at(text, end)
        if json_value is None:
            return None
        arguments, end = json_value
    # A channel of Harmony may be named once more.
    end = skip(r"\s*```(?=\s*<)|<\|call\|>(?:commentary|assistant)\s*\Z", text, end)
    name = resolve_name(head["name"], tools)
    if not isinstance(arguments, dict):
        arguments = str(arguments)
    return end, [(name, arguments)] if name else []


# --- notations of their own ----------------------------------------------------------------------

_GEMMA_STRING = (
    r'(?:<\|"\|>(?:(?!<\|"\|>).)*<\|"\|>|<escape>(?:(?!<escape>).)*<escape>)'
)
_GEMMA = (
    r"<(?:\|tool_call|start_function_call)>\s*call:(?P<name>[\w.-]+)\s*"
    rf"(?P<body>\{{(?:{_GEMMA_STRING}|[^<])*\}})?"
)
# A string, or a word; in a group if it is none of JSON.
_GEMMA_WORD = (
    r'<\|"\|>(?P<text>.*?)<\|"\|>|<escape>(?P<escaped>.*?)<escape>|"(?:[^"\\]|\\.)*"|(?:true|false|null|-?\d[\d.eE+-]*)(?=\s*[,}\]])'
    r'|(?P<bare>[^\s{}\[\]:,"<][^{}\[\]:,"<]*)'
)
_PYTHON_END = (
    r"<\|tool_call_end\|>|<\|python_end\|>|</function_calls>|<\|eo[mt]_id\|>|\Z"
)


def _read_gemma(head: Head, tools: Tools) -> Reading | None:
    """JSON with bare keys, and strings between <|"|> or <escape>."""
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
    value = word[word.lastgroup]
    return json.dumps(value.rstrip() if word["bare"] else value)


def _read_python(head: Head, tools: Tools) -> Reading | None:
    """Calls in Python. The end mark may stand in a string too, so the first that makes sense counts."""
    text = head.string
    for end in islice(re.compile(_PYTHON_END).finditer(text, head.end()), 8):
        calls = whole_python(text[head.end() : end.start()], tools)
        if calls:
            return end.end(), calls
    return None


_FORMS: tuple[tuple[str, _Reader], ...] = (
    (rf"{THINK}(?P<thought>.*?)(?:{THOUGHT}|\Z)", _read_thought),
    # gpt-oss without its tokens
    (
        r"(?:assistant)?analysis(?P<thought>[A-Z].*?)(?=assistant(?:commentary|final))",
        _read_thought,
    ),
    # Hermes, Qwen 2.5 and 3; MiniMax M1; granite-20b; InternLM 2; Llama 3; GigaChat 3
    (
        r"(?:<(?:tool_calls?|function_call|\|(?:plugin|python_tag|function_call)\|)>"
        r"|function call<\|role_sep\|>)\s*(?=\{)",
        _read_json,
    ),
    # Mistral up to v7; Granite 3; Phi 4 mini; Hunyuan; Command R7B; Nemotron Nano 2
    (
        r"(?:\[TOOL_CALLS\]|<\|tool_call\|>|<tool_calls?>|<TOOLCALL>|functools|<\|START_ACTION\|>)\s*(?=\[\s*\{)",
        _read_json,
    ),
    # Apertus
    (r"<\|tools_prefix\|>\s*(?=\[)", _read_keyed),
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
    # Qwen 3 Coder, Seed, MiniMax M2, MiniCPM 5, DeepSeek V3.2 and later; GLM
    (FUNCTION, read_tags),
    (r"<tool_call>\s*(?P<name>[\w.-]+)\s*(?=<arg_key>|</tool_call>)", read_tags),
    # FunctionGemma, Gemma 4
    (_GEMMA, _read_gemma),
    # LFM 2, Llama 4, Olmo 3; the builtin tools of Llama 3
    (r"<\|(?:tool_call|python)_start\|>\s*(?=[\[\w])", _read_python),
    (r"<(?:function_calls|\|python_tag\|)>\s*(?=[\w.-]+\()", _read_python),
)
