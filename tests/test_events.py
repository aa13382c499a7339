"""What a run tells the outside."""

from __future__ import annotations

import contextvars
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import Runner
from toolkit import (
    Message,
    Model,
    Reply,
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolError,
    ToolRegistry,
    Usage,
)
from toolkit.events import Event, without_content, write_lines
from toolkit.local import LocalModel

SECRET = "told in confidence"


def tools() -> ToolRegistry:
    def repeat(text: str) -> str:
        """Repeat a text."""
        return text

    return ToolRegistry([repeat])


def script() -> ScriptedModel:
    first = Reply(
        Message("assistant", SECRET, (ToolCall("c", "repeat", {"text": SECRET}),)),
        Usage(7, 5, 3, 2),
    )
    return ScriptedModel([first, SECRET])


FIELDS = {
    "run_start": {"model", "provider", "tools", "max_turns", "parent_call_id"},
    "model_request": {"model", "messages", "tools", "tool_choice"},
    "model_reply": {
        *("model", "text", "tool_calls", "finish", "time_ms"),
        *("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"),
    },
    "tool_call_request": {
        "tool_call_id",
        "tool_name",
        "arguments",
        "raw_arguments",
        "repairs",
        "model",
    },
    "tool_exec_result": {
        *("tool_call_id", "tool_name", "success", "status", "error_type", "approval"),
        *("started_ms", "time_ms", "result_preview", "repairs"),
    },
    "run_end": {"stop_reason", "turns", "input_tokens", "output_tokens", "time_ms"},
}


def test_every_event_has_its_fields(run: Runner) -> None:
    events: list[Event] = []
    run("q", model=script(), tools=tools(), on_event=events.append, run_id="r")
    assert [event.name for event in events] == [
        *(
            "run_start",
            "model_request",
            "model_reply",
            "tool_call_request",
            "tool_exec_result",
        ),
        *("model_request", "model_reply", "run_end"),
    ]
    assert {event.name: set(event.data) for event in events} == FIELDS
    assert {event.run_id for event in events} == {"r"}
    assert [event.turn for event in events] == [0, 1, 1, 1, 1, 2, 2, 2]
    reply = events[2].data
    assert (reply["cached_tokens"], reply["reasoning_tokens"]) == (3, 2)


def test_an_event_has_the_value_that_it_tells_of(run: Runner) -> None:
    events: list[Event] = []
    registry = tools()
    result = run("q", model=script(), tools=registry, on_event=events.append)
    subjects: dict[str, Any] = {}
    for event in events:
        subjects.setdefault(event.name, event.subject)
    assert list(subjects["run_start"]) == ["repeat"]
    assert subjects["run_start"]["repeat"].description == "Repeat a text."
    assert subjects["model_request"] == result.messages[:1]
    assert subjects["model_reply"].message.text == SECRET
    assert subjects["tool_exec_result"] == result.messages[2].tool_results[0]
    assert "subject" not in "".join(event.to_json() for event in events)


@pytest.mark.parametrize(
    ("name", "arguments", "status", "error_type"),
    [
        ("repeat", {"text": "x"}, "ok", ""),
        ("fail", {"text": "x"}, "error", "failed"),
        ("repeat", {}, "not_executed", "malformed"),
        ("guarded", {"text": "x"}, "not_executed", "denied"),
    ],
)
def test_a_result_says_what_kind_of_error_it_is(
    run: Runner, name: str, arguments: dict[str, Any], status: str, error_type: str
) -> None:
    def fail(text: str) -> str:
        raise ToolError(text)

    registry = tools()
    registry.register_tool(fail)
    registry.register_tool(fail, name="guarded", permission="sensitive")
    events: list[Event] = []
    model = ScriptedModel([ToolCall("c", name, arguments), "done"])
    run(
        "q",
        model=model,
        tools=registry,
        on_event=events.append,
        approve=lambda call: "deny",
    )
    (told,) = (event.data for event in events if event.name == "tool_exec_result")
    assert (told["status"], told["error_type"]) == (status, error_type)


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        (Model("m", base_url="http://127.0.0.1:9"), "openai"),
        (Model("m", wire="anthropic", base_url="http://127.0.0.1:9"), "anthropic"),
        (LocalModel(), "llama.cpp"),
        (ScriptedModel([]), "scripted"),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_a_model_names_its_provider(model: Model, provider: str) -> None:
    assert model.provider == provider


