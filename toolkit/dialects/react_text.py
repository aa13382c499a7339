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

# In English, Chinese, Japanese, Korean, Spanish and Portuguese, French, German, Italian, Russian.
_LABELS = {
    "action_input": (
        r"(?:Action|Tool)[ _-]?Input|(?:行动|行動|动作|動作|工具)的?(?:输入|輸入|入力|参数)|アクションの?入力"
        r"|(?:행동|작업|액션) ?입력|Entrada (?:de (?:la )?acci[oó]n|da a[cç][aã]o)"
        r"|Entr[ée]e (?:de l['’])?action|Aktionseingabe|Input (?:dell['’])?azione"
        r"|(?:Ввод|Вход|Входные данные)(?: для)? действия"
    ),
    "action": (
        r"Action|行动|行動|动作|動作|アクション|행동|액션|Acci[oó]n|A[cç][aã]o|Aktion|Azione|Действие"
    ),
    "thought": (
        r"Thought|思考|想法|思维|思考过程|생각|Pensamiento|Pensamento|Pens[ée]e|R[ée]flexion"
        r"|Gedanke|Pensiero|Мысль"
    ),
    "observation": (
        r"Observation|观察|觀察|観察|观察结果|관찰|Observaci[oó]n|Observa[cç][aã]o|Beobachtung"
        r"|Osservazione|Наблюдение"
    ),
    "final_answer": (
        r"Final[ _-]?Answer|最[终終](?:答案|回答|的な答え|的な回答)|최종 ?(?:답변|답)|Respuesta final"
        r"|Resposta final|R[ée]ponse finale|(?:Endg[üu]ltige|Finale) Antwort|Risposta finale"
        r"|(?:Окончательный|Итоговый|Финальный) ответ"
    ),
}
_ANY_LABEL = "|".join(f"(?P<{kind}>{words})" for kind, words in _LABELS.items())
# A blob that names its action is one, whatever stands before it.
LABEL = re.compile(
    rf"(?:^|,(?=[ ]*Action Input))[ \t>*_#`]*(?:{_ANY_LABEL})(?:[ \t]*\d+)?"
    r"[ \t*_`]*[:：][ \t]*(?:\*\*|__)?[ \t]*"
    r"|^[ \t]*(?=\{\s*\"(?:action|tool_calls?|function_call)\"\s*:)",
    re.IGNORECASE | re.MULTILINE,
)
LENIENT_JSON = json.JSONDecoder(strict=False)
"""Takes raw control characters within strings."""

_INLINE = re.compile(
    r"(?P<name>[\w.-]+)\s*(?:\[(?P<text>.*)\]|\((?P<values>.*)\)|(?P<json>\{.*\}))",
    re.DOTALL,
)
_ANSWER = re.compile(
    rf"(?:finish|{_LABELS['final_answer']})(?:[ \t]*[:：]\s*(?P<text>.+))?",
    re.IGNORECASE | re.DOTALL,
)
_NO_ACTION = re.compile(
    r"(?:none|n/a|no action|nothing|无|無|なし|없음|ninguna|aucune|keine)"
    r"(?: (?:is )?(?:needed|required|necessary))?\.?[ \t]*(?:\n+|\Z)",
    re.IGNORECASE,
)
_NAMES = ("action", "name", "tool", "tool_name")
_INPUTS = ("action_input", "arguments", "parameters", "input")
_FENCE = re.compile(r"```\w*")
_CLOSING_FENCE = re.compile(r"\n[ \t]*```[ \t]*$", re.MULTILINE)
_OPENING = re.compile(r"\s*(?:`+\w*\s*)?(?=\{)")


@dataclass(frozen=True, slots=True)
class ReActStep:
    """One step of a model that thinks, then acts or answers.

    `action` is the name as written, "" if there is none. `action_input` is an object if it was JSON, else text.
    `answer` is None until there is a final one. `trailing` is what the model wrote after its action: an observation in
    there is invented, never to be believed. `is_incomplete`: there is the label of an action, but no name.
    """

    thought: str = ""
    action: str = ""
    action_input: JSONDict | str = ""
    answer: str | None = None
    trailing: str = ""
    is_incomplete: bool = False


