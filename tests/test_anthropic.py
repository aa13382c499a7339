"""Anthropic Messages, encoded and decoded, whole and in events; what comes of real answers in whole runs."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from helpers import Runner, clock, forecast, recorded
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
    run_agent_with_tools,
    tool,
)
from toolkit.dialects import anthropic
from toolkit.dialects.anthropic import MAX_TOKENS, Assembly
from toolkit.errors import MalformedReply
from toolkit.tools.tool import as_tool

TOOLS = ToolRegistry([forecast, clock])
USER = Message("user", "q")
ASKED = {"role": "user", "content": [{"type": "text", "text": "q"}]}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s1"}
HIDDEN = {"type": "redacted_thinking", "data": "d1"}
SAID = Message("assistant", "so")
LOOKED = Message("assistant", tool_calls=(ToolCall("a", "clock"),))
SEEN = Message("tool", tool_results=(ToolResult("a", "noon"),))


def encode(*messages: Message, tools: Any = (), **options: Any) -> dict[str, Any]:
    return encode_for(anthropic, messages, list(tools), **options)


def contents(*messages: Message, **options: Any) -> list[tuple[str, Any]]:
    """The messages of a request, which begins with the question."""
    first, *others = encode(USER, *messages, **options)["messages"]
    assert first["role"] == "user"
    return [(message["role"], message["content"]) for message in others]


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def use(name: str, arguments: Any, id: str = "a", **extra: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments, **extra}


def find_complaint(body: dict[str, Any]) -> str | None:
    """What the API would refuse a request for, by the rules quoted in public bug reports until 2026-11."""
    open_ids: list[str] = []
    for position, message in enumerate(body["messages"]):
        blocks = message["content"]
        if message["role"] != ("user", "assistant")[position % 2] or not blocks:
            return f"message {position}: roles alternate, and content is never empty"
        if any(
            block["type"] == "text" and not block["text"].strip() for block in blocks
        ):
            return f"message {position}: a blank text"
        results = [
            block["tool_use_id"] for block in blocks if block["type"] == "tool_result"
        ]
        if results != open_ids or any(
            block["type"] != "tool_result" for block in blocks[: len(results)]
        ):
            return f"message {position}: the calls {open_ids} are answered by {results}, or not first"
        open_ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if any(not re.fullmatch(r"[a-zA-Z0-9_-]+", open_id) for open_id in open_ids):
            return f"message {position}: an id of {open_ids}"
        if any(
            not isinstance(block["input"], dict)
            for block in blocks
            if block["type"] == "tool_use"
        ):
            return f"message {position}: an input that is no object"
        if message["role"] == "assistant" and blocks[-1]["type"] in (
            "thinking",
            "redacted_thinking",
        ):
            return f"message {position}: thinking at the end"
    return None


# Requests


def test_a_request_becomes_a_body() -> None:
    registry = ToolRegistry([clock])
    assert encode(
        Message("system", "be brief"),
        USER,
        tools=registry,
        options={"metadata": {"user_id": "u"}},
    ) == {
        "model": "m",
        "max_tokens": MAX_TOKENS,
        "system": "be brief",
        "messages": [ASKED],
        "metadata": {"user_id": "u"},
        "tools": [
            {
                "name": "clock",
                "description": "The time in a zone.",
                "input_schema": {
                    "type": "object",
                    "properties": {"zone": {"type": "string", "default": "UTC"}},
                },
            }
        ],
        "tool_choice": {"type": "auto"},
    }


CHOICES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "auto": ("auto", {}, {"type": "auto"}),
    "none": ("none", {}, {"type": "none"}),
    "required": ("required", {}, {"type": "any"}),
    "a name": ("clock", {}, {"type": "tool", "name": "clock"}),
    "an alias": ("the time!", {}, {"type": "tool", "name": "the_time_"}),
    "auto, one": (
        "auto",
        {"parallel_tool_calls": False},
        {"type": "auto", "disable_parallel_tool_use": True},
    ),
    "required, one": (
        "required",
        {"parallel_tool_calls": False},
        {"type": "any", "disable_parallel_tool_use": True},
    ),
    "none, one": ("none", {"parallel_tool_calls": False}, {"type": "none"}),
    "auto, several": ("auto", {"parallel_tool_calls": True}, {"type": "auto"}),
}


@pytest.mark.parametrize(
    ("choice", "options", "on_the_wire"), CHOICES.values(), ids=CHOICES
)
def test_a_tool_choice(choice: str, options: dict[str, Any], on_the_wire: Any) -> None:
    registry = ToolRegistry([clock])
    registry.register_tool(clock, name="the time!")
    body = encode(USER, tools=registry, tool_choice=choice, options=options)
    assert body["tool_choice"] == on_the_wire
    assert "parallel_tool_calls" not in body


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_without_tools_nothing_speaks_of_tools(choice: str) -> None:
    body = encode(
        USER, tool_choice=choice, options={"parallel_tool_calls": False, "cache": True}
    )
    assert body == {"model": "m", "max_tokens": MAX_TOKENS, "messages": [ASKED]}


LENGTHS: dict[str, tuple[dict[str, Any], int]] = {
    "nothing said": ({}, MAX_TOKENS),
    "given": ({"max_tokens": 5}, 5),
    "a budget comes on top": (
        {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        MAX_TOKENS + 2048,
    ),
    "given beside a budget": (
        {"max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": 2048}},
        9,
    ),
    "adaptive has none": ({"thinking": {"type": "adaptive"}}, MAX_TOKENS),
}


@pytest.mark.parametrize(("options", "tokens"), LENGTHS.values(), ids=LENGTHS)
def test_how_long_a_reply_may_be(options: dict[str, Any], tokens: int) -> None:
    assert encode(USER, options=options)["max_tokens"] == tokens


def test_system_texts_stand_outside() -> None:
    body = encode(
        Message("system", "one"), USER, Message("system", " "), Message("system", "two")
    )
    assert body["system"] == "one\n\ntwo"
    assert body["messages"] == [ASKED]
    assert "system" not in encode(Message("system", ""), USER)


def test_the_cache_is_marked_at_the_last_tool_and_the_system_text() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    body = encode(
        Message("system", "be brief"), USER, tools=TOOLS, options={"cache": True}
    )
    assert body["system"] == [{**text("be brief"), **mark}]
    assert [tool.get("cache_control") for tool in body["tools"]] == [
        None,
        mark["cache_control"],
    ]
    assert "cache" not in body
    assert "cache_control" not in json.dumps(
        encode(Message("system", "be brief"), USER, tools=TOOLS)
    )


def test_tools_of_the_server_come_before_ours() -> None:
    search = {"type": "web_search_20260318", "name": "web_search"}
    body = encode(USER, tools=TOOLS, options={"tools": [search]})
    assert [tool["name"] for tool in body["tools"]] == [
        "web_search",
        "forecast",
        "clock",
    ]
    assert encode(USER, options={"tools": [search]})["tools"] == [search]


def test_a_batch_of_results_is_one_message_and_what_the_user_says_comes_behind() -> (
    None
):
    """567-labs/instructor#2485"""
    asked = Message(
        "assistant", tool_calls=(ToolCall("a", "clock"), ToolCall("b", "clock"))
    )
    got = Message(
        "tool",
        tool_results=(ToolResult("a", "one"), ToolResult("b", "two", is_error=True)),
    )
    assert contents(asked, got, Message("user", "and?"))[1:] == [
        (
            "user",
            [
                {"type": "tool_result", "tool_use_id": "a", "content": "one"},
                {
                    "type": "tool_result",
                    "tool_use_id": "b",
                    "content": "two",
                    "is_error": True,
                },
                text("and?"),
            ],
        )
    ]


