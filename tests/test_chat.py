"""Chat Completions, encoded and decoded; and what servers really answer, played to whole runs."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import WIRE, Runner, clock, forecast, recorded
from helpers import encode as encode_for
from server import ChatServer, Fault, answer, call, find_complaint
from toolkit import (
    Message,
    Model,
    ModelError,
    Reply,
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolRegistry,
    ToolResult,
    Usage,
)
from toolkit.dialects import chat
from toolkit.errors import MalformedReply
from toolkit.runs.reading import read_conversation


def tools() -> ToolRegistry:
    return ToolRegistry([forecast, clock])


# Requests

USER = Message("user", "q")


def encode(*messages: Message, tools: Any = (), **options: Any) -> dict[str, Any]:
    return encode_for(chat, messages, list(tools), **options)


def test_a_request_becomes_a_body() -> None:
    registry = ToolRegistry([clock])
    messages = (Message("system", "be brief"), USER)
    assert encode(
        *messages,
        tools=registry,
        options={"temperature": 0, "max_completion_tokens": 9},
    ) == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "q"},
        ],
        "temperature": 0,
        "max_completion_tokens": 9,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "clock",
                    "description": "The time in a zone.",
                    "parameters": {
                        "type": "object",
                        "properties": {"zone": {"type": "string", "default": "UTC"}},
                    },
                },
            }
        ],
    }


CHOICES = {
    "auto": None,
    "none": "none",
    "required": "required",
    "clock": {"type": "function", "function": {"name": "clock"}},
    "the time!": {"type": "function", "function": {"name": "the_time_"}},
}


@pytest.mark.parametrize(("choice", "on_the_wire"), CHOICES.items(), ids=CHOICES)
def test_a_tool_choice(choice: str, on_the_wire: Any) -> None:
    registry = tools()
    registry.register_tool(clock, name="the time!")
    body = encode(USER, tools=registry, tool_choice=choice)
    assert body.get("tool_choice") == on_the_wire
    assert find_complaint(body) is None


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_without_tools_nothing_speaks_of_tools(choice: str) -> None:
    """openai/swarm#30, earendil-works/pi#3649"""
    body = encode(
        USER,
        tool_choice=choice,
        options={"parallel_tool_calls": False, "temperature": 1},
    )
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "q"}],
        "temperature": 1,
    }


def test_strict_is_asked_for() -> None:
    (entry,) = encode(USER, tools=ToolRegistry([clock]), strict=True)["tools"]
    assert entry["function"]["strict"] is True
    assert entry["function"]["parameters"]["required"] == ["zone"]
    assert entry["function"]["parameters"]["additionalProperties"] is False


def test_a_batch_of_results_is_a_message_each() -> None:
    calls = (ToolCall("a", "clock"), ToolCall("b", "clock"))
    results = (ToolResult("a", "one"), ToolResult("b", "two", is_error=True))
    body = encode(
        USER, Message("assistant", "", calls), Message("tool", tool_results=results)
    )
    assert body["messages"][2:] == [
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
    ]


def test_a_conversation_of_another_wire_is_written_anew() -> None:
    said = Message(
        "assistant",
        "so",
        (ToolCall("a", "clock", {"zone": "CET"}),),
        opaque={"other": {"secret": 1}},
    )
    (wire,) = encode(said)["messages"]
    assert wire == {
        "role": "assistant",
        "content": "so",
        "tool_calls": [call("clock", '{"zone":"CET"}', "a")],
    }


CONTENTS = {
    "text": (Message("assistant", "so"), "so"),
    "nothing": (Message("assistant", ""), ""),
    "a call": (Message("assistant", "", (ToolCall("a", "clock"),)), None),
    "text and a call": (Message("assistant", "so", (ToolCall("a", "clock"),)), "so"),
    "null as it came": (
        Message(
            "assistant", "", opaque={"chat": {"role": "assistant", "content": None}}
        ),
        "",
    ),
    "missing as it came": (
        Message("assistant", "", opaque={"chat": {"role": "assistant"}}),
        "",
    ),
    "a refusal": (
        Message("assistant", "no", opaque={"chat": {"content": None, "refusal": "no"}}),
        "no",
    ),
}


