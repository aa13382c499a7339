"""The messages that the embedded model gets: a chat, a result to put into words, or arguments to fill in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolkit.messages import Message
from toolkit.tools.json_schema import Schema
from toolkit.tools.tool import Tool


def last_request(messages: Sequence[Message]) -> str:
    """The text of the last user message."""
    for message in reversed(messages):
        if message.role == "user":
            return message.text
    return ""


def shortened(text: str, room: int) -> str:
    """Head and tail of a text that has more than `room` characters."""
    if len(text) <= room:
        return text
    return f"{text[: room * 3 // 4]} … {text[len(text) - room // 4 :]}"


def chat_messages(messages: Sequence[Message], room: int) -> list[Message]:
    """The texts of a conversation, as much of its end as `room` characters hold. System messages come first."""
    texts = [
        Message(message.role, message.text)
        for message in messages
        if message.text and message.role != "tool"
    ]
    system = [message for message in texts if message.role == "system"]
    others = [message for message in texts if message.role != "system"]
    kept: list[Message] = []
    for message in [*system, *reversed(others)]:
        if room > 0:
            kept.append(replace(message, text=shortened(message.text, room)))
            room -= len(message.text)
    return kept[: len(system)] + kept[len(system) :][::-1]


def answer_messages(messages: Sequence[Message], room: int) -> list[Message]:
    """The last results, to be put into words, after two worked examples."""
    question = shortened(last_request(messages), room // 4)
    contents = "\n".join(result.content for result in messages[-1].tool_results)
    result = shortened(contents, room)
    return [
        Message(
            "system",
            "Answer the question in one short sentence, using only the tool result.",
        ),
        *_worked(_ANSWER_EXAMPLES),
        Message("user", f"Question: {question}\nTool result: {result}"),
    ]


def argument_messages(
    tool: Tool, parameters: Schema, request: str, problem: str
) -> list[Message]:
    """The tool and the request, whose arguments are to be filled in, after two worked examples of other functions."""
    form = _form(tool, parameters, request)
    if problem:
        form += f"\nThe last attempt failed: {problem}"
    return [
        Message(
            "system",
            "Fill in the arguments of the function from the request. Reply with JSON only.",
        ),
        *_worked(_ARGUMENT_EXAMPLES),
        Message("user", form),
    ]


def _worked(examples: Sequence[tuple[str, str]]) -> list[Message]:
    messages = []
    for question, answer in examples:
        messages += [Message("user", question), Message("assistant", answer)]
    return messages


_ANSWER_EXAMPLES = (
    (
        'Question: When does the next train leave?\nTool result: {"train":"IC 518","leaves":"14:05"}',
        "The next train, IC 518, leaves at 14:05.",
    ),
    (
        'Question: What is for lunch at Mario\'s?\nTool result: {"place":"Mario","dish":"pasta","price":12}',
        "At Mario's there is pasta for 12.",
    ),
)

# A plain list of parameters: with the JSON Schema in its place this model is right in 30 % of the requests, not 50 %.
# Of other functions, because it copies from the examples what it does not find in the request.
_ARGUMENT_EXAMPLES = (
    (
        "Function: send_parcel - Sends a parcel.\n"
        "Parameters:\n"
        "- city (string): City of the receiver.\n"
        "- weight (integer): Weight in grams.\n"
        "- date (string, optional): Day of sending.\n"
        "- insured (boolean, optional): Whether it is insured. Default is false.\n\n"
        "Request: I want to send an insured parcel of 800 grams to Tartu, Estonia",
        '{"city": "Tartu, Estonia", "weight": 800, "insured": true}',
    ),
    (
        "Function: book_table - Books a table at a restaurant.\n"
        "Parameters:\n"
        "- restaurant (string): Name of the restaurant.\n"
        "- guests (array of string): Names of the guests.\n"
        '- area (string, optional): Where to sit. One of: "inside", "terrace"\n'
        "- tip (number, optional): Tip as a fraction.\n"
        "- hour (integer, optional): Hour of the day. Default is 20.\n"
        "- smoking (boolean, optional): Whether smoking is allowed. Default is false.\n\n"
        "Request: Get Ann and Tom a table outside on the terrace of Luigi's, with a 10% tip.",
        '{"restaurant": "Luigi\'s", "guests": ["Ann", "Tom"], "area": "terrace", "tip": 0.1}',
    ),
)


def _form(tool: Tool, parameters: Schema, request: str) -> str:
    """A function, its parameters and a request, as in the examples."""
    lines = [f"Function: {tool.name} - {tool.description}", "Parameters:"]
    for key, schema in parameters["properties"].items():
        kind = _kind(schema)
        if key not in parameters.get("required", ()):
            kind += ", optional"
        lines.append(f"- {key} ({kind}): {_description(schema)}")
    return "\n".join(lines) + f"\n\nRequest: {request}"


def _kind(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_kind(schema.get('items'))}"
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _description(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return ""
    text = _SAMPLE.sub("", str(schema.get("description", "")))
    values = schema.get("enum") if schema.get("type") == "string" else None
    if values:
        listed = [json.dumps(value, ensure_ascii=False) for value in values]
        text += f" One of: {', '.join(listed)}"
    return text


# A small model takes a quoted sample value instead of a value of the request.
_SAMPLE = re.compile(
    r"""[\s,;(]*\b(?:e\.g\.|for example|such as)[\s,:]*(["'`])[^"'`\n]{1,60}\1\)?""",
    re.IGNORECASE,
)
