"""The forms in which model families write a call: a row each, and a small reader for each kind.

The forms are those of the models' chat templates and of the public tests of the parsers in vLLM,
SGLang and llama.cpp, as of 2026. Pure: nothing a model wrote is run, nothing raises.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from toolkit.calls.parsing import parse, resolve_name
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
    """A stretch of text that is calls or thoughts one after another; `calls` are those of given tools."""

    begin: int
    end: int = 0
    calls: list[Call] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)


Read = tuple[int, list[Call]]  # where it ends, and the calls
Reader = Callable[[re.Match[str], Tools], Read | None]


def find_blocks(text: str, tools: Tools) -> list[Block]:
    """The blocks in `text`. One that is cut or broken is its last: what follows may stand within that one."""
    blocks: list[Block] = []
    at = 0
    while mark := re.compile(MARK).search(text, at):
        at = mark.end()
        for pattern, reader in FORMS:
            if head := re.compile(pattern, re.DOTALL).match(text, mark.start()):
                at, calls = reader(head, tools) or (len(text), [])
                if not blocks or skip(GAP, text, blocks[-1].end) < head.start():
                    blocks.append(Block(head.start()))
                blocks[-1].end = at
                blocks[-1].calls += calls
                blocks[-1].thoughts.append(head.groupdict().get("thought", ""))
                break
    return blocks


def _read_thought(head: re.Match[str], tools: Tools) -> Read | None:
    return head.end(), []


# --- JSON that holds the name and the arguments --------------------------------------------------

_ARGUMENTS = {"arguments", "parameters"}
_KEYS = {
    "name",
    "tool_name",
    "function",
    "type",
    "id",
    "index",
    "tool_call_id",
} | _ARGUMENTS


def _read_json(head: re.Match[str], tools: Tools) -> Read | None:
    end, calls = _json_calls(head.string, head.end(), tools)
    return (end, [call for call in calls if call]) if calls else None


def whole_json(text: str, tools: Tools) -> list[Call]:
    """The calls of a text that is nothing but calls in JSON; none unless all name given tools."""
    end, found = _json_calls(text, 0, tools)
    calls = [call for call in found if call]
    is_whole = len(calls) == len(found) and skip(GAP, text, end) == len(text)
    return calls if is_whole and ("arguments" in text or "parameters" in text) else []


def _json_calls(text: str, start: int, tools: Tools) -> tuple[int, list[Call | None]]:
    """An array, or objects one after another: where they end, and each as a call if it is one."""
    calls: list[Call | None] = []
    at = end = start
    while text.startswith(("[", "{"), at) and (read := json_at(text, at)):
        value, end = read
        if isinstance(value, list):
            return end, [
                _json_call(item, tools, needs_arguments=True) for item in value
            ]
        calls.append(_json_call(value, tools, needs_arguments=False))
        at = skip(GAP, text, end)
    return end, calls


def _json_call(value: Any, tools: Tools, *, needs_arguments: bool) -> Call | None:
    if isinstance(value, dict) and isinstance(
        value.get("function"), dict
    ):  # nested as in OpenAI's API
        value = value["function"]
    if (
        not isinstance(value, dict)
        or value.keys() - _KEYS
        or (needs_arguments and not value.keys() & _ARGUMENTS)
    ):
        return None
    name = resolve_name(
        str(value.get("name") or value.get("tool_name") or value.get("function")), tools
    )
    given = parse(value.get("arguments", value.get("parameters", {})))
    if name is None or given.problem:
        return None
    is_definition = given.arguments.keys() >= {"type", "properties"}
    return (
        None
        if is_definition and "properties" not in tools[name].get("properties", ())
        else (name, given.arguments)
    )


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


def _read_named(head: re.Match[str], tools: Tools) -> Read | None:
    text, at = head.string, head.end()
    read = ({}, at) if re.compile(_NOTHING).match(text, at) else json_at(text, at)
    if read is None:
        return None
    name = resolve_name(head["name"], tools)
    calls = [(name, read[0])] if name and isinstance(read[0], dict) else []
    return skip(r"\s*```(?=\s*<)", text, read[1]), calls


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


def _read_tags(head: re.Match[str], tools: Tools) -> Read | None:
    text, at = head.string, head.end()
    name = resolve_name(head["name"], tools)
    schema = tools[name] if name else {}
    properties = schema.get("properties") or {}
    arguments: dict[str, Any] = {}
    while key := re.compile(_KEY).match(text, at):
        end = re.compile(_VALUE_END).search(text, key.end())
        if not end:
            return None
        value, word = text[key.end() : end.start()], key["key"] or key["glm"]
        if key["is_text"] != "true":
            if value.startswith("\n"):  # a newline on each side is markup
                value = value[1:].removesuffix("\n")
            value = typed(
                value, properties.get(word, {} if key["is_text"] else None), schema
            )
        arguments[word] = value
        at = end.end()
    close = re.compile(_CLOSE).match(text, at)
    # An `invoke` may have lost its wrapper, so it counts only with all that is required.
    is_short = "invoke" in head[0] and not arguments.keys() >= set(
        schema.get("required") or ()
    )
    return (
        (close.end(), [(name, arguments)] if name and not is_short else [])
        if close
        else None
    )


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
_PYTHON_ESCAPE = r"(\\[\n\\'\"abfnrtvxuUN0-7])|\\"
_WORDS = {"true": True, "false": False, "null": None}


def _read_gemma(head: re.Match[str], tools: Tools) -> Read | None:
    """JSON with bare keys, and strings between <|"|>."""
    name = resolve_name(head["name"], tools)
    if head["body"] is None:
        return None
    given = parse(re.compile(_GEMMA_WORD, re.DOTALL).sub(_quoted, head["body"]))
    return (
        None
        if given.problem
        else (head.end(), [(name, given.arguments)] if name else [])
    )