@pytest.mark.parametrize(("message", "content"), CONTENTS.values(), ids=CONTENTS)
def test_the_key_content_is_always_there(message: Message, content: str | None) -> None:
    (wire,) = encode(message)["messages"]
    assert wire["content"] == content


SENT_AND_ECHOED: dict[str, tuple[Any, str]] = {
    "as it came": ('{ "zone" : "CET" }', '{ "zone" : "CET" }'),
    "not ASCII": ('{"zone": "Köln"}', '{"zone": "Köln"}'),
    "escaped": ('{"zone": "K\\u00f6ln"}', '{"zone": "K\\u00f6ln"}'),
    "empty": ("", "{}"),
    "blank": (" \n", "{}"),
    "null": ("null", "{}"),
    "an empty list": ("[]", "{}"),
    "an empty string": ('""', "{}"),
    "missing": (None, "{}"),
    "an object": ({"zone": "CET"}, '{"zone":"CET"}'),
    "broken": ('{"zone": "CE', "{}"),
    "a list": ("[1]", "{}"),
    "a number": ("3", "{}"),
    "not finite": ('{"zone": NaN}', "{}"),
    "a raw line break": ('{"zone": "a\nb"}', '{"zone":"a\\nb"}'),
    "a trailing comma": ('{"zone": "CET",}', '{"zone":"CET"}'),
    "double encoded": ('"{\\"zone\\": \\"CET\\"}"', '{"zone":"CET"}'),
    "a code fence": ('```json\n{"zone": "CET"}\n```', '{"zone":"CET"}'),
    "a wrapper": ('{"arguments": {"zone": "CET"}}', '{"zone":"CET"}'),
}


@pytest.mark.parametrize(
    ("sent", "echoed"), SENT_AND_ECHOED.values(), ids=SENT_AND_ECHOED
)
def test_echoed_arguments_are_a_json_object(
    run: Runner, sent: Any, echoed: str
) -> None:
    """MoonshotAI/kimi-cli#1580"""
    function = (
        {"name": "clock"} if sent is None else {"name": "clock", "arguments": sent}
    )
    first = answer(None, {"id": "a", "type": "function", "function": function})
    with ChatServer(first, "done") as server:
        result = run("q", model=Model("m", base_url=server.base_url), tools=tools())
        (again,) = server.bodies[1]["messages"][1]["tool_calls"]
    assert again["function"]["arguments"] == echoed
    assert RunResult.from_json(result.to_json()) == result


@pytest.mark.parametrize("sent", ["", '{"zone": "C', "{", None])
def test_a_call_that_was_cut_off_does_not_run_though_what_is_left_would_do(
    run: Runner, sent: str | None
) -> None:
    function = (
        {"name": "clock"} if sent is None else {"name": "clock", "arguments": sent}
    )
    with ChatServer(
        answer(
            None, {"id": "a", "type": "function", "function": function}, finish="length"
        ),
        "so",
    ) as server:
        (record,) = run(
            "q", model=Model("m", base_url=server.base_url), tools=tools()
        ).calls
    assert record.is_error
    assert "cut off" in record.content


@settings(max_examples=50)
@given(st.text(max_size=20) | st.text(alphabet='{}[]":, a0\\', max_size=12))
def test_whatever_was_sent_as_arguments_the_echo_is_a_json_object(
    run: Runner, raw: str
) -> None:
    model = ScriptedModel([[ToolCall("a", "clock", raw=raw)], "done"])
    run("q", model=model, tools=TOOLS)
    body = encode_for(chat, model.requests[1].messages, ())
    assert find_complaint(body) is None


TOOLS = tools()


