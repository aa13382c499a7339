"""The contract of all wires: the same conversations go out whole, and come back as what they were."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helpers import encode as encode_for
from toolkit import (
    Message,
    Reply,
    ScriptedModel,
    ToolCall,
    ToolRegistry,
    ToolResult,
    run_agent_with_tools,
)
from toolkit.calls.receiving import receive
from toolkit.dialects import anthropic, chat, prompted, responses

Entry = tuple[Any, ...]


def forecast(place: str, days: int = 1) -> str:
    """Weather of a place."""
    return f"sun in {place}"


def tide(port: str) -> str:
    """Tide in a port."""
    return "high"


TOOLS = list(ToolRegistry([forecast, tide]))


def call(call_id: str, name: str = "forecast", /, **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, arguments, json.dumps(arguments))


def asked(*calls: ToolCall, text: str = "", **opaque: Any) -> Message:
    return Message("assistant", text, calls, opaque=opaque)


def got(*results: ToolResult) -> Message:
    return Message("tool", tool_results=results)


USER, DONE = Message("user", "How is it?"), Message("assistant", "Fine.")
LIMA, ROME = call("c1", place="Lima"), call("c2", place="Rome", days=2)

CONVERSATIONS: dict[str, list[Message]] = {
    "a question": [USER],
    "an answer, and a further question": [USER, DONE, Message("user", "And now?")],
    "a system text": [Message("system", "Be brief."), USER, DONE],
    "one call": [USER, asked(LIMA), got(ToolResult("c1", "sun")), DONE],
    "text beside a call": [USER, asked(LIMA, text="I look."), got(ToolResult("c1", "sun")), DONE],
    "parallel calls": [USER, asked(LIMA, ROME), got(ToolResult("c1", "sun"), ToolResult("c2", "rain")), DONE],
    "one tool twice, and another": [
        USER,
        asked(LIMA, call("c2", place="Lima"), call("c3", "tide", port="Kiel")),
        got(*(ToolResult(f"c{n}", f"r{n}") for n in (1, 2, 3))),
        DONE,
    ],
    "a failure": [
        *(USER, asked(LIMA), got(ToolResult("c1", "No such place.", True))),
        *(asked(ROME), got(ToolResult("c2", "ok"))),
    ],
    "letters of every script": [
        Message("user", "Wie ist es in Zürich 🌧?"),
        asked(call("c1", place="東京 \"x\" \\ \n")),
        got(ToolResult("c1", "ü\n😀 {\"a\": 1}")),
        Message("assistant", "schön – 晴れ"),
    ],
    "an empty result": [USER, asked(LIMA), got(ToolResult("c1", "")), DONE],
    "no arguments": [USER, asked(call("c1", "tide")), got(ToolResult("c1", "Invalid", True)), DONE],
    "three turns": [
        USER,
        *(m for n in (1, 2, 3) for m in (asked(call(f"c{n}", place=str(n))), got(ToolResult(f"c{n}", f"r{n}")))),
        DONE,
    ],
}  # fmt: skip


def said(messages: list[Message]) -> list[Entry]:
    """A conversation as what any wire has to tell of it."""
    entries: list[Entry] = []
    for message in messages:
        if message.text:
            entries.append((message.role, message.text))
        entries += [
            ("call", each.id, each.name, dict(each.arguments))
            for each in message.tool_calls
        ]
        entries += [
            ("result", each.call_id, each.content) for each in message.tool_results
        ]
    return entries


def told_in_chat(body: dict[str, Any]) -> Iterator[Entry]:
    for message in body["messages"]:
        if message["role"] == "tool":
            yield "result", message["tool_call_id"], message["content"]
        elif message["content"]:
            yield message["role"], message["content"]
        for each in message.get("tool_calls", ()):
            yield (
                "call",
                each["id"],
                each["function"]["name"],
                json.loads(each["function"]["arguments"]),
            )


def told_in_responses(body: dict[str, Any]) -> Iterator[Entry]:
    if "instructions" in body:
        yield "system", body["instructions"]
    for item in body["input"]:
        match item.get("type", "message"):
            case "function_call":
                yield (
                    "call",
                    item["call_id"],
                    item["name"],
                    json.loads(item["arguments"]),
                )
            case "function_call_output":
                yield "result", item["call_id"], item["output"]
            case "message":
                content = item["content"]
                yield (
                    item["role"],
                    content
                    if isinstance(content, str)
                    else "".join(part["text"] for part in content),
                )


def told_in_anthropic(body: dict[str, Any]) -> Iterator[Entry]:
    if "system" in body:
        yield "system", body["system"]
    for message in body["messages"]:
        for block in message["content"]:
            match block["type"]:
                case "text":
                    yield message["role"], block["text"]
                case "tool_use":
                    yield "call", block["id"], block["name"], block["input"]
                case "tool_result":
                    yield "result", block["tool_use_id"], block.get("content", "")


def answered_in_chat(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (
        {"choices": [{"message": message}]}
        for message in body["messages"]
        if message["role"] == "assistant"
    )


def answered_in_responses(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    for item in [*body["input"], {"role": "user"}]:
        if item.get("role") == "assistant":
            text = {"type": "output_text", "text": item["content"], "annotations": []}
            output.append({"type": "message", "role": "assistant", "content": [text]})
        elif item.get("type") == "function_call":
            output.append(
                {**item, "id": f"fc_{item['call_id']}", "status": "completed"}
            )
        elif output:
            yield {"status": "completed", "output": output}
            output = []


def answered_in_anthropic(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for message in body["messages"]:
        if message["role"] == "assistant":
            yield {
                "content": message["content"],
                "stop_reason": "end_turn",
                "usage": {},
            }


WIRES: dict[
    str,
    tuple[Any, Callable[..., Iterator[Entry]], Callable[..., Iterator[dict[str, Any]]]],
] = {
    "chat": (chat, told_in_chat, answered_in_chat),
    "responses": (responses, told_in_responses, answered_in_responses),
    "anthropic": (anthropic, told_in_anthropic, answered_in_anthropic),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_a_conversation_goes_out_whole(wire: str, messages: list[Message]) -> None:
    dialect, told, _ = WIRES[wire]
    body = encode_for(dialect, messages, TOOLS)
    assert list(told(json.loads(json.dumps(body)))) == said(messages)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_replies_come_back_as_they_were(wire: str, messages: list[Message]) -> None:
    dialect, _, answered = WIRES[wire]
    toolset = ToolRegistry(TOOLS).snapshot()
    bodies = answered(json.loads(json.dumps(encode_for(dialect, messages, TOOLS))))
    replies = [
        receive(dialect.decode(body), toolset, used_ids=set(), seed="r").message
        for body in bodies
    ]
    assert said(replies) == said(
        [message for message in messages if message.role == "assistant"]
    )
    # What came over this wire goes back over it as it came.
    again = encode_for(dialect, [USER, *replies[:1]], TOOLS)
    assert said(replies[:1]) == [
        entry for entry in WIRES[wire][1](again) if entry != ("user", USER.text)
    ]


@pytest.mark.parametrize("messages", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_a_prompt_tells_it_all_too(messages: list[Message]) -> None:
    body = encode_for(prompted, messages, TOOLS)
    whole = "\n".join(message["content"] for message in body["messages"])
    for kind, *parts in said(messages):
        assert parts[-1] in whole if kind != "call" else f"Action: {parts[1]}" in whole
    roles = [
        message["role"] for message in body["messages"] if message["role"] != "system"
    ]
    assert all(one != other for one, other in itertools.pairwise(roles))


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("choice", "forms"),
    [
        ("auto", [None, {"type": "auto"}]),
        ("none", ["none", {"type": "none"}]),
        ("required", ["required", {"type": "any"}]),
        ("tide", [{"type": "function", "function": {"name": "tide"}}, {"type": "function", "name": "tide"},
                  {"type": "tool", "name": "tide"}]),
    ],
)  # fmt: skip
def test_a_choice_is_told(wire: str, choice: str, forms: list[Any]) -> None:
    body = encode_for(WIRES[wire][0], [USER], TOOLS, tool_choice=choice)
    assert body.get("tool_choice") in forms
    assert (
        len(body["tools"]) == 2
    )  # also where none may be called: the prompt cache lives on them


@pytest.mark.parametrize("wire", WIRES)
def test_what_is_opaque_stays_with_its_own_wire(wire: str) -> None:
    """A run that goes from wire to wire keeps its calls and results, and takes nothing along that is not understood."""
    first = asked(
        LIMA,
        chat={"role": "assistant", "content": None, "reasoning_content": "hm"},
        other={"x": "secret"},
    )
    messages = [USER, first, got(ToolResult("c1", "sun"))]
    body = json.dumps(encode_for(WIRES[wire][0], messages, TOOLS))
    assert "secret" not in body
    assert ("hm" in body) is (wire == "chat")
    assert list(WIRES[wire][1](json.loads(body))) == said(messages)


def test_a_run_goes_on_over_other_wires() -> None:
    with ScriptedModel([call("c1", place="Lima"), "Fine."]) as model:
        result = run_agent_with_tools("How is it?", tools=[forecast, tide], model=model)
    for wire, (dialect, told, answered) in WIRES.items():
        body = encode_for(dialect, [*result.messages, Message("user", wire)], TOOLS)
        replies = [dialect.decode(each) for each in answered(body)]
        assert all(isinstance(reply, Reply) for reply in replies)
        assert list(told(body)) == [*said(list(result.messages)), ("user", wire)]
        with ScriptedModel([f"{wire}."]) as model:
            result = run_agent_with_tools(
                wire, tools=[forecast, tide], model=model, history=result
            )
