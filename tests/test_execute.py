"""One call: parse, validate, permit, run, render; and how the calls of one reply run beside each other."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import logging
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

import toolkit
from helpers import Runner, approve_later, ask, of
from toolkit import (
    Limits,
    RunResult,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolParameter,
    ToolRegistry,
    Verdict,
    tool,
)
from toolkit.messages import ToolReturn

ROOT = Path(__file__).parents[1]


def play(
    run: Runner, tools: ToolRegistry, *calls: ToolCall, **options: Any
) -> RunResult:
    """One reply with these calls, then an answer."""
    return run("q", model=ScriptedModel([list(calls), "done"]), tools=tools, **options)


def contents(result: RunResult) -> list[str]:
    return [call.content for call in result.calls]


# Stages


def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


STAGES: dict[str, tuple[Any, Any]] = {
    "runs": ('{"a": 2, "b": 3}', "5"),
    "an object instead of text": ({"a": 2}, "3"),
    "a default": ('{"a": 2}', "3"),
    "converted": ('{"a": "2"}', "3"),
    "null means the default": ('{"a": 2, "b": null}', "3"),
    "a wrapper": ('{"arguments": {"a": 2}}', "3"),
    "truncated": (
        '{"a": 2',
        ["Invalid arguments for add", "not valid JSON", "Attempts left: 2"],
    ),
    "missing": ("{}", ["a", "missing", "Attempts left: 2"]),
    "wrong": (
        '{"a": "two"}',
        [
            "a: expected a valid integer",
            '"two"',
            "Parameters: a (integer, required), b (integer)",
        ],
    ),
    "extra": ('{"a": 2, "c": 3}', ["c: unexpected"]),
    "no object": ("[1, 2]", ["no JSON object"]),
}


@pytest.mark.parametrize(("raw", "expected"), STAGES.values(), ids=STAGES)
def test_a_call_from_text_to_result(run: Runner, raw: Any, expected: Any) -> None:
    (call,) = play(run, of(add), ToolCall("c1", "add", raw=raw)).calls
    for part in [expected] if isinstance(expected, str) else expected:
        assert part in call.content
    assert call.is_error == isinstance(expected, list)
    assert call.raw == raw


def test_a_record_tells_what_the_tool_got() -> None:
    (call,) = play(
        toolkit.run_agent_with_tools,
        of(add),
        ToolCall("c1", "add", raw='{"a": 2, "b": null,}'),
    ).calls
    assert (call.arguments, call.value, call.verdict) == ({"a": 2, "b": 1}, 3, "")
    assert set(call.repairs) == {"trailing_comma", "null_default"}


UNKNOWN = {
    "near": ("ad", ['"ad"', "Did you mean add?"]),
    "far": ("weather", ['"weather"', "add"]),
    "empty": ("", ['""', "add"]),
    "another prefix": ("other.add", ["other.add", "add"]),
    "another case": ("ADD", ["ADD", "add"]),
}


@pytest.mark.parametrize(("name", "parts"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_tool_is_answered_with_the_nearest(
    run: Runner, name: str, parts: list[str]
) -> None:
    (call,) = play(run, of(add), ToolCall("c1", name, raw='{"a": 1}')).calls
    assert call.is_error
    for part in (*parts, "Attempts left: 2"):
        assert part in call.content


def test_only_what_the_run_was_given_may_run(run: Runner) -> None:
    ran = []

    @tool(registry=ToolRegistry(), name="elsewhere")
    def elsewhere() -> None:
        ran.append(1)

    (call,) = play(run, of(add), ask("elsewhere")).calls
    assert call.is_error
    assert not ran


MEANT = [
    "functions.add",
    "function.add",
    "tools.add",
    "functions.add:0",
    "add<|channel|>commentary",
    " add\n",
]


@pytest.mark.parametrize("name", MEANT)
def test_a_decorated_name_means_its_tool(run: Runner, name: str) -> None:
    assert contents(play(run, of(add), ToolCall("c1", name, raw='{"a": 1}'))) == ["2"]


def test_an_alias_is_mapped_back(run: Runner) -> None:
    registry = ToolRegistry()
    made = registry.register_tool(add, name="rechne zusammen!")
    assert made.wire_name != made.name
    (call,) = play(run, registry, ToolCall("c1", made.wire_name, raw='{"a": 1}')).calls
    assert (call.name, call.content) == ("rechne zusammen!", "2")


PARALLEL = '{"tool_uses": [{"recipient_name": "functions.add", "parameters": {"a": %d}}, {"recipient_name": "%s"}]}'


def test_calls_inside_a_parallel_call_run_as_calls_of_their_own(run: Runner) -> None:
    def now() -> str:
        return "noon"

    result = play(
        run,
        of(add, now),
        ToolCall("c1", "multi_tool_use.parallel", raw=PARALLEL % (1, "functions.now")),
    )
    assert [(call.name, call.content) for call in result.calls] == [
        ("add", "2"),
        ("now", "noon"),
    ]
    assert len({call.id for call in result.calls}) == 2


def test_a_parallel_call_without_its_form_names_the_tools(run: Runner) -> None:
    (call,) = play(
        run, of(add), ToolCall("c1", "multi_tool_use.parallel", raw='{"tool_uses": 3}')
    ).calls
    assert call.is_error
    assert "multi_tool_use.parallel" in call.content
    assert "add" in call.content


# Kinds of tools


def generate() -> Iterator[int]:
    yield from (1, 2)


async def generate_async() -> AsyncIterator[int]:
    for number in (1, 2):
        await asyncio.sleep(0)
        yield number


async def wait() -> str:
    await asyncio.sleep(0)
    return "waited"


def return_coroutine() -> Awaitable[str]:
    return wait()


def return_iterator() -> Iterator[str]:
    return map(str, (1, 2))


def count() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


class Waiter:
    """An object that is called and awaited."""

    async def __call__(self) -> str:
        return await wait()


class Adder(Tool):
    name = "adder"
    description = "Adds."

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def get_parameters(self) -> list[ToolParameter]:
        return [
            ToolParameter("a", "integer", "First."),
            ToolParameter("b", "array", "Rest.", False, [1]),
        ]

    def run(self, parameters: dict[str, Any]) -> Any:
        total = parameters["a"] + sum(parameters["b"])
        parameters["b"].append(100)
        return total


class AsyncAdder(Adder):
    async def run(self, parameters: dict[str, Any]) -> Any:
        return await asyncio.sleep(0, super().run(parameters))


KINDS: dict[str, tuple[Any, str]] = {
    "generator": (generate, "[1,2]"),
    "async generator": (generate_async, "[1,2]"),
    "coroutine function": (wait, "waited"),
    "a plain function that returns a coroutine": (return_coroutine, "waited"),
    "a partial of a coroutine function": (functools.partial(wait), "waited"),
    "a callable object that is awaited": (Waiter(), "waited"),
    "an iterator": (return_iterator, '["1","2"]'),
}


@pytest.mark.parametrize("timeout", [None, 30.0], ids=["no timeout", "timeout"])
@pytest.mark.parametrize(("function", "expected"), KINDS.values(), ids=KINDS)
def test_what_a_tool_gives_is_awaited_and_read(
    run: Runner, function: Any, expected: str, timeout: float | None
) -> None:
    registry = of(function, name="it", timeout=timeout)
    assert contents(play(run, registry, ask("it"))) == [expected]


def test_an_endless_generator_is_cut(run: Runner) -> None:
    (call,) = play(run, of(count), ask("count")).calls
    assert call.content.startswith("[0,1,2,")
    assert "cut" in call.content
    assert len(call.value) <= 1_001


def test_an_open_file_is_read(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("one\ntwo\n")
    with (tmp_path / "note").open() as file:
        (call,) = play(run, of(lambda: file, name="read"), ask("read")).calls
    assert call.content == '["one\\n","two\\n"]'


@pytest.mark.parametrize("made", [Adder, AsyncAdder])
def test_a_class_tool_gets_its_defaults_anew_each_time(
    run: Runner, made: type[Adder]
) -> None:
    result = play(
        run,
        of(made()),
        ask("adder", "c1", a=1),
        ask("adder", "c2", a=1),
        ask("adder", "c3", a=1, b=[2]),
    )
    assert contents(result) == ["2", "2", "3"]


def test_under_the_async_driver_all_that_is_awaited_runs_on_the_running_loop() -> None:
    loops = []

    async def work() -> None:
        loops.append(asyncio.get_running_loop())

    def hand_out() -> Awaitable[None]:
        return work()

    async def yielding() -> AsyncIterator[int]:
        await work()
        yield 1

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        model = ScriptedModel([[ask("work"), ask("hand_out"), ask("yielding")], "done"])
        await toolkit.arun_agent_with_tools(
            "q", model=model, tools=of(work, hand_out, yielding)
        )

    asyncio.run(main())
    assert len(loops) == 4
    assert set(loops) == {loops[0]}


def test_async_tools_of_the_sync_driver_share_one_loop() -> None:
    loops = []

    async def work() -> None:
        loops.append(asyncio.get_running_loop())

    for _ in range(2):
        play(
            toolkit.run_agent_with_tools, of(work), ask("work", "c1"), ask("work", "c2")
        )
    assert len(set(loops)) == 1


def test_a_tool_knows_its_call(run: Runner) -> None:
    seen = []

    def note(context: ToolContext, key: int = 0) -> None:
        seen.append(
            (
                context.call_id,
                context.run_id,
                context.turn,
                context.deps,
                context.cancelled(),
            )
        )

    result = play(run, of(note), ask("note", "c1"), deps="deps")
    assert seen == [("c1", result.run.id, 1, "deps", False)]


def test_threads_are_used_again() -> None:
    seen = set()

    def note(n: int) -> None:
        seen.add(threading.get_ident())

    for number in range(20):
        play(toolkit.run_agent_with_tools, of(note), ask("note", n=number))
    assert len(seen) < 5


# What a tool raises


def own_timeout() -> None:
    raise TimeoutError("the lamp is too far away")


def leave() -> None:
    sys.exit(3)


async def leave_async() -> None:
    sys.exit(3)


def exhaust() -> Any:
    return next(iter(()))


def speak() -> None:
    raise ToolError("City unknown, try Oslo.")


def leak() -> None:
    raise RuntimeError(
        "connect postgres://app:HUNTER2@10.0.0.5/db failed at /srv/app/x.py"
    )


def deeper() -> None:
    urllib.request.urlopen("HUNTER2")


RAISED: dict[str, tuple[Any, list[str]]] = {
    "its own timeout is not ours": (
        own_timeout,
        ["TimeoutError", "the lamp is too far away"],
    ),
    "SystemExit": (leave, ["exit", "3"]),
    "SystemExit in a coroutine": (leave_async, ["exit", "3"]),
    "StopIteration": (exhaust, ["StopIteration"]),
    "it speaks": (speak, ["City unknown, try Oslo."]),
    "a secret": (leak, ["RuntimeError", "leak"]),
    "from deeper down": (deeper, ["ValueError", "deeper"]),
}


@pytest.mark.parametrize("timeout", [None, 5.0], ids=["no timeout", "timeout"])
@pytest.mark.parametrize(("function", "parts"), RAISED.values(), ids=RAISED)
def test_an_exception_is_an_answer(
    run: Runner, function: Any, parts: list[str], timeout: float | None
) -> None:
    registry = of(function, timeout=timeout)
    registry.register_tool(wait)
    started = time.monotonic()
    result = play(run, registry, ask(function.__name__), ask("wait"))
    assert time.monotonic() - started < 4
    failed, good = result.calls
    assert failed.is_error
    for part in parts:
        assert part in failed.content
    for secret in ("HUNTER2", "10.0.0.5", "/srv/app", "Traceback"):
        assert secret not in failed.content
    assert good.content == "waited"
    assert result.text == "done"


def test_the_local_log_has_the_trace_under_the_reference(
    run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    (call,) = play(run, of(leak), ask("leak", "c7")).calls
    assert "c7" in call.content
    assert "HUNTER2" in caplog.text
    assert "Traceback" in caplog.text
    assert "c7" in caplog.text


def test_one_that_fails_harms_no_other(run: Runner) -> None:
    result = play(
        run,
        of(leak, add, own_timeout),
        ask("leak"),
        ask("add", a=1),
        ask("own_timeout"),
        ask("add", "b", a=2),
    )
    assert [call.is_error for call in result.calls] == [True, False, True, False]
    assert [call.content for call in result.calls if not call.is_error] == ["2", "3"]


# Timeouts


async def stuck_async() -> None:
    await asyncio.sleep(30)


def stuck() -> None:
    time.sleep(30)


def stuck_in_coroutine() -> Awaitable[None]:
    return stuck_async()


async def stuck_stubborn() -> None:
    """Does not let itself be cancelled at once."""
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        await asyncio.sleep(0.5)


async def stuck_generator() -> AsyncIterator[int]:
    yield 1
    await asyncio.sleep(30)


STUCK = [stuck, stuck_async, stuck_in_coroutine, stuck_stubborn, stuck_generator]


def test_a_timeout_returns(run: Runner) -> None:
    registry = of(*STUCK, timeout=0.2)
    registry.register_tool(add)
    started = time.monotonic()
    result = play(
        run, registry, *[ask(function.__name__) for function in STUCK], ask("add", a=1)
    )
    assert time.monotonic() - started < 5
    for call in result.calls[:-1]:
        assert call.is_error
        assert repr(call.name) in call.content
        assert "0.2 seconds" in call.content
    assert result.calls[-1].content == "2"
    assert result.text == "done"


def test_the_clock_of_a_call_starts_when_it_starts(run: Runner) -> None:
    def rest() -> str:
        time.sleep(0.15)
        return "rested"

    calls = [ask("rest", str(number)) for number in range(3)]
    result = play(run, of(rest, timeout=0.4), *calls, limits=Limits(concurrency=1))
    assert contents(result) == ["rested"] * 3


def test_a_tool_can_ask_whether_it_is_still_awaited(run: Runner) -> None:
    gone = threading.Event()

    def work(context: ToolContext) -> None:
        for _ in range(500):
            if context.cancelled():
                gone.set()
                return
            time.sleep(0.01)

    (call,) = play(run, of(work, timeout=0.05), ask("work")).calls
    assert call.is_error
    assert gone.wait(5)


def test_a_coroutine_is_cancelled_at_its_timeout(run: Runner) -> None:
    seen = []

    async def work() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            seen.append("cancelled")

    play(run, of(work, timeout=0.05), ask("work"))
    deadline = time.monotonic() + 5
    while not seen and time.monotonic() < deadline:
        time.sleep(0.01)
    assert seen == ["cancelled"]


PROGRAM = """
import asyncio, time
import toolkit
from toolkit import ScriptedModel, ToolCall, ToolRegistry