@pytest.mark.parametrize(
    "name",
    ["", "my tool", "wéather", "a.b", "x" * 80, "multi_tool_use.parallel", "a\nb"],
)
def test_an_echoed_name_is_legal(run: Runner, name: str) -> None:
    with ChatServer(answer(None, call(name)), "done") as server:
        run("q", model=Model("m", base_url=server.base_url), tools=tools())
        (again,) = server.bodies[1]["messages"][1]["tool_calls"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", again["function"]["name"])


def test_an_alias_goes_back_as_an_alias(run: Runner) -> None:
    registry = ToolRegistry()
    registry.register_tool(clock, name="the time!")
    with ChatServer(answer(None, call("the_time_")), "done") as server:
        result = run("q", model=Model("m", base_url=server.base_url), tools=registry)
        assert server.bodies[0]["tools"][0]["function"]["name"] == "the_time_"
        assert (
            server.bodies[1]["messages"][1]["tool_calls"][0]["function"]["name"]
            == "the_time_"
        )
    assert [record.name for record in result.calls] == ["the time!"]


# Replies


def decode(choice: dict[str, Any] | None = None, **message: Any) -> Reply:
    return chat.decode(
        {"choices": [{"message": {"role": "assistant", **message}, **(choice or {})}]}
    )


FINISHES: list[tuple[Any, str]] = [
    *(
        ("stop", "stop"),
        ("tool_calls", "stop"),
        ("function_call", "stop"),
        ("eos", "stop"),
        ("", "stop"),
        (None, "stop"),
    ),
    *(
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "refusal"),
        (["length"], "stop"),
        ({}, "stop"),
    ),
]


@pytest.mark.parametrize(("word", "finish"), FINISHES, ids=str)
def test_why_it_ended(word: Any, finish: str) -> None:
    assert decode({"finish_reason": word}, content="so").finish == finish


TEXTS: dict[str, tuple[Any, str]] = {
    "a string": ("so", "so"),
    "null": (None, ""),
    "parts": (
        [
            {"type": "text", "text": "so "},
            {"type": "thinking", "thinking": "x"},
            {"type": "text", "text": "be it"},
        ],
        "so be it",
    ),
    "an empty list": ([], ""),
    "strings in a list": (["so ", "be it"], "so be it"),
    "a number": (3, ""),
    "a part without text": ([{"type": "text", "text": None}, None], ""),
}


@pytest.mark.parametrize(("content", "text"), TEXTS.values(), ids=TEXTS)
def test_the_text_of_a_content(content: Any, text: str) -> None:
    assert decode(content=content).message.text == text


def test_a_missing_content_is_no_text() -> None:
    assert decode().message.text == ""


