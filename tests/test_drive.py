"""What ends a run from outside, and when: the caller's flag and the run's time, in a request, a tool and a decision."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai  # noqa: F401  # its import would be a part of the first request's time
import pytest

import toolkit
from helpers import Runner, ask, look, of
from server import ChatServer, Events, Fault, Slow, answer, call
from toolkit import (
    Limits,
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolContext,
)
from toolkit.tools.request import Request

ROOT = Path(__file__).parents[1]
LONG = 30.0  # what no test waits for
SOON = 15.0  # on a machine that has much else to do


@pytest.fixture
def cancel() -> Iterator[threading.Event]:
    """The caller's flag; set at the end, so that no tool of a test stays behind."""
    flag = threading.Event()
    yield flag
    flag.set()


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < SOON


def set_soon(flag: threading.Event, when: Callable[[], Any] | None = None) -> None:
    """Set a flag from another thread, a moment after `when` holds."""

    def wait() -> None:
        deadline = time.monotonic() + SOON
        while when and not when() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        flag.set()

    threading.Thread(target=wait, daemon=True).start()


def check_whole(result: RunResult) -> None:
    """The history can be sent again: every call is answered once, in order."""
    for position, message in enumerate(result.messages):
        if message.tool_calls:
            answers = result.messages[position + 1].tool_results
            assert [call.id for call in message.tool_calls] == [
                answer.call_id for answer in answers
            ]
    follow_up = ScriptedModel(["ok"])
    assert (
        str(
            toolkit.run_agent_with_tools(
                "more", model=follow_up, tools=(), history=result
            )
        )
        == "ok"
    )


def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "r",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "delta": {"role": "assistant", "content": text},
                "finish_reason": finish,
            }
        ],
    }


# In a request


def test_the_time_of_a_run_ends_a_request(run: Runner) -> None:
    with ChatServer(
        answer(None, call("look", {"key": "1"})), Slow(LONG, "late")
    ) as server:
        result = run(
            "go",
            model="m",
            base_url=server.base_url,
            api_key="k",
            tools=of(look),
            limits=Limits(seconds=1.0),
        )
    assert result.stop_reason == "limit_reached"
    assert [call.content for call in result.calls] == ["seen 1"]
    check_whole(result)


def test_the_flag_ends_a_request(run: Runner, cancel: threading.Event) -> None:
    with ChatServer(Slow(LONG, "late")) as server:
        set_soon(cancel, lambda: server.requests)
        result = run(
            "go",
            model="m",
            base_url=server.base_url,
            api_key="k",
            tools=of(look),
            cancel=cancel,
        )
    assert (result.stop_reason, result.text) == ("cancelled", "")
    check_whole(result)


def test_the_flag_ends_the_wait_before_a_retry(
    run: Runner, cancel: threading.Event
) -> None:
    with ChatServer(Fault(429, headers={"retry-after": "29"})) as server:
        set_soon(cancel, lambda: server.requests)
        result = run(
            "go",
            model="m",
            base_url=server.base_url,
            api_key="k",
            tools=of(look),
            cancel=cancel,
        )
    assert result.stop_reason == "cancelled"


def test_nothing_is_heard_after_the_end(run: Runner, cancel: threading.Event) -> None:
    heard: list[str] = []
    with ChatServer(Slow(0.4, Events((chunk("late"), chunk("r"))))) as server:
        set_soon(cancel, lambda: server.requests)
        result = run(
            "go",
            model="m",
            base_url=server.base_url,
            api_key="k",
            tools=(),
            cancel=cancel,
            on_text=heard.append,
        )
        time.sleep(0.6)
    assert (result.stop_reason, heard) == ("cancelled", [])


def test_nothing_is_heard_after_ctrl_c() -> None:
    """The request that is left behind must not speak to whoever went on."""
    heard: list[str] = []
    goes_on, has_ended = threading.Event(), threading.Event()

    class Model(ScriptedModel):
        def complete(self, request: Request) -> Any:
            assert request.on_text is not None
            request.on_text("first")
            goes_on.wait(SOON)
            request.on_text("late")
            has_ended.set()
            return super().complete(replace(request, on_text=None))

    class Flag(threading.Event):
        def is_set(self) -> bool:
            if heard:
                raise KeyboardInterrupt  # as a signal would, in the thread that waits
            return False

    with pytest.raises(KeyboardInterrupt) as caught:
        toolkit.run_agent_with_tools(
            "", model=Model(["ok"]), tools=(), cancel=Flag(), on_text=heard.append
        )
    goes_on.set()
    assert has_ended.wait(SOON)
    assert heard == ["first"]
    assert caught.value.run.messages[-1].role == "user"  # type: ignore[attr-defined]


def test_a_request_that_is_in_time_is_as_without_a_limit(
    run: Runner, cancel: threading.Event
) -> None:
    heard: list[str] = []
    with ChatServer(Slow(0.1, Events((chunk("in "), chunk("time", "stop"))))) as server:
        options: dict[str, Any] = {
            "model": "m",
            "base_url": server.base_url,
            "api_key": "k",
            "tools": (),
        }
        result = run(
            "go",
            cancel=cancel,
            limits=Limits(seconds=LONG),
            on_text=heard.append,
            **options,
        )
    assert (str(result), "".join(heard), result.stop_reason) == (
        "in time",
        "in time",
        "answered",
    )


