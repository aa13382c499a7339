"""Thought, Action and Action Input in plain text, read tolerantly.

The form of ReAct (arXiv 2210.03629) as prompted models write it today: labels at the start of a line, the input as
JSON, as text, or both in one JSON blob. Pure: knows no tools.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from toolkit.dialects import JSONDict

# A blob that names its action is one, whatever stands before it.
LABEL = re.compile(
    r"^[ \t>*_#`]*(?P<label>Thought|Action Input|Action|Observation|Final Answer)(?:[ \t]*\d+)?"
    r"[ \t*_`]*[:：][ \t]*(?:\*\*|__)?[ \t]*|^[ \t]*(?=\{\s*\"action\"\s*:)",
    re.IGNORECASE | re.MULTILINE,
)
LENIENT_JSON = json.JSONDecoder(strict=False)
"""Takes raw control characters within strings."""

_INLINE = re.compile(
    r"(?P<name>[\w.-]+)\s*(?:\[(?P<text>.*)\]|\((?P<json>\{.*\})\))", re.DOTALL
)
_FENCE = re.compile(r"```\w*")
_CLOSING_FENCE = re.compile(r"\n[ \t]*```[ \t]*$", re.MULTILINE)
_OPENING = re.compile(r"\s*(?:`+\w*\s*)?(?=\{)")


@dataclass(frozen=True, slots=True)
class ReActStep:
    """One step of a model that thinks, then acts or answers.

    `action` is the name as written, "" if there is none. `action_input` is an object if it was JSON, else text.
    `answer` is None until there is a final one. `trailing` is what the model wrote after its action: an observation in
    there is invented, never to be believed.
    """

    thought: str = ""
    action: str = ""
    action_input: JSONDict | str = ""
    answer: str | None = None
    trailing: str = ""


def read_react(text: str) -> ReActStep:
    """Read the first action, or the final answer if that comes first. Never raises.

    Whatever follows "Final Answer:" is the answer, labels and fenced examples included. An action in a fence with
    prose behind the fence is an example, not an action.
    """
    labels = list(LABEL.finditer(text))
    start = 0
    if labels and _kind(labels[0]) == "thought":
        start = labels[0].end()
    while labels and _kind(labels[0]) in ("thought", "action input"):
        labels.pop(0)
    if not labels:
        return ReActStep(text[start:].strip())
    label = labels[0]
    kind = _kind(label)
    thought = _FENCE.sub("", text[start : label.start()]).strip()
    if kind == "final answer":
        return ReActStep(thought, answer=text[label.end() :].strip())
    if kind == "observation":
        return ReActStep(thought, trailing=text[label.start() :])
    step = _read_action(text, labels, thought)
    is_fenced = len(_FENCE.findall(text, 0, label.start())) % 2 == 1
    if is_fenced and holds_prose(step.trailing):
        return ReActStep(text.strip())
    return step


def holds_prose(trailing: str) -> bool:
    """Whether there is more than fences, before any further label."""
    rest = _FENCE.sub("", trailing).strip("` \t\r\n")
    return bool(rest) and not LABEL.match(rest)


def _kind(label: re.Match[str]) -> str:
    return (label["label"] or "action").lower()


def _read_action(text: str, labels: list[re.Match[str]], thought: str) -> ReActStep:
    """The step whose action begins with the first of the labels."""
    ends = [*(label.start() for label in labels[1:]), len(text)]
    name: Any = _bare(text[labels[0].end() : ends[0]]).rstrip("*")
    action_input: Any = ""
    has_input = len(labels) > 1 and _kind(labels[1]) == "action input"
    start = labels[has_input].end()
    end = ends[has_input]
    blob = _object_at(text, start)
    inline = _INLINE.fullmatch(name)
    if blob:
        action_input, end = blob
        if not has_input:
            # It holds the name as well.
            name = action_input.get("action")
            action_input = action_input.get("action_input", {})
    elif has_input:
        fence = _CLOSING_FENCE.search(text, start, end)
        end = fence.start() if fence else end
        action_input = _bare(text[start:end])
    elif inline:
        name = inline["name"]
        action_input = inline["text"] or inline["json"] or ""
        blob = _object_at(action_input, 0)
        action_input = blob[0] if blob else action_input
    trailing = text[end:]
    if not isinstance(name, str):
        return ReActStep(thought, trailing=trailing)
    name = name.strip()
    is_answer = name.lower() in ("final answer", "finish")
    if not isinstance(action_input, str if is_answer else (str, dict)):
        action_input = json.dumps(action_input, ensure_ascii=False)
    if is_answer:
        return ReActStep(thought, answer=action_input)
    return ReActStep(thought, name, action_input, trailing=trailing)


def _object_at(text: str, start: int) -> tuple[JSONDict, int] | None:
    """The JSON object at `start` or in a fence there, and its end."""
    opening = _OPENING.match(text, start)
    if not opening:
        return None
    try:
        return LENIENT_JSON.raw_decode(text, opening.end())
    except (ValueError, RecursionError):
        return None


def _bare(text: str) -> str:
    """The text without a fence around it and the marks that make it bold, code or a quotation."""
    text = _FENCE.sub("", text).strip()
    for _ in range(3):
        if len(text) > 1 and text[0] == text[-1] and text[0] in "`*\"'":
            text = text[1:-1].strip()
    return text