def read_react(text: str) -> ReActStep:
    """Read the first action, or the final answer if that comes first. Never raises.

    Whatever follows "Final Answer:" is the answer, labels and fenced examples included. An action in a fence with
    prose behind the fence is an example, not an action.
    """
    labels = list(LABEL.finditer(text))
    start = 0
    if labels and _kind(labels[0]) == "thought":
        start = labels[0].end()
    is_incomplete = False
    while labels and _kind(labels[0]) in ("thought", "action_input"):
        is_incomplete |= _kind(labels.pop(0)) == "action_input"
    if not labels:
        return ReActStep(text[start:].strip(), is_incomplete=is_incomplete)
    label = labels[0]
    kind = _kind(label)
    thought = _FENCE.sub("", text[start : label.start()]).strip()
    if kind == "final_answer":
        return ReActStep(thought, answer=text[label.end() :].strip())
    if kind == "observation":
        trailing = text[label.start() :]
        return ReActStep(thought, trailing=trailing, is_incomplete=is_incomplete)
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
    return label.lastgroup or "action"


def _read_action(text: str, labels: list[re.Match[str]], thought: str) -> ReActStep:
    """The step whose action begins with the first of the labels."""
    ends = [*(label.start() for label in labels[1:]), len(text)]
    name = _bare(text[labels[0].end() : ends[0]]).rstrip("*")
    action_input: Any = ""
    no_action = _NO_ACTION.match(name)
    if no_action:
        return _without_action(text, labels, thought, name[no_action.end() :])
    has_input = len(labels) > 1 and _kind(labels[1]) == "action_input"
    start = labels[has_input].end()
    end = ends[has_input]
    blob = _object_at(text, start)
    inline = _INLINE.fullmatch(name)
    if blob:
        action_input, end = blob
        if not has_input:
            # It holds the name as well.
            name, action_input = _named(action_input)
    elif has_input:
        fence = _CLOSING_FENCE.search(text, start, end)
        end = fence.start() if fence else end
        action_input = _bare(text[start:end], quotes="`*")
    elif inline:
        name = inline["name"]
        action_input = inline["text"] or inline["values"] or inline["json"] or ""
        blob = _object_at(action_input, 0)
        action_input = blob[0] if blob else action_input
    if name[:1] + name[-1:] in ("[]", "<>"):
        name = name[1:-1]
    name = name.strip()
    if not name:
        return _without_action(text, labels, thought, "")
    answer = _ANSWER.fullmatch(name)
    if not isinstance(action_input, str if answer else (str, dict)):
        action_input = json.dumps(action_input, ensure_ascii=False)
    if answer:
        return ReActStep(thought, answer=answer["text"] or _bare(action_input))
    return ReActStep(thought, name, action_input, trailing=text[end:])


def _without_action(
    text: str, labels: list[re.Match[str]], thought: str, prose: str
) -> ReActStep:
    """The step whose label of an action names none: an answer if one follows, else incomplete."""
    for label in labels[1:]:
        kind = _kind(label)
        if kind == "final_answer":
            return ReActStep(thought, answer=text[label.end() :].strip())
        if kind == "action":
            break
    if prose.strip():
        return ReActStep(thought, answer=prose.strip())
    trailing = text[labels[1].start() :] if labels[1:] else ""
    return ReActStep(thought, trailing=trailing, is_incomplete=True)


def _named(blob: JSONDict) -> tuple[str, Any]:
    """The name and the input in an object that holds both; "" if it names nothing."""
    for key in ("tool_call", "tool_calls", "function_call", "function"):
        inner = blob.get(key)
        if isinstance(inner, list) and len(inner) == 1:
            inner = inner[0]
        if isinstance(inner, dict):
            return _named(inner)
    name = next((blob[key] for key in _NAMES if key in blob), "")
    action_input: Any = next((blob[key] for key in _INPUTS if key in blob), {})
    return name if isinstance(name, str) else "", action_input


def _object_at(text: str, start: int) -> tuple[JSONDict, int] | None:
    """The JSON object at `start` or in a fence there, and its end."""
    opening = _OPENING.match(text, start)
    if not opening:
        return None
    try:
        return LENIENT_JSON.raw_decode(text, opening.end())
    except (ValueError, RecursionError):
        return None


def _bare(text: str, quotes: str = "`*\"'") -> str:
    """The text without a fence around it and the marks that make it bold, code or a quotation."""
    text = _FENCE.sub("", text).strip()
    for _ in range(3):
        if len(text) > 1 and text[0] == text[-1] and text[0] in quotes:
            text = text[1:-1].strip()
    return text
