"""OpenAI Responses, encoded, decoded and put together from events; what servers really answer stands in wire/."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import clock, recorded
from helpers import encode as encode_for
from toolkit import (
    Message,
    Reply,
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolRegistry,
    ToolResult,
    Usage,
    tool,
)
from toolkit import run_agent_with_tools as run_agent
from toolkit.dialects import responses
from toolkit.dialects.responses import Assembly, decode
from toolkit.errors import MalformedReply

USER = Message("user", "q")
ASKED = {"role": "user", "content": "q"}


def forecast(place: str, days: int = 1) -> str:
    """The weather at a place."""
    return f"sun in {place}"


def encode(*messages: Message, tools: Any = (), **asked: Any) -> dict[str, Any]:
    return encode_for(responses, messages, list(tools), **asked)


def items(*messages: Message, **asked: Any) -> list[dict[str, Any]]:
    return encode(*messages, **asked)["input"]


def response(*output: Any, **rest: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": list(output),
        **rest,
    }


def text_item(text: str, **extra: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": content,
        **extra,
    }


def call_item(
    name: str = "clock", arguments: Any = "{}", call_id: str = "c1", **extra: Any
) -> dict[str, Any]:
    item = {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }
    return item | extra


def reasoning_item(**extra: Any) -> dict[str, Any]:
    return {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "gAAA",
        **extra,
    }


def output_item(call_id: str, output: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def played(*bodies: Mapping[str, Any], **options: Any) -> RunResult:
    """A run in which the model answers with these bodies, and then with "done"."""
    tools = ToolRegistry([tool(forecast), clock])
    return run_agent(
        "q", model=ScriptedModel([*map(decode, bodies), "done"]), tools=tools, **options
    )


# Requests


def test_a_request_becomes_a_body() -> None:
    messages = (Message("system", "be brief"), Message("system", "in prose"), USER)
    assert encode(
        *messages,
        tools=ToolRegistry([clock]),
        options={"temperature": 0, "max_output_tokens": 9},
    ) == {
        "model": "m",
        "instructions": "be brief\n\nin prose",
        "input": [ASKED],
        "temperature": 0,
        "max_output_tokens": 9,
        "tools": [
            {
                "type": "function",
                "name": "clock",
                "description": "The time in a zone.",
                "parameters": {
                    "type": "object",
                    "properties": {"zone": {"type": "string", "default": "UTC"}},
                },
                "strict": False,
            }
        ],
    }


def test_strict_is_said_in_any_case() -> None:
    def locate(query: str) -> str:
        return query

    def save(order: dict[str, Any]) -> str:  # has no strict form
        return str(order)

    found = {
        entry["name"]: entry
        for entry in encode(USER, tools=ToolRegistry([locate, save]), strict=True)[
            "tools"
        ]
    }
    assert found["locate"]["strict"] is True
    assert found["locate"]["parameters"]["additionalProperties"] is False
    assert found["save"]["strict"] is False


CHOICES = {
    "auto": None,
    "none": "none",
    "required": "required",
    "clock": {"type": "function", "name": "clock"},
    "the time!": {"type": "function", "name": "the_time_"},
}


@pytest.mark.parametrize(("choice", "on_the_wire"), CHOICES.items(), ids=CHOICES)
def test_a_tool_choice(choice: str, on_the_wire: Any) -> None:
    registry = ToolRegistry([clock, tool(name="the time!")(forecast)])
    assert (
        encode(USER, tools=registry, tool_choice=choice).get("tool_choice")
        == on_the_wire
    )


def test_without_tools_nothing_speaks_of_tools() -> None:
    body = encode(
        USER,
        tool_choice="required",
        options={"parallel_tool_calls": False, "tools": []},
    )
    assert body == {"model": "m", "input": [ASKED]}


def test_the_providers_own_tools_stand_beside_ours() -> None:
    search = {"type": "web_search"}
    options = {"tools": [search], "parallel_tool_calls": False}
    body = encode(USER, tools=ToolRegistry([clock]), options=options)
    assert [entry["type"] for entry in body["tools"]] == ["web_search", "function"]
    assert encode(USER, options=options)["tools"] == [search]
    assert body["parallel_tool_calls"] is False
    assert options == {"tools": [search], "parallel_tool_calls": False}


def test_a_later_system_message_keeps_its_place() -> None:
    body = encode(Message("system", "a"), USER, Message("system", "b"))
    assert body["instructions"] == "a"
    assert body["input"] == [ASKED, {"role": "system", "content": "b"}]


def test_a_conversation_of_another_wire_is_written_anew() -> None:
    call = ToolCall("a", "clock", {"zone": "CET"}, '{"zone":"CET"}')
    said = Message("assistant", "so", (call,), opaque={"chat": {"content": "x"}})
    results = Message("tool", tool_results=(ToolResult("a", "noon"),))
    assert items(USER, said, results, Message("assistant", "")) == [
        ASKED,
        {"role": "assistant", "content": "so"},
        {
            "type": "function_call",
            "call_id": "a",
            "name": "clock",
            "arguments": '{"zone":"CET"}',
        },
        output_item("a", "noon"),
    ]


def test_a_long_id_of_another_wire_is_shortened_alike_in_call_and_result() -> None:
    ids = ("toolu_" + "x" * 80, "toolu_" + "x" * 79 + "y")
    said = Message(
        "assistant", tool_calls=tuple(ToolCall(given, "clock") for given in ids)
    )
    calls_and_results = items(
        said,
        Message("tool", tool_results=tuple(ToolResult(given, "noon") for given in ids)),
    )
    sent = [item["call_id"] for item in calls_and_results]
    assert sent[:2] == sent[2:]
    assert len(set(sent)) == 2
    assert max(map(len, sent)) <= 64


# What comes back goes back


def test_items_are_echoed_in_their_places() -> None:
    body = recorded("responses_reasoning_text_and_calls")["body"]
    result = played(body)
    reasoning, message, *calls = copy.deepcopy(body["output"])
    del reasoning["status"]
    results = [
        output_item("call_qA1", "sun in Köln"),
        output_item("call_qA2", "sun in Lima"),
    ]
    assert items(*result.messages[1:-1]) == [reasoning, message, *calls, *results]
    assert [call.arguments for call in result.calls] == [
        {"place": "Köln", "days": 1},
        {"place": "Lima", "days": 3},
    ]


def test_reasoning_stands_before_its_call() -> None:
    body = recorded("responses_reasoning_before_call")["body"]
    sent = items(*played(body).messages[1:-1], options={"store": False})
    assert [item["type"] for item in sent] == [
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    assert sent[0] == {
        "type": "reasoning",
        "id": "rs_61f1",
        "summary": [],
        "encrypted_content": "gAAAAABlcnN0",
    }
    assert sent[1]["id"] == "fc_61f2"
    assert sent[1]["call_id"] == sent[2]["call_id"] == "call_qD1"


def test_what_is_null_is_left_out() -> None:
    message = decode(
        response(call_item(status=None), text_item("so", phase=None))
    ).message
    assert [item.keys() & {"status", "phase"} for item in items(message)] == [
        set(),
        set(),
    ]


def changed(message: Message, **change: Any) -> Message:
    (call,) = message.tool_calls
    made = {
        "id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "raw": call.raw,
    } | change
    return Message(
        "assistant", message.text, (ToolCall(**made),), opaque=message.opaque
    )


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        pytest.param({"arguments": {"zone": "CET"}}, '{"zone": "CE', id="as it came"),
        pytest.param({"problem": "cut off"}, "{}", id="not to be read"),
        pytest.param(
            {"arguments": {"zone": "CET"}, "repairs": ("code_fence",)},
            '{"zone":"CET"}',
            id="repaired",
        ),
        pytest.param({"raw": "", "arguments": {}}, "{}", id="empty"),
        pytest.param(
            {"raw": {"zone": "CET"}, "arguments": {"zone": "CET"}},
            '{"zone":"CET"}',
            id="an object",
        ),
    ],
)
def test_arguments_on_their_way_back(change: dict[str, Any], kept: str) -> None:
    message = decode(response(call_item(arguments='{"zone": "CE'))).message
    (item,) = items(changed(message, **change))
    assert item["arguments"] == kept
    assert item["id"] == "fc_c1"


def test_a_call_whose_id_was_made_unique_is_no_longer_the_servers_item() -> None:
    message = changed(
        decode(response(call_item(status="completed"))).message, id="k2m4p6q8r"
    )
    assert items(message) == [
        {
            "type": "function_call",
            "call_id": "k2m4p6q8r",
            "name": "clock",
            "arguments": "{}",
            "status": "completed",
        }
    ]


def test_equal_ids_of_two_calls_are_parted() -> None:
    body = response(
        call_item(arguments='{"zone":"A"}'), call_item(arguments='{"zone":"B"}')
    )
    calls = items(*played(body).messages[1:-1])
    assert calls[0]["call_id"] != calls[1]["call_id"]
    assert [item["call_id"] for item in calls[:2]] == [
        item["call_id"] for item in calls[2:]
    ]
    assert [item["output"] for item in calls[2:]] == ["noon A", "noon B"]
    assert len([item for item in calls if "id" in item]) == 1


def test_one_call_that_held_two_is_echoed_as_two() -> None:
    uses = [
        {"recipient_name": "functions.clock", "parameters": {"zone": name}}
        for name in ("A", "B")
    ]
    both = call_item("multi_tool_use.parallel", json.dumps({"tool_uses": uses}))
    body = response(reasoning_item(), both, text_item("so"))
    sent = items(*played(body).messages[1:-1])
    kinds = [
        "reasoning",
        "function_call",
        "function_call",
        "message",
        "function_call_output",
        "function_call_output",
    ]
    assert [item["type"] for item in sent] == kinds
    assert [item["arguments"] for item in sent[1:3]] == ['{"zone":"A"}', '{"zone":"B"}']
    assert [item["call_id"] for item in sent[1:3]] == [
        item["call_id"] for item in sent[4:]
    ]


def test_calls_found_in_the_text_are_added_to_its_items() -> None:
    message = decode(response(reasoning_item(), text_item("so"))).message
    leaked = Message(
        "assistant",
        "",
        (ToolCall("n1", "clock", {}, "{}", ("leaked",)),),
        opaque=message.opaque,
    )
    assert [item["type"] for item in items(leaked)] == [
        "reasoning",
        "message",
        "function_call",
    ]


def test_reasoning_that_nothing_follows_stays_away() -> None:
    body = response(
        reasoning_item(),
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    )
    assert items(decode(body).message, Message("user", "go on")) == [
        {"role": "user", "content": "go on"}
    ]


@pytest.mark.parametrize(
    ("store", "left"),
    [
        pytest.param(
            True,
            [("rs_1", "reasoning"), ("fc_c1", "function_call"), ("msg_1", "message")],
            id="kept",
        ),
        pytest.param(
            False, [(None, "function_call"), (None, "message")], id="not kept"
        ),
    ],
)
def test_reasoning_without_its_content_is_found_only_where_the_server_keeps_it(
    store: bool, left: list[Any]
) -> None:
    body = response(
        reasoning_item(encrypted_content=None), call_item(), text_item("so")
    )
    sent = items(decode(body).message, options={"store": store})
    assert [(item.get("id"), item["type"]) for item in sent] == left


def test_history_is_not_changed() -> None:
    message = decode(
        response(
            reasoning_item(encrypted_content=None, status="completed"), call_item()
        )
    ).message
    before = copy.deepcopy(message)
    encode(message, options={"store": False})
    assert message == before


# Who keeps the conversation

THOUGHT = {"effort": "low"}
ENCRYPTED = ["reasoning.encrypted_content"]
STATES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing said": ({}, {}),
    "reasoning": (
        {"reasoning": THOUGHT},
        {"reasoning": THOUGHT, "store": False, "include": ENCRYPTED},
    ),
    "reasoning that the server keeps": (
        {"reasoning": THOUGHT, "store": True},
        {"reasoning": THOUGHT, "store": True},
    ),
    "reasoning, and more to include": (
        {"reasoning": THOUGHT, "include": ["web_search_call.results", *ENCRYPTED]},
        {
            "reasoning": THOUGHT,
            "store": False,
            "include": ["web_search_call.results", *ENCRYPTED],
        },
    ),
    "nothing kept": ({"store": False}, {"store": False}),
    "an id of the caller's": (
        {"previous_response_id": "resp_0"},
        {"previous_response_id": "resp_0"},
    ),
    "the server's state, at first": ({"previous_response_id": True}, {}),
    "the server's state, with reasoning": (
        {"previous_response_id": True, "reasoning": THOUGHT},
        {"reasoning": THOUGHT},
    ),
    "the server's state, refused": (
        {"previous_response_id": True, "store": False},
        {"store": False},
    ),
    "not the server's state": ({"previous_response_id": False}, {}),
}


@pytest.mark.parametrize(("options", "fields"), STATES.values(), ids=STATES)
def test_who_keeps_the_conversation(
    options: dict[str, Any], fields: dict[str, Any]
) -> None:
    before = copy.deepcopy(options)
    assert encode(USER, options=options) == {"model": "m", "input": [ASKED], **fields}
    assert options == before


SAID = decode(response(call_item())).message
RESULT = Message("tool", tool_results=(ToolResult("c1", "noon"),))
ANSWER = decode(response(text_item("done"), id="resp_2")).message
FOREIGN = Message("assistant", "hm", opaque={"chat": {"content": "hm"}})
UNKEPT = decode(response(call_item(), store=False)).message


@pytest.mark.parametrize(
    ("messages", "previous", "sent"),
    [
        pytest.param((USER, SAID, RESULT), "resp_1", [output_item("c1", "noon")], id="results"),
        pytest.param((USER, SAID, RESULT, ANSWER, USER), "resp_2", [ASKED], id="next prompt"),
        pytest.param(
            (USER, ANSWER, USER, FOREIGN, USER), "resp_2",
            [ASKED, {"role": "assistant", "content": "hm"}, ASKED],
            id="another wire in between",
        ),
        pytest.param(
            (USER, ANSWER, USER, changed(SAID, id="other"), Message("tool", tool_results=(ToolResult("other", "x"),))),
            "resp_2",
            [
                ASKED,
                {"type": "function_call", "call_id": "other", "name": "clock", "arguments": "{}"},
                output_item("other", "x"),
            ],
            id="an id that the server does not know",
        ),
        pytest.param((USER, UNKEPT, RESULT), None, items(USER, UNKEPT, RESULT), id="an answer that it does not keep"),
        pytest.param((FOREIGN, USER), None, items(FOREIGN, USER), id="no answer of this wire"),
    ],
)  # fmt: skip
def test_the_server_is_sent_what_it_does_not_know(
    messages: tuple[Message, ...], previous: str | None, sent: list[Any]
) -> None:
    body = encode(
        Message("system", "be brief"), *messages, options={"previous_response_id": True}
    )
    assert body["input"] == sent
    assert body.get("previous_response_id") == previous
    assert body["instructions"] == "be brief"  # these are not kept


def test_a_server_that_keeps_nothing_is_sent_all() -> None:
    body = encode(
        USER, SAID, RESULT, options={"previous_response_id": True, "store": False}
    )
    assert "previous_response_id" not in body
    assert body["input"] == items(USER, SAID, RESULT)


# Replies

REPLIES: dict[str, tuple[dict[str, Any], str, str]] = {
    "text": (response(text_item("so")), "so", "stop"),
    "two messages": (response(text_item("one, "), text_item("two")), "one, two", "stop"),
    "content as a string": (response({"type": "message", "content": "so"}), "so", "stop"),
    "reasoning is no text": (response(reasoning_item(content=[{"text": "hm"}]), text_item("so")), "so", "stop"),
    "nothing": (response(), "", "stop"),
    "refusal": (recorded("responses_refusal")["body"], "I cannot help with that.", "refusal"),
    "text, then a refusal": (
        response(text_item("well", content=[{"text": "well"}, {"refusal": "no"}])), "well", "refusal"
    ),
    "cut text": (
        response(text_item("Once"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        "Once", "length",
    ),
    "cut without a reason": (response(text_item("Once"), status="incomplete"), "Once", "length"),
    "filtered": (
        response(text_item("Once"), status="incomplete", incomplete_details={"reason": "content_filter"}),
        "Once", "refusal",
    ),
    "no status": (response(text_item("so"), status=None), "so", "stop"),
    "a tool of the provider's": (recorded("responses_web_search")["body"], "Sun, they say.", "stop"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "text", "finish"), REPLIES.values(), ids=REPLIES)
def test_a_body_becomes_a_reply(body: dict[str, Any], text: str, finish: str) -> None:
    reply = decode(body)
    assert (reply.message.text, reply.finish, reply.message.tool_calls) == (
        text,
        finish,
        (),
    )


def test_usage_and_calls() -> None:
    reply = decode(recorded("responses_reasoning_text_and_calls")["body"])
    assert reply.usage == Usage(83, 40, 64, 12)
    assert reply.finish == "stop"
    assert reply.message.text == "Ich schaue nach: Köln 🌦"
    assert set(reply.message.opaque) == {"responses"}
    assert reply.message.tool_calls == (
        ToolCall("call_qA1", "forecast", raw='{"place":"Köln"}'),
        ToolCall("call_qA2", "forecast", raw='{"place":"Lima","days":3}'),
    )


def test_a_call_without_arguments() -> None:
    for item in (call_item(arguments=None), call_item(arguments="")):
        assert decode(response(item)).message.tool_calls == (
            ToolCall("c1", "clock", raw=""),
        )


@pytest.mark.parametrize(
    "usage", [None, [], {"input_tokens": None, "output_tokens_details": "?"}], ids=repr
)
def test_usage_that_tells_nothing(usage: Any) -> None:
    assert decode(response(usage=usage)).usage == Usage()


FAILURES: dict[str, tuple[Any, str, int | None]] = {
    "no response": ([], "no output", None),
    "no output": ({"output": None}, "no output", None),
    "an error": ({"error": {"message": "overloaded", "code": "server_is_overloaded"}}, "no output: overloaded", 503),
    "an error's number": ({"error": {"message": "later", "code": 503}}, "no output: later", 503),
    "an error as text": ({"error": "gone"}, "no output: gone", None),
    "failed": (
        response(status="failed", error={"code": "rate_limit_exceeded", "message": "slower"}), "is failed: slower", 429
    ),
    "refused for good": (response(status="failed", error={"code": "invalid_prompt"}), "is failed", None),
    **{status: (response(status=status), f"is {status}", None) for status in ("queued", "in_progress", "cancelled")},
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "complaint", "status"), FAILURES.values(), ids=FAILURES
)
def test_a_body_without_a_reply_is_malformed(
    body: Any, complaint: str, status: int | None
) -> None:
    with pytest.raises(MalformedReply, match=complaint) as raised:
        decode(body)
    assert raised.value.status == status


# What was met, played to whole runs


def test_a_nameless_call_is_answered_as_well() -> None:
    sent = items(*played(recorded("responses_nameless_call")["body"]).messages[1:-1])
    assert [item["call_id"] for item in sent] == ["call_qC1", "call_qC2"] * 2
    assert all(item["name"] for item in sent[:2])
    assert sent[3]["output"] == "sun in Lima"


def test_a_cut_call_does_not_run() -> None:
    result = played(recorded("responses_cut_call")["body"])
    (call,) = result.calls
    assert call.is_error
    assert "cut off" in call.content
    sent = items(*result.messages[1:-1])
    assert [item.get("arguments", item.get("call_id")) for item in sent] == [
        "{}",
        "call_qB1",
    ]


def test_a_filtered_call_ends_the_run() -> None:
    result = played(recorded("responses_filtered_call")["body"])
    assert result.stop_reason == "refused"
    assert result.calls == []
    assert items(*result.messages) == [ASKED]


def test_the_providers_own_tool_is_echoed_and_not_run() -> None:
    body = recorded("responses_web_search")["body"]
    result = played(body)
    assert (result.text, result.calls) == ("Sun, they say.", [])
    assert items(*result.messages)[1:] == body["output"]


def test_a_saved_run_goes_on() -> None:
    result = played(recorded("responses_reasoning_text_and_calls")["body"])
    assert items(*RunResult.from_json(result.to_json()).messages) == items(
        *result.messages
    )


# Streams


def assembled(events: list[Any]) -> tuple[dict[str, Any], str]:
    assembly = Assembly()
    text = "".join(map(assembly.add, events))
    body = assembly.body()
    assert assembly.body() == body
    return body, text


@pytest.mark.parametrize("name", ["reasoning_text_and_calls", "refusal", "cut_call"])
def test_events_make_the_body_that_would_have_come_unstreamed(name: str) -> None:
    body, text = assembled(recorded(f"responses_{name}")["events"])
    assert body == recorded(f"responses_{name}")["body"]
    assert text == decode(body).message.text


def test_an_end_without_items() -> None:
    body, text = assembled(recorded("responses_empty_end")["events"])
    reasoning, message, call, *_ = recorded("responses_reasoning_text_and_calls")[
        "body"
    ]["output"]
    assert body["output"] == [reasoning, message, call]
    assert decode(body).usage.input_tokens == 83
    assert text == "Ich schaue nach: Köln 🌦"


def unfinished(events: list[dict[str, Any]], **end: Any) -> list[dict[str, Any]]:
    """The events without those that finish items, and with another end."""
    left = [
        event
        for event in events
        if not event["type"].endswith((".done", "completed", "incomplete"))
    ]
    return [*left, {"type": "response.incomplete", "response": {"id": "resp_1", **end}}]


def test_items_that_the_end_has_cut_are_put_together_from_their_pieces() -> None:
    body, _ = assembled(
        unfinished(recorded("responses_reasoning_text_and_calls")["events"], output=[])
    )
    reply = decode(body)
    assert (reply.finish, reply.message.text) == ("length", "Ich schaue nach: Köln 🌦")
    assert [call.raw for call in reply.message.tool_calls] == [
        '{"place":"Köln"}',
        '{"place":"Lima","days":3}',
    ]
    assert [call.id for call in reply.message.tool_calls] == ["call_qA1", "call_qA2"]
    # Half an encrypted content is none.
    assert items(reply.message, options={"store": False})[0]["type"] == "message"


def test_items_that_the_end_alone_tells_whole() -> None:
    recording = recorded("responses_reasoning_text_and_calls")
    body, _ = assembled(
        unfinished(recording["events"], output=recording["body"]["output"])
    )
    assert body["output"] == recording["body"]["output"]


def test_a_cut_refusal() -> None:
    body, text = assembled(unfinished(recorded("responses_refusal")["events"]))
    assert decode(body).message.text == text == "I cannot help with that."
    assert decode(body).finish == "refusal"
    assert body["output"][0]["content"] == [{"type": "refusal", "refusal": text}]


def test_pieces_whose_item_was_never_announced() -> None:
    delta = {"type": "response.output_text.delta", "output_index": 0, "delta": "so"}
    arguments = {
        "type": "response.function_call_arguments.delta",
        "output_index": 1,
        "delta": "{}",
    }
    body, _ = assembled(
        [delta, arguments, {"type": "response.completed", "response": {}}]
    )
    reply = decode(body)
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "so"}],
    }
    assert body["output"] == [said, {"type": "function_call", "arguments": "{}"}]
    assert (reply.message.text, reply.finish) == ("so", "stop")
    assert reply.message.tool_calls == (ToolCall("", "", raw="{}"),)


def test_encrypted_content_is_that_of_the_finished_item() -> None:
    events = copy.deepcopy(recorded("responses_reasoning_text_and_calls")["events"])
    events[-1]["response"]["output"][0]["encrypted_content"] = "gAAA"
    body, _ = assembled(events)
    assert body["output"][0]["encrypted_content"] == "gAAAAABsZWhyZXJzY2hsdXNz"


ERRORS: dict[str, tuple[dict[str, Any], str, int | None]] = {
    "error": ({"type": "error", "code": "server_error", "message": "sorry", "param": None}, "sorry", 500),
    "error, nested": ({"type": "error", "error": {"code": "slow_down", "message": "later"}}, "later", 503),
    "error, without a type": ({"error": {"message": "gone", "code": 502}}, "gone", 502),
    "failed": (
        {"type": "response.failed", "response": {"status": "failed", "error": {"code": "bio_policy", "message": "no"}}},
        "failed: no", None,
    ),
    "failed without a word": ({"type": "response.failed"}, "failed", None),
}  # fmt: skip


@pytest.mark.parametrize(("event", "complaint", "status"), ERRORS.values(), ids=ERRORS)
def test_an_event_that_tells_of_an_error(
    event: dict[str, Any], complaint: str, status: int | None
) -> None:
    assembly = Assembly()
    assembly.add(
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Once"}
    )
    with pytest.raises(MalformedReply, match=complaint) as raised:
        assembly.add(event)
    assert raised.value.status == status


@pytest.mark.parametrize("length", [0, 3, -1])
def test_a_stream_that_ends_early(length: int) -> None:
    with pytest.raises(MalformedReply, match="ended early"):
        assembled(recorded("responses_reasoning_text_and_calls")["events"][:length])


def test_events_of_a_later_version_are_passed_over() -> None:
    events = recorded("responses_refusal")["events"]
    odd = [
        {"type": "response.new_thing.delta", "delta": "?", "error": "?"},
        {"type": ["?"]},
        {},
        {"delta": "?"},
    ]
    noisy = [one for event in events for one in (*odd, event)]
    assert assembled(noisy) == assembled(events)


# Whatever a server sends

KEYS = [
    *(
        "type",
        "id",
        "call_id",
        "name",
        "arguments",
        "content",
        "text",
        "refusal",
        "encrypted_content",
        "status",
    ),
    *(
        "output",
        "error",
        "code",
        "message",
        "usage",
        "incomplete_details",
        "reason",
        "store",
    ),
    *("response", "item", "delta", "output_index"),
]
WORDS = [
    *(
        "message",
        "function_call",
        "reasoning",
        "completed",
        "incomplete",
        "failed",
        "content_filter",
        "error",
        "{}",
    ),
    *(
        "response.completed",
        "response.failed",
        "response.output_item.added",
        "response.output_item.done",
    ),
    *(
        "response.output_text.delta",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
    ),
]
VALUES = st.sampled_from([None, True, 0, 1, 2.5, "", "?", [], {}, [None], [{}], *WORDS])
OBJECTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)
ITEMS = st.dictionaries(
    st.sampled_from(KEYS),
    VALUES | OBJECTS | st.lists(VALUES | OBJECTS, max_size=2),
    max_size=6,
)
OUTPUTS = st.lists(ITEMS | VALUES, max_size=4)
BODIES = st.builds(lambda rest, output: {**rest, "output": output}, ITEMS, OUTPUTS)


def read(body: Any) -> Reply | None:
    try:
        return decode(body)
    except MalformedReply:
        return None


@given(BODIES | VALUES, st.booleans(), st.booleans())
def test_no_body_breaks_the_decoder_or_the_next_request(
    body: Any, store: bool, previous: bool
) -> None:
    if reply := read(body):
        asked = encode(
            reply.message, options={"store": store, "previous_response_id": previous}
        )
        kinds = [item.get("type") for item in asked["input"]]
        assert previous or kinds.count("function_call") == len(reply.message.tool_calls)
        assert all(
            item["arguments"]
            for item in asked["input"]
            if item.get("type") == "function_call"
        )


EVENTS = (
    st.builds(lambda rest, kind: {**rest, "type": kind}, ITEMS, st.sampled_from(WORDS))
    | VALUES
)


@given(st.lists(EVENTS, max_size=5), OUTPUTS)
def test_no_events_break_the_assembly(events: list[Any], output: list[Any]) -> None:
    assembly = Assembly()
    try:
        assert all(isinstance(assembly.add(event), str) for event in events)
        assembly.add({"type": "response.completed", "response": {"output": output}})
        body = assembly.body()
    except MalformedReply:
        return
    assert read(body)
