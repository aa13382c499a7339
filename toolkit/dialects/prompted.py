"""Tools for models that know no function calling: told in the system text, called in text, over Chat Completions.

In one form a JSON Schema made from the tools holds the reply (`response_format`); in the other the model writes
Thought, Action and Action Input (ReAct, arXiv 2210.03629). Messages have only the roles and the plain text that every
chat template takes, user and assistant in turn; what other wires left in the conversation is told in the same form.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolkit.dialects import chat, chat_stream
from toolkit.dialects.react_text import LABEL, read_react
from toolkit.messages import Message, Reply, ToolCall, whole_characters
from toolkit.tools import Tool, wire_name

PATH = chat.PATH
DIALECT = "prompted"
STREAM = chat.STREAM
STOP = "\nObservation:"

_TOOLS = "Tools (? marks what may be left out):\n"
_ACT = "\nTo use one, write\nThought: why\nAction: its name\nAction Input: its input as JSON\nand stop; "
_ACT_IN_JSON = '\nReply with JSON only. To use one: {"tool": its name, "arguments": its input}; '
_OBSERVE = "the next message brings the Observation. "
_FORCED = "Use one now."
_ANSWER = "To answer, write\nFinal Answer: the answer"
_ANSWER_IN_JSON = 'To answer: {"answer": "the answer"}'
_OFF = "Tools are switched off now. "
_OPENING = Message("user", "(The conversation begins.)")

_THINK = re.compile(r"\s*<think>")
_FENCE = re.compile(r"\s*(?:```\w*\s*)?")
_CUT_CALL = re.compile(r'\{\s*"tool"\s*:\s*"([^"\\]*)"\s*,\s*"arguments"\s*:\s*')
_JSON = json.JSONDecoder(strict=False)


def encode(
    messages: Iterable[Message],
    tools: Sequence[Tool],
    *,
    model: str,
    tool_choice: str = "auto",
    strict: bool = False,
    options: Mapping[str, Any] | None = None,
    structured: bool = False,
) -> dict[str, Any]:
    """The body of a request; with `structured` the server holds the reply to a schema. `options` are further fields.

    A forced choice is certain only with `structured`. `strict` changes nothing: strict mode of OpenAI takes no
    alternatives at the root of a schema. Without tools it is the body of `chat`, earlier calls told in text.
    """
    messages, fields = list(messages), dict(options or {})
    if not tools and not any(message.tool_calls for message in messages):
        return chat.encode(messages, (), model=model, options=fields)
    shown = [tool for tool in tools if tool_choice in ("auto", "required", tool.name)]
    manual = _manual(shown, structured, tool_choice != "auto") if tools else ""
    if tools and structured:
        schema = _schema(shown, tool_choice in ("auto", "none"))
        fields["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
    elif tools:
        given = fields.get("stop") or []
        fields["stop"] = [*([given] if isinstance(given, str) else given), STOP]
    names = {tool.name: tool.wire_name for tool in tools}
    return chat.encode(_conversation(messages, manual, names, structured), (), model=model, options=fields)


def decode(body: Mapping[str, Any]) -> Reply:
    """The reply in a response body, of either form. Raises MalformedReply where there is none.

    Of several actions the first counts, for the model made up what it had not observed. The text is the answer, or
    all that was said where nothing is marked as one.
    """
    reply = chat.decode(body)
    said = reply.message.text
    read = _read(said)
    calls = (read.call,) if read.call and reply.finish != "refusal" else ()
    return replace(reply, message=Message("assistant", whole_characters(read.text), calls, opaque={DIALECT: said}))


def assembly(known_names: Sequence[str]) -> Assembly:
    """What puts a streamed reply together."""
    return Assembly(known_names)


class Assembly(chat_stream.Assembly):
    """A streamed reply. Its text becomes visible from "Final Answer:" on; without that label, at the end."""

    def __init__(self, known_names: Sequence[str] = ()) -> None:
        super().__init__(known_names)
        self._said = self._shown = ""
        self._looked = 0  # up to here there is neither an answer nor an action
        self._answer: int | None = None

    def add(self, chunk: Mapping[str, Any]) -> str:
        """Take one chunk in; return the text of the answer that became visible with it."""
        piece = super().add(chunk)
        self._said += piece
        if self._finish:
            visible = decode(self.body()).message.text
        elif piece and self._is_answering():
            visible = self._said[self._answer :].strip()
        else:
            return ""
        new, self._shown = visible[len(self._shown) :], visible
        return new

    def _is_answering(self) -> bool:
        begin = _after_thinking(self._said)
        if self._answer is None and self._said[_skip(_FENCE, self._said, begin) :][:1] != "{":
            for label in LABEL.finditer(self._said, max(self._looked, begin)):
                if label["label"].lower() == "final answer" and self._said[label.end() :].strip("*_ \t\r\n"):
                    self._answer = label.end()
                if label["label"].lower() not in ("thought", "action input"):
                    break
            else:
                self._looked = self._said.rfind("\n") + 1
        return self._answer is not None


# What the model is told


def _manual(shown: list[Tool], structured: bool, forced: bool) -> str:
    answer = _ANSWER_IN_JSON if structured else _ANSWER
    if not shown:
        return _OFF + answer
    listed = "\n".join(f"- {t.wire_name} {_brief(t.parameters)} {' '.join(t.description.split())}" for t in shown)
    return _TOOLS + listed + (_ACT_IN_JSON if structured else _ACT) + _OBSERVE + (_FORCED if forced else answer)


def _brief(schema: Any) -> str:
    """A schema in few characters where it is of the plain kinds, else as it is, so that nothing gets lost."""
    schema = schema if isinstance(schema, Mapping) else {}
    bare = {key: value for key, value in schema.items() if key not in ("description", "title", "default")}
    match bare:
        case {"type": "object", "properties": {} as properties, **rest} if not any(
            value for key, value in rest.items() if key != "required"
        ):
            marks = {name: "" if name in rest.get("required", ()) else "?" for name in properties}
            brief = ", ".join(f"{_json(name)}{marks[name]}: {_brief(each)}" for name, each in properties.items())
            brief = f"{{{brief}}}"
        case {"type": "array", "items": {} as items, **rest} if not rest:
            brief = f"array of {_brief(items)}"
        case {"enum": [*values], **rest} if rest.keys() <= {"type"}:
            brief = " | ".join(map(_json, values))
        case {"anyOf": [*branches], **rest} if not rest:
            brief = " | ".join(map(_brief, branches))
        case {"type": str(kind), **rest} if not rest:
            brief = kind
        case _:
            brief = _json(bare)
    default = f" = {_json(schema['default'])}" if "default" in schema else ""
    description = " ".join(str(schema.get("description", "")).split())
    return brief + default + (f" ({description})" if description else "")


def _schema(shown: list[Tool], may_answer: bool) -> dict[str, Any]:
    """One alternative for each tool, and one for the answer."""
    branches, definitions = [], {}
    for tool in shown:
        name, arguments = tool.wire_name, {"additionalProperties": False, **tool.parameters}
        if '"$ref"' in _json(arguments):  # references count from the root of all, so they are led there
            definitions[name] = _moved(arguments, f"#/$defs/{name}")
            arguments = {"$ref": f"#/$defs/{name}"}
        branches.append(_object({"tool": {"type": "string", "enum": [name]}, "arguments": arguments}))
    if may_answer:
        branches.append(_object({"answer": {"type": "string"}}))
    schema = branches[0] if len(branches) == 1 else {"anyOf": branches}
    return {**schema, "$defs": definitions} if definitions else schema


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _moved(node: Any, root: str) -> Any:
    """The schema with its references counted from `root`."""
    if isinstance(node, list):
        return [_moved(each, root) for each in node]
    if not isinstance(node, Mapping):
        return node
    return {
        key: value.replace("#", root, 1) if key == "$ref" and isinstance(value, str) else _moved(value, root)
        for key, value in node.items()
    }


# The conversation


def _conversation(messages: list[Message], manual: str, names: Mapping[str, str], structured: bool) -> list[Message]:
    system = "\n\n".join(filter(None, [*(m.text for m in messages if m.role == "system"), manual]))
    told = [message for message in _told(messages, names, structured) if message.text]
    if told and told[0].role == "assistant":
        told.insert(0, _OPENING)
    turns = [
        Message(role, "\n\n".join(message.text for message in group))
        for role, group in itertools.groupby(told, key=lambda message: message.role)
    ]
    return [Message("system", system), *turns] if system else turns


def _told(messages: list[Message], names: Mapping[str, str], structured: bool) -> Iterator[Message]:
    """What was said, each result behind its call, so that calls which were made at once stand one after the other."""
    results = {result.call_id: result.content for message in messages for result in message.tool_results}
    for message in messages:
        if message.role == "user":
            yield Message("user", message.text)
        elif message.role == "assistant":
            own = _read(message.opaque[DIALECT]) if DIALECT in message.opaque else None
            is_own = own is not None and len(message.tool_calls) == bool(own.call)
            texts = [_call_text(call, names, structured) for call in message.tool_calls] or [""]
            if own and is_own:
                texts = [own.said]
            elif message.text:
                label = "Thought: " if message.tool_calls and not structured else ""
                texts[0] = f"{label}{message.text}\n{texts[0]}".strip()
            for text, call in itertools.zip_longest(texts, message.tool_calls):
                yield Message("assistant", text)
                if call and call.id in results:
                    yield Message("user", f"Observation: {results[call.id]}")


def _call_text(call: ToolCall, names: Mapping[str, str], structured: bool) -> str:
    name = names.get(call.name) or wire_name(call.name or "unnamed")
    if structured:
        return _json({"tool": name, "arguments": call.arguments})
    return f"Action: {name}\nAction Input: {_json(call.arguments)}"


# What the model said


@dataclass(frozen=True, slots=True)
class _Read:
    """A reply: its call or its text, and what was said up to there, which is what the model may see again."""

    call: ToolCall | None
    text: str
    said: str


def _read(text: str) -> _Read:
    text = text[_after_thinking(text) :]
    start = _skip(_FENCE, text, 0)
    if text[start : start + 1] == "{" and (read := _read_json(text[start:])):
        return read
    step = read_react(text)
    said = text[: len(text) - len(step.trailing)].strip()
    if step.action:
        return _Read(_call(step.action, step.action_input), "", said)
    if step.answer is None:
        return _Read(None, step.thought, said)
    return _Read(None, step.answer, said if said.endswith(step.answer) else f"Final Answer: {step.answer}")


def _read_json(text: str) -> _Read | None:
    from pydantic_core import from_json

    end = len(text)
    try:
        value, end = _JSON.raw_decode(text)
    except (ValueError, RecursionError):
        if cut := _CUT_CALL.match(text):
            return _Read(_call(cut[1], text[cut.end() :]), "", text)
        try:
            value = from_json(text, allow_partial="trailing-strings")
        except ValueError:
            return None
    match value:
        case {"tool": str(name), **rest} if rest.keys() <= {"arguments"}:
            return _Read(_call(name, rest.get("arguments", {})), "", text[:end])
        case {"answer": answer, **rest} if not rest:
            return _Read(None, answer if isinstance(answer, str) else _json(answer), text[:end])
    return None


def _call(name: str, given: Any) -> ToolCall:
    return ToolCall("", whole_characters(name), raw=whole_characters(given if isinstance(given, str) else _json(given)))


def _after_thinking(text: str) -> int:
    """Where the text goes on behind what a reasoning model thought aloud."""
    end = text.find("</think>") if _THINK.match(text) else -len("</think>")
    return len(text) if end == -1 else end + len("</think>")


def _skip(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.match(text, start)
    return found.end() if found else start


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)
