"""Chat Completions in chunks: how servers really stream, and the calls that were meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.calls.parsing import parse
from toolkit.dialects import chat
from toolkit.dialects.chat_stream import Assembly
from toolkit.errors import MalformedReply
from toolkit.messages import Reply, ToolCall, Usage

RECORDED = json.loads(
    (Path(__file__).parent / "wire" / "stream_text_and_calls.json").read_text(
        encoding="utf-8"
    )
)
NAMES = ("forecast", "clock", "look", "look_up")


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "s1",
        "object": "chat.completion.chunk",
        "created": 1795000000,
        "model": "m",
        "choices": [choice],
    }


def piece(
    id: Any = None,
    name: Any = None,
    arguments: Any = None,
    index: int | None = 0,
    **extra: Any,
) -> Any:
    """A piece of a call; what is None is not sent."""
    function = {
        key: value
        for key, value in (("name", name), ("arguments", arguments))
        if value is not None
    }
    fields = {"index": index, "id": id, "function": function}
    return {key: value for key, value in fields.items() if value is not None} | extra


def assembled(*chunks: Any, names: tuple[str, ...] = NAMES) -> tuple[Reply, str]:
    """The reply, and the text as it became visible."""
    assembly = Assembly(names)
    text = "".join(map(assembly.add, chunks))
    body = assembly.body()
    assert assembly.body() == body
    assert body["choices"][0]["message"]["role"] == "assistant"
    return chat.decode(body), text


def streamed(*pieces: Any) -> list[tuple[str, str, Any]]:
    """The calls of a stream in which each of these stands in a chunk of its own; a list is one chunk of several."""
    chunks = [
        chunk(tool_calls=one if isinstance(one, list) else [one]) for one in pieces
    ]
    reply, _ = assembled(
        chunk(role="assistant", content=None), *chunks, chunk("tool_calls")
    )
    return [(call.id, call.name, call.raw) for call in reply.message.tool_calls]


# Text, usage, and what else a reply is


def test_chunks_make_the_body_that_would_have_come_unstreamed() -> None:
    assembly = Assembly(NAMES)
    text = "".join(map(assembly.add, RECORDED["chunks"]))
    assert assembly.body() == RECORDED["body"]
    reply = chat.decode(assembly.body())
    assert text == reply.message.text == "Ich schaue nach: Köln 🌦"
    assert reply.usage == Usage(83, 40, 64, 12)
    assert [call.raw for call in reply.message.tool_calls] == [
        '{"place":"Köln"}',
        '{"place":"Lima","days":3}',
    ]


END = chunk("stop")
USAGE = {"prompt_tokens": 5, "completion_tokens": 2}
TEXTS: dict[str, tuple[list[Any], Reply]] = {
    "in pieces": ([chunk(content="so"), chunk(content=" it is"), END], ("so it is", "stop", 0)),
    "the finish with the last piece": ([chunk(content="so"), chunk("stop", content="!")], ("so!", "stop", 0)),
    "the role in each": ([chunk(role="assistant", content=text) for text in ("so", "!")] + [END], ("so!", "stop", 0)),
    "usage after the end": ([chunk(content="so"), END, {"choices": [], "usage": USAGE}], ("so", "stop", 5)),
    "usage in the choice": (
        [chunk(content="so"), {"choices": [{"delta": {}, "finish_reason": "stop", "usage": USAGE}]}], ("so", "stop", 5)
    ),
    "usage growing": (
        [chunk(content="so") | {"usage": {"prompt_tokens": 5, "completion_tokens": 1}}, END | {"usage": USAGE}],
        ("so", "stop", 5),
    ),
    "usage at first": ([chunk(content="so") | {"usage": USAGE}, END], ("so", "stop", 5)),
    "no usage": ([chunk(content="so"), END | {"usage": None}], ("so", "stop", 0)),
    "cut": ([chunk(content="Once"), chunk("length")], ("Once", "length", 0)),
    "filtered": ([chunk(content="Once"), chunk("content_filter")], ("Once", "refusal", 0)),
    "a refusal": ([chunk(refusal="I can"), chunk(refusal="not."), END], ("I cannot.", "refusal", 0)),
    "a finish that is no word yet": ([chunk("", content="so"), chunk("stop"), chunk("")], ("so", "stop", 0)),
    "filters of the prompt first": ([{"choices": [], "prompt_filter_results": []}, chunk("stop")], ("", "stop", 0)),
    "another choice": (
        [chunk(content="so"), {"choices": [{"index": 1, "delta": {"content": "?"}}]}, END], ("so", "stop", 0)
    ),
    "parts": (
        [
            chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]),
            chunk(content=[{"type": "text", "text": "so"}]), chunk(content="!"), END,
        ],
        ("so!", "stop", 0),
    ),
    "nothing": ([chunk(role="assistant"), END], ("", "stop", 0)),
}  # fmt: skip


@pytest.mark.parametrize(("chunks", "expected"), TEXTS.values(), ids=TEXTS)
def test_text_is_put_together_from_its_pieces(
    chunks: list[Any], expected: tuple[str, str, int]
) -> None:
    reply, text = assembled(*chunks)
    assert (reply.message.text, reply.finish, reply.usage.input_tokens) == expected
    assert text == reply.message.text


def test_what_only_its_provider_knows_is_kept_whole() -> None:
    signature = {"google": {"thought_signature": "c2ln"}}
    reply, text = assembled(
        chunk(
            role="assistant",
            reasoning_content="Two ",
            reasoning_details=[{"text": "Two "}],
            prefix=None,
        ),
        chunk(
            reasoning_content="places.",
            reasoning_details=[{"text": "places."}],
            extra_content={"a": 1},
        ),
        chunk(
            tool_calls=[piece("c1", "clock", "{", extra_content=signature)],
            extra_content={"b": 2},
        ),
        chunk(tool_calls=[piece(arguments="}", extra_content=None)]),
        chunk("tool_calls"),
    )
    message = reply.message.opaque["chat"]
    assert message["reasoning_content"] == "Two places."
    assert message["reasoning_details"] == [{"text": "Two "}, {"text": "places."}]
    assert message["extra_content"] == {"a": 1, "b": 2}
    assert message["tool_calls"] == [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "clock", "arguments": "{}"},
            "extra_content": signature,
        }
    ]
    assert "prefix" not in message
    assert text == ""


# Which piece belongs to which call

CLOCK = ("c1", "clock", "{}")
LIMA, ROME = '{"place":"Lima"}', '{"place":"Rome"}'
BOTH = [("c1", "forecast", LIMA), ("c2", "forecast", ROME)]
CALLS: dict[str, tuple[list[Any], list[tuple[str, str, Any]]]] = {
    "by the book": (
        [
            piece("c1", "forecast", ""), piece(None, None, LIMA[:5]), piece(None, None, LIMA[5:]),
            piece("c2", "forecast", "", 1), piece(None, None, ROME, 1),
        ],
        BOTH,
    ),
    "whole in one chunk": ([[piece("c1", "forecast", LIMA), piece("c2", "forecast", ROME, 1)]], BOTH),
    "without an index": (
        [piece("c1", "forecast", LIMA[:9], None), piece(None, None, LIMA[9:], None)], BOTH[:1]
    ),
    "whole, without an index": ([piece("c1", "forecast", LIMA, None), piece("c2", "forecast", ROME, None)], BOTH),
    "two in a chunk, without an index": (
        [
            [piece("c1", "forecast", "", None), piece("c2", "forecast", "", None)],
            [piece(None, None, LIMA, None), piece(None, None, ROME, None)],
        ],
        BOTH,
    ),
    "two in a chunk, one of them unfinished": (
        [
            [piece("c1", "forecast", LIMA, None), piece("c2", "forecast", ROME[:3], None)],
            piece(None, None, ROME[3:], None),
        ],
        BOTH,
    ),
    "told apart by their ids alone": (
        [
            [piece("c1", "forecast", "", None), piece("c2", "forecast", "", None)],
            piece("c1", None, LIMA, None), piece("c2", None, ROME, None),
        ],
        BOTH,
    ),
    "the index at first only": ([piece("c1", "clock", "{", 1), piece(None, None, "}", None)], [CLOCK]),
    "the index begins at 1": ([piece("c1", "clock", "{}", 1)], [CLOCK]),
    "the index is 0 for all": ([piece("c1", "forecast", LIMA), piece("c2", "forecast", ROME)], BOTH),
    "the index is 0 for all, which are alike": (
        [piece("c1", "forecast", LIMA), piece("c2", "forecast", LIMA)], [BOTH[0], ("c2", "forecast", LIMA)]
    ),
    "the index is 0 for all, in pieces": (
        [
            piece("c1", "forecast", ""), piece("", None, LIMA[:3]), piece("", None, LIMA[3:]),
            piece("c2", "forecast", ""), piece("", None, ROME[:3]), piece("", None, ROME[3:]),
        ],
        BOTH,
    ),
    "one index, told apart by their ids": (
        [
            piece("c1", "forecast", LIMA[:3]), piece("c2", "forecast", ROME[:3]),
            piece("c1", None, LIMA[3:]), piece("c2", None, ROME[3:]),
        ],
        BOTH,
    ),
    "one index, the first without arguments": ([piece("c1", "clock", ""), piece("c2", "forecast", ROME)], [
        ("c1", "clock", ""), BOTH[1],
    ]),
    "pieces by turns": (
        [
            piece("c1", "forecast", "", 0), piece("c2", "forecast", "", 1), piece(None, None, ROME[:4], 1),
            piece(None, None, LIMA[:4], 0), piece(None, None, ROME[4:], 1), piece(None, None, LIMA[4:], 0),
        ],
        BOTH,
    ),
    "the second first": ([piece("c2", "forecast", ROME, 1), piece("c1", "forecast", LIMA, 0)], BOTH),
    "arguments before their call": (
        [piece("c1", "forecast", LIMA), piece(None, None, ROME, 1), piece("c2", "forecast", "", 1)], BOTH
    ),
    "id and name in each piece": (
        [piece("c1", "forecast", LIMA[:9]), piece("c1", "forecast", LIMA[9:]), piece("c1", "forecast", "")], BOTH[:1]
    ),
    "braces in pieces, with the name in each": (
        [piece("c1", "forecast", text) for text in ('{"a":{"b":1}', ',"c":{"d":', '{"e":2}}', "}")],
        [("c1", "forecast", '{"a":{"b":1},"c":{"d":{"e":2}}}')],
    ),
    "a piece that looks like a call of its own": (
        [piece("c1", "clock", '{"zone":"}'), piece("c1", "clock", '{"}')], [("c1", "clock", '{"zone":"}{"}')]
    ),
    "null and empty later on": (
        [
            piece("c1", "clock", None, type="function"), {"index": 0, "function": None},
            {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": "{"}},
            {"index": 0, "id": "", "function": {"name": "", "arguments": "}"}}, {"index": 0}, None, "?",
        ],
        [CLOCK],
    ),
    "the id later": ([piece(None, "clock", "{"), piece("c1", None, "}")], [CLOCK]),
    "another id in later pieces": (  # poolsideai/pool#9
        [piece("c1", "forecast", ""), piece("z9", None, LIMA[:4]), piece("z9", None, ""), piece("z9", None, LIMA[4:])],
        BOTH[:1],
    ),
    "the index counts pieces": (  # dirac-run/dirac#215
        [piece("c1", "forecast", ""), piece(None, None, LIMA[:4], 1), piece(None, None, LIMA[4:], 2)], BOTH[:1]
    ),
    "a number as id": ([piece(7, "clock", "{}")], [("7", "clock", "{}")]),
    "without ids": ([piece(None, "forecast", LIMA), piece(None, "forecast", ROME, 1)], [
        ("", "forecast", LIMA), ("", "forecast", ROME),
    ]),
    "without ids, the index is 0 for all": ([piece(None, "forecast", LIMA), piece(None, "forecast", LIMA)], [
        ("", "forecast", LIMA), ("", "forecast", LIMA),
    ]),
    "without ids, the index is 0 for all, in pieces": (
        [piece(None, "clock", "{"), piece(None, None, "}"), piece(None, None, ""), piece(None, "clock", "{}")],
        [("", "clock", "{}"), ("", "clock", "{}")],
    ),
    "without ids and indexes": ([piece(None, "clock", "", None), piece(None, "forecast", LIMA, None)], [
        ("", "clock", ""), ("", "forecast", LIMA),
    ]),
    "one id for two": ([piece("c1", "forecast", LIMA), piece("c1", "forecast", ROME, 1)], [
        BOTH[0], ("c1", "forecast", ROME),
    ]),
    "one id for two, without an index": ([piece("c1", "forecast", LIMA, None), piece("c1", "forecast", ROME, None)], [
        BOTH[0], ("c1", "forecast", ROME),
    ]),
    "arguments as an object": (
        [piece("c1", "forecast", {"place": "Lima"}), piece("c2", "forecast", {"place": "Rome"})],
        [("c1", "forecast", {"place": "Lima"}), ("c2", "forecast", {"place": "Rome"})],
    ),
    "arguments as an object, without ids": (
        [piece(None, "forecast", {"place": "Lima"}), piece(None, "forecast", {"place": "Lima"})],
        [("", "forecast", {"place": "Lima"}), ("", "forecast", {"place": "Lima"})],
    ),
    "arguments that are none": ([piece("c1", "clock", [1]), piece("c1", "clock", 1)], [("c1", "clock", "")]),
    "cut": ([piece("c1", "forecast", LIMA[:9])], [("c1", "forecast", LIMA[:9])]),
    "a name in fragments": ([piece("c1", "fore", ""), piece(None, "cast"), piece(None, None, LIMA)], BOTH[:1]),
    "a name in fragments, the first a name too": (
        [piece("c1", "look", ""), piece(None, "_"), piece(None, "up"), piece(None, "up"), piece(None, None, "{}")],
        [("c1", "look_up", "{}")],
    ),
    "a name in fragments and again": ([piece("c1", "clo", ""), piece(None, "ck"), piece(None, "clock", "{}")], [CLOCK]),
    "a name that no tool has, in each piece": (
        [piece("c1", "clocks", "{"), piece("c1", "clocks", "}")], [("c1", "clocks", "{}")]
    ),
    "no name": ([piece("c1", "clock", "{}"), piece("c2", None, "{}", 1)], [CLOCK, ("c2", "", "{}")]),
    "neither id nor name": ([piece(None, None, "{}")], [("", "", "{}")]),
}  # fmt: skip


@pytest.mark.parametrize(("pieces", "calls"), CALLS.values(), ids=CALLS)
def test_calls_are_put_together_from_their_pieces(
    pieces: list[Any], calls: list[Any]
) -> None:
    assert streamed(*pieces) == calls


def test_a_call_that_is_announced_again_at_the_end_is_one_call() -> None:
    ((_, name, raw),) = streamed(
        piece("c1", "forecast", LIMA), piece("c1", "forecast", LIMA)
    )
    assert (name, parse(raw).arguments) == ("forecast", {"place": "Lima"})


@pytest.mark.parametrize(
    "names",
    [(), ("look", "up", "lookup")],
    ids=["no names are known", "fragments are names"],
)
def test_a_name_in_fragments(names: tuple[str, ...]) -> None:
    pieces = [piece("c1", "look", ""), piece(None, "up"), piece(None, None, "{}")]
    reply, _ = assembled(
        *(chunk(tool_calls=[one]) for one in pieces), chunk("tool_calls"), names=names
    )
    assert reply.message.tool_calls == (ToolCall("c1", "lookup", raw="{}"),)


def test_text_and_a_call() -> None:
    reply, text = assembled(
        chunk(content="Let me "),
        chunk(content="see."),
        chunk(tool_calls=[piece("c1", "clock", "{}")]),
        chunk("stop"),
    )
    assert (reply.message.text, text) == ("Let me see.", "Let me see.")
    assert reply.message.tool_calls == (ToolCall("c1", "clock", raw="{}"),)


# Ends

ERRORS: dict[str, tuple[dict[str, Any], str, int | None]] = {
    "OpenAI": (
        {"error": {"message": "sorry", "type": "server_error", "code": None}},
        "sorry",
        500,
    ),
    "OpenRouter": (
        chunk("error", content="") | {"error": {"code": 502, "message": "gone"}},
        "gone",
        502,
    ),
    "vLLM, before 0.10": (
        {"object": "error", "message": "too long", "code": 400},
        "too long",
        400,
    ),
    "a code in words": (
        {"error": {"message": "slower", "code": "rate_limit_exceeded"}},
        "slower",
        429,
    ),
    "a type in words": (
        {"error": {"message": "busy", "type": "overloaded_error"}},
        "busy",
        529,
    ),
    "a text": ({"error": "gone"}, "gone", None),
}


@pytest.mark.parametrize(("last", "complaint", "status"), ERRORS.values(), ids=ERRORS)
def test_a_chunk_that_tells_of_an_error(
    last: dict[str, Any], complaint: str, status: int | None
) -> None:
    with pytest.raises(MalformedReply, match=complaint) as raised:
        assembled(chunk(content="Once"), last)
    assert raised.value.status == status


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([], id="nothing"),
        pytest.param([chunk(content="Once")], id="text"),
        pytest.param(
            [chunk(tool_calls=[piece("c1", "clock", "{}")])], id="a whole call"
        ),
        pytest.param([{"choices": [], "usage": USAGE}], id="usage"),
    ],
)
def test_a_stream_that_ends_early(chunks: list[Any]) -> None:
    with pytest.raises(MalformedReply, match="ended early"):
        assembled(*chunks)


# Whatever a server sends

VALUES = st.sampled_from(
    [
        None,
        True,
        0,
        1,
        -1,
        2.5,
        "",
        "{",
        "{}",
        "clock",
        "c1",
        "stop",
        [],
        {},
        [None],
        {"text": "x"},
    ]
)
PIECES = st.fixed_dictionaries(
    {},
    optional={
        "index": VALUES,
        "id": VALUES,
        "type": VALUES,
        "extra_content": VALUES,
        "function": st.fixed_dictionaries(
            {}, optional={"name": VALUES, "arguments": VALUES}
        )
        | VALUES,
    },
)
DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "role": VALUES,
        "content": VALUES | st.lists(VALUES, max_size=2),
        "refusal": VALUES,
        "reasoning": VALUES,
        "tool_calls": st.lists(PIECES | VALUES, max_size=3) | VALUES,
    },
)
CHOICES = st.fixed_dictionaries(
    {}, optional={"index": VALUES, "delta": DELTAS | VALUES, "finish_reason": VALUES}
)
CHUNKS = st.fixed_dictionaries(
    {},
    optional={
        "choices": VALUES | st.lists(CHOICES | VALUES, max_size=2),
        "usage": VALUES,
    },
)


@given(st.lists(CHUNKS | VALUES, max_size=6))
def test_no_chunks_break_the_assembly(chunks: list[Any]) -> None:
    reply, text = assembled(*chunks, chunk("stop"))
    assert isinstance(text, str)
    assert reply.finish in ("stop", "refusal")


@given(
    st.text(max_size=40),
    st.lists(st.integers(1, 8), min_size=1, max_size=5),
    st.sampled_from(["", "{}", LIMA]),
)
def test_text_and_arguments_come_whole_however_they_are_cut(
    text: str, sizes: list[int], arguments: str
) -> None:
    def cut(whole: str) -> list[str]:
        pieces = []
        while whole:
            size = sizes[len(pieces) % len(sizes)]
            pieces, whole = [*pieces, whole[:size]], whole[size:]
        return pieces

    said = [chunk(content=one) for one in cut(text)]
    asked = [chunk(tool_calls=[piece(None, None, one)]) for one in cut(arguments)]
    reply, seen = assembled(
        *said, chunk(tool_calls=[piece("c1", "clock")]), *asked, chunk("tool_calls")
    )
    assert reply.message.text == seen == text
    assert reply.message.tool_calls == (ToolCall("c1", "clock", raw=arguments),)


def test_a_long_stream_takes_no_long_time() -> None:
    ((_, _, raw),) = streamed(*[piece("c1", "forecast", LIMA)] * 10_000)
    assert raw == LIMA * 10_000
