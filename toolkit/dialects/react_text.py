"""Thought, Action and Action Input in plain text, read tolerantly.

The form of ReAct (arXiv 2210.03629) as prompted models write it today: labels at the start of a
line, the input as JSON, as text, or both in one JSON blob. Pure: knows no tools.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

LABEL = re.compile(
    r"^[ \t>*_#`]*(?P<label>Thought|Action Input|Action|Observation|Final Answer)(?:[ \t]*\d+)?"
    r"[ \t*_`]*[:：][ \t]*(?:\*\*|__)?[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
_BLOB = re.compile(r'\{\s*"action"\s*:')
_INLINE = re.compile(r"(?P<name>[\w.-]+)\s*(?:\[(?P<text>.*)\]|\((?P<json>\{.*\})\))", re.DOTALL)
_FENCE = re.compile(r"```\w*")
_CLOSING_FENCE = re.compile(r"\n[ \t]*```[ \t]*$", re.MULTILINE)
_MARGIN = re.compile(r"(?:\s|```\w*|`)*")
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
    start = labels[0].end() if labels and _is(labels[0], "thought") else 0
    index = next((at for at, label in enumerate(labels) if not _is(label, "thought", "action input")), len(labels))
    if index < len(labels):
        label = labels[index]
        thought = _FENCE.sub("", text[start : label.start()]).strip()
        if _is(label, "final answer"):
            return ReActStep(thought, answer=text[label.end() :].strip())
        if _is(label, "observation"):
            return ReActStep(thought, trailing=text[label.start() :])
        step = _read_action(text, label.end(), labels[index + 1 :], thought)
        is_fenced = len(_FENCE.findall(text, 0, label.start())) % 2 == 1
        return ReActStep(text.strip()) if is_fenced and holds_prose(step.trailing) else step
    blob = _BLOB.search(text)
    if blob and (value := _decode(text, blob.start())):
        return _read_blob(*value, text, _FENCE.sub("", text[start : blob.start()]).strip())
    return ReActStep(text[start:].strip())


def holds_prose(trailing: str) -> bool:
    """Is there more than fences, before any further label?"""
    rest = _FENCE.sub("", trailing).strip("` \t\r\n")
    return bool(rest) and not LABEL.match(rest)


def _read_action(text: str, start: int, later: list[re.Match[str]], thought: str) -> ReActStep:
    has_input = bool(later) and _is(later[0], "action input")
    end = later[0].start() if later else len(text)
    name = _bare(text[start:end]).rstrip("*")
    opening = _MARGIN.match(text, later[0].end() if has_input else start)
    decoded = _decode(text, opening.end()) if opening else None
    if has_input and decoded:
        return ReActStep(thought, name, decoded[0], trailing=text[decoded[1] :])
    if has_input:
        end = later[1].start() if len(later) > 1 else len(text)
        if fence := _CLOSING_FENCE.search(text, opening.end() if opening else end, end):
            end = fence.start()
        return ReActStep(thought, name, _bare(text[later[0].end() : end]), trailing=text[end:])
    if decoded:
        return _read_blob(*decoded, text, thought)
    inline = _INLINE.fullmatch(name)
    if not inline:
        return ReActStep(thought, name, trailing=text[end:])
    if inline["name"].lower() == "finish":
        return ReActStep(thought, answer=(inline["text"] or "").strip())
    decoded = _decode(inline["json"], 0) if inline["json"] else None
    return ReActStep(thought, inline["name"], decoded[0] if decoded else inline["text"] or "", trailing=text[end:])


def _read_blob(value: dict[str, Any], end: int, text: str, thought: str) -> ReActStep:
    action, given = value.get("action"), value.get("action_input", {})
    if not isinstance(given, (dict, str)):
        given = json.dumps(given, ensure_ascii=False)
    if not isinstance(action, str):
        return ReActStep(thought, trailing=text[end:])
    if action.strip().lower() in ("final answer", "finish"):
        return ReActStep(thought, answer=given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))
    return ReActStep(thought, action.strip(), given, trailing=text[end:])


def _is(label: re.Match[str], *names: str) -> bool:
    return label["label"].lower() in names


def _decode(text: str, start: int) -> tuple[dict[str, Any], int] | None:
    try:
        value, end = _JSON.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return (value, end) if isinstance(value, dict) else None


def _bare(text: str) -> str:
    """Without the fence around it and the marks that make it bold, code or a quotation."""
    text = _FENCE.sub("", text).strip()
    for _ in range(3):
        if len(text) > 1 and text[0] == text[-1] and text[0] in "`*\"'":
            text = text[1:-1].strip()
    return text
