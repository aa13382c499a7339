"""The forms in which model families write a call: one small reader each.

The forms are those of the models' chat templates and of the public tests of the parsers in vLLM,
SGLang and llama.cpp, as of 2026. A reader gets the match of its mark and says where the calls end,
and which; None if what follows is no call. Pure: nothing a model wrote is run, nothing raises.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from .leaked_values import (
    GAP,
    PREFIX,
    SPACE,
    STOP,
    Block,
    Call,
    Tools,
    arguments_at,
    decode,
    is_closed,
    literal,
    parse_python,
    properties_of,
    resolve,
    skip,
    typed,
)

Reader = Callable[[re.Match[str], Tools], Block | None]

# --- JSON that holds the name and the arguments --------------------------------------------------

_ARGUMENT_KEYS = {"arguments", "parameters"}
_CALL_KEYS = {"name", "tool_name", "function", "type", "id", "index", "tool_call_id"} | _ARGUMENT_KEYS
_BROKEN = re.compile(
    r"""\{\s*["']name["']\s*:\s*["'](?P<name>[\w.-]+)["']\s*,\s*["'](?:arguments|parameters)["']\s*:"""
)


def _call(value: Any, tools: Tools, *, needs_arguments: bool) -> Call | None:
    value = _unwrapped(value)
    if not isinstance(value, dict) or value.keys() - _CALL_KEYS:
        return None
    name = resolve(value.get("name") or value.get("tool_name") or value.get("function"), tools)
    if name is None:
        return None
    schema = tools[name]
    if not value.keys() & _ARGUMENT_KEYS:
        return None if needs_arguments or _required(schema) else (name, {})
    given = value.get("arguments", value.get("parameters"))
    if isinstance(given, str):
        given = (decode(given.strip(), 0) or [""])[0]
    if given is None:
        return name, {}
    is_definition = isinstance(given, dict) and given.keys() >= {"type", "properties"}
    if not isinstance(given, dict) or (is_definition and "properties" not in properties_of(schema)):
        return None
    return name, given


def _unwrapped(value: Any) -> Any:
    """OpenAI's own form nests the call under "function"."""
    return value["function"] if isinstance(value, dict) and isinstance(value.get("function"), dict) else value


def _objects(text: str, start: int) -> tuple[int, list[Any]]:
    """JSON objects one after another, and where they end."""
    values: list[Any] = []
    at = end = start
    while text.startswith("{", at) and (decoded := decode(text, at)):
        values.append(decoded[0])
        end = decoded[1]
        at = skip(GAP, text, end)
    return end, values


def _read_objects(mark: re.Match[str], tools: Tools) -> Block | None:
    end, values = _objects(mark.string, mark.end())
    calls = [call for value in values if (call := _call(value, tools, needs_arguments=False))]
    return (end, calls) if calls else None if values else _read_broken(mark.string, mark.end(), tools)


def _read_broken(text: str, start: int, tools: Tools) -> Block | None:
    """An object that is closed but no JSON: its arguments are raw text."""
    stop = STOP.search(text, start)
    end = stop.start() if stop else len(text)
    raw = text[start:end].strip()
    head = _BROKEN.match(raw)
    name = resolve(head["name"], tools) if head else None
    arguments = raw[head.end() : -1].strip().rstrip(", \r\n") if head else ""
    return (end, [(name, arguments)]) if name and is_closed(raw) and is_closed(arguments) else None


def _read_array(mark: re.Match[str], tools: Tools) -> Block | None:
    decoded = decode(mark.string, mark.end())
    values = decoded[0] if decoded and isinstance(decoded[0], list) else []
    calls = [call for value in values if (call := _call(value, tools, needs_arguments=True))]
    return (decoded[1], calls) if decoded and calls else None


def whole_json(text: str, tools: Tools) -> list[Call]:
    """The calls of a text that is nothing but calls in JSON; none unless all name given tools."""
    decoded = decode(text, 0) if text[:1] == "[" else None
    end, values = (decoded[1], decoded[0]) if decoded else _objects(text, 0)
    if not values:
        block = _read_broken(text, 0, tools) or (0, [])
        return block[1] if GAP.fullmatch(text, block[0]) else []
    calls = [call for value in values if (call := _call(value, tools, needs_arguments=bool(decoded)))]
    is_whole = len(calls) == len(values) and GAP.fullmatch(text, end)
    return calls if is_whole and any(_unwrapped(value).keys() & _ARGUMENT_KEYS for value in values) else []


# --- a name, then the arguments as JSON ----------------------------------------------------------

_MISTRAL = re.compile(r"(?P<name>[\w.-]+)\s*(?:\[CALL_ID\]\s*[\w-]+\s*)?(?:\[ARGS\]\s*)?")
# DeepSeek V3 ("function", then the name) and V3.1 (the name), Kimi K2 (functions.name:0).
_ID = re.compile(
    r"\s*(?P<id>[\w.-]+)(?::\d+)?\s*<[|｜]tool[▁_](?:sep|call[▁_]argument[▁_]begin)[|｜]>\s*"
    r"(?:(?P<name>[\w.-]+)\s*```\w*\s*)?"
)
_RECIPIENT = re.compile(
    r"(?P<name>[\w.-]+)\s*(?:<\|channel\|>\w+)?\s*(?:<\|constrain\|>)?\s*(?:json|code)?\s*(?:<\|message\|>)?\s*"
)
_FUNCTIONARY = re.compile(r"(?:>>>)?(?P<name>[\w.-]+)[ \t]*\n")
_FENCE_END = re.compile(r"\s*```")


def _read_named(mark: re.Match[str], tools: Tools, head: re.Pattern[str]) -> Block | None:
    return _named(head.match(mark.string, mark.end()), tools)


def _named(head: re.Match[str] | None, tools: Tools) -> Block | None:
    name = resolve(head["name"] or head.groupdict().get("id"), tools) if head else None
    read = arguments_at(head.string, head.end()) if head and name else None
    if not (head and name and read):
        return None
    return (skip(_FENCE_END, head.string, read[1]) if "```" in head[0] else read[1]), [(name, read[0])]


def _read_recipient(mark: re.Match[str], tools: Tools) -> Block | None:
    """Harmony. A message to a recipient that is no given tool is neither a call nor to be seen."""
    head = _RECIPIENT.match(mark.string, mark.end())
    if head and "<|channel|>" in mark[0] and resolve(head["name"], tools) is None:
        stop = STOP.search(mark.string, head.end())
        return (stop.start() if stop else len(mark.string)), []
    return _named(head, tools)


def whole_functionary(text: str, tools: Tools) -> tuple[list[Call], str] | None:
    """Functionary 3.2: the whole text is names, each with its body; "all" is the user."""
    calls: list[Call] = []
    visible, at = "", 0
    while head := _FUNCTIONARY.match(text, at):
        if head["name"] == "all":
            following = text.find(">>>", head.end())
            at = following if following >= 0 else len(text)
            visible += text[head.end() : at]
        elif block := _named(head, tools):
            calls += block[1]
            at = skip(GAP, text, block[0])
        else:
            return None
    return (calls, visible) if calls and at == len(text) else None


# --- keys and values between tags ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Tags:
    """How a family writes keys and values. A value ends where `value_end` makes sense."""

    head: re.Pattern[str]
    key: re.Pattern[str]
    value_end: re.Pattern[str]
    close: re.Pattern[str]


_NAMED = _Tags(
    re.compile(rf'<{PREFIX}(?:function=|invoke name=)"?(?P<name>[^\s"<>=/]+)"?\s*(?P<empty>/?)>'),
    re.compile(
        rf'<{PREFIX}parameter(?:=| name=)"?(?P<key>[^\s"<>=]+)"?(?: string="(?:(?P<raw>true)|(?P<json>false))")?\s*>'
    ),
    re.compile(
        rf"</{PREFIX}parameter>(?=\s*(?:<{PREFIX}parameter[ =]|</{PREFIX}(?:function|invoke)>|</(?:\w+:)?tool_call>))"
    ),
    re.compile(rf"</{PREFIX}(?:function|invoke)>|(?=</tool_call>)"),
)
_GLM = _Tags(
    re.compile(r"(?P<name>[\w.-]+)"),
    re.compile(r"<arg_key>\s*(?P<key>[^<]+?)\s*</arg_key>\s*<arg_value>"),
    re.compile(r"</arg_value>(?=\s*(?:<arg_key>|</tool_call>))"),
    re.compile(r"</tool_call>"),
)
_KIMI_K3 = _Tags(
    re.compile(r'<\|open\|>call tool="(?P<name>[^"<]+)"[^<]*<\|sep\|>'),
    re.compile(r'<\|open\|>argument key="(?P<key>[^"<]+)"(?: type="(?:(?P<raw>string)|(?P<json>\w+))")?\s*<\|sep\|>'),
    re.compile(r"<\|close\|>argument<\|sep\|>(?=\s*<\|(?:open|close)\|>)"),
    re.compile(r"<\|close\|>call<\|sep\|>"),
)


def _read_tags(mark: re.Match[str], tools: Tools, tags: _Tags) -> Block | None:
    """Calls one after another. `invoke` without its wrapper counts only with all that is required."""
    text = mark.string
    calls: list[Call] = []
    end = mark.end()
    while (head := tags.head.match(text, skip(SPACE, text, end))) and (read := _read_tag(head, tools, tags)):
        end = read[0]
        is_lone = "invoke" in head[0] and not mark[0]
        calls += [call for call in read[1] if not is_lone or _required(tools[call[0]]) <= set(call[1])]
    return (end, calls) if end > mark.end() else None


def _required(schema: Mapping[str, Any]) -> set[str]:
    return set(schema.get("required") or ())


def _read_tag(head: re.Match[str], tools: Tools, tags: _Tags) -> Block | None:
    text, at = head.string, skip(SPACE, head.string, head.end())
    name = resolve(head["name"], tools)
    if name is None or head.groupdict().get("empty"):
        return (head.end(), [(name, {})]) if name else None
    if text.startswith("{", at):
        read = arguments_at(text, at)
        return (read[1], [(name, read[0])]) if read else None
    properties = properties_of(tools[name])
    arguments: dict[str, Any] = {}
    while key := tags.key.match(text, at):
        span = _value_end(text, key.end(), tags, properties.keys() - arguments.keys() - {key["key"]})
        if span is None:  # cut: all that follows is within the value
            return len(text), []
        value, marks = text[key.end() : span[0]], key.groupdict()
        if marks.get("raw"):
            arguments[key["key"]] = value
        else:
            if value.startswith("\n"):  # a newline on each side is markup
                value = value[1:].removesuffix("\n")
            schema = properties.get(key["key"], {} if marks.get("json") else None)
            arguments[key["key"]] = typed(value, schema, tools[name])
        at = skip(SPACE, text, span[1])
    close = tags.close.match(text, at)
    return (close.end(), [(name, arguments)]) if close else None


def _value_end(text: str, start: int, tags: _Tags, missing: set[str]) -> tuple[int, int] | None:
    """Where a value ends, and where to go on. A value may hold tags, and its end tag may be missing."""
    end = tags.value_end.search(text, start)
    following = tags.key.search(text, start, end.start() if end else len(text))
    if following and following["key"] in missing and text[following.start() - 1] == "\n":
        return following.start(), following.start()
    if end:
        return end.start(), end.end()
    # A cut value may happen to hold the close of the call, so the benefit of doubt is small.
    close = tags.close.search(text, start)
    value = text[start : close.start()] if close else "<"
    is_open = "<" in value or (value[:1] == "\n") != (value[-1:] == "\n")
    is_last = close and GAP.fullmatch(text, close.start()) and not is_open
    return (close.start(), close.start()) if close and is_last else None


# --- notations of their own ----------------------------------------------------------------------

_GEMMA_NAME = re.compile(r"(?P<name>[\w.-]+)\s*(?=\{)")
_GEMMA_PART = re.compile(
    r'<\|"\|>(?P<text>.*?)<\|"\|>|(?P<mark>[{}\[\]:,])|(?P<bare>"(?:[^"\\]|\\.)*"|[^{}\[\]:,<"]+|[<"])', re.DOTALL
)
_SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null')
_PYTHON_END = re.compile(r"<\|tool_call_end\|>|<\|python_end\|>|</function_calls>|<\|eo[mt]_id\|>|\Z")


def _read_gemma(mark: re.Match[str], tools: Tools) -> Block | None:
    """Gemma 4: JSON with bare keys, and strings between <|"|>."""
    text = mark.string
    head = _GEMMA_NAME.match(text, mark.end())
    name = resolve(head["name"], tools) if head else None
    parts: list[str] = []
    depth = 0
    for part in _GEMMA_PART.finditer(text, head.end()) if head and name else ():
        word = part["bare"].strip() if part["bare"] else part["text"]
        if part["bare"] == "<":  # a string that never ends, or no string
            return (len(text), []) if text.startswith('<|"|>', part.start()) else None
        if part["mark"]:
            depth += (part["mark"] in "{[") - (part["mark"] in "}]")
            parts.append(part["mark"])
        elif word or part["text"] is not None:
            is_value = part["bare"] and text[part.end() : part.end() + 1] != ":"
            parts.append(word if is_value and _SCALAR.fullmatch(word) else json.dumps(word))
        if depth == 0:
            decoded = decode("".join(parts), 0)
            return (part.end(), [(name, decoded[0])]) if name and decoded else None
    return None


def _read_python(mark: re.Match[str], tools: Tools) -> Block | None:
    """Calls in Python. The end mark may stand in a string too, so the first that makes sense counts."""
    for _, end in zip(range(8), _PYTHON_END.finditer(mark.string, mark.end()), strict=False):
        if calls := whole_python(mark.string[mark.end() : end.start()], tools):
            return end.end(), calls
    return None


def whole_python(source: str, tools: Tools) -> list[Call]:
    """The calls in source that is nothing but calls, with literals as arguments."""
    calls: list[Call | None] = []
    for expression in parse_python(source):
        value = expression.value
        nodes = value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]
        calls += [_python_call(node, tools) for node in nodes]
    return [call for call in calls if call]


