"""Calls that a native model leaked into its text, read in the form of its own family.

A server that does not know the format of the model it serves passes the model's calls on as text. `leaked_forms` reads
the calls; this module looks at the text around them: what is a thought, what is visible, what is only an example. A
call counts when, and only when, it names a known tool in the form of a family and is complete. Text about calls is
left alone. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from toolkit.calls.parsing import read_plain, resolve_name
from toolkit.dialects.leaked_forms import MARK, THINK, THOUGHT, find_blocks, whole_json
from toolkit.dialects.leaked_python import whole_python
from toolkit.dialects.leaked_values import TOKEN, Call, Tools, skip
from toolkit.dialects.react_text import LABEL, holds_prose, read_react

_ANY_SIGN = (
    r"tool_call|TOOL_?CALL|<[|｜]|<(?:start_)?function|invoke name=|functools|to=functions\.|>>>"
    r"|Action Input|\"action_input\"|think>|THINK\]"
)
# Not if the tag is only mentioned.
_LONE_THOUGHT = rf"(?<![ \t`\"'(]){THOUGHT}|{THOUGHT}(?=\s*(?:\n|[<\[{{]|\Z))"
_EXAMPLE_LEAD = (
    r"(?:\A|\n)(?: {4}|[ ]*\t)[ \t]*\Z"  # indented as code
    r"|\b(?:examples?|e\.g|formats?|looks?|like|such as|syntax|would|writes?|emits?|forms?|shapes?)\b.*[:：]\s*\Z"
)
# A list item, or a sentence that has not ended.
_UNFINISHED_LINE = r"\s*(?:[-*•|>]|\d+[.)])\s|.*(?:[\w,]\s+|[\"'(‘“«])\Z"
_CONTINUATION = r"[ \t]*[,;)\"'’”»`|]|[ \t]+[a-zà-öø-ÿ]"
_SPECIAL = r"(?:<[|｜]\w+[^<>\n]{0,50}>|<\w+\|>|<(?:start|end)_function_call>)"
_FUNCTIONARY = r"(?:\A|>>>)(?:all\n|([\w.-]+)[ \t]*\n(?=\{))"


@dataclass(frozen=True, slots=True)
class Leaked:
    """The calls in a text, and what is left of the text without them.

    `calls` holds (name, arguments) in order; a call beside others that could not be read has its source as arguments.
    `text` is for the user, `reasoning` what the model thought aloud.
    """

    calls: tuple[Call, ...]
    text: str
    reasoning: str


def read_leaked(
    text: str, tools: Tools, *, reasoning_prefilled: bool = False
) -> Leaked | None:
    """The calls in `text`, or None if there are none. Never raises.

    `tools` maps each name to the JSON Schema of its parameters: in some forms all values are text, and only the schema
    tells 3 from "3". A call that names no known tool is dropped beside others, and does not count alone. With
    `reasoning_prefilled` the prompt had opened the think block.
    """
    # A cheap first look, as most replies hold no call.
    if not any(sign in text for sign in ("<", "[", "{", "Action Input")):
        return None
    body = text.strip()
    may_be_whole = body.startswith(("{", "[")) or body.endswith("```")
    is_functionary = _first_line(body) in tools
    if not (may_be_whole or is_functionary or re.search(_ANY_SIGN, text)):
        return None
    leaked = read_text(text, tools, reasoning_prefilled=reasoning_prefilled)
    return leaked if leaked.calls else None


def read_text(text: str, tools: Tools, *, reasoning_prefilled: bool = False) -> Leaked:
    """The same for any text: its calls, if any, what is visible of it, and what was thought."""
    is_open = reasoning_prefilled or _has_lone_end(text)
    thoughts, rest, is_open = _split_thoughts(text, is_open=is_open)
    if is_open:
        # Calls that end a thought without an end were meant, calls within thoughts were not.
        calls, pieces, _ = _scan(rest, tools)
        if any(map(_visible, pieces[1:])):
            return _leaked([], "", *thoughts, rest)
        return _leaked(calls, "", *thoughts, pieces[0])

    before, body = _split_fence(rest)
    calls = [] if _is_example(before) else whole_json(body, tools)
    if not calls and not before:
        if body.startswith("["):
            calls = whole_python(body, tools)
        is_functionary = _first_line(body) in ("all", *tools)
        rest = _as_tags(body) if is_functionary else body
    if calls:
        # The label of Command R+.
        visible = re.sub(r"(?:\A|\n)\s*Action:\Z", "", before)
        return _leaked(calls, visible, *thoughts)
    step = _read_react(rest, tools)
    if step:
        call, thought = step
        return _leaked([call], "", *thoughts, thought)
    calls, pieces, later_thoughts = _scan(rest, tools)
    visible = _visible("".join(pieces))
    return _leaked(calls, visible, *thoughts, *later_thoughts)


def _leaked(calls: Iterable[Call], text: str, *thoughts: str) -> Leaked:
    calls = tuple(calls)
    if not any(isinstance(call[1], dict) for call in calls):
        calls = ()
    reasoning = "\n".join(filter(None, map(str.strip, thoughts)))
    return Leaked(calls, text, reasoning)


def _first_line(text: str) -> str:
    return text.partition("\n")[0].strip()


def _visible(text: str) -> str:
    return re.sub(TOKEN, "", text).strip()


def _has_lone_end(text: str) -> bool:
    """Whether a thought ends in a text that does not begin it: the prompt did."""
    end = re.search(_LONE_THOUGHT, text)
    if not end or re.match(rf"\s*{THINK}", text):
        return False
    return not re.compile(MARK).search(text, 0, end.start())


def _split_thoughts(text: str, *, is_open: bool) -> tuple[list[str], str, bool]:
    """The thoughts that come first, the rest, and whether the last thought never ended."""
    opener = rf"\s*{THINK}"
    thoughts: list[str] = []
    at = 0
    start = skip(opener, text, at)
    while is_open or start > at:
        end = re.compile(THOUGHT).search(text, start)
        if not end:
            return thoughts, text[start:], True
        thoughts.append(text[start : end.start()])
        is_open = False
        at = end.end()
        start = skip(opener, text, at)
    return thoughts, text[at:], False


def _split_fence(text: str) -> tuple[str, str]:
    """What stands before the fence that ends a text, and the text in it; "" and the whole text if there is none."""
    body = text.strip()
    before, _, fenced = body.partition("```")
    if fenced.count("```") != 1 or not fenced.endswith("```"):
        return "", body
    return before.strip(), re.sub(r"\A(?:\w*\s|json)", "", fenced[:-3]).strip()


def _as_tags(text: str) -> str:
    """Functionary 3.2 in the form of 3.1; what is for the user goes to "all"."""
    return re.sub(
        _FUNCTIONARY, lambda name: f"<function={name[1]}>" if name[1] else "", text
    )


def _scan(text: str, tools: Tools) -> tuple[list[Call], list[str], list[str]]:
    """The calls that begin with a mark, the pieces of text around them, the thoughts among those."""
    calls: list[Call] = []
    pieces: list[str] = []
    thoughts: list[str] = []
    blocks = find_blocks(text, tools)
    start = 0
    next_begins = [*(block.begin for block in blocks[1:]), len(text)]
    for block, next_begin in zip(blocks, next_begins, strict=False):
        before = text[start : block.begin]
        after = text[block.end : next_begin]
        source = text[block.begin : skip(rf"\s*{_SPECIAL}", text, block.end)]
        if re.match(rf"{_SPECIAL}.*{_SPECIAL}\s*\Z", source, re.DOTALL):
            # Between special tokens it is a call, whatever follows.
            after = after and "…"
        if _is_example(before, after):
            # Those that follow are examples, too.
            break
        calls += block.calls
        pieces.append(before)
        thoughts += block.thoughts
        start = block.end
    return calls, [*pieces, text[start:]], thoughts


def _is_example(before: str, after: str = "") -> bool:
    """Whether what stands between is only shown: in code, within a sentence or a list, or announced as an example."""
    before = re.sub(TOKEN, "", before)
    after = re.sub(rf"\s*(?:{TOKEN})", "", after)
    line = before.rpartition("\n")[2]
    if before.count("```") % 2 or line.count("`") % 2:
        return True
    if re.search(_EXAMPLE_LEAD, before[-300:], re.IGNORECASE):
        return True
    if not after.strip():
        return False
    return bool(re.match(_UNFINISHED_LINE, line) or re.match(_CONTINUATION, after))


def _read_react(text: str, tools: Tools) -> tuple[Call, str] | None:
    """The call of a step of ReAct, and the thought before it."""
    if "Action Input" not in text and '"action_input"' not in text:
        return None
    step = read_react(text)
    name = resolve_name(step.action, tools)
    if name is None or holds_prose(step.trailing):
        return None
    if _is_example(LABEL.split(text, maxsplit=1)[0]):
        return None
    arguments = step.action_input
    if isinstance(arguments, str):
        arguments = read_plain(arguments, tools[name]).arguments
        if not arguments and tools[name].get("properties"):
            return None
    return (name, arguments), step.thought