RESULTS: dict[str, tuple[ToolResult, dict[str, Any]]] = {
    "text": (ToolResult("a", "one"), {"content": "one"}),
    "empty": (ToolResult("a", ""), {}),
    "blank": (ToolResult("a", " \n"), {}),
    "an error": (
        ToolResult("a", "no", is_error=True),
        {"content": "no", "is_error": True},
    ),
    # bytedance/trae-agent#230: content cannot be empty if `is_error` is true
    "an empty error": (
        ToolResult("a", "", is_error=True),
        {"content": "The tool failed.", "is_error": True},
    ),
}


@pytest.mark.parametrize(("result", "told"), RESULTS.values(), ids=RESULTS)
def test_a_result_becomes_a_block(result: ToolResult, told: dict[str, Any]) -> None:
    ((_, (block,)),) = contents(LOOKED, Message("tool", tool_results=(result,)))[1:]
    assert block == {"type": "tool_result", "tool_use_id": "a", **told}


ALTERNATING: dict[str, tuple[list[Message], list[str]]] = {
    "two of the user's": ([USER, USER], ["user"]),
    "a blank reply between": ([USER, Message("assistant", " "), USER], ["user"]),
    "two replies": ([USER, SAID, SAID, USER], ["user", "assistant", "user"]),
    "the assistant first": ([SAID, USER], ["user", "assistant", "user"]),
    "a blank first": ([Message("user", ""), USER], ["user"]),
}


@pytest.mark.parametrize(("messages", "roles"), ALTERNATING.values(), ids=ALTERNATING)
def test_roles_alternate_and_the_user_begins(
    messages: list[Message], roles: list[str]
) -> None:
    body = encode(*messages)
    assert [message["role"] for message in body["messages"]] == roles
    assert find_complaint(body) is None


ECHOED: dict[str, list[dict[str, Any]]] = {
    "thinking before a call": [THOUGHT, HIDDEN, use("clock", {})],
    "thinking between": [
        THOUGHT,
        text("so"),
        {**THOUGHT, "signature": "s2"},
        use("clock", {"zone": "CET"}),
    ],
    "empty thinking": [{**THOUGHT, "thinking": ""}, use("clock", {})],
    "who called": [use("clock", {}, caller={"type": "direct"})],
    "a field of tomorrow": [{**text("so"), "x_new": [1]}, use("clock", {}, x_new=2)],
    "cited text": [{**text("so"), "citations": [{"type": "char_location"}]}],
    "a tool of the server": [
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {"query": "q"},
        },
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        text("so"),
    ],
}


