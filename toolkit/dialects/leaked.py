"""Calls that a native model leaked into its text, read in the form of its own family.

A server that does not know the format of the model it serves passes the model's calls on as text.
`leaked_forms` reads the calls; this module looks at the text around them: what was thought, what is
visible, what is only shown as an example. A call is one when, and only when, it names a given tool
in the form of a family and is complete. What is said about calls is left alone. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .leaked_forms import FORMS, whole_functionary, whole_json, whole_python
from .leaked_values import SPACE, TOKEN, Block, Call, Tools, is_closed, properties_of, resolve, skip, typed
from .react_text import LABEL, holds_prose, read_react

_SIGNS = (
    "<tool_call", "TOOL_CALLS]", "<function", "invoke name=", "call▁begin", "<|tool_call", "<|channel", "functools",
    "to=functions.", "<|plugin|>", "START_ACTION", "<|python", "<|open|>", "Action Input", '"action_input"', "/think>",
    "/THINK]", "END_THINKING",
)  # fmt: skip
_THINK = (
    r"<(?:seed:)?think>|\[THINK\]|<\|START_THINKING\|>|<\|channel>thought\b"
    r"|(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>|<\|open\|>think<\|sep\|>"
)
_THOUGHT = r"</(?:seed:)?think>|\[/THINK\]|<\|END_THINKING\|>|<channel\|>|<\|close\|>think<\|sep\|>"
_OPENER = re.compile(rf"\s*(?:{_THINK})")
_CLOSER = re.compile(rf"{_THOUGHT}|<\|end\|>")
_LONE_CLOSER = re.compile(rf"(?<![ \t`\"'(])(?:{_THOUGHT})|(?:{_THOUGHT})(?=\s*(?:\n|[<\[{{]|\Z))")
_MARKS = [f"(?P<think>{_THINK})", *(f"(?P<f{index}>{mark})" for index, (mark, _) in enumerate(FORMS))]
_MARK = re.compile(rf"(?=[<\[ft])(?:{'|'.join(_MARKS)})")
_LAST_TOKEN = re.compile(rf"(?:{TOKEN.pattern})\s*\Z")
_TOKENS_ALL_OVER = re.compile(r"\s*<\|(?:channel|start|open|close)\|>")
_FENCE = re.compile(r"^[ \t]*```", re.MULTILINE)
_LANGUAGE = re.compile(r"\w*")
_EXAMPLE = re.compile(
    r"\b(?:examples?|e\.g|formats?|looks?|like|such as|syntax|would|writes?|emits?|forms?|shapes?)\b", re.IGNORECASE
)
_LIST_ITEM = re.compile(r"(?:[-*•|>]|\d+[.)])\s")
_TOKENS = re.compile(rf"(?:{TOKEN.pattern})*")
_MIDDLE_OF_SENTENCE = re.compile(r"[ \t]*[,;)\"'`|]|[ \t]+[a-zà-öø-ÿ]")
_SENTENCE_END = (".", "!", "?", "…", ":", ";", "。", "！", "？", "：", ")", "*")
_MAX_MISSES = 50


@dataclass(frozen=True, slots=True)
class Leaked:
    """The calls in a text, and what is left of the text without them.

    `calls` holds (name, arguments) in order; the arguments are raw text where they were complete
    but not readable in their form. `text` is for the user, `reasoning` what the model thought aloud.
    """

    calls: tuple[tuple[str, dict[str, Any] | str], ...]
    text: str
    reasoning: str


def read_leaked(text: str, tools: Tools, *, reasoning_prefilled: bool = False) -> Leaked | None:
    """The calls in `text`, or None where there are none. Never raises.

    `tools` maps each name to the JSON Schema of its parameters: in some forms all values are text,
    and only the schema tells 3 from "3". A call that names no given tool is dropped beside others,
    and is no call alone. With `reasoning_prefilled` the prompt had opened the think block.
    """
    if not _may_hold_calls(text, tools):
        return None
    leaked = read_text(text, tools, reasoning_prefilled=reasoning_prefilled)
    return leaked if leaked.calls else None


def read_text(text: str, tools: Tools, *, reasoning_prefilled: bool = False) -> Leaked:
    """The same for any text: its calls, if any, what is to be seen of it, and what was thought."""
    reasoning, start, is_open = _split_reasoning(text, reasoning_prefilled)
    rest = text[start:]
    whole = None if is_open else _read_whole(rest, tools)
    if whole:
        return Leaked(tuple(whole[0]), whole[1].strip(), _join([*reasoning, whole[2]]))
    calls, pieces, thoughts = _scan(rest, tools)
    if is_open:
        # The thinking never ended: calls that end the text were meant, calls amid thoughts were not.
        if any(map(_seen, pieces[1:])):
            calls, pieces = [], [rest]
        return Leaked(tuple(calls), "", _join([*reasoning, _LAST_TOKEN.sub("", pieces[0])]))
    cut = _MARK.search(pieces[-1]) if calls else None
    if cut and not _seen(pieces[-1][: cut.start()]):
        pieces[-1] = ""
    visible = "".join(pieces)
    if calls or _TOKENS_ALL_OVER.match(rest):
        visible = TOKEN.sub("", visible)
    for _ in range(3):
        visible = _LAST_TOKEN.sub("", visible)
    return Leaked(tuple(calls), visible.strip(), _join([*reasoning, *thoughts]))


def _may_hold_calls(text: str, tools: Tools) -> bool:
    """A cheap first look: true for every text that holds a call."""
    if "<" not in text and "[" not in text and "{" not in text and "Action Input" not in text:
        return False
    if any(sign in text for sign in _SIGNS):
        return True
    body = text.strip()
    return (
        body[:1] in ("{", "[")
        or body[-3:] == "```"
        or body[: body.find("\n")].strip("> \t\r") in tools
        or body[:4] == "all\n"
    )


def _seen(text: str) -> str:
    return TOKEN.sub("", text).strip()


def _join(thoughts: list[str]) -> str:
    return "\n".join(filter(None, (thought.strip() for thought in thoughts)))


def _split_reasoning(text: str, is_open: bool) -> tuple[list[str], int, bool]:
    """What was thought first, where the rest begins, and whether the thinking never ended."""
    reasoning: list[str] = []
    start = 0
    while (opener := _OPENER.match(text, start)) or is_open:
        start = opener.end() if opener else start
        closer = _CLOSER.search(text, start)
        if not closer:
            return reasoning, start, True
        reasoning.append(text[start : closer.start()])
        start, is_open = closer.end(), False
    closer = None if reasoning else _LONE_CLOSER.search(text)
    if closer and not _MARK.search(text, 0, closer.start()):
        return [text[: closer.start()]], closer.end(), False
    return reasoning, start, False


def _scan(text: str, tools: Tools) -> tuple[list[Call], list[str], list[str]]:
    """The calls that begin with a mark, the pieces of text around them, the thoughts among those."""
    calls: list[Call] = []
    pieces: list[str] = []
    thoughts: list[str] = []
    start = at = counted = fences = misses = 0
    shows_examples = False
    while misses < _MAX_MISSES and (mark := _MARK.search(text, at)):
        begin, at, form = mark.start(), max(mark.end(), mark.start() + 1), mark.lastgroup or ""
        fences += len(_FENCE.findall(text, counted, begin))
        counted = begin
        closer = _CLOSER.search(text, at) if form == "think" else None
        block: Block | None = (closer.end(), []) if closer else None
        if form != "think":
            block = FORMS[int(form[1:])][1](mark, tools)
        # Where one block is an example, those that follow it are too.
        shows_examples = shows_examples or bool(
            block and (fences % 2 or _is_quoted(text, start, begin, block[0], misses))
        )
        if block is None or shows_examples:
            misses += 1
            at = block[0] if block else at
            continue
        if closer:
            thoughts.append(text[at : closer.start()])
        pieces.append(text[start:begin])
        calls += block[1]
        start = at = counted = block[0]
    return calls, [*pieces, text[start:]], thoughts


def _is_quoted(text: str, start: int, begin: int, end: int, misses: int) -> bool:
    """Is the block an example: in code, within a sentence or a list, or announced as one?"""
    line = text[max(text.rfind("\n", start, begin) + 1, start) : begin]
    before = _seen(line)
    if before.count("`") % 2 or (not before and line.expandtabs().startswith("    ")):
        return True
    if misses and ((line.count('"') - line.count('\\"')) % 2 or line.count("'") % 2):  # in a string of a cut call
        return True
    if _goes_on(text, end):
        is_glued = text[begin - 1 : begin].isalnum()
        if before and not is_glued and (_LIST_ITEM.match(before) or not before.endswith(_SENTENCE_END)):
            return True
        if _MIDDLE_OF_SENTENCE.match(text, skip(_TOKENS, text, end)):
            return True
    return _announces_example(text[start:begin])


def _goes_on(text: str, end: int) -> bool:
    """Does anything but calls follow?"""
    end = skip(SPACE, text, end)
    while not _MARK.match(text, end) and (token := TOKEN.match(text, end)):
        end = skip(SPACE, text, token.end())
    return end < len(text) and not _MARK.match(text, end)


def _announces_example(before: str) -> bool:
    lines = _seen(before[-300:]).rsplit("\n", 1)
    return lines[-1].endswith((":", "：")) and bool(_EXAMPLE.search(lines[-1]))


def _read_whole(text: str, tools: Tools) -> tuple[list[Call], str, str] | None:
    """The forms without a mark, where the whole text is calls; what is seen, and what was thought."""
    body = text.strip()
    before, _, fenced = body[:-3].rpartition("```") if body.endswith("```") else ("", "", "")
    if fenced and "```" not in before and not _announces_example(before):
        inner = fenced[skip(_LANGUAGE, fenced, 0) :].strip()
        calls = whole_json(inner, tools)
        if not calls and not before:
            calls, pieces, _ = _scan(inner, tools)
            calls = [] if any(map(_seen, pieces)) else calls
        if calls:
            return calls, before, ""
    calls = whole_json(body, tools) if body[:1] in ("{", "[") else []
    calls = calls or (whole_python(body, tools) if body[:1] == "[" else [])
    if calls:
        return calls, "", ""
    functionary = whole_functionary(body, tools)
    return (*functionary, "") if functionary else _read_react(body, tools)


def _read_react(body: str, tools: Tools) -> tuple[list[Call], str, str] | None:
    if "Action Input" not in body and '"action_input"' not in body:
        return None
    step = read_react(body)
    name = resolve(step.action, tools)
    label = LABEL.search(body)
    before = body[: label.start()] if label else ""
    is_example = _announces_example(before) or ("```" in before and before.strip("`\n"))
    if name is None or is_example or holds_prose(step.trailing):
        return None
    given = step.action_input
    properties = properties_of(tools[name])
    wanted = tools[name].get("required") or list(properties)
    if isinstance(given, str) and given and given[0] != "{" and len(wanted) == 1:
        given = {wanted[0]: typed(given, properties.get(wanted[0]), tools[name])}
    is_cut = isinstance(given, str) and given[:1] == "{" and not is_closed(given)
    if is_cut or (given == "" and properties):
        return None
    return [(name, given or {})], "", step.thought
