"""One call: parse, validate, permit, run, render.

Each stage can answer the model instead of raising. Plain functions run in daemon threads that are
used again (or, without a timeout, on the caller's own thread), so that a stuck tool holds up neither
the run nor the end of the process; coroutine functions run on the caller's event loop, or, where
there is none, on one private loop. What decides is written once; only what waits has an async twin.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import contextvars
import functools
import inspect
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from toolkit.calls import parsing, threads
from toolkit.calls.policy import pending_call, refusal_of
from toolkit.calls.protocols import UNWATCHED, Watch
from toolkit.calls.receiving import validate_call
from toolkit.calls.rendering import explain, redact, render
from toolkit.errors import ToolError
from toolkit.events import current_call
from toolkit.messages import (
    Limits,
    PendingCall,
    Permission,
    ToolCall,
    ToolContext,
    ToolResult,
    ToolReturn,
)
from toolkit.runs.loop import Run
from toolkit.tools.schema import InvalidArguments
from toolkit.tools.tool import FunctionTool, Tool, Toolset

_log = logging.getLogger("toolkit")
_SPOKEN = ("value_error", "assertion_error")  # of a validator, which may tell anything
_PLAIN = (str, dict, list, int, float, bool, type(None))
_MOST_ITEMS = 1_000  # of what a generator yields

Done = dict[str, ToolResult]


def run_calls(
    calls: tuple[ToolCall, ...],
    tools: Toolset,
    run: Run,
    deps: Any,
    done: Done,
    watch: Watch = UNWATCHED,
) -> tuple[ToolResult, ...]:
    """Run the calls of one reply; return their results in the order of the calls. Fills `done` as results come in."""
    batch = _Batch(run, done, watch)
    ready = _prepare_all(calls, tools, deps, batch)
    if (
        len(ready) == 1
        and ready[0].tool.timeout is None
        and not ready[0].tool.is_async
        and watch.halt is threads.NEVER
    ):
        batch.begin(ready)
        batch.end(ready[0], _run_here(ready[0]))
    elif ready:
        with (
            contextlib.suppress(StopIteration),
            contextlib.closing(_schedule(ready, _start, batch)) as schedule,
        ):
            wanted = next(schedule)
            while True:
                finished = concurrent.futures.wait(
                    *wanted, concurrent.futures.FIRST_COMPLETED
                ).done
                wanted = schedule.send(finished)
    return tuple(done[call.id] for call in calls)


async def arun_calls(
    calls: tuple[ToolCall, ...],
    tools: Toolset,
    run: Run,
    deps: Any,
    done: Done,
    watch: Watch = UNWATCHED,
) -> tuple[ToolResult, ...]:
    """As `run_calls`; coroutine functions run on the running event loop."""
    import asyncio  # here and below: its import takes as long as all of the toolkit's

    batch = _Batch(run, done, watch)
    ready = _prepare_all(calls, tools, deps, batch)
    if ready:
        with (
            contextlib.suppress(StopIteration),
            contextlib.closing(_schedule(ready, _astart, batch)) as schedule,
        ):
            wanted = next(schedule)
            while True:
                # wait, not wait_for: a tool that is slow to clean up would delay its own timeout.
                finished, _ = await asyncio.wait(
                    wanted[0], timeout=wanted[1], return_when=asyncio.FIRST_COMPLETED
                )
                wanted = schedule.send(finished)
    return tuple(done[call.id] for call in calls)


def run_text(tool: Tool, text: str, deps: Any) -> ToolResult | None:
    """Run one call at once, on this thread, where its text fits the tool as it is; None where it needs more care."""
    if tool.timeout is not None or tool.is_async or tool.permission == "sensitive":
        return None
    if (values := tool.signature.read(text)) is None:
        return None
    call = ToolCall("call", tool.name, raw=text)
    context = ToolContext(call.id, deps=deps) if tool.signature.context else None
    pending = PendingCall(call.id, call.name)  # no journal is told of it
    one = _Ready(call, tool, values, context, call, pending, Limits().result_chars)
    one.started = one.queued
    return _run_here(one)


@dataclass(slots=True, eq=False)
class _Ready:
    """A call that may run: its validated values, and the clock of its run."""

    call: ToolCall
    tool: Tool
    values: dict[str, Any]
    context: ToolContext | None
    mended: ToolCall
    pending: PendingCall
    limit: int
    enter: tuple[Callable[[str], None], ...] = ()
    queued: float = field(default_factory=time.perf_counter)
    started: float = 0.0
    abandoned: bool = False


@dataclass(frozen=True, slots=True)
class _Batch:
    """The calls of one reply while they run: their results so far, and who is told of them."""

    run: Run
    done: Done
    watch: Watch

    def begin(self, ones: list[_Ready]) -> None:
        try:
            for journal in self.watch.journals:
                journal.began(
                    self.run.id, self.run.turns, [one.pending for one in ones]
                )
        except BaseException:
            self.done.update({one.call.id: _stopped(one) for one in ones})
            raise
        for one in ones:
            one.started, one.enter = time.perf_counter(), self.watch.enter

    def end(self, one: _Ready, result: ToolResult) -> None:
        self.done[one.call.id] = result
        for journal in self.watch.journals:
            journal.ended(self.run.id, self.run.turns, one.pending, result)


def _prepare_all(
    calls: tuple[ToolCall, ...], tools: Toolset, deps: Any, batch: _Batch
) -> list[_Ready]:
    ready = []
    batch.done.update(batch.run.settled)
    for call in (call for call in calls if call.id not in batch.run.settled):
        match _prepare(call, tools, batch.run, deps, batch.watch.asked):
            case ToolResult() as result:
                batch.done[call.id] = result
                for journal in (
                    batch.watch.journals if result.reason == "denied" else ()
                ):
                    journal.ended(
                        batch.run.id,
                        batch.run.turns,
                        pending_call(call, tools[call.name], batch.run),
                        result,
                    )
            case made:
                ready.append(made)
    return ready


def _prepare(
    call: ToolCall, tools: Toolset, run: Run, deps: Any, asked: Collection[Permission]
) -> _Ready | ToolResult:
    tool = tools.get(call.name)
    if tool is None:
        known = [tool.wire_name for tool in tools.values()]
        return _malformed(
            call, parsing.unknown_tool(call.name, known, _attempts_left(run))
        )
    try:
        values, mended = validate_call(call, tool)
    except InvalidArguments as error:
        errors = [
            {**e, "msg": redact(e["msg"])} if e["type"] in _SPOKEN else e
            for e in error.errors
        ]
        return _malformed(
            call,
            parsing.complain(
                tool.wire_name, errors, tool.parameters, _attempts_left(run)
            ),
        )
    if refusal := refusal_of(
        mended, run, tool.permission in asked and tool.name != run.output
    ):
        return ToolResult(call.id, refusal, is_error=True, reason="denied")
    if run.mode == "plan" and tool.permission != "read" and call.name != run.output:
        text = "Planned, and not run yet: it will run once the plan is approved. Go on as if it succeeded."
        return ToolResult(
            call.id,
            text,
            reason="planned",
            repairs=mended.repairs,
            arguments=mended.arguments,
        )
    pending = pending_call(mended, tool, run)
    ready = _Ready(call, tool, values, None, mended, pending, run.limits.result_chars)
    if tool.signature.context:
        ready.context = ToolContext(
            call.id, run.id, run.turns, deps, lambda: ready.abandoned
        )
    return ready


def _attempts_left(run: Run) -> int | None:
    return (
        run.attempts_left if run.id else None
    )  # a call without a run has no next attempt


def _malformed(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, text, is_error=True, reason="malformed")


_Schedule = Generator[tuple[set[Any], float | None], set[Any], None]


def _schedule(
    ready: list[_Ready], start: Callable[[_Ready], Any], batch: _Batch
) -> _Schedule:
    """Start calls, as many at once as the limit says, and judge them as they end; yields what to wait for, how long."""
    waiting = deque(one for one in ready if one.tool.parallel)
    in_line = deque(
        one for one in ready if not one.tool.parallel
    )  # one at a time, in order
    running = dict[Any, _Ready]()
    halt = batch.watch.halt
    try:
        while (waiting or in_line or running) and not (why := halt.reason):
            if begun := _next_to_start(
                waiting, in_line, running, batch.run.limits.concurrency
            ):
                batch.begin(begun)
                running |= {start(one): one for one in begun}
            ends = [
                one.started + one.tool.timeout
                for one in running.values()
                if one.tool.timeout is not None
            ]
            finished = yield (
                set(running),
                halt.patience(
                    max(min(ends) - time.perf_counter(), 0.0) if ends else None
                ),
            )
            for future in finished:
                one = running.pop(future)
                cancelled = (
                    _Raised(ToolError("The tool cancelled itself."))
                    if future.cancelled()
                    else None
                )
                batch.end(one, _judge(one, cancelled or future.result()))
            now = time.perf_counter()
            for future, one in list(running.items()):
                if (
                    one.tool.timeout is not None
                    and now >= one.started + one.tool.timeout
                    and not future.done()
                ):
                    del running[future]
                    _abandon(future, one)
                    batch.end(one, _timed_out(one))
        while running:
            future, one = running.popitem()
            _abandon(future, one)
            batch.end(one, _result(one, _HALTED[why], "interrupted"))
    finally:
        for future, one in running.items():
            _abandon(future, one)
        for one in (*waiting, *in_line):
            batch.done[one.call.id] = _stopped(one)


def _stopped(one: _Ready) -> ToolResult:
    return ToolResult(
        one.call.id, "Not run: the run was stopped.", is_error=True, reason="not_run"
    )


_HALTED = {
    "cancelled": "Interrupted: the run was cancelled; the tool may still be at work.",
    "limit_reached": "Interrupted: the time of this run is over; the tool may still be at work.",
}


def _next_to_start(
    waiting: deque[_Ready],
    in_line: deque[_Ready],
    running: dict[Any, _Ready],
    most: int,
) -> list[_Ready]:
    begun: list[_Ready] = []
    is_free = all(one.tool.parallel for one in running.values())
    while (waiting or (in_line and is_free)) and len(running) + len(begun) < most:
        one = in_line.popleft() if in_line and is_free else waiting.popleft()
        is_free = is_free and one.tool.parallel
        begun.append(one)
    return begun


def _abandon(future: Any, one: _Ready) -> None:
    one.abandoned = True
    future.add_done_callback(
        lambda ended: ended.cancelled() or ended.exception()
    )  # or asyncio complains of it
    future.cancel()


def _start(one: _Ready) -> concurrent.futures.Future[Any]:
    if one.tool.is_async:
        return threads.run_coroutine(_acall(one))
    return threads.start(functools.partial(_call, one))


def _astart(one: _Ready) -> Any:
    import asyncio

    return asyncio.ensure_future(
        _acall(one) if one.tool.is_async else _call_in_thread(one)
    )


async def _call_in_thread(one: _Ready) -> Any:
    import asyncio

    context = contextvars.copy_context()
    came = await asyncio.wrap_future(
        threads.start(functools.partial(context.run, _call, one, settle=False))
    )
    for (
        variable,
        value,
    ) in context.items():  # what is still to be awaited goes on where the call began
        variable.set(value)
    return await _finish(came, one)


@dataclass(frozen=True, slots=True)
class _Raised:
    """What a tool raised, as a value: raised, StopIteration would break a future, SystemExit end an event loop."""

    error: BaseException


def _enter(one: _Ready) -> None:
    """Mark the context, which is the call's own."""
    current_call.set(one.call.id)
    threads.abandoned.set(lambda: one.abandoned)
    for enter in one.enter:
        try:
            enter(one.call.id)
        except Exception:
            _log.exception("an event sink failed on entering call %s", one.call.id)