@pytest.mark.parametrize("blocks", ECHOED.values(), ids=ECHOED)
def test_a_reply_goes_back_as_it_came(
    run: Runner, blocks: list[dict[str, Any]]
) -> None:
    sent = copy.deepcopy(blocks)
    model = ScriptedModel([decode(blocks), "done"])
    result = run("q", model=model, tools=TOOLS)
    result = run(
        "on",
        model=ScriptedModel(["done"]),
        tools=TOOLS,
        history=RunResult.from_json(result.to_json()),
    )
    ((role, echoed), *_) = contents(*result.messages[1:], tools=TOOLS)
    assert (role, echoed) == ("assistant", sent)
    assert find_complaint(encode(*result.messages, tools=TOOLS)) is None


def test_a_conversation_is_not_changed_by_encoding_it() -> None:
    said = decode([text("so"), text("on")]).message
    before = copy.deepcopy(said)
    assert encode(USER, said, said, tools=TOOLS) == encode(
        USER, said, said, tools=TOOLS
    )
    assert said == before


LEFT_OUT: dict[str, tuple[list[dict[str, Any]], list[Any]]] = {
    "an empty text": ([text(""), use("clock", {})], [use("clock", {})]),
    "a blank text": ([text(" \n"), text("so")], [text("so")]),
    # tailcallhq/forgecode#3071: the final block in an assistant message cannot be `thinking`
    "thinking at the end": ([text("so"), THOUGHT, HIDDEN], [text("so")]),
    "thinking before a blank": ([THOUGHT, text("")], []),
    "nothing but thinking": ([THOUGHT], []),
    "nothing": ([], []),
}


