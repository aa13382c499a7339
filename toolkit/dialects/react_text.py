"""Thought, Action and Action Input in plain text, read tolerantly.

The form of ReAct (arXiv 2210.03629) as prompted models write it today: labels at the start of a
line, the input as JSON, as text, or both in one JSON blob. Pure: knows no tools.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

# A blob that names its action is one, whatever stands before it.
LABEL = re.compile(
    r"^[ \t>*_#`]*(?P<label>Thought|Action Input|Action|Observation|Final Answer)(?:[ \t]*\d+)?"
    r"[ \t*_`]*[:：][ \t]*(?:\*\*|__)?[ \t]*|^[ \t]*(?=\{\s*\"action\"\s*:)",
    re.IGNORECASE | re.MULTILINE,
)
_INLINE = re.compile(
    r"(?P<name>[\w.-]+)\s*(?:\[(?P<text>.*)\]|\((?P<json>\{.*\})\))", re.DOTALL
)
_FENCE = re.compile(r"```\w*")
_CLOSING_FENCE = re.compile(r"\n[ \t]*```[ \t]*$", re.MULTILINE)
_OPENING = re.compile(r"\s*(?:`+\w*\s*)?(?=\{)")
_JSON = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class ReActStep:
    """One step of a model that thinks, then acts or answers.

    `action` is the name as written, "" where there is none. `action_input` is an object where it
    was JSON, else text. `answer` is None until there is a final one. `trailing` is what the model
    wrote after its action: an observation in there is invented, never to be believed.
    """

    thought: str = ""
    action: str = ""
    action_input: dict[str, Any] | str = ""
    answer: str | None = None
    trailing: str = ""


def read_react(text: str) -> ReActStep:
    """Reads the first action, or the final answer if that comes first. Never raises.

    Whatever follows "Final Answer:" is the answer, labels and fenced examples included. An action
    in a fence with prose behind the fence is an example, no action.
    """
    labels = list(LABEL.finditer(text))
    start = labels[0].end() if labels and _kind(labels[0]) == "thought" else 0
    labels = list(
        dropwhile(lambda label: _kind(label) in ("thought", "action input"), labels)
    )
    if not labels:
        return ReActStep(text[start:].strip())
    label = labels[0]
    thought = _FENCE.sub("", text[start : label.start()]).strip()
    if _kind(label) == "final answer":
        return ReActStep(thought, answer=text[label.end() :].strip())
    if _kind(label) == "observation":
        return ReActStep(thought, trailing=text[label.start() :])
    step = _read_action(text, labels, thought)
    is_fenced = len(_FENCE.findall(text, 0, label.start())) % 2 == 1
    return ReActStep(text.strip()) if is_fenced and holds_prose(step.trailing) else step


def holds_prose(trailing: str) -> bool:
    """Is there more than fences, before any further label?"""
    rest = _FENCE.sub("", trailing).strip("` \t\r\n")
    return bool(rest) and not LABEL.match(rest)


def _kind(label: re.Match[str]) -> str:
    return (label["label"] or "action").lower()


def _read_action(text: str, labels: list[re.Match[str]], thought: str) -> ReActStep:
    ends = [*(label.start() for label in labels[1:]), len(text), len(text)]
    has_input = len(labels) > 1 and _kind(labels[1]) == "action input"
    start, end = labels[has_input].end(), ends[has_input]
    name: Any = _bare(text[labels[0].end() : ends[0]]).rstrip("*")
    given: Any = ""
    if found := _object_at(text, start):
        given, end = found
        if not has_input:  # all in one blob
            name, given = given.get("action"), given.get("action_input", {})
    elif has_input:
        fence = _CLOSING_FENCE.search(text, start, end)
        end = fence.start() if fence else end
        given = _bare(text[start:end])
    elif inline := _INLINE.fullmatch(name):
        name, given = inline["name"], inline["text"] or inline["json"] or ""
        given = (_object_at(given, 0) or [given])[0]
    if not isinstance(name, str):
        return ReActStep(thought, trailing=text[end:])
    words = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    if name.strip().lower() in ("final answer", "finish"):
        return ReActStep(thought, answer=words)
    return ReActStep(
        thought,
        name.strip(),
        given if isinstance(given, dict) else words,
        trailing=text[end:],
    )


def _object_at(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    """The JSON object at `start` or in a fence there, and its end."""
    opening = _OPENING.match(text, start)
    try:
        return _JSON.raw_decode(text, opening.end()) if opening else None
    except (ValueError, RecursionError):
        return None


def _bare(text: str) -> str:
    """Without the fence around it and the marks that make it bold, code or a quotation."""
    text = _FENCE.sub("", text).strip()
    for _ in range(3):
        if len(text) > 1 and text[0] == text[-1] and text[0] in "`*\"'":
            text = text[1:-1].strip()
    return text