def stuck():
    time.sleep(30)

async def stuck_async():
    await asyncio.sleep(30)

registry = ToolRegistry()
for function in (stuck, stuck_async):
    registry.register_tool(function, timeout=0.2)
calls = [ToolCall("a", "stuck"), ToolCall("b", "stuck_async")]
asked = {"model": ScriptedModel([calls, "done"]), "tools": registry}
"""
ENDINGS = {
    "sync": "print(toolkit.run_agent_with_tools('q', **asked))",
    "async": "print(asyncio.run(toolkit.arun_agent_with_tools('q', **asked)))",
}


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_the_process_exits_at_once_with_a_stuck_tool(ending: str) -> None:
    started = time.monotonic()
    command = [sys.executable, "-W", "error", "-c", PROGRAM + ending]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert time.monotonic() - started < 15
    assert (done.stdout, done.returncode) == ("done\n", 0)
    assert (
        "tool 'stuck' timed out in call a" in done.stderr
    )  # the log, where none is set up
    assert "Traceback" not in done.stderr


# Context variables

user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")


def who() -> str:
    return user.get()


async def who_async() -> str:
    return user.get()


def who_late() -> Iterator[str]:
    yield user.get()


def who_handed() -> Awaitable[str]:
    return who_async()


@pytest.mark.parametrize("timeout", [None, 30.0], ids=["no timeout", "timeout"])
@pytest.mark.parametrize("times", [1, 3], ids=["alone", "parallel"])
@pytest.mark.parametrize("function", [who, who_async, who_late, who_handed])
def test_context_variables_are_kept(
    run: Runner, function: Any, times: int, timeout: float | None
) -> None:
    token = user.set("ann")
    try:
        calls = [ask("who", str(number)) for number in range(times)]
        result = play(run, of(function, name="who", timeout=timeout), *calls)
    finally:
        user.reset(token)
    assert {content.strip('[]"') for content in contents(result)} == {"ann"}
    assert len(result.calls) == times


# Beside each other


class Gauge:
    """How many work at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = self.most = 0
        self.order: list[int] = []

    def __enter__(self) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: Any) -> None:
        with self.lock:
            self.now -= 1