def test_an_error_of_a_bounded_request_passes(
    run: Runner, cancel: threading.Event
) -> None:
    with pytest.raises(toolkit.ModelError, match="down") as caught:
        run(
            "go",
            model=ScriptedModel([toolkit.ModelError("down")]),
            tools=(),
            cancel=cancel,
        )
    assert caught.value.run.messages[-1].text == "go"


# In a tool


def make_stuck(kind: str, release: threading.Event) -> Callable[..., Any]:
    def stuck(context: ToolContext) -> str:
        """Be stuck."""
        release.wait(LONG)
        return "late"

    async def stuck_async(context: ToolContext) -> str:
        """Be stuck."""
        await asyncio.sleep(LONG)
        return "late"

    return stuck_async if kind == "async" else stuck


@pytest.mark.parametrize("timeout", [60.0, None], ids=["60 s", "no timeout"])
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("by", ["flag", "time"])
def test_a_tool_at_work_is_left_behind(
    by: str, kind: str, timeout: float | None, run: Runner, cancel: threading.Event
) -> None:
    release = threading.Event()
    stuck = make_stuck(kind, release)
    registry = of(stuck, timeout=timeout)
    registry.register_tool(look)
    options: dict[str, Any] = (
        {"limits": Limits(seconds=0.3)} if by == "time" else {"cancel": cancel}
    )
    if by == "flag":
        set_soon(cancel)
    calls = [ask(stuck.__name__, "a"), ask("look", "b", key="1")]
    result = run("go", model=ScriptedModel([calls]), tools=registry, **options)
    release.set()
    assert result.stop_reason == ("cancelled" if by == "flag" else "limit_reached")
    assert result.calls[0].content.startswith("Interrupted")
    assert result.calls[1].content == "seen 1"  # what has ended keeps its result
    check_whole(result)


@pytest.mark.parametrize("timeout", [60.0, None], ids=["60 s", "no timeout"])
def test_a_tool_alone_is_left_behind(
    timeout: float | None, run: Runner, cancel: threading.Event
) -> None:
    """One call without a timeout runs on the caller's thread, but not where that must come back in time."""
    release = threading.Event()
    set_soon(cancel)
    registry = of(make_stuck("sync", release), timeout=timeout)
    result = run(
        "go", model=ScriptedModel([ask("stuck")]), tools=registry, cancel=cancel
    )
    release.set()
    assert (result.stop_reason, result.calls[0].content[:11]) == (
        "cancelled",
        "Interrupted",
    )


def test_a_tool_is_told_that_nobody_waits(run: Runner, cancel: threading.Event) -> None:
    told = threading.Event()

    def work(context: ToolContext) -> str:
        """Work."""
        deadline = time.monotonic() + SOON
        while not context.cancelled() and time.monotonic() < deadline:
            time.sleep(0.01)
        told.set()
        return "ended"

    set_soon(cancel)
    run("go", model=ScriptedModel([ask("work")]), tools=of(work), cancel=cancel)
    assert told.wait(SOON)


def test_calls_that_wait_their_turn_are_not_begun(
    run: Runner, cancel: threading.Event
) -> None:
    began: list[str] = []

    def step(key: str) -> str:
        """Step."""
        began.append(key)
        cancel.set()
        time.sleep(0.2)
        return key

    calls = [ask("step", str(number), key=str(number)) for number in range(3)]
    result = run(
        "go",
        model=ScriptedModel([calls]),
        tools=of(step, parallel=False),
        cancel=cancel,
    )
    assert began == ["0"]
    assert [call.content[:7] for call in result.calls[1:]] == ["Not run"] * 2
    check_whole(result)


# Between


def test_a_flag_that_is_set_lets_nothing_begin(
    run: Runner, cancel: threading.Event
) -> None:
    cancel.set()
    with ScriptedModel([]) as model:
        result = run("go", model=model, tools=of(look), cancel=cancel)
    assert (result.stop_reason, model.requests, str(result)) == (
        "cancelled",
        [],
        "(no text; the run ended with cancelled)",
    )


def test_a_flag_that_is_set_by_a_reply_keeps_its_calls_from_running(
    run: Runner, cancel: threading.Event
) -> None:
    def reply(request: Any) -> Any:
        cancel.set()
        return [ask("look", "a"), ask("look", "b")]

    result = run("go", model=ScriptedModel(reply), tools=of(look), cancel=cancel)
    assert result.stop_reason == "cancelled"
    assert [call.content for call in result.calls] in (
        [],
        ["Not run: the run was cancelled."] * 2,
    )
    check_whole(result)


def test_a_flag_that_is_set_after_the_end_changes_nothing(
    run: Runner, cancel: threading.Event
) -> None:
    result = run(
        "go",
        model=ScriptedModel(["ok"]),
        tools=(),
        cancel=cancel,
        on_event=lambda event: cancel.set() if event.name == "model_reply" else None,
    )
    assert (result.stop_reason, str(result)) == ("answered", "ok")