def _python_call(node: ast.expr, tools: Tools) -> Call | None:
    try:
        prefix = ""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):  # a hyphen in the name
            prefix, node = ast.unparse(node.left).replace(" ", "") + "-", node.right
        if not isinstance(node, ast.Call) or node.args:
            return None
        written = prefix + ast.unparse(node.func)
        name = resolve(written, tools) or resolve(written.removesuffix(".call"), tools)
        return (name, {word.arg: literal(word.value) for word in node.keywords if word.arg}) if name else None
    except (ValueError, RecursionError):
        return None


FORMS: tuple[tuple[str, Reader], ...] = (
    # Hermes, Qwen 2.5 and 3; granite-20b; InternLM 2; Llama 3
    (r"<tool_call>\s*(?=\{)|<function_call>\s*(?=\{)|<\|plugin\|>\s*(?=\{)|<\|python_tag\|>\s*(?=\{)", _read_objects),
    # Mistral up to v7; Granite 3; Phi 4 mini; Hunyuan; Command R7B
    (r"(?:\[TOOL_CALLS\]|<\|tool_call\|>|<tool_calls?>|functools|<\|START_ACTION\|>)\s*(?=\[)", _read_array),
    (r"\[TOOL_CALLS\]\s*(?=[\w.-])", partial(_read_named, head=_MISTRAL)),
    (r"<[|｜]tool[▁_]call[▁_]begin[|｜]>", partial(_read_named, head=_ID)),
    # gpt-oss; a server may have stripped the tokens
    (
        r"to=functions\.|<\|channel\|>\w+ to=(?:functions\.)?",
        _read_recipient,
    ),
    # Qwen 3 Coder, Seed, Functionary 3.1, MiniMax, DeepSeek V3.2 and later
    (
        rf"(?:<{PREFIX}(?:(?:\w+_)?calls|(?:\w+:)?tool_call)>\s*)?(?=<{PREFIX}(?:function=|invoke name=))",
        partial(_read_tags, tags=_NAMED),
    ),
    (r"<tool_call>\s*(?=[\w.-]+\s*<)", partial(_read_tags, tags=_GLM)),
    (r"(?=<\|open\|>call tool=)", partial(_read_tags, tags=_KIMI_K3)),
    (r"<\|tool_call>\s*call:", _read_gemma),
    # LFM 2; Llama 4; Olmo 3; the builtin tools of Llama 3
    (
        r"(?:<\|tool_call_start\|>|<\|python_start\|>)\s*(?=[\[\w])|<function_calls>\s*(?=[\w.-]+\()"
        r"|<\|python_tag\|>\s*(?=[\w.]+\()",
        _read_python,
    ),
)