def gauged(gauge: Gauge, kind: str) -> Any:
    def work(n: int) -> int:
        with gauge:
            gauge.order.append(n)
            time.sleep(0.03)
            return n

    async def awork(n: int) -> int:
        with gauge:
            gauge.order.append(n)
            await asyncio.sleep(0.03)
            return n

    return work if kind == "sync" else awork


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_calls_of_one_reply_overlap_and_are_answered_in_order(
    run: Runner, kind: str
) -> None:
    meeting = threading.Barrier(3, timeout=10)
    loop_meeting: list[asyncio.Event] = []

    def work(n: int) -> int:
        meeting.wait()
        time.sleep(0.03 * (3 - n))
        return n

    async def awork(n: int) -> int:
        if not loop_meeting:
            loop_meeting.append(asyncio.Event())
        if n == 2:
            loop_meeting[0].set()
        await asyncio.wait_for(loop_meeting[0].wait(), 10)
        await asyncio.sleep(0.03 * (3 - n))
        return n

    calls = [ask("work", f"c{n}", n=n) for n in range(3)]
    result = play(run, of(work if kind == "sync" else awork, name="work"), *calls)
    assert contents(result) == ["0", "1", "2"]
    (message,) = [message for message in result.messages if message.role == "tool"]
    assert [answer.call_id for answer in message.tool_results] == ["c0", "c1", "c2"]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("bound", [1, 2, 16])