USAGES: dict[str, tuple[Any, Usage]] = {
    "plain": ({"prompt_tokens": 9, "completion_tokens": 5}, Usage(9, 5)),
    "in detail": (
        {
            "prompt_tokens": 9,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
        Usage(9, 5, 4, 3),
    ),
    "null": (None, Usage()),
    "empty": ({}, Usage()),
    "null inside": (
        {"prompt_tokens": None, "completion_tokens": 5, "prompt_tokens_details": None},
        Usage(0, 5),
    ),
    "odd": (
        {"prompt_tokens": "9", "completion_tokens": [], "prompt_tokens_details": 4},
        Usage(),
    ),
    "a list": ([], Usage()),
}


@pytest.mark.parametrize(("usage", "read"), USAGES.values(), ids=USAGES)
def test_what_it_cost(usage: Any, read: Usage) -> None:
    body = {"choices": [{"message": {"content": "so"}}], "usage": usage}
    assert chat.decode(body).usage == read
    del body["usage"]
    assert chat.decode(body).usage == Usage()


CALLED: dict[str, tuple[Any, list[tuple[str, str, Any]]]] = {
    "as documented": ([call("clock", "{}", "a")], [("a", "clock", "{}")]),
    "without an id": ([call("clock", "{}", None)], [("", "clock", "{}")]),
    "a number for an id": ([call("clock", "{}", 7)], [("7", "clock", "{}")]),
    "without a type": (
        [{"id": "a", "function": {"name": "clock", "arguments": "{}"}}],
        [("a", "clock", "{}")],
    ),
    "flat": ([{"id": "a", "name": "clock", "arguments": "{}"}], [("a", "clock", "{}")]),
    "an object": (
        [{"id": "a", "function": {"name": "clock", "arguments": {"zone": "CET"}}}],
        [("a", "clock", {"zone": "CET"})],
    ),
    "no arguments": (
        [{"id": "a", "function": {"name": "clock"}}],
        [("a", "clock", "")],
    ),
    "null arguments": (
        [{"id": "a", "function": {"name": "clock", "arguments": None}}],
        [("a", "clock", "")],
    ),
    "no name": ([{"id": "a", "function": {}}], [("a", "", "")]),
    "not even calls": ([None, "clock", 3], []),
    "null": (None, []),
    "empty": ([], []),
    "a word": ("clock", []),
}


@pytest.mark.parametrize(("sent", "read"), CALLED.values(), ids=CALLED)
def test_the_calls_of_a_reply(sent: Any, read: list[Any]) -> None:
    assert [
        (c.id, c.name, c.raw) for c in decode(tool_calls=sent).message.tool_calls
    ] == read


NO_REPLIES: dict[str, Any] = {
    "no object": [],
    "null": None,
    "a word": "busy",
    "empty": {},
    "no choices": {"choices": []},
    "choices null": {"choices": None},
    "choices a word": {"choices": "none"},
    "a choice of null": {"choices": [None]},
    "no message": {"choices": [{"finish_reason": "stop"}]},
    "a message of null": {"choices": [{"message": None}]},
}


@pytest.mark.parametrize("body", NO_REPLIES.values(), ids=NO_REPLIES)
def test_a_body_without_a_reply_is_malformed(body: Any) -> None:
    with pytest.raises(MalformedReply):
        chat.decode(body)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"message": "overloaded", "code": 503}, 503),
        ({"message": "overloaded", "code": "server_is_overloaded"}, 503),
        ({"message": "overloaded", "type": "server_error", "code": None}, 500),
        ("overloaded", None),
        ({"message": "overloaded"}, None),
    ],
    ids=str,
)
def test_an_error_in_a_success_is_told(error: Any, status: int | None) -> None:
    """With the status that its code or type stands for: by it the request is asked again."""
    with pytest.raises(MalformedReply, match=r"no choices.*overloaded") as caught:
        chat.decode({"choices": [], "error": error})
    assert caught.value.status == status


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = [
    "choices",
    "message",
    "tool_calls",
    "function",
    "name",
    "arguments",
    "id",
    "content",
    "finish_reason",
    "usage",
]
ALMOST = st.recursive(
    JSON,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=10,
)
ALMOST_BODIES = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {
                    "message": st.dictionaries(
                        st.sampled_from(
                            ["content", "tool_calls", "refusal", "role", "reasoning"]
                        ),
                        ALMOST,
                        max_size=4,
                    )
                },
                optional={"finish_reason": JSON},
            ),
            min_size=1,
            max_size=1,
        )
    },
    optional={
        "usage": ALMOST
        | st.dictionaries(
            st.sampled_from(["prompt_tokens", "completion_tokens"]), JSON
        ),
        "error": JSON,
    },
)


@settings(max_examples=100)
@given(ALMOST | ALMOST_BODIES)
def test_any_body_is_a_reply_or_none(body: Any) -> None:
    before = copy.deepcopy(body)
    try:
        reply = chat.decode(body)
    except MalformedReply:
        assert body == before
        return
    assert body == before
    assert isinstance(reply.message.text, str)
    assert all(
        type(count) is int
        for count in (reply.usage.input_tokens, reply.usage.output_tokens)
    )
    assert all(
        isinstance(c.id, str) and isinstance(c.name, str)
        for c in reply.message.tool_calls
    )


# What is read back from a conversation in Chat form

CONVERSATION = [
    {"role": "system", "content": "be brief"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "what is "},
            {"type": "text", "text": "this?"},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [call("clock", '{"zone": "CET"}', "a"), call("clock", "{}", "b")],
    },
    {"role": "tool", "tool_call_id": "a", "content": "noon CET"},
    {"role": "tool", "tool_call_id": "b", "content": "noon"},
    {
        "role": "assistant",
        "content": "noon",
        "name": "bot",
        "reasoning_content": "easy",
    },
]


