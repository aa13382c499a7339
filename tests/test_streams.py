"""Text as it comes: `on_text` over a real connection, also where it breaks."""

from __future__ import annotations

from typing import Any

import pytest

from helpers import Runner
from server import ChatServer, Events
from toolkit import Model, RunResult


def look(key: int) -> str:
    """Look something up."""
    return f"seen {key}"


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def said(*pieces: str, whole: bool = True) -> Events:
    chunks = [delta(content=piece) for piece in pieces]
    return Events((*chunks, delta("stop")) if whole else tuple(chunks), whole)


def asked(name: str, *pieces: str) -> Events:
    first = {"index": 0, "id": "c1", "function": {"name": name, "arguments": ""}}
    rest = [{"index": 0, "function": {"arguments": piece}} for piece in pieces]
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    return Events(
        (
            *(delta(tool_calls=[piece]) for piece in (first, *rest)),
            delta("tool_calls"),
            usage,
        )
    )


def play(run: Runner, *plays: Any) -> tuple[list[str], RunResult]:
    """What was shown, and the result."""
    pieces: list[str] = []
    with ChatServer(*plays) as server:
        model = Model("m", base_url=server.base_url, api_key="k")
        result = run("q", model=model, tools=[look], on_text=pieces.append)
        assert all(body["stream"] is True for body in server.bodies)
    return pieces, result


def test_text_is_shown_as_it_comes(run: Runner) -> None:
    pieces, result = play(run, said("It ", "is ", "schön\u2028."))
    assert pieces == ["It ", "is ", "schön\u2028."]
    assert result.text == "It is schön\u2028."


def test_calls_are_put_together(run: Runner) -> None:
    pieces, result = play(run, asked("look", '{"ke', 'y": 9}'), said("Nine."))
    assert [(call.name, call.content) for call in result.calls] == [("look", "seen 9")]
    assert (pieces, result.usage.input_tokens) == (["Nine."], 7)


@pytest.mark.parametrize(
    ("again", "shown"),
    [
        pytest.param("Once upon a time.", "Once upon a time.", id="goes on"),
        pytest.param(
            "Once there was.", "Once upon there was.", id="differs from a place on"
        ),
        pytest.param("Once", "Once upon ", id="says less"),
    ],
)
def test_what_was_shown_is_not_shown_again(run: Runner, again: str, shown: str) -> None:
    """Where a stream breaks, the request is made again; its text is shown from where it goes on, or differs."""
    pieces, result = play(run, said("Once ", "upon ", whole=False), said(again))
    assert "".join(pieces) == shown
    assert result.text == again


def test_a_server_that_does_not_stream_is_shown_whole(run: Runner) -> None:
    assert play(run, "All at once.")[0] == ["All at once."]


def test_an_odd_line_is_no_end(run: Runner) -> None:
    events = said("so")
    pieces, result = play(
        run, Events((*events.chunks[:1], [], {"choices": []}, *events.chunks[1:]))
    )
    assert (pieces, result.text) == (["so"], "so")