@pytest.mark.parametrize(("blocks", "echoed"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_the_api_sends_but_does_not_take(
    blocks: list[Any], echoed: list[Any]
) -> None:
    messages = contents(decode(blocks).message)
    assert messages == ([("assistant", echoed)] if echoed else [])


SENT_AND_ECHOED: dict[str, tuple[Any, dict[str, Any]]] = {
    "as it came": ({"zone": "Köln"}, {"zone": "Köln"}),
    "empty": ({}, {}),
    "null": (None, {}),
    "a list": ([1], {}),
    "an empty list": ([], {}),
    "a text of an object": ('{"zone": "CET"}', {"zone": "CET"}),
    "a broken text": ('{"zone": "CE', {}),
    "an empty text": ("", {}),
    "a wrapper": ({"arguments": {"zone": "CET"}}, {"zone": "CET"}),
    "a number": (3, {}),
}


@pytest.mark.parametrize(
    ("sent", "echoed"), SENT_AND_ECHOED.values(), ids=SENT_AND_ECHOED
)
def test_an_echoed_input_is_an_object(
    run: Runner, sent: Any, echoed: dict[str, Any]
) -> None:
    model = ScriptedModel([decode([text("so"), use("clock", sent)]), "done"])
    result = run("q", model=model, tools=TOOLS)
    assert contents(*model.requests[1].messages[1:])[0] == (
        "assistant",
        [text("so"), use("clock", echoed)],
    )
    assert RunResult.from_json(result.to_json()) == result


@pytest.mark.parametrize(
    "name", ["", "my tool", "wéather", "a.b", "x" * 80, "a\nb", 5, None]
)
def test_an_echoed_name_is_legal(run: Runner, name: Any) -> None:
    model = ScriptedModel([decode([use(name, {})]), "done"])
    run("q", model=model, tools=TOOLS)
    ((_, (block,)), *_) = contents(*model.requests[1].messages[1:])
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", block["name"])


def test_calls_that_are_taken_apart_are_written_anew(run: Runner) -> None:
    both: dict[str, Any] = {
        "tool_uses": [
            {"recipient_name": name, "parameters": {}}
            for name in ("functions.clock", "clock")
        ]
    }
    model = ScriptedModel(
        [decode([text("so"), use("multi_tool_use.parallel", both)]), "done"]
    )
    run("q", model=model, tools=TOOLS)
    said = contents(*model.requests[1].messages[1:])[0][1]
    assert [(block["type"], block.get("name")) for block in said] == [
        ("text", None),
        ("tool_use", "clock"),
        ("tool_use", "clock"),
    ]
    assert find_complaint(encode(*model.requests[1].messages)) is None


def test_a_conversation_of_another_wire_is_written_anew() -> None:
    call = ToolCall("functions.clock:0", "clock", {"zone": "CET"}, '{"zone": "CET"}')
    said = Message("assistant", "so", (call,), opaque={"chat": {"secret": 1}})
    body = encode(
        USER, said, Message("tool", tool_results=(ToolResult(call.id, "noon"),))
    )
    assert find_complaint(body) is None
    written = body["messages"][1]["content"]
    assert written == [text("so"), use("clock", {"zone": "CET"}, written[1]["id"])]


def test_ids_of_another_wire_stay_apart() -> None:
    calls = [ToolCall(id, "clock") for id in ("a:b", "a.b", "a_b", "")]
    blocks = contents(Message("assistant", tool_calls=tuple(calls)))[0][1]
    assert len({block["id"] for block in blocks}) == 4


ENABLED, ADAPTIVE = (
    {"type": "enabled", "budget_tokens": 2048},
    {"type": "adaptive", "display": "omitted"},
)
THOUGHTFUL = Message(
    "assistant",
    tool_calls=LOOKED.tool_calls,
    opaque={"anthropic": [THOUGHT, use("clock", {})]},
)
THINKING: dict[str, tuple[dict[str, Any], str, list[Message], bool]] = {
    "as given": (ENABLED, "auto", [], True),
    "adaptive as given": (ADAPTIVE, "auto", [], True),
    # can1357/oh-my-pi#341: thinking may not be enabled when tool_choice forces tool use
    "forced": (ENABLED, "required", [], False),
    "forced by name": (ENABLED, "clock", [], False),
    "adaptive, forced": (ADAPTIVE, "required", [], False),
    "off, forced": ({"type": "disabled"}, "required", [], True),
    "without tools": (ENABLED, "none", [], True),
    # RooCodeInc/Roo-Code#10351: expected thinking, but found tool_use
    "calls made without": (ENABLED, "auto", [LOOKED, SEEN], False),
    "calls made with": (ENABLED, "auto", [THOUGHTFUL, SEEN], True),
    "adaptive, calls made without": (ADAPTIVE, "auto", [LOOKED, SEEN], True),
    "the loop is over": (ENABLED, "auto", [LOOKED, SEEN, SAID, USER], True),
}


@pytest.mark.parametrize(
    ("thinking", "choice", "after", "stays"), THINKING.values(), ids=THINKING
)
def test_thinking_gives_way_where_it_would_be_refused(
    thinking: dict[str, Any], choice: str, after: list[Message], stays: bool
) -> None:
    body = encode(
        USER, *after, tools=TOOLS, tool_choice=choice, options={"thinking": thinking}
    )
    assert body.get("thinking") == (thinking if stays else None)


# Strict tools


def wait(
    ms: Annotated[int, Field(ge=1, le=300_000, description="How long.")],
    label: Annotated[str, Field(min_length=1, max_length=20)] = "x",
    ids: Annotated[
        list[Annotated[int, Field(multiple_of=5)]], Field(min_length=2, max_length=5)
    ] = [5, 10],  # noqa: B006  # as in the report
    code: Annotated[str, Field(pattern="^[a-z]+$")] = "a",
) -> str:
    """Wait."""
    return f"{ms}{label}{ids}{code}"


class Leaf(BaseModel):
    size: Annotated[int, Field(gt=0)]


class Pair(BaseModel):
    left: Leaf
    right: Leaf


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


def measure(pair: Pair, minimum: Annotated[float, Field(ge=0)]) -> str:
    """Measure."""
    return f"{pair}{minimum}"


def prune(tree: Tree) -> str:
    """Prune."""
    return str(tree)


def of_two_types(count: int) -> Callable[..., None]:
    def many(**values: Any) -> None: ...

    ways = (
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
    )
    return written(many, f"many_{count}", {f"p{n}": ways[n % 2] for n in range(count)})


def nested(**values: Any) -> None:
    """Nest."""


def written(
    function: Callable[..., None], name: str, properties: dict[str, Any]
) -> Callable[..., None]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }
    return tool(name=name, schema=schema, registry=ToolRegistry())(function)


def entries(*functions: Any, strict: bool = True) -> list[dict[str, Any]]:
    tools = [as_tool(function) for function in functions]
    return list(encode(USER, tools=tools, strict=strict)["tools"])


def schemas_in(schema: Any) -> Iterator[dict[str, Any]]:
    yield schema
    inner = [
        *schema.get("properties", {}).values(),
        *schema.get("$defs", {}).values(),
        *schema.get("anyOf", ()),
    ]
    for part in [*inner, *([schema["items"]] if "items" in schema else [])]:
        yield from schemas_in(part)


FORBIDDEN = {
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "pattern",
}
FORBIDDEN |= {"minLength", "maxLength", "minItems", "maxItems", "default"}


@pytest.mark.parametrize(
    "function", [wait, measure, forecast, clock], ids=lambda f: f.__name__
)
def test_strict_schemas_have_no_keyword_that_is_refused(function: Any) -> None:
    """earendil-works/pi#9953"""
    (entry,) = entries(function)
    assert entry["strict"] is True
    for schema in schemas_in(entry["input_schema"]):
        assert not FORBIDDEN & schema.keys()
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])


def test_what_a_keyword_said_stands_in_the_description() -> None:
    (entry,) = entries(wait)
    said = {
        name: schema["description"]
        for name, schema in entry["input_schema"]["properties"].items()
    }
    assert said["ms"].startswith("How long. (")
    numbers = {
        name: {int(number) for number in re.findall(r"\d+", about)}
        for name, about in said.items()
    }
    assert numbers == {
        "ms": {1, 300_000},
        "label": {1, 20},
        "ids": {2, 5, 10},
        "code": set(),
    }
    assert "^[a-z]+$" in said["code"]
    assert "5" in entry["input_schema"]["properties"]["ids"]["items"]["description"]


def test_a_parameter_may_be_named_like_a_keyword() -> None:
    (entry,) = entries(measure)
    assert list(entry["input_schema"]["properties"]) == ["pair", "minimum"]