def test_a_conversation_survives_reading_and_writing() -> None:
    before = copy.deepcopy(CONVERSATION)
    messages = read_conversation(CONVERSATION)
    assert [message.role for message in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert messages[1].text == "what is this?"
    assert [dict(c.arguments) for c in messages[2].tool_calls] == [{"zone": "CET"}, {}]
    assert [result.content for result in messages[3].tool_results] == [
        "noon CET",
        "noon",
    ]
    assert encode_for(chat, messages, ())["messages"] == CONVERSATION
    assert before == CONVERSATION


def test_a_developer_speaks_for_the_system() -> None:
    (message,) = read_conversation([{"role": "developer", "content": "be brief"}])
    assert (message.role, message.text) == ("system", "be brief")
    assert encode(message)["messages"] == [{"role": "developer", "content": "be brief"}]


NO_MESSAGES: list[Any] = [
    {"role": "function", "content": "x"},
    {"content": "x"},
    {"role": None, "content": "x"},
    {},
    "x",
    None,
    {"role": "user"},
    {"role": "user", "content": None},
    {"role": "system", "content": 3},
]


@pytest.mark.parametrize("message", NO_MESSAGES, ids=str)
def test_what_is_no_message_is_named_by_its_place(message: Any) -> None:
    with pytest.raises(ValueError, match=r"history\[1\]"):
        read_conversation([{"role": "user", "content": "q"}, message])


# What servers really answer


class Played:
    """A run in which a server first answers as recorded, then with "done"."""

    def __init__(self, run: Runner, name: str, *after: Any, **options: Any) -> None:
        with ChatServer(*recorded(f"chat_{name}")["bodies"], *after) as server:
            self.result = run(
                "q",
                model=Model("m", base_url=server.base_url),
                tools=tools(),
                **options,
            )
            self.requests = server.bodies

    @property
    def calls(self) -> list[tuple[str, Any, str]]:
        return [(c.name, dict(c.arguments), c.content) for c in self.result.calls]

    def echo(self, position: int = 1) -> dict[str, Any]:
        """The recorded message as it stands in the last request."""
        said = [
            message
            for message in self.requests[-1]["messages"]
            if message["role"] == "assistant"
        ]
        return dict(said[position - 1])


LIMA, BONN = (
    ("forecast", {"place": "Lima"}, "sun in Lima"),
    ("forecast", {"place": "Bonn"}, "sun in Bonn"),
)
NOON, NOON_CET = (
    ("clock", {"zone": "UTC"}, "noon UTC"),
    ("clock", {"zone": "CET"}, "noon CET"),
)

RUN_AS_CALLED = {
    "ids_every_turn_the_same": [LIMA, BONN],
    "ids_twice_in_a_reply": [LIMA, BONN, NOON, NOON_CET],
    "parallel_wrapper": [LIMA, NOON],
    "thought_signature": [LIMA],
    "reasoning_content": [LIMA],
    "reasoning_details": [LIMA],
    "calls_only": [LIMA],
    "calls_and_empty_text": [LIMA],
    "calls_without_content": [LIMA],
    "text_and_calls": [LIMA, BONN],
    "parallel_all_the_same": [LIMA, BONN],
    "stop_with_calls": [LIMA],
    "arguments_as_object": [LIMA, NOON],
    "leaked_json_lines": [LIMA, NOON],
    "leaked_hermes_after_thinking": [LIMA],
    "leaked_hermes_tag_inside": [
        ("forecast", {"place": "a </tool_call> b"}, "sun in a </tool_call> b")
    ],
    "leaked_pythonic": [
        ("forecast", {"place": "Coeur d'Alene, ID"}, "sun in Coeur d'Alene, ID"),
        NOON_CET,
    ],
    "leaked_dsml": [LIMA],
}


@pytest.mark.parametrize(("name", "calls"), RUN_AS_CALLED.items(), ids=RUN_AS_CALLED)
def test_calls_as_they_come_are_run_and_answered(
    run: Runner, name: str, calls: Any
) -> None:
    """The server refuses what is unpaired, out of order, or has an id twice."""
    played = Played(run, name, "done")
    assert played.calls == calls
    assert played.result.text == "done"
    assert played.result.stop_reason == "answered"
    ids = [record.id for record in played.result.calls]
    assert len(set(ids)) == len(ids)


NOT_CALLS = {
    "tool_calls_without_any": "Sunny.",
    "leaked_dsml_in_prose": 'Write <｜DSML｜invoke name="forecast"> in order to call it.',
    "leaked_object_of_no_tool": '{"name": "Ada", "arguments": {"place": "Lima"}}',
}


@pytest.mark.parametrize(("name", "text"), NOT_CALLS.items(), ids=NOT_CALLS)
def test_what_is_no_call_is_the_answer(run: Runner, name: str, text: str) -> None:
    result = Played(run, name).result
    assert (result.text, result.stop_reason, result.calls) == (text, "answered", [])


def test_a_leaked_call_leaves_no_text(run: Runner) -> None:
    result = Played(run, "leaked_hermes_after_thinking", "done").result
    assert [
        message.text for message in result.messages if message.role == "assistant"
    ] == ["", "done"]


MADE_IDS = ["ids_twice_in_a_reply", "parallel_wrapper", "leaked_json_lines"]


@pytest.mark.parametrize("name", MADE_IDS)
def test_ids_made_here_are_those_that_every_provider_takes(
    run: Runner, name: str
) -> None:
    """Mistral wants nine letters and digits: nearai/ironclaw#1241"""
    played = Played(run, name, "done")
    given = {
        c.get("id")
        for c in recorded(f"chat_{name}")["bodies"][0]["choices"][0]["message"].get(
            "tool_calls", ()
        )
    }
    made = [record.id for record in played.result.calls if record.id not in given]
    assert made
    assert all(re.fullmatch(r"[a-zA-Z0-9]{9}", call_id) for call_id in made)


def test_ids_that_were_given_are_kept(run: Runner) -> None:
    played = Played(run, "parallel_all_the_same", "done")
    assert [record.id for record in played.result.calls] == ["forecast:1", "forecast:2"]


@pytest.mark.parametrize(
    "name",
    ["thought_signature", "reasoning_content", "reasoning_details", "text_and_calls"],
)
def test_a_message_goes_back_as_it_came(run: Runner, name: str) -> None:
    said = recorded(f"chat_{name}")["bodies"][0]["choices"][0]["message"]
    echoed = Played(run, name, "done").echo()
    assert {**echoed, "content": echoed["content"] or None} == {
        **said,
        "content": said["content"] or None,
    }


def test_it_goes_back_as_it_came_after_json_too(run: Runner) -> None:
    first = Played(run, "thought_signature", "done").result
    with ChatServer("again") as server:
        run(
            "and?",
            model=Model("m", base_url=server.base_url),
            history=RunResult.from_json(first.to_json()),
            tools=tools(),
        )
        (sent,) = server.bodies[0]["messages"][1]["tool_calls"]
    assert sent["extra_content"] == {"google": {"thought_signature": "QmFzZTY0"}}


@pytest.mark.parametrize(
    "name", ["calls_only", "calls_and_empty_text", "calls_without_content"]
)
def test_beside_calls_an_empty_content_is_null(run: Runner, name: str) -> None:
    """vercel/ai#14950: Bedrock and Anthropic proxies refuse empty text; leaving the key out is refused by vLLM."""
    assert Played(run, name, "done").echo()["content"] is None


def test_text_and_calls_stay_one_message(run: Runner) -> None:
    played = Played(run, "text_and_calls", "done")
    assert [message["role"] for message in played.requests[1]["messages"]] == [
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert played.echo()["content"] == "One moment."


def test_one_at_a_time_is_asked_for_and_not_relied_on(run: Runner) -> None:
    played = Played(run, "parallel_all_the_same", "done", parallel_tool_calls=False)
    assert [body["parallel_tool_calls"] for body in played.requests] == [False, False]
    answers = played.requests[1]["messages"][2:]
    assert [message["tool_call_id"] for message in answers] == [
        "forecast:1",
        "forecast:2",
    ]


def test_a_misspelled_tool_is_told_the_nearest(run: Runner) -> None:
    played = Played(run, "misspelled_tool", "done")
    (record,) = played.result.calls
    assert record.is_error
    for part in ("get_forcast", "forecast", "clock"):
        assert part in record.content
    assert played.result.text == "done"


ENDINGS = {"content_filter": "", "refusal": "That I cannot do."}


@pytest.mark.parametrize(("name", "text"), ENDINGS.items(), ids=ENDINGS)
def test_a_refusal_ends_the_run_at_once(run: Runner, name: str, text: str) -> None:
    result = Played(run, name).result
    assert (result.stop_reason, result.text) == ("refused", text)


@pytest.mark.parametrize("name", ENDINGS)
def test_a_conversation_goes_on_after_a_refusal(run: Runner, name: str) -> None:
    refused = Played(run, name).result
    with ChatServer("well") as server:
        assert (
            run(
                "please?",
                model=Model("m", base_url=server.base_url),
                history=refused,
                tools=[],
            ).text
            == "well"
        )


def test_an_overloaded_server_is_asked_again(run: Runner) -> None:
    assert Played(run, "overloaded", "done").result.text == "done"


def test_an_answer_without_choices_says_what_the_server_said(run: Runner) -> None:
    with pytest.raises(MalformedReply, match=r"no choices.*Blocked upstream") as caught:
        Played(run, "filtered_to_nothing")
    assert caught.value.run.messages[-1] == USER


def test_a_refused_request_is_not_sent_again(run: Runner) -> None:
    """SAIL-Research-Lab/cheetahclaws#72"""
    with ChatServer(Fault(400, "invalid message content type: <nil>")) as server:
        with pytest.raises(ModelError, match="invalid message content type"):
            run("q", model=Model("m", base_url=server.base_url), tools=tools())
        assert len(server.requests) == 1


def test_every_recording_is_played() -> None:
    played = {
        *RUN_AS_CALLED,
        *NOT_CALLS,
        *ENDINGS,
        "overloaded",
        "filtered_to_nothing",
        "misspelled_tool",
    }
    assert {
        path.stem.removeprefix("chat_") for path in WIRE.glob("chat_*.json")
    } == played


# The server that these tests rely on refuses what it should


def after_a_call(*messages: Any, **changes: Any) -> dict[str, Any]:
    made = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{**call("clock", "{}", "a"), **changes}],
    }
    return {
        "model": "m",
        "messages": [{"role": "user", "content": "q"}, made, *messages],
    }