def test_concurrency_is_bounded(run: Runner, kind: str, bound: int) -> None:
    gauge = Gauge()
    calls = [ask("work", f"c{n}", n=n) for n in range(5)]
    result = play(
        run,
        of(gauged(gauge, kind), name="work"),
        *calls,
        limits=Limits(concurrency=bound),
    )
    assert contents(result) == ["0", "1", "2", "3", "4"]
    assert gauge.most == min(bound, 5)


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_tool_that_is_not_parallel_runs_one_at_a_time_in_order(
    run: Runner, kind: str
) -> None:
    gauge, other = Gauge(), Gauge()
    registry = of(gauged(gauge, kind), name="alone", parallel=False)
    registry.register_tool(gauged(other, kind), name="beside")
    calls = [
        ask(name, f"{name}{n}", n=n) for n in range(4) for name in ("alone", "beside")
    ]
    play(run, registry, *calls)
    assert (gauge.most, gauge.order) == (1, [0, 1, 2, 3])
    assert other.most == 4


def test_many_calls_of_one_reply_are_all_answered(run: Runner) -> None:
    calls = [ask("add", f"c{n}", a=n) for n in range(200)]
    assert contents(play(run, of(add), *calls)) == [str(n + 1) for n in range(200)]


# Interruption


def interrupt() -> None:
    raise KeyboardInterrupt


async def interrupt_async() -> None:
    raise KeyboardInterrupt