# While somebody decides


def test_the_flag_ends_a_decision_that_is_awaited(
    run: Runner, cancel: threading.Event
) -> None:
    asked = threading.Event()

    async def approve(call: ToolCall) -> str:
        asked.set()
        await asyncio.sleep(LONG)
        return "approve"

    set_soon(cancel, asked.is_set)
    calls = [ask("look", "a"), ask("look", "b")]
    tools = of(look, permission="sensitive")
    result = run(
        "go", model=ScriptedModel([calls]), tools=tools, approve=approve, cancel=cancel
    )
    assert (result.stop_reason, result.waiting) == ("cancelled", ())
    assert [call.content[:7] for call in result.calls] == ["Not run"] * 2
    check_whole(result)


def test_the_flag_outlives_a_decision(run: Runner, cancel: threading.Event) -> None:
    def approve(call: ToolCall) -> str:
        cancel.set()
        return "approve"

    tools = of(look, permission="sensitive")
    result = run(
        "go",
        model=ScriptedModel([ask("look")]),
        tools=tools,
        approve=approve,
        cancel=cancel,
    )
    assert (result.stop_reason, result.calls[0].content) == (
        "cancelled",
        "Not run: the run was cancelled.",
    )
    check_whole(result)


def test_people_may_take_longer_than_the_run_has(run: Runner) -> None:
    async def approve(call: ToolCall) -> str:
        await asyncio.sleep(0.4)
        return "approve"

    tools = of(look, permission="sensitive")
    model = ScriptedModel([ask("look", key="1"), "ok"])
    result = run(
        "go", model=model, tools=tools, approve=approve, limits=Limits(seconds=0.3)
    )
    assert (result.stop_reason, result.calls[0].content) == ("answered", "seen 1")


# From another task


@pytest.mark.parametrize("where", ["request", "tool"])
def test_a_task_sets_the_flag(where: str, cancel: threading.Event) -> None:
    async def stuck() -> str:
        """Be stuck."""
        await asyncio.sleep(LONG)
        return "late"

    async def main() -> RunResult:
        plays = (
            [Slow(LONG, "late")]
            if where == "request"
            else [answer(None, call("stuck"))]
        )
        with ChatServer(*plays) as server:
            options: dict[str, Any] = {
                "model": "m",
                "base_url": server.base_url,
                "api_key": "k",
            }
            running = toolkit.arun_agent_with_tools(
                "go", tools=of(stuck), cancel=cancel, **options
            )
            asyncio.get_running_loop().call_later(0.3, cancel.set)
            return await running

    result = asyncio.run(main())
    assert result.stop_reason == "cancelled"
    check_whole(result)


# How much a model may send


def test_arguments_are_bounded(run: Runner) -> None:
    long = ToolCall("a", "look", raw=json.dumps({"key": "x" * 200}))
    model = ScriptedModel([long, ask("look", key="1"), "ok"])
    result = run("go", model=model, tools=of(look), limits=Limits(argument_chars=100))
    assert (
        "The arguments are 211 characters long. Send 100 at most."
        in result.calls[0].content
    )
    assert (result.calls[0].is_error, result.calls[1].content, str(result)) == (
        True,
        "seen 1",
        "ok",
    )
    assert result.calls[0].arguments == {}
    check_whole(result)


DEEP = {
    "arrays": "[" * 5_000 + "]" * 5_000,
    "objects": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "unclosed": "[" * 100_000,
    "as text": json.dumps(json.dumps("[" * 3_000 + "]" * 3_000)),
    "tuples": "(" * 3_000 + ")" * 3_000,
    "signs": "-" * 50_000 + "1",
}


@pytest.mark.parametrize("kind", DEEP)
def test_deep_arguments_are_answered(kind: str, run: Runner) -> None:
    def take(value: Any) -> str:
        """Take it."""
        return "taken"

    raws = [DEEP[kind], f'{{"value": {DEEP[kind]}}}']
    calls = [ToolCall(str(number), "take", raw=raw) for number, raw in enumerate(raws)]
    result = run("go", model=ScriptedModel([calls, "ok"]), tools=of(take))
    assert str(result) == "ok"
    check_whole(result)
    assert RunResult.from_json(result.to_json()).run == result.run


# What is not asked for


_PLAINLY = """
import sys
import toolkit
from toolkit import ScriptedModel, ToolCall, ToolRegistry
tools = ToolRegistry()
tools.register_function("put", "Put it.", lambda text: text)
toolkit.run_agent_with_tools("go", model=ScriptedModel([ToolCall("a", "put", {"text": "b"}), "ok"]), tools=tools)
print({"toolkit.store", "toolkit.audit", "toolkit.locks", "sqlite3", "asyncio"} & sys.modules.keys())
"""


@pytest.mark.slow
def test_what_is_not_asked_for_is_not_even_loaded() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _PLAINLY]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "set()\n"