def test_the_tool_keeps_its_schema_and_without_strict_mode_all_keywords() -> None:
    made = as_tool(wait)
    plain, strict = (
        copy.deepcopy(made.parameters),
        copy.deepcopy(made.strict_parameters),
    )
    encode(USER, tools=[made], strict=True)
    assert (made.parameters, made.strict_parameters) == (plain, strict)
    (entry,) = encode(USER, tools=[made])["tools"]
    assert entry == {"name": "wait", "description": "Wait.", "input_schema": plain}


ASIDE = {
    "recursive": ([clock, prune, forecast], [True, False, True]),
    "the root in itself": (
        [
            written(
                nested, "nested", {"inner": {"type": "array", "items": {"$ref": "#"}}}
            )
        ],
        [False],
    ),
    "shared definitions are no circle": ([measure], [True]),
    "unions as many as may be": ([of_two_types(16), forecast], [True, True]),
    "unions over the limit": (
        [of_two_types(10), of_two_types(7), of_two_types(6)],
        [True, False, True],
    ),
}


@pytest.mark.parametrize(("functions", "strict"), ASIDE.values(), ids=ASIDE)
def test_a_tool_that_strict_mode_refuses_does_without(
    functions: list[Any], strict: list[bool]
) -> None:
    sent = entries(*functions)
    assert [entry.get("strict", False) for entry in sent] == strict
    for function, entry in zip(functions, sent, strict=True):
        assert (
            entry.get("strict") or entry["input_schema"] == as_tool(function).parameters
        )


def test_no_more_than_twenty_tools_are_strict() -> None:
    registry = ToolRegistry()
    for number in range(23):
        registry.register_tool(forecast, name=f"forecast_{number}")
    strict = [
        entry.get("strict", False)
        for entry in encode(USER, tools=registry, strict=True)["tools"]
    ]
    assert strict == [True] * 20 + [False] * 3


@pytest.mark.parametrize("everywhere", [True, False])
def test_a_tool_may_insist_on_strict_mode_or_against_it(everywhere: bool) -> None:
    registry = ToolRegistry()
    registry.register_tool(forecast, strict=True)
    registry.register_tool(clock, strict=False)
    sent = encode(USER, tools=registry, strict=everywhere)["tools"]
    assert [entry.get("strict", False) for entry in sent] == [True, False]


# Replies


def decode(content: Any, stop_reason: Any = "end_turn", **more: Any) -> Reply:
    return anthropic.decode({"content": content, "stop_reason": stop_reason, **more})


FINISHES: list[tuple[Any, str]] = [
    *(
        ("end_turn", "stop"),
        ("tool_use", "stop"),
        ("stop_sequence", "stop"),
        ("tomorrow", "stop"),
        (None, "stop"),
    ),
    *(
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "pause"),
    ),
    *(("refusal", "refusal"), (["max_tokens"], "stop"), ({}, "stop")),
]


@pytest.mark.parametrize(("word", "finish"), FINISHES, ids=str)
def test_why_it_ended(word: Any, finish: str) -> None:
    assert decode([text("so")], word).finish == finish


TEXTS: dict[str, tuple[list[Any], str]] = {
    "one": ([text("so")], "so"),
    "several": ([THOUGHT, text("so "), use("clock", {}), text("be it")], "so be it"),
    "none": ([], ""),
    "odd": (
        [
            text("so"),
            {"type": "text", "text": 3},
            {"type": "text"},
            {"text": "x"},
            {"type": 3},
            None,
            "x",
        ],
        "so",
    ),
}


@pytest.mark.parametrize(("content", "said"), TEXTS.values(), ids=TEXTS)
def test_the_text_of_a_content(content: list[Any], said: str) -> None:
    assert decode(content).message.text == said


USAGES: dict[str, tuple[Any, Usage]] = {
    "plain": ({"input_tokens": 9, "output_tokens": 5}, Usage(9, 5)),
    "cached": (
        {
            "input_tokens": 9,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 300,
            "output_tokens": 5,
        },
        Usage(329, 5, 300),
    ),
    "thinking": (
        {"output_tokens": 5, "output_tokens_details": {"thinking_tokens": 3}},
        Usage(0, 5, 0, 3),
    ),
    "null": (None, Usage()),
    "null inside": (
        {"input_tokens": None, "output_tokens": 5, "cache_read_input_tokens": None},
        Usage(0, 5),
    ),
    "odd": (
        {"input_tokens": "9", "output_tokens": [], "output_tokens_details": 4},
        Usage(),
    ),
    "a list": ([], Usage()),
}


@pytest.mark.parametrize(("usage", "read"), USAGES.values(), ids=USAGES)
def test_what_it_cost(usage: Any, read: Usage) -> None:
    assert decode([], usage=usage).usage == read
    assert decode([]).usage == Usage()


NO_REPLIES: dict[str, tuple[Any, str, int | None]] = {
    "nothing": ({}, "no content", None),
    "no object": ([], "no content", None),
    "null": (None, "no content", None),
    "a text": ({"content": "so"}, "no content", None),
    "overloaded": (
        {"type": "error", "error": {"type": "overloaded_error", "message": "Full"}},
        "Full",
        529,
    ),
    "too many": (
        {"error": {"type": "rate_limit_error", "message": "Slow down"}},
        "Slow down",
        429,
    ),
    "refused": (
        {"error": {"type": "invalid_request_error", "message": "no"}},
        "no",
        None,
    ),
    "odd": ({"error": {"type": [], "message": None}}, "no content", None),
    "a word": ({"error": "gone"}, "gone", None),
}


