"""Calls that a native model leaked into its text, read in the form of its own family.

A server that does not know the format of the model it serves passes the model's calls on as text.
`leaked_forms` reads the calls; this module looks at the text around them: what was thought, what is
visible, what is only shown as an example. A call is one when, and only when, it names a given tool
in the form of a family and is complete. What is said about calls is left alone. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from toolkit.calls.parsing import parse, resolve_name
from toolkit.dialects.leaked_forms import (
    MARK,
    THINK,
    THOUGHT,
    find_blocks,
    whole_json,
    whole_python,
)
from toolkit.dialects.leaked_values import TOKEN, Call, Tools, skip, typed
from toolkit.dialects.react_text import LABEL, holds_prose, read_react

_SIGNS = (
    *(
        "tool_call",
        "TOOL_CALLS]",
        "<|",
        "<｜",
        "<function",
        "invoke name=",
        "functools",
        "to=functions.",
        ">>>",
    ),
    *("Action Input", '"action_input"', "think>", "THINK]"),
)
# Not where the tag is only mentioned.
_LONE_THOUGHT = rf"(?<![ \t`\"'(]){THOUGHT}|{THOUGHT}(?=\s*(?:\n|[<\[{{]|\Z))"
_SHOWN = (
    r"(?:\A|\n)(?: {4}|[ ]*\t)[ \t]*\Z"  # indented as code
    r"|\b(?:examples?|e\.g|formats?|looks?|like|such as|syntax|would|writes?|emits?|forms?|shapes?)\b.*[:：]\s*\Z"
)
_OPEN = r"\s*(?:[-*•|>]|\d+[.)])\s|.*(?:[\w,]\s+|[\"'(‘“«])\Z"  # a list item, or a sentence that has not ended
_GOES_ON = r"[ \t]*[,;)\"'’”»`|]|[ \t]+[a-zà-öø-ÿ]"
_FUNCTIONARY = r"(?:\A|>>>)(?:all\n|([\w.-]+)[ \t]*\n(?=\{))"


@dataclass(frozen=True, slots=True)
class Leaked:
    """The calls in a text, and what is left of the text without them.

    `calls` holds (name, arguments) in order. `text` is for the user, `reasoning` what the model thought aloud.
    """

    calls: tuple[Call, ...]
    text: str
    reasoning: str


def read_leaked(
    text: str, tools: Tools, *, reasoning_prefilled: bool = False
) -> Leaked | None:
    """The calls in `text`, or None where there are none. Never raises.

    `tools` maps each name to the JSON Schema of its parameters: in some forms all values are text,
    and only the schema tells 3 from "3". A call that names no given tool is dropped beside others,
    and is no call alone. With `reasoning_prefilled` the prompt had opened the think block.
    """
    if (
        not any(character in text for character in "<[{") and "Action Input" not in text
    ):  # a cheap first look
        return None
    body = text.strip()
    is_whole = (
        body.startswith(("{", "["))
        or body.endswith("```")
        or body.partition("\n")[0].strip() in tools
    )
    if not is_whole and not any(sign in text for sign in _SIGNS):
        return None
    leaked = read_text(text, tools, reasoning_prefilled=reasoning_prefilled)
    return leaked if leaked.calls else None


def read_text(text: str, tools: Tools, *, reasoning_prefilled: bool = False) -> Leaked:
    """The same for any text: its calls, if any, what is to be seen of it, and what was thought."""
    thoughts, rest, is_open = _part_thoughts(text, reasoning_prefilled)
    if is_open:  # Calls that end a thought without an end were meant, calls amid thoughts were not.
        calls, pieces, _ = _scan(rest, tools)
        is_meant = not any(map(_seen, pieces[1:]))
        return Leaked(
            tuple(calls if is_meant else ()),
            "",
            _join([*thoughts, pieces[0] if is_meant else rest]),
        )
    before, body = _split_fence(rest)
    calls = [] if _is_example(before) else whole_json(body, tools)
    if not calls and not before:
        calls = whole_python(body, tools) if body.startswith("[") else []
        rest = (
            _as_tags(body)
            if body.partition("\n")[0].strip() in ("all", *tools)
            else body
        )
    if calls:
        return Leaked(tuple(calls), before, _join(thoughts))
    if found := _read_react(rest, tools):
        return Leaked((found[0],), "", _join([*thoughts, found[1]]))
    calls, pieces, later = _scan(rest, tools)
    return Leaked(tuple(calls), _seen("".join(pieces)), _join(thoughts + later))


def _seen(text: str) -> str:
    return re.sub(TOKEN, "", text).strip()


def _join(thoughts: list[str]) -> str:
    return "\n".join(filter(None, (thought.strip() for thought in thoughts)))


def _part_thoughts(text: str, is_open: bool) -> tuple[list[str], str, bool]:
    """What was thought first, the rest, and whether the thinking never ended."""
    opener = rf"\s*{THINK}"
    thoughts: list[str] = []
    at = 0
    if (
        not is_open
        and not skip(opener, text, 0)
        and (closer := re.search(_LONE_THOUGHT, text))
    ):
        is_open = not re.compile(MARK).search(text, 0, closer.start())
    while (start := skip(opener, text, at)) > at or is_open:
        closer = re.compile(THOUGHT).search(text, start)
        if not closer:
            return thoughts, text[start:], True
        thoughts.append(text[start : closer.start()])
        at, is_open = closer.end(), False
    return thoughts, text[at:], False


def _split_fence(text: str) -> tuple[str, str]:
    """The text in the fence that ends a text, and what stands before; the whole text where there is none."""
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
    ends = [*(block.begin for block in blocks[1:]), len(text)]
    for block, end in zip(blocks, ends, strict=False):
        before = text[start : block.begin]
        if _is_example(
            before, text[block.end : end]
        ):  # those that follow are examples, too
            break
        calls += block.calls
        pieces.append(before)
        thoughts += block.thoughts
        start = block.end
    return calls, [*pieces, text[start:]], thoughts


def _is_example(before: str, after: str = "") -> bool:
    """Is what stands between only shown: in code, within a sentence or a list, or announced as an example?"""
    before, after = re.sub(TOKEN, "", before), re.sub(rf"\s*(?:{TOKEN})", "", after)
    line = before.rpartition("\n")[2]
    if (
        before.count("```") % 2
        or line.count("`") % 2
        or re.search(_SHOWN, before[-300:], re.IGNORECASE)
    ):
        return True
    return bool(after.strip() and (re.match(_OPEN, line) or re.match(_GOES_ON, after)))


def _read_react(text: str, tools: Tools) -> tuple[Call, str] | None:
    """The call of a step of ReAct, and the thought before it."""
    if "Action Input" not in text and '"action_input"' not in text:
        return None
    step = read_react(text)
    name = resolve_name(step.action, tools)
    if (
        name is None
        or holds_prose(step.trailing)
        or _is_example(LABEL.split(text, maxsplit=1)[0])
    ):
        return None
    given, schema = step.action_input, tools[name]
    if isinstance(given, str):
        properties = schema.get("properties") or {}
        wanted = schema.get("required") or list(properties)
        is_text = len(wanted) == 1 and given and not given.startswith("{")
        given = (
            {wanted[0]: typed(given, properties.get(wanted[0]), schema)}
            if is_text
            else parse(given).arguments
        )
        if not given and properties:
            return None
    return (name, given), step.thought