def _call(one: _Ready, *, settle: bool = True) -> Any:
    """Call a plain function; what it returns to be awaited is awaited here, or by the caller."""
    _enter(one)
    try:
        value = one.tool.call(one.values, one.context)
        if type(value) not in _PLAIN:
            if inspect.isawaitable(value) or hasattr(value, "__aiter__"):
                return (
                    threads.run_coroutine(_finish(value, one)).result()
                    if settle
                    else value
                )
            return _rendered(value, one)
        return ToolReturn(value, render(value, one.limit))
    except BaseException as error:
        return _Raised(error)


async def _acall(one: _Ready) -> Any:
    return await _finish(_call(one, settle=False), one)


async def _finish(value: Any, one: _Ready) -> Any:
    """Await what a call left to be awaited."""
    from asyncio import CancelledError

    if isinstance(value, ToolReturn | _Raised):
        return value
    try:
        if inspect.isawaitable(value):
            value = await value
        if hasattr(value, "__aiter__"):
            items = []
            async for item in value:
                items.append(item)
                if len(items) > _MOST_ITEMS:
                    break
            value = _bounded(items)
        return _rendered(value, one)
    except CancelledError:
        raise
    except BaseException as error:
        return _Raised(error)


def _rendered(value: Any, one: _Ready) -> ToolReturn:
    if isinstance(value, ToolReturn):
        return ToolReturn(value.value, render(value.text, one.limit))
    if isinstance(
        value, Iterator
    ):  # its items are made while the tool runs, not while its result is written down
        value = _bounded(list(itertools.islice(value, _MOST_ITEMS + 1)))
    return ToolReturn(value, render(value, one.limit))