def check_usable(run: Runner, left: Any, tools: ToolRegistry) -> list[Any]:
    """Each call of an interrupted run is answered, and a conversation goes on from it; returns the last results."""
    assert left is not None
    (results,) = [
        message.tool_results for message in left.messages if message.role == "tool"
    ]
    (asked,) = [message.tool_calls for message in left.messages if message.tool_calls]
    assert [result.call_id for result in results] == [call.id for call in asked]
    model = ScriptedModel(["continued"])
    assert run("and now?", model=model, tools=tools, history=left).text == "continued"
    assert (
        toolkit.resume(left, model=ScriptedModel(["resumed"]), tools=tools).text
        == "resumed"
    )
    return list(results)


@pytest.mark.parametrize("timeout", [None, 5.0], ids=["no timeout", "timeout"])
@pytest.mark.parametrize("function", [interrupt, interrupt_async])
def test_ctrl_c_in_a_tool_passes_with_the_run_attached(
    run: Runner, function: Any, timeout: float | None
) -> None:
    model = ScriptedModel([[ask("it", "c1")], "never"])
    registry = of(function, name="it", timeout=timeout)
    with pytest.raises(KeyboardInterrupt) as caught:
        run("q", model=model, tools=registry)
    assert len(model.requests) == 1
    (result,) = check_usable(run, getattr(caught.value, "run", None), registry)
    assert (result.is_error, result.reason) == (True, "interrupted")


def test_after_ctrl_c_async_tools_still_work(run: Runner) -> None:
    registry = of(interrupt_async, wait, timeout=5.0)
    with pytest.raises(KeyboardInterrupt):
        play(run, registry, ask("interrupt_async"))
    assert contents(play(run, registry, ask("wait"))) == ["waited"]


def test_ctrl_c_keeps_what_was_done_and_answers_what_was_open(run: Runner) -> None:
    added = threading.Event()

    def quick() -> str:
        added.set()
        return "quick"

    def interrupt_late() -> None:
        added.wait(5)
        time.sleep(0.2)
        raise KeyboardInterrupt

    registry = of(quick, interrupt_late, stuck)
    with pytest.raises(KeyboardInterrupt) as caught:
        play(run, registry, ask("quick"), ask("interrupt_late"), ask("stuck"))
    results = check_usable(run, getattr(caught.value, "run", None), registry)
    assert [(result.content, result.reason) for result in results[:1]] == [
        ("quick", "")
    ]
    assert [result.reason for result in results[1:]] == ["interrupted", "interrupted"]


def test_what_had_not_begun_at_ctrl_c_is_told_as_not_run(run: Runner) -> None:
    registry = of(interrupt, add)
    with pytest.raises(KeyboardInterrupt) as caught:
        play(
            run,
            registry,
            ask("add", a=1),
            ask("interrupt"),
            ask("add", "b", a=2),
            limits=Limits(concurrency=1),
        )
    results = check_usable(run, getattr(caught.value, "run", None), registry)
    assert [result.reason for result in results] == ["", "interrupted", "not_run"]


def test_ctrl_c_where_one_is_asked_for_approval(run: Runner) -> None:
    registry, paid = sensitive()

    def approve(call: ToolCall) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        play(
            run,
            registry,
            ask("add", a=1),
            ToolCall("c1", "pay_out_", raw='{"sum": 5}'),
            approve=approve,
        )
    results = check_usable(run, getattr(caught.value, "run", None), registry)
    assert [result.reason for result in results] == ["not_run", "not_run"]
    assert not paid


SIGNALLED = """
import sys
print("begun", flush=True)
try:
    toolkit.run_agent_with_tools("q", **asked)
except KeyboardInterrupt as error:
    print([result.reason for result in error.run.messages[-1].tool_results])
"""


@pytest.mark.slow
def test_ctrl_c_at_the_terminal_ends_the_wait_for_a_stuck_tool() -> None:
    started = time.monotonic()
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        PROGRAM.replace("timeout=0.2", "timeout=60") + SIGNALLED,
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(1.5)  # a busy machine imports for long
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (out, err) == ("['interrupted', 'interrupted']\n", "")
    assert time.monotonic() - started < 15


async def cancel_itself() -> None:
    task = asyncio.ensure_future(stuck_async())
    task.cancel()
    await task


def test_a_tool_that_is_cancelled_from_inside_leaves_a_usable_run(run: Runner) -> None:
    """Whether that is the tool's failure or the run's end, no call stays open."""
    registry = of(cancel_itself, timeout=5.0)
    try:
        (call,) = play(run, registry, ask("cancel_itself")).calls
        assert call.is_error
    except (asyncio.CancelledError, concurrent.futures.CancelledError) as error:
        check_usable(run, getattr(error, "run", None), registry)