def _quoted(word: re.Match[str]) -> str:
    return (
        json.dumps(word["bare"].rstrip() if word["bare"] else word["text"])
        if word.lastgroup
        else word[0]
    )


def _read_python(head: re.Match[str], tools: Tools) -> Read | None:
    """Calls in Python. The end mark may stand in a string too, so the first that makes sense counts."""
    for end in islice(re.compile(_PYTHON_END).finditer(head.string, head.end()), 8):
        if calls := whole_python(head.string[head.end() : end.start()], tools):
            return end.end(), calls
    return None


def whole_python(source: str, tools: Tools) -> list[Call]:
    """The calls in source that is nothing but calls, with literals as arguments."""
    # An escape that Python does not know ("\\d") means itself, but the parser warns of it.
    source = re.sub(_PYTHON_ESCAPE, lambda escape: escape[1] or r"\\", source.strip())
    try:
        statements = _JsonWords().visit(ast.parse(source)).body
        nodes = [
            statement.value
            for statement in statements
            if isinstance(statement, ast.Expr)
        ]
        listed = [
            item
            for node in nodes
            for item in (
                node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]
            )
        ]
        calls = [_python_call(node, tools) for node in listed]
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    return [call for call in calls if call] if len(nodes) == len(statements) else []


class _JsonWords(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node


def _python_call(node: ast.expr, tools: Tools) -> Call | None:
    prefix = ""
    if isinstance(node, ast.BinOp) and isinstance(
        node.op, ast.Sub
    ):  # a hyphen in the name
        prefix, node = ast.unparse(node.left).replace(" ", "") + "-", node.right
    if not isinstance(node, ast.Call) or node.args:
        return None
    name = resolve_name((prefix + ast.unparse(node.func)).removesuffix(".call"), tools)
    try:
        given = {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
        return (name, json.loads(json.dumps(given, allow_nan=False))) if name else None
    except (ValueError, TypeError):
        return None


FORMS: tuple[tuple[str, Reader], ...] = (
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