DONE = {"role": "tool", "tool_call_id": "a", "content": "noon"}
ASKED = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
TOOL = {"type": "function", "function": {"name": "clock"}}
REFUSED: dict[str, dict[str, Any]] = {
    "no messages": {"model": "m", "messages": []},
    "no content": {"model": "m", "messages": [{"role": "user"}]},
    "null content": {
        "model": "m",
        "messages": [{"role": "assistant", "content": None}],
    },
    "no tools": {**ASKED, "tools": []},
    "an illegal name": {
        **ASKED,
        "tools": [{"type": "function", "function": {"name": "a b"}}],
    },
    "a name twice": {**ASKED, "tools": [TOOL, TOOL]},
    "a choice without tools": {**ASKED, "tool_choice": "auto"},
    "one at a time without tools": {**ASKED, "parallel_tool_calls": False},
    "a choice of no tool": {
        **ASKED,
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "x"}},
    },
    "a call unanswered": after_a_call(),
    "a call unanswered, and on": after_a_call({"role": "user", "content": "well?"}),
    "a call answered twice": after_a_call(DONE, DONE),
    "an answer to nothing": {"model": "m", "messages": [DONE]},
    "another id": after_a_call({**DONE, "tool_call_id": "b"}),
    "an answer that is no text": after_a_call({**DONE, "content": None}),
    "arguments that are no JSON": after_a_call(
        DONE, function={"name": "clock", "arguments": "{"}
    ),
    "arguments that are no object": after_a_call(
        DONE, function={"name": "clock", "arguments": "null"}
    ),
    "arguments that are no text": after_a_call(
        DONE, function={"name": "clock", "arguments": {}}
    ),
    "an illegal name in a call": after_a_call(
        DONE, function={"name": "a b", "arguments": "{}"}
    ),
    "a call without its type": after_a_call(DONE, type=None),
    "an empty id": after_a_call({**DONE, "tool_call_id": ""}, id=""),
    "a system text in the middle": {
        "model": "m",
        "messages": [*ASKED["messages"], {"role": "system", "content": "s"}],
    },
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_the_strict_server_refuses(body: dict[str, Any]) -> None:
    assert find_complaint(body)


def test_the_strict_server_takes_what_is_right() -> None:
    assert (
        find_complaint({**after_a_call(DONE), "tools": [TOOL], "tool_choice": "none"})
        is None
    )