@pytest.mark.parametrize(
    ("body", "told", "status"), NO_REPLIES.values(), ids=NO_REPLIES
)
def test_what_holds_no_reply(body: Any, told: str, status: int | None) -> None:
    with pytest.raises(MalformedReply, match=told) as caught:
        anthropic.decode(body)
    assert caught.value.status == status


def test_a_refusal_takes_its_calls_back() -> None:
    reply = decode([text("I sh"), use("clock", {"zone": "CE"})], "refusal")
    assert (reply.finish, reply.message.text, reply.message.tool_calls) == (
        "refusal",
        "I sh",
        (),
    )
    assert contents(reply.message) == [("assistant", [text("I sh")])]


# What servers really answer


class Played:
    """A run whose replies are those that were recorded."""

    def __init__(self, run: Runner, name: str, *after: str) -> None:
        self.bodies = recorded(f"anthropic_{name}")["bodies"]
        replies = [
            *(anthropic.decode(body) for body in copy.deepcopy(self.bodies)),
            *after,
        ]
        with ScriptedModel(replies) as model:
            self.result = run("q", model=model, tools=TOOLS)
        self.requests = [
            encode(*request.messages, tools=request.tools) for request in model.requests
        ]
        assert [find_complaint(request) for request in self.requests] == [None] * len(
            self.requests
        )

    @property
    def calls(self) -> list[tuple[str, Any, bool]]:
        return [
            (call.name, dict(call.arguments), call.is_error)
            for call in self.result.calls
        ]


def test_thinking_goes_back_first_and_unchanged(run: Runner) -> None:
    played = Played(run, "thinking_before_call")
    assert played.calls == [("forecast", {"place": "Lima"}, False)]
    _, said, got = played.requests[1]["messages"]
    assert said == {"role": "assistant", "content": played.bodies[0]["content"]}
    assert got["content"] == [
        {"type": "tool_result", "tool_use_id": "toolu_01A", "content": "sun in Lima"}
    ]


def test_every_call_is_answered_in_one_message(run: Runner) -> None:
    played = Played(run, "two_calls")
    assert played.calls == [
        ("forecast", {}, True),
        ("forecast", {"place": "Rome"}, False),
    ]
    failed, fine = played.requests[1]["messages"][2]["content"]
    assert (failed["tool_use_id"], failed["is_error"]) == ("toolu_01A", True)
    assert "place" in failed["content"]
    assert fine == {
        "type": "tool_result",
        "tool_use_id": "toolu_01B",
        "content": "sun in Rome",
    }


def test_a_refusal_without_content_ends_the_run(run: Runner) -> None:
    played = Played(run, "refusal")
    assert (played.result.stop_reason, played.result.text) == (
        "refused",
        "This touches on biology.",
    )
    assert contents(*played.result.messages[1:]) == []


def test_a_call_that_was_cut_off_does_not_run(run: Runner) -> None:
    played = Played(run, "cut_call")
    assert played.calls == [("clock", {}, True)]
    assert "cut off" in played.result.calls[0].content


CUT: dict[str, tuple[list[Any], list[str]]] = {
    "the last": (
        [use("clock", {"zone": "C"}), use("clock", {"zone": "C"})],
        ['{"zone": "C"}', '{"zone": "C"'],
    ),
    "nothing came": ([use("clock", {})], ["{"]),
    "null came": ([use("clock", None)], ["{"]),
    "its text, as a stream leaves it": ([use("clock", '{"zone": "C')], ['{"zone": "C']),
    "an empty text": ([use("clock", "")], ["{"]),
    "text after it": ([use("clock", {}), text("so")], ["{}"]),
}


@pytest.mark.parametrize(("content", "raw"), CUT.values(), ids=CUT)
def test_only_the_last_block_can_be_cut_off(content: list[Any], raw: list[str]) -> None:
    assert [
        call.raw for call in decode(content, "max_tokens").message.tool_calls
    ] == raw


def test_a_tool_of_the_server_is_not_called(run: Runner) -> None:
    played = Played(run, "web_search_paused", " It is sunny.")
    assert played.calls == []
    assert played.result.text == "I search. It is sunny."
    assert played.result.stop_reason == "answered"
    assert contents(*played.result.messages[1:2]) == [
        ("assistant", played.bodies[0]["content"])
    ]


# Streams


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def begun(block: dict[str, Any], index: Any = 0) -> dict[str, Any]:
    return event("content_block_start", index=index, content_block=block)


def grown(kind: str, piece: Any, index: Any = 0) -> dict[str, Any]:
    key = {"input_json_delta": "partial_json", "citations_delta": "citation"}.get(
        kind, kind.removesuffix("_delta")
    )
    return event("content_block_delta", index=index, delta={"type": kind, key: piece})


END = [
    event(
        "message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 7}
    ),
    event("message_stop"),
]


def assemble(*events: Any) -> tuple[dict[str, Any], str]:
    """The body, and the text that became visible."""
    assembly = Assembly()
    visible = "".join([assembly.add(one) for one in events])
    return assembly.body(), visible


