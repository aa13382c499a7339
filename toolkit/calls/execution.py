"""One batch of calls: started in order, several at once, each answered by its timeout at the latest.

A plain function runs in a daemon thread that is used again (or, if it has no timeout, on the caller's
own thread), so that a stuck tool keeps neither the run nor the process waiting. A coroutine function
runs on the caller's event loop, or on one private loop if there is none. The order, the bounds and the
results are decided in one place, `_schedule`; only waiting has an async twin.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from collections import deque
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkit.calls import invocation, threads
from toolkit.calls.invocation import Invocation
from toolkit.calls.policy import Policy
from toolkit.calls.protocols import Journal
from toolkit.calls.validation import CheckedCall
from toolkit.messages import Limits, ToolContext, ToolResult, Verdict
from toolkit.tools.tool import Toolset

Results = dict[str, ToolResult]
"""The results of a batch so far, by call id."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What the calls of one reply share while they run.

    `journals` are told of each call and may stop the run. `entries` are told a call's id in the
    context in which its tool runs. `verdicts` are shown to the journals.
    """

    run_id: str = ""
    turn: int = 0
    deps: Any = None
    limits: Limits = field(default_factory=Limits)
    halt: threads.Halt = threads.NEVER
    journals: tuple[Journal, ...] = ()
    entries: tuple[Callable[[str], None], ...] = ()
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)

    def invocation(self, checked: CheckedCall) -> Invocation:
        """The run of a valid call."""
        tool = checked.tool
        assert tool is not None
        timeout, limit = tool.timeout, self.limits.tool_seconds
        if limit is not None:
            timeout = limit if timeout is None else min(timeout, limit)
        chars = self.limits.result_chars
        run = Invocation(checked, tool, chars, timeout, entries=self.entries)
        if tool.signature.context:
            run.context = ToolContext(
                run.id, self.run_id, self.turn, self.deps, lambda: run.is_abandoned
            )
        return run

    def began(self, invocations: Sequence[Invocation]) -> None:
        if self.journals:
            calls = [self._pending(each.checked) for each in invocations]
            for journal in self.journals:
                journal.began(self.run_id, self.turn, calls)
        for each in invocations:
            each.started = time.perf_counter()

    def ended(self, checked: CheckedCall, result: ToolResult) -> None:
        for journal in self.journals:
            call = self._pending(checked)
            journal.ended(self.run_id, self.turn, call, result)

    def _pending(self, checked: CheckedCall) -> Any:
        return checked.pending(self.verdicts.get(checked.call.id))


def permitted_calls(
    calls: Sequence[CheckedCall],
    policy: Policy,
    batch: Batch,
    results: Results,
    *,
    tools: Toolset,
    held: Container[str] = (),
    attempts_left: int | None = None,
) -> list[CheckedCall]:
    """The calls that may run. The others are answered at once, in `results`.

    `held` are the ids of calls that needed a verdict at some time. The answers name the `tools`
    and the attempts that are left.
    """
    permitted: list[CheckedCall] = []
    for checked in calls:
        call_id = checked.call.id
        answer = policy.answer(
            checked,
            batch.verdicts.get(call_id),
            is_held=call_id in held,
            attempts_left=attempts_left,
            tools=tools,
        )
        if answer is None:
            permitted.append(checked)
            continue
        results[call_id] = answer
        if answer.reason == "denied":
            batch.ended(checked, answer)
    return permitted


def run_calls(calls: Sequence[CheckedCall], batch: Batch, results: Results) -> None:
    """Run valid calls and add a result for each to `results` as it comes in."""
    ready = [batch.invocation(checked) for checked in calls]
    if len(ready) == 1 and _runs_on_this_thread(ready[0], batch):
        _begin(ready, batch, results)
        _end(ready[0], invocation.invoke(ready[0]), batch, results)
        return
    schedule = _schedule(ready, invocation.start, batch, results)
    with contextlib.suppress(StopIteration), contextlib.closing(schedule):
        futures, timeout = next(schedule)
        while True:
            done, _ = concurrent.futures.wait(
                futures, timeout, concurrent.futures.FIRST_COMPLETED
            )
            futures, timeout = schedule.send(done)


async def arun_calls(
    calls: Sequence[CheckedCall], batch: Batch, results: Results
) -> None:
    """As `run_calls`, with coroutine functions on the running event loop."""
    import asyncio  # importing it takes as long as importing the whole toolkit

    ready = [batch.invocation(checked) for checked in calls]
    schedule = _schedule(ready, invocation.start_on_loop, batch, results)
    with contextlib.suppress(StopIteration), contextlib.closing(schedule):
        futures, timeout = next(schedule)
        while True:
            # Not wait_for: a tool that is slow to clean up would delay its own timeout.
            done, _ = await asyncio.wait(
                futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            futures, timeout = schedule.send(done)


def _runs_on_this_thread(ready: Invocation, batch: Batch) -> bool:
    has_no_timeout = ready.timeout is None and batch.halt is threads.NEVER
    return has_no_timeout and not ready.tool.is_async


_Schedule = Generator[tuple[set[Any], float | None], set[Any], None]


def _schedule(
    ready: list[Invocation],
    start: Callable[[Invocation], Any],
    batch: Batch,
    results: Results,
) -> _Schedule:
    """Start calls, as many at once as the limit allows, and answer each.

    Yields the futures to wait for and the timeout in seconds; is sent the futures that are done.
    """
    parallel = deque(call for call in ready if call.tool.parallel)
    serial = deque(call for call in ready if not call.tool.parallel)
    running: dict[Any, Invocation] = {}
    halt = batch.halt
    try:
        why = halt.reason
        while (parallel or serial or running) and not why:
            starting = _next_calls(parallel, serial, running, batch.limits.concurrency)
            if starting:
                _begin(starting, batch, results)
                running |= {start(call): call for call in starting}
            done = yield set(running), halt.timeout(_seconds_left(running))
            for future in done:
                call = running.pop(future)
                _end(call, _result(future, call), batch, results)
            for future, call in _late(running):
                del running[future]
                call.abandon(future)
                _end(call, invocation.timed_out(call), batch, results)
            why = halt.reason
        while running:
            future, call = running.popitem()
            result = _interrupted(future, call, why)
            _end(call, result, batch, results)
    finally:
        for future, call in running.items():
            call.abandon(future)
        for call in (*parallel, *serial):
            results[call.id] = _not_run(call)


def _interrupted(future: Any, call: Invocation, why: str) -> ToolResult:
    """The result of a call that the run no longer waits for. What has ended keeps its result."""
    if future.done():
        return _result(future, call)
    call.abandon(future)
    return call.result(_INTERRUPTED[why], "interrupted")


_INTERRUPTED = {
    "cancelled": "Interrupted: the run was cancelled; the tool may still be at work.",
    "limit_reached": "Interrupted: the time of this run is over; the tool may still be at work.",
}


def _next_calls(
    parallel: deque[Invocation],
    serial: deque[Invocation],
    running: dict[Any, Invocation],
    concurrency: int,
) -> list[Invocation]:
    """The calls that start now. Calls of serial tools run one at a time, in order."""
    starting: list[Invocation] = []
    may_start_serial = all(call.tool.parallel for call in running.values())
    while len(running) + len(starting) < concurrency:
        if serial and may_start_serial:
            starting.append(serial.popleft())
            may_start_serial = False
        elif parallel:
            starting.append(parallel.popleft())
        else:
            break
    return starting


def _begin(calls: list[Invocation], batch: Batch, results: Results) -> None:
    try:
        batch.began(calls)
    except BaseException:
        results.update({call.id: _not_run(call) for call in calls})
        raise


def _end(call: Invocation, result: ToolResult, batch: Batch, results: Results) -> None:
    results[call.id] = result
    batch.ended(call.checked, result)


def _result(future: Any, call: Invocation) -> ToolResult:
    if future.cancelled():
        return invocation.cancelled_itself(call)
    return invocation.as_result(call, future.result())


def _seconds_left(running: dict[Any, Invocation]) -> float | None:
    """Seconds until the first running call times out; None if none has a timeout."""
    deadlines = [call.deadline for call in running.values()]
    first = min((each for each in deadlines if each is not None), default=None)
    return None if first is None else max(first - time.perf_counter(), 0.0)


def _late(running: dict[Any, Invocation]) -> list[tuple[Any, Invocation]]:
    now = time.perf_counter()
    return [
        (future, call)
        for future, call in running.items()
        if call.deadline is not None and now >= call.deadline and not future.done()
    ]


def _not_run(call: Invocation) -> ToolResult:
    text = "Not run: the run was stopped."
    return ToolResult(call.id, text, is_error=True, reason="not_run")