def _bounded(items: list[Any]) -> list[Any]:
    return (
        items
        if len(items) <= _MOST_ITEMS
        else [*items[:_MOST_ITEMS], f"… (cut after {_MOST_ITEMS:,} items)"]
    )


def _run_here(one: _Ready) -> ToolResult:
    return _judge(one, contextvars.copy_context().run(_call, one))


def _judge(one: _Ready, outcome: Any) -> ToolResult:
    """What came of a call, as its result. KeyboardInterrupt is raised again."""
    if isinstance(outcome, ToolReturn):
        return _result(one, outcome.text, value=outcome.value)
    from asyncio import CancelledError

    error = outcome.error
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(
        error, CancelledError
    ):  # the tool's own; that of the run arrives where it waits
        error = ToolError("The tool cancelled itself.")
    if isinstance(error, SystemExit) and isinstance(
        error.code, int | None
    ):  # as functions for the command line do
        error = ToolError(f"The tool ended itself with exit status {error.code}.")
    function = (
        one.tool.function if isinstance(one.tool, FunctionTool) else type(one.tool).run
    )
    spoken = isinstance(error, ToolError)
    level = logging.INFO if spoken else logging.ERROR
    _log.log(
        level,
        "tool %r failed in call %s",
        one.tool.name,
        one.call.id,
        exc_info=None if spoken else error,
    )
    text = explain(
        error, one.tool.name, function, reference="" if spoken else one.call.id
    )
    return _result(one, render(text, one.limit), "failed")


def _timed_out(one: _Ready) -> ToolResult:
    _log.error("tool %r timed out in call %s", one.tool.name, one.call.id)
    text = f"The tool {one.tool.name!r} did not finish within {one.tool.timeout:g} seconds; it may still be at work."
    return _result(one, text, "timeout")


def _result(one: _Ready, text: str, reason: str = "", value: Any = None) -> ToolResult:
    repairs, got = (
        (one.mended.repairs, one.mended.arguments)
        if one.mended is not one.call
        else ((), None)
    )
    started, seconds = one.started - one.queued, time.perf_counter() - one.started
    return ToolResult(
        one.call.id, text, bool(reason), reason, repairs, got, started, seconds, value
    )