def test_a_stream_gives_what_would_have_come_without() -> None:
    stream = recorded("anthropic_stream")
    body, visible = assemble(*stream["events"])
    assert body == {
        key: value for key, value in stream["body"].items() if value is not None
    }
    assert anthropic.decode(body) == anthropic.decode(stream["body"])
    assert visible == "Ich schaue nach: Köln\u2028🌦"


ASSEMBLED: dict[str, tuple[list[Any], list[Any]]] = {
    "text that begins at once": (
        [begun(text("so ")), grown("text_delta", "be it")],
        [text("so be it")],
    ),
    "a whole input at once": (
        [begun(use("clock", {"zone": "CET"}))],
        [use("clock", {"zone": "CET"})],
    ),
    "blocks that grow by turns": (
        [
            *(
                begun(text("")),
                begun(use("clock", {}), 1),
                grown("text_delta", "a"),
                grown("input_json_delta", "{", 1),
            ),
            *(grown("text_delta", "b"), grown("input_json_delta", '"zone": "C"}', 1)),
        ],
        [text("ab"), use("clock", {"zone": "C"})],
    ),
    "an index that is used again": (
        [
            begun(text("")),
            grown("text_delta", "a"),
            begun(use("clock", {})),
            grown("input_json_delta", '{"n": 1}'),
        ],
        [text("a"), use("clock", {"n": 1})],
    ),
    "no index": (
        [
            begun(text(""), None),
            grown("text_delta", "a", None),
            begun(text(""), None),
            grown("text_delta", "b", None),
        ],
        [text("a"), text("b")],
    ),
    "a start with an index, a piece without": (
        [begun(text("")), begun(text(""), 1), grown("text_delta", "a", None)],
        [text(""), text("a")],
    ),
    "a start that is left out": (
        [grown("text_delta", "a", 1), grown("text_delta", "b", 1)],
        [text("ab")],
    ),
    "input without a start": (
        [begun(text("a")), grown("input_json_delta", "{}", 1)],
        [text("a")],
    ),
    "input that was cut off": (
        [begun(use("clock", {})), grown("input_json_delta", '{"zo')],
        [use("clock", '{"zo')],
    ),
    "blank input": (
        [begun(use("clock", {})), grown("input_json_delta", " ")],
        [use("clock", {})],
    ),
    "input that is no object": (
        [begun(use("clock", {})), grown("input_json_delta", "[1]")],
        [use("clock", "[1]")],
    ),
    "input of large numbers": (
        [
            begun(use("clock", {})),
            grown("input_json_delta", '{"n": 123456789012345678901}'),
        ],
        [use("clock", {"n": 123456789012345678901})],
    ),
    "a signature of its own": (
        [
            begun({"type": "thinking", "thinking": "", "signature": ""}),
            grown("signature_delta", "s1"),
        ],
        [{"type": "thinking", "thinking": "", "signature": "s1"}],
    ),
    "citations, null before": (
        [
            begun({**text("a"), "citations": None}),
            grown("citations_delta", 1),
            grown("citations_delta", 2),
        ],
        [{**text("a"), "citations": [1, 2]}],
    ),
    "what nobody knows": (
        [
            begun(text("a")),
            event("x_new", index=0),
            event("ping"),
            grown("x_delta", 1),
            grown("x_delta", 1, 7),
            {},
            3,
        ],
        [text("a")],
    ),
    "odd pieces": (
        [begun(text("a")), grown("text_delta", 3), grown("text_delta", None)],
        [text("a")],
    ),
    "an odd start": (
        [event("content_block_start", index=0, content_block=3), begun(text("a"))],
        [text("a")],
    ),
}


@pytest.mark.parametrize(("events", "content"), ASSEMBLED.values(), ids=ASSEMBLED)
def test_events_are_put_together(events: list[Any], content: list[Any]) -> None:
    body, visible = assemble(*events, *END)
    assert body["content"] == content
    assert visible == anthropic.decode(body).message.text


def test_counts_of_a_stream_are_totals_and_null_tells_nothing() -> None:
    first = {"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 300}
    later = {
        "input_tokens": None,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 3},
    }
    start = event(
        "message_start", message={"id": "m", "usage": first, "stop_reason": None}
    )
    body, _ = assemble(
        start,
        event("message_delta", delta={"stop_reason": "max_tokens"}, usage=later),
        END[1],
    )
    assert anthropic.decode(body) == Reply(
        Message("assistant", opaque={"anthropic": []}), Usage(309, 7, 300, 3), "length"
    )


def test_a_reason_or_the_last_event_ends_a_stream() -> None:
    assert assemble(begun(text("a")), END[0])[0]["stop_reason"] == "end_turn"
    assert assemble(begun(text("a")), END[1])[0]["stop_reason"] == "end_turn"


@pytest.mark.parametrize("kept", range(4))
def test_a_stream_that_breaks_off_is_no_reply(kept: int) -> None:
    events = [
        event("message_start", message={"stop_reason": None}),
        begun(text("")),
        grown("text_delta", "a"),
    ]
    with pytest.raises(MalformedReply, match="ended early"):
        assemble(*events[:kept])