@pytest.mark.parametrize("function", [stuck_async, stuck], ids=["async", "sync"])
def test_cancelling_the_async_run_passes_with_the_run_attached(function: Any) -> None:
    model = ScriptedModel([[ask("add", "c1", a=1), ask("it", "c2")], "never"])
    registry = of(function, name="it")
    registry.register_tool(add)
    errors = []

    async def converse() -> None:
        try:
            await toolkit.arun_agent_with_tools("q", model=model, tools=registry)
        except asyncio.CancelledError as error:
            errors.append(error)
            raise

    async def main() -> None:
        task = asyncio.create_task(converse())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - started < 5
    assert len(model.requests) == 1
    results = check_usable(
        toolkit.run_agent_with_tools, getattr(errors[0], "run", None), registry
    )
    assert [(result.content, result.reason) for result in results[:1]] == [("2", "")]
    assert [result.reason for result in results[1:]] == ["interrupted"]


# What was sent stays as it was sent


def test_a_tool_that_changes_its_arguments_changes_a_copy(run: Runner) -> None:
    def clear(items: list[int], nested: dict[str, list[int]]) -> str:
        items.clear()
        nested["x"].append(1)
        return "ok"

    arguments = {"items": [1, 2], "nested": {"x": []}}
    result = play(run, of(clear), ask("clear", **arguments))
    assert result.calls[0].arguments == {"items": [1, 2], "nested": {"x": []}}
    assert result.messages[1].tool_calls[0].arguments == {
        "items": [1, 2],
        "nested": {"x": []},
    }
    assert arguments == {"items": [1, 2], "nested": {"x": []}}


def test_an_approver_that_changes_the_arguments_does_not_change_what_runs(
    run: Runner,
) -> None:
    ran = []

    def pay(sums: list[int]) -> None:
        ran.append(sums)

    def approve(call: ToolCall) -> str:
        call.arguments["sums"].append(1_000)
        return "approve"

    result = play(
        run, of(pay, permission="sensitive"), ask("pay", sums=[5]), approve=approve
    )
    assert result.calls[0].arguments == {"sums": [5]}
    assert ran == [[5]]


# Permission


def sensitive() -> tuple[ToolRegistry, list[int]]:
    """A registry with one sensitive tool under a name that needs an alias, and what it did."""
    paid: list[int] = []
    registry = ToolRegistry()

    def pay(sum: int) -> str:
        paid.append(sum)
        return "paid"

    registry.register_tool(pay, name="pay out!", permission="sensitive")
    registry.register_tool(add)
    return registry, paid


def raising(call: ToolCall) -> Any:
    raise ValueError("the approver is broken")


async def refuse_later(call: ToolCall) -> Any:
    await asyncio.sleep(0)
    return True


class Agreeable:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("approve")


ODD: dict[str, Any] = {
    "None": None,
    "True": True,
    "1": 1,
    "yes": "yes",
    "no": "no",
    "APPROVE": "APPROVE",
    "approve with a blank": "approve ",
    "approved": "approved",
    "an object": object(),
    "equal to everything": Agreeable(),
    "a list": ["approve"],
    "a tuple": ("approve", ""),
    "bytes": b"approve",
    "a dict": {"decision": "approve"},
    "a verdict of another word": Verdict("yes"),
    "a verdict of a truth": Verdict(True),
    "a verdict of what equals everything": Verdict(Agreeable()),
    "deny": "deny",
    "a denial": Verdict("deny"),
    "defer": "defer",
    "an exception": ValueError("approve"),
}


def answering(answer: Any) -> Any:
    return lambda call: answer


APPROVERS = {name: answering(answer) for name, answer in ODD.items()} | {
    "raises": raising,
    "awaited, and odd": refuse_later,
    "there is none": None,
}
NAMES = [
    "pay out!",
    "pay_out_",
    "functions.pay out!",
    "functions.pay_out_",
    "pay_out_:0",
]


@pytest.mark.parametrize("approve", APPROVERS.values(), ids=APPROVERS)
def test_without_an_exact_approval_a_sensitive_tool_never_runs(
    run: Runner, approve: Any
) -> None:
    registry, paid = sensitive()
    calls = [
        ToolCall(f"c{number}", name, raw='{"sum": 5}')
        for number, name in enumerate(NAMES)
    ]
    calls.append(
        ToolCall("c9", "multi_tool_use.parallel", raw=PARALLEL % (1, "pay_out_"))
    )
    result = play(run, registry, *calls, approve=approve)
    assert not paid
    assert "paid" not in contents(result)
    if result.stop_reason == "awaiting_approval":
        assert not result.calls


@pytest.mark.parametrize(
    "approve", [answering("approve"), answering(Verdict("approve")), approve_later]
)
@pytest.mark.parametrize("name", NAMES)
def test_with_an_exact_approval_it_runs_once(
    run: Runner, approve: Any, name: str
) -> None:
    registry, paid = sensitive()
    result = play(
        run, registry, ToolCall("c1", name, raw='{"sum": 5}'), approve=approve
    )
    assert paid == [5]
    assert [(call.name, call.verdict) for call in result.calls] == [
        ("pay out!", "approve")
    ]