def test_content_can_stay_out(run: Runner) -> None:
    events: list[Event] = []
    run("q", model=script(), tools=tools(), on_event=without_content(events.append))
    assert {event.name: set(event.data) for event in events} == FIELDS, (
        "the fields stay, without their values"
    )
    assert SECRET not in "".join(event.to_json() for event in events)
    assert [event.subject for event in events] == [None] * len(events)


def test_content_stays_in_a_share_of_the_runs(run: Runner) -> None:
    kept = []
    for number in range(60):
        events: list[Event] = []
        sink = without_content(events.append, 0.5)
        run("q", model=script(), tools=tools(), on_event=sink, run_id=f"run {number}")
        texts = {
            SECRET in event.to_json()
            for event in events
            if event.name in ("model_reply", "tool_exec_result")
        }
        assert len(texts) == 1, "a run is kept whole, or not at all"
        kept += texts
    assert 15 < sum(kept) < 45


@pytest.mark.parametrize(
    ("share", "told"), [("1", True), ("0", False), ("0.0", False), (None, True)]
)
def test_the_logger_can_be_told_to_leave_content_out(
    run: Runner,
    share: str | None,
    told: bool,
    caplog: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if share is not None:
        monkeypatch.setenv("TOOLKIT_LOG_CONTENT", share)
    with caplog.at_level(logging.INFO, logger="toolkit"):
        run("q", model=script(), tools=tools())
    lines = [record.message for record in caplog.records if record.name == "toolkit"]
    assert [json.loads(line)["event"] for line in lines][:2] == [
        "run_start",
        "model_request",
    ]
    assert (SECRET in "".join(lines)) is told


def test_a_share_that_is_none_is_told(
    caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolkit import run_agent_with_tools

    monkeypatch.setenv("TOOLKIT_LOG_CONTENT", "no")
    with (
        caplog.at_level(logging.INFO, logger="toolkit"),
        pytest.raises(ValueError, match="TOOLKIT_LOG_CONTENT='no'"),
    ):
        run_agent_with_tools("q", model=script(), tools=tools())


def test_lines_are_whole_when_runs_overlap(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from toolkit import run_agent_with_tools

    sink = write_lines(tmp_path / "events.jsonl")

    def one(number: int) -> RunResult:
        return run_agent_with_tools(
            f"q{number}",
            model=script(),
            tools=tools(),
            on_event=sink,
            run_id=f"r{number}",
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(40)))
    lines = [
        json.loads(line)
        for line in (tmp_path / "events.jsonl").read_text().splitlines()
    ]
    assert len(lines) == 40 * 8
    assert {line["run_id"] for line in lines} == {f"r{number}" for number in range(40)}


VISITED: contextvars.ContextVar[str] = contextvars.ContextVar("visited", default="")


class Entering:
    """A sink that marks the context of each call."""

    def __call__(self, event: Event) -> None: ...

    def enter_call(self, call_id: str) -> None:
        VISITED.set(call_id)
        if call_id == "broken":
            raise RuntimeError("the sink fails")


def test_several_sinks_hear_a_run(run: Runner) -> None:
    one: list[Event] = []
    two: list[Event] = []
    run("q", model=script(), tools=tools(), on_event=[one.append, two.append])
    assert one == two != []
    with pytest.raises(TypeError, match="on_event must be a function, not int"):
        run("q", model=script(), tools=tools(), on_event=[one.append, 3])


@pytest.mark.parametrize(
    "wrap", [lambda sink: sink, without_content], ids=["bare", "without content"]
)
def test_a_sink_enters_the_context_of_each_call(
    run: Runner, wrap: Callable[[Any], Any]
) -> None:
    async def later() -> str:
        return VISITED.get()

    def returns_coroutine(text: str) -> Any:
        return later()

    async def tell_later(text: str) -> str:
        return VISITED.get()

    def tell(text: str) -> str:
        return VISITED.get()

    registry = ToolRegistry([tell_later, tell])
    registry.register_tool(tell, name="here", timeout=None)
    registry.register_tool(returns_coroutine)
    ids = {
        "a": "tell",
        "b": "tell_later",
        "broken": "tell",
        "d": "here",
        "e": "returns_coroutine",
    }
    calls = [ToolCall(call_id, name, {"text": "x"}) for call_id, name in ids.items()]
    result = run(
        "q",
        model=ScriptedModel([calls, "done"]),
        tools=registry,
        on_event=wrap(Entering()),
    )
    assert [call.content for call in result.calls] == list(ids)
    assert VISITED.get() == "", "nothing of it is left in the caller's context"