ERRORS: dict[str, tuple[dict[str, Any], str, int | None]] = {
    "overloaded": (
        {"type": "overloaded_error", "message": "Overloaded"},
        "Overloaded",
        529,
    ),
    "its own fault": ({"type": "api_error", "message": "Sorry"}, "Sorry", 500),
    "ours": ({"type": "invalid_request_error", "message": "no"}, "no", None),
}


@pytest.mark.parametrize(("error", "told", "status"), ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("kind", [{"type": "error"}, {}], ids=["typed", "bare"])
def test_an_error_event_ends_the_stream(
    kind: Any, error: Any, told: str, status: int | None
) -> None:
    assembly = Assembly()
    with pytest.raises(MalformedReply, match=told) as caught:
        assembly.add({**kind, "error": error})
    assert caught.value.status == status


# Whatever comes

WORDS = st.text(max_size=8)
SOME = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = [
    "type",
    "text",
    "thinking",
    "signature",
    "data",
    "id",
    "name",
    "input",
    "citations",
    "partial_json",
    "citation",
]
TYPES = [
    *(
        "text",
        "thinking",
        "redacted_thinking",
        "tool_use",
        "server_tool_use",
        "text_delta",
        "thinking_delta",
    ),
    *("input_json_delta", "signature_delta", "citations_delta", "error"),
]
BLOCKS = (
    st.dictionaries(st.sampled_from(KEYS), SOME | st.sampled_from(TYPES), max_size=5)
    | SOME
)
KINDS = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "message_stop",
    "ping",
]
EVENTS = (
    st.fixed_dictionaries(
        {"type": st.sampled_from(KINDS)},
        optional={
            "index": st.integers(0, 2) | SOME,
            "content_block": BLOCKS,
            "delta": BLOCKS
            | st.fixed_dictionaries({"stop_reason": SOME | st.just("max_tokens")}),
            "message": SOME | st.fixed_dictionaries({"usage": SOME}),
            "usage": SOME,
            "error": SOME,
        },
    )
    | SOME
)


def take_up(body: Any) -> None:
    """Read a body, and send back what it held."""
    try:
        reply = anthropic.decode(body)
    except MalformedReply:
        return
    for call in reply.message.tool_calls:
        assert isinstance(call.raw, str)
    model = ScriptedModel([reply, "done"])
    result = run_agent_with_tools("q", model=model, tools=TOOLS)
    for request in model.requests[1:]:
        assert find_complaint(encode(*request.messages)) is None
    encode(*result.messages)


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.sampled_from(["content", "usage", "error", "stop_details"]), SOME
    )
    | SOME
)
def test_no_body_raises_anything_else(body: Any) -> None:
    take_up(body)


@settings(max_examples=50)
@given(
    st.lists(BLOCKS, max_size=4),
    st.sampled_from(["end_turn", "max_tokens", "refusal", "pause_turn"]) | SOME,
)
def test_no_content_raises_anything_else(content: Any, reason: Any) -> None:
    take_up({"content": content, "stop_reason": reason})


@settings(max_examples=50)
@given(st.lists(EVENTS, max_size=8))
def test_no_stream_raises_anything_else(events: list[Any]) -> None:
    try:
        body, _ = assemble(*events, *END)
    except MalformedReply:
        return
    take_up(body)


WHOLE_BLOCKS = st.one_of(
    st.builds(text, WORDS),
    st.builds(
        lambda said, sign: {"type": "thinking", "thinking": said, "signature": sign},
        WORDS,
        WORDS,
    ),
    st.just(HIDDEN),
    st.builds(
        use,
        st.sampled_from(["clock", "forecast"]),
        st.dictionaries(WORDS, st.integers() | WORDS, max_size=2),
    ),
)


@given(st.lists(WHOLE_BLOCKS, max_size=4), st.integers(1, 5))
def test_a_stream_in_pieces_of_any_size_is_the_same_reply(
    content: list[Any], size: int
) -> None:
    body = {
        "content": content,
        "stop_reason": "end_turn",
        "usage": {"output_tokens": 7},
    }
    events = [
        one
        for index, block in enumerate(content)
        for one in events_of(block, index, size)
    ]
    assembled, visible = assemble(event("message_start", message={}), *events, *END)
    assert anthropic.decode(assembled) == anthropic.decode(body)
    assert visible == anthropic.decode(body).message.text


def events_of(block: dict[str, Any], index: int, size: int) -> list[dict[str, Any]]:
    match block:
        case {"type": "text", "text": whole}:
            start, kind = text(""), "text_delta"
        case {"type": "thinking", "thinking": whole}:
            start, kind = (
                {"type": "thinking", "thinking": "", "signature": ""},
                "thinking_delta",
            )
        case {"type": "tool_use", "input": sent}:
            start, kind, whole = (
                {**block, "input": {}},
                "input_json_delta",
                json.dumps(sent),
            )
        case _:
            start, kind, whole = block, "", ""
    pieces = [
        grown(kind, whole[at : at + size], index) for at in range(0, len(whole), size)
    ]
    signed = (
        [grown("signature_delta", block["signature"], index)]
        if "signature" in block
        else []
    )
    return [
        begun(start, index),
        *pieces,
        *signed,
        event("content_block_stop", index=index),
    ]