def test_inside_a_parallel_call_a_sensitive_tool_waits_as_well(run: Runner) -> None:
    registry, paid = sensitive()
    raw = '{"tool_uses": [{"recipient_name": "functions.pay_out_", "parameters": {"sum": 5}}]}'
    result = play(run, registry, ToolCall("c1", "multi_tool_use.parallel", raw=raw))
    assert [call.name for call in result.waiting] == ["pay out!"]
    assert not paid


def test_a_verdict_counts_for_its_own_call_only(run: Runner) -> None:
    registry, paid = sensitive()
    calls = [
        ToolCall("c1", "pay_out_", raw='{"sum": 5}'),
        ToolCall("c1", "pay_out_", raw='{"sum": 6}'),
    ]
    result = play(
        run,
        registry,
        *calls,
        approve=lambda call: "approve" if call.id == "c1" else "deny",
    )
    assert paid == [5]
    assert [call.verdict for call in result.calls] == ["approve", "deny"]


MENDED = [
    '{"sums": [5, 6]}',
    '{"arguments": {"sums": [5, 6]}}',
    '{"sums": "[5, 6]"}',
    '{"sums": [5, 6], "note": null}',
]


@pytest.mark.parametrize("raw", MENDED)
def test_who_approves_sees_what_will_run(run: Runner, raw: str) -> None:
    seen: list[Any] = []
    paid: list[Any] = []

    def pay(sums: list[int], note: str = "") -> None:
        paid.append(sums)

    def approve(call: ToolCall) -> str:
        seen.append((call.name, dict(call.arguments)))
        return "approve"

    play(
        run,
        of(pay, permission="sensitive"),
        ToolCall("c1", "functions.pay", raw=raw),
        approve=approve,
    )
    assert seen == [("pay", {"sums": [5, 6], "note": ""})]
    assert paid == [[5, 6]]


def test_nobody_is_asked_about_a_call_that_cannot_run(run: Runner) -> None:
    registry, paid = sensitive()
    asked: list[str] = []
    calls = [
        ToolCall("c1", "pay_out_", raw='{"sum": "five"}'),
        ToolCall("c2", "pay_out_", raw='{"sum": 5'),
    ]
    result = play(
        run, registry, *calls, approve=lambda call: asked.append(call.id) or "approve"
    )
    assert not asked
    assert not paid
    assert all(call.is_error for call in result.calls)


def test_nobody_is_asked_about_a_call_that_nobody_can_read_though_its_defaults_would_do(
    run: Runner,
) -> None:
    asked: list[str] = []

    def launch(count: int = 1) -> str:
        return "launched"

    registry = of(launch, permission="sensitive")
    result = play(
        run,
        registry,
        ToolCall("c1", "launch", raw='{"count": 5'),
        approve=lambda call: asked.append(call.id),
    )
    assert not asked
    assert result.calls[0].is_error


def test_a_denial_tells_its_reason(run: Runner) -> None:
    registry, _ = sensitive()
    call = ToolCall("c1", "pay_out_", raw='{"sum": 5}')
    result = play(run, registry, call, approve=answering(Verdict("deny", "too dear")))
    (call,) = result.calls
    assert call.is_error
    assert "denied" in call.content
    assert "too dear" in call.content
    assert (call.verdict, result.text) == ("deny", "done")


def test_an_approver_that_raises_is_logged(
    run: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    registry, _ = sensitive()
    with caplog.at_level(logging.ERROR, "toolkit"):
        play(
            run, registry, ToolCall("c1", "pay_out_", raw='{"sum": 5}'), approve=raising
        )
    assert "the approver is broken" in caplog.text


@pytest.mark.parametrize("permission", ["read", "write"])
def test_other_tiers_run_without_a_verdict(run: Runner, permission: Any) -> None:
    result = play(run, of(add, permission=permission), ask("add", a=1), approve=raising)
    assert contents(result) == ["2"]


# One call without a model

DIRECT = {
    "runs": ("add", '{"a": 1}', None, False),
    "with a wrapper": ("functions.add", {"arguments": {"a": 1}}, None, False),
    "unknown": ("sub", "{}", None, True),
    "wrong": ("add", "{", None, True),
    "sensitive, undecided": ("pay out!", {"sum": 1}, None, True),
    "sensitive, denied": ("pay out!", {"sum": 1}, Verdict("deny"), True),
    "sensitive, an odd verdict": ("pay out!", {"sum": 1}, "approve", True),
    "sensitive, approved": ("pay out!", {"sum": 1}, Verdict("approve"), False),
}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["call", "acall"])
@pytest.mark.parametrize(
    ("name", "arguments", "verdict", "is_error"), DIRECT.values(), ids=DIRECT
)
def test_a_registry_runs_one_call(
    name: str, arguments: Any, verdict: Any, is_error: bool, asynchronous: bool
) -> None:
    registry, paid = sensitive()
    if asynchronous:
        result = asyncio.run(registry.acall(name, arguments, verdict=verdict))
    else:
        result = registry.call(name, arguments, verdict=verdict)
    assert result.is_error == is_error
    assert bool(paid) == (name == "pay out!" and not is_error)


def test_a_sync_run_inside_an_async_tool_has_a_loop_of_its_own(run: Runner) -> None:
    """Also on the private loop that async tools of the sync driver share."""

    async def research() -> str:
        inner = play(toolkit.run_agent_with_tools, of(wait, timeout=2.0), ask("wait"))
        return inner.calls[0].content

    assert contents(play(run, of(research), ask("research"))) == ["waited"]


# What validators of the user's do


def check(text: str) -> str:
    """A validator that raises what no validator should."""
    failures = {
        "key": KeyError("postgres://app:HUNTER2@10.0.0.5/db"),
        "spoken": ToolError("Give a port."),
        "leak": ValueError("no connection to postgres://app:HUNTER2@10.0.0.5/db"),
    }
    if text in failures:
        raise failures[text]
    return text


def checked(text: Annotated[str, AfterValidator(check)]) -> str:
    return text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("key", "KeyError while it was checked", id="an odd exception"),
        pytest.param("spoken", "Give a port.", id="it speaks"),
        pytest.param("leak", "no connection to [connection]", id="a secret"),
    ],
)
@pytest.mark.parametrize("permission", ["write", "sensitive"])
def test_a_validator_that_raises_is_an_answer(
    run: Runner, text: str, told: str, permission: str
) -> None:
    registry = ToolRegistry()
    registry.register_tool(checked, permission=permission)
    calls = [ToolCall("a", "checked", {"text": text})]
    (record,) = run("q", model=ScriptedModel([calls, "done"]), tools=registry).calls
    assert record.is_error
    assert told in record.content
    assert "HUNTER2" not in record.content
    assert told in registry.call("checked", {"text": text}).content


def leave_with_a_word() -> None:
    sys.exit("cannot open postgres://app:HUNTER2@10.0.0.5/db")


def cancel_plainly() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("function", "told"),
    [(leave_with_a_word, "SystemExit"), (cancel_plainly, "The tool cancelled itself.")],
)
def test_a_tool_that_ends_itself_is_an_answer(
    run: Runner, function: Any, told: str
) -> None:
    (record,) = run(
        "q",
        model=ScriptedModel([[ToolCall("a", function.__name__)], "done"]),
        tools=[function],
    ).calls
    assert told in record.content
    assert "HUNTER2" not in record.content


@pytest.mark.parametrize("arguments", ["{}", {}], ids=["text", "object"])
def test_a_denied_call_does_not_run(arguments: Any) -> None:
    registry = ToolRegistry()
    registry.register_tool(leave_with_a_word, timeout=None)
    result = registry.call(
        "leave_with_a_word", arguments, verdict=Verdict("deny", "no")
    )
    assert (result.reason, result.is_error) == ("denied", True)


def test_a_sink_cannot_change_what_runs(run: Runner) -> None:
    """Least of all what was approved."""

    def redact(event: Any) -> None:
        if event.name == "tool_call_request":
            event.data["arguments"]["text"] = "[hidden]"

    registry = ToolRegistry()
    registry.register_tool(checked, permission="sensitive")
    calls = [ToolCall("a", "checked", {"text": "fine"})]
    model = ScriptedModel([calls, "done"])
    result = run(
        "q",
        model=model,
        tools=registry,
        approve=lambda call: "approve",
        on_event=redact,
    )
    assert (result.calls[0].content, result.calls[0].arguments) == (
        "fine",
        {"text": "fine"},
    )


def test_what_a_tool_raises_is_bounded_too(run: Runner) -> None:
    def complain() -> None:
        raise ToolError("x" * 9_000)

    model = ScriptedModel([[ToolCall("a", "complain")], "done"])
    (record,) = run(
        "q", model=model, tools=[complain], limits=Limits(result_chars=200)
    ).calls
    assert len(record.content) <= 200


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_tool_gives_its_value_and_its_text(run: Runner, is_async: bool) -> None:
    def weigh() -> ToolReturn:
        return ToolReturn({"grams": 5}, "five grams" + "!" * 9_000)

    async def aweigh() -> ToolReturn:
        return weigh()

    tool = aweigh if is_async else weigh
    model = ScriptedModel([[ToolCall("a", tool.__name__)], "done"])
    (record,) = run(
        "q", model=model, tools=[tool], limits=Limits(result_chars=200)
    ).calls
    assert record.value == {"grams": 5}
    assert record.content.startswith("five grams!")
    assert len(record.content) <= 200


class SlowToWrite:
    """Writing it down takes longer than the tool may take."""

    def to_dict(self) -> dict[str, int]:
        time.sleep(5)
        return {}


def test_writing_a_result_down_is_part_of_the_tools_time(run: Runner) -> None:
    def make() -> SlowToWrite:
        return SlowToWrite()

    registry = ToolRegistry()
    registry.register_tool(make, timeout=0.2)
    started = time.monotonic()
    (record,) = run(
        "q", model=ScriptedModel([[ToolCall("a", "make")], "done"]), tools=registry
    ).calls
    assert time.monotonic() - started < 4
    assert "did not finish" in record.content
