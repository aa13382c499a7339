"""The drivers: perform the steps that the loop names, plainly and with `await`; nothing here decides."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import inspect
import logging
import threading
import time
from collections.abc import Awaitable
from typing import Any, cast, get_args

from toolkit import events
from toolkit.calls import threads
from toolkit.calls.execution import Done, arun_calls, run_calls
from toolkit.calls.policy import pending_call
from toolkit.calls.protocols import Journal
from toolkit.calls.receiving import receive
from toolkit.errors import ToolsRefused
from toolkit.messages import Decision, Reply, ToolCall, Verdict
from toolkit.runs import loop, reporting
from toolkit.runs.context import Setting
from toolkit.runs.loop import (
    AskApproval,
    CallModel,
    CallTools,
    Gate,
    Outcome,
    Run,
    Step,
    Stop,
)
from toolkit.runs.results import RunResult
from toolkit.tools.request import Request
from toolkit.tools.tool import Tool

_log = logging.getLogger("toolkit")


class _Halted(BaseException):
    """A wait ended before its time."""


def drive(run: Run, setting: Setting) -> RunResult:
    done: Done = {}
    step: Step | None = None
    gate = setting.gate(run)
    try:
        events.tell(
            setting.sinks,
            reporting.run_started(
                run, setting.model.name, setting.model.provider, setting.tools
            ),
        )
        while not isinstance(step := setting.next_step(run, gate), Stop):
            done.clear()
            shown = _shown(run, step, setting)
            if setting.sinks:
                events.tell(
                    setting.sinks,
                    reporting.step_began(run, step, setting.model.name, len(shown)),
                )
            started = time.perf_counter()
            try:
                outcome = _perform(step, run, setting, shown, done)
            except ToolsRefused as error:
                run = setting.switch_route(run, error)
                continue
            except _Halted as halted:
                step = Stop(halted.args[0], "Not run: the run was stopped.")
                break
            run = setting.advance(run, step, outcome, time.perf_counter() - started)
        return _finish(run, step, gate, setting)
    except BaseException as error:
        _attach(error, run, step, done, setting)
        raise
    finally:
        if setting.store:
            setting.store.release(run.id)


async def adrive(run: Run, setting: Setting) -> RunResult:
    done: Done = {}
    step: Step | None = None
    gate = setting.gate(run)
    try:
        events.tell(
            setting.sinks,
            reporting.run_started(
                run, setting.model.name, setting.model.provider, setting.tools
            ),
        )
        while not isinstance(step := setting.next_step(run, gate), Stop):
            done.clear()
            shown = await _ashown(run, step, setting)
            if setting.sinks:
                events.tell(
                    setting.sinks,
                    reporting.step_began(run, step, setting.model.name, len(shown)),
                )
            started = time.perf_counter()
            try:
                outcome = await _aperform(step, run, setting, shown, done)
            except ToolsRefused as error:
                run = setting.switch_route(run, error)
                continue
            except _Halted as halted:
                step = Stop(halted.args[0], "Not run: the run was stopped.")
                break
            run = setting.advance(run, step, outcome, time.perf_counter() - started)
        return _finish(run, step, gate, setting)
    except BaseException as error:
        _attach(error, run, step, done, setting)
        raise
    finally:
        if setting.store:
            setting.store.release(run.id)


_Act = CallModel | AskApproval | CallTools


def _perform(
    step: _Act, run: Run, setting: Setting, shown: tuple[Tool, ...], done: Done
) -> Outcome:
    if isinstance(step, CallModel):
        return receive(
            _ask_model(step, run, setting, shown), run, setting.tools, setting.asked
        )
    if isinstance(step, AskApproval):
        return {
            call.id: setting.in_mode(_ask(setting, call, run), call, run)
            for call in step.calls
        }
    return run_calls(
        step.calls, setting.tools, run, setting.deps, done, setting.watch(run)
    )


async def _aperform(
    step: _Act, run: Run, setting: Setting, shown: tuple[Tool, ...], done: Done
) -> Outcome:
    if isinstance(step, CallModel):
        return receive(
            await _aask_model(step, run, setting, shown),
            run,
            setting.tools,
            setting.asked,
        )
    if isinstance(step, AskApproval):
        return {
            call.id: setting.in_mode(await _aask(setting, call, run), call, run)
            for call in step.calls
        }
    return await arun_calls(
        step.calls, setting.tools, run, setting.deps, done, setting.watch(run)
    )


def _ask_model(
    step: CallModel, run: Run, setting: Setting, shown: tuple[Tool, ...]
) -> Reply:
    model = setting.model.prompted if run.route else setting.model
    halt, over = setting.halt(run), threading.Event()
    ask = functools.partial(model.complete, _request(step, setting, shown, halt, over))
    if halt is threads.NEVER:
        return ask()
    try:  # in a thread of its own, which is left behind where the wait ends before the request does
        return cast(Reply, _wait(threads.start(ask), halt))
    finally:
        over.set()


async def _aask_model(
    step: CallModel, run: Run, setting: Setting, shown: tuple[Tool, ...]
) -> Reply:
    model = setting.model.prompted if run.route else setting.model
    halt = setting.halt(run)
    request = _request(step, setting, shown, halt, threading.Event())
    return cast(Reply, await _await(model.acomplete(request), halt))


def _request(
    step: CallModel,
    setting: Setting,
    shown: tuple[Tool, ...],
    halt: threads.Halt,
    over: threading.Event,
) -> Request:
    """How the model is asked. Nothing more of its text is heard once the wait for it has ended."""
    hear = on_text = setting.on_text
    if hear is not None and halt is not threads.NEVER:

        def on_text(text: str) -> None:
            if not over.is_set() and not halt.reason:
                hear(text)

    return Request(step.messages, shown, step.tool_choice, setting.options, on_text)


def _wait(future: concurrent.futures.Future[Any], halt: threads.Halt) -> Any:
    try:
        while not future.done():
            if reason := halt.reason:
                raise _Halted(reason)
            concurrent.futures.wait([future], halt.patience())
        return future.result()
    finally:
        future.cancel()


async def _await(awaitable: Awaitable[Any], halt: threads.Halt) -> Any:
    if halt is threads.NEVER:
        return await awaitable
    import asyncio

    task = asyncio.ensure_future(awaitable)
    try:
        while not task.done():
            if reason := halt.reason:
                raise _Halted(reason)
            await asyncio.wait([task], timeout=halt.patience())
        return task.result()
    finally:
        task.cancel()


def _shown(run: Run, step: Step, setting: Setting) -> tuple[Tool, ...]:
    if setting.retrieve is None or not isinstance(step, CallModel):
        return setting.every
    return setting.in_view(setting.retrieve(step.messages, setting.choice), run)


async def _ashown(run: Run, step: Step, setting: Setting) -> tuple[Tool, ...]:
    if setting.retrieve is None or not isinstance(step, CallModel):
        return setting.every
    import asyncio

    work = functools.partial(
        setting.retrieve, step.messages, setting.choice
    )  # it may ask a server
    return setting.in_view(await asyncio.wrap_future(threads.start(work)), run)


def _finish(run: Run, step: Stop, gate: Gate, setting: Setting) -> RunResult:
    open_calls = loop.waiting(run, gate) if step.reason == "awaiting_approval" else ()
    run = loop.advance(run, step)
    if setting.store:
        setting.store.save(run, step.reason)
    events.tell(setting.sinks, reporting.run_ended(run, {"stop_reason": step.reason}))
    return RunResult(run, step.reason, open_calls, setting.tools)


def _attach(
    error: BaseException, run: Run, step: Step | None, done: Done, setting: Setting
) -> None:
    """Leave a run behind that can be continued: every call answered, as far as is known."""
    began = isinstance(step, CallTools)
    why = (
        "Interrupted while it ran; whether it took effect is not known."
        if began
        else "Not run: the run was stopped."
    )
    left = loop.close(run, why, done, "interrupted" if began else "not_run")
    with contextlib.suppress(AttributeError):  # some exceptions take no attribute
        error.run = left  # type: ignore[attr-defined]
    if setting.audit and began:
        _audit_interrupted(setting.audit, run, left, done, setting)
    if setting.store:
        with contextlib.suppress(Exception):
            setting.store.save(left, "stopped")
    events.tell(
        setting.sinks, reporting.run_ended(run, {"error": type(error).__name__})
    )


def _audit_interrupted(
    audit: Journal, run: Run, left: Run, done: Done, setting: Setting
) -> None:
    results = {result.call_id: result for result in left.messages[-1].tool_results}
    for call in run.open_calls:
        if call.id not in done and (tool := setting.tools.get(call.name)):
            with contextlib.suppress(Exception):  # what is raised already says more
                audit.ended(
                    run.id, run.turns, pending_call(call, tool, run), results[call.id]
                )


def _ask(setting: Setting, call: ToolCall, run: Run) -> Verdict:
    if setting.approve is None:
        return Verdict("defer")
    try:
        answer = setting.approve(pending_call(call, setting.tools[call.name], run))
        if inspect.isawaitable(answer):
            answer = _wait(
                threads.run_coroutine(threads.awaited(answer)),
                threads.Halt(setting.cancel),
            )
        return read_verdict(answer)
    except Exception:
        return _undecided(call)


async def _aask(setting: Setting, call: ToolCall, run: Run) -> Verdict:
    if setting.approve is None:
        return Verdict("defer")
    try:
        said = setting.approve(pending_call(call, setting.tools[call.name], run))
        return read_verdict(
            await _await(said, threads.Halt(setting.cancel))
            if inspect.isawaitable(said)
            else said
        )
    except Exception:
        return _undecided(call)


def _undecided(call: ToolCall) -> Verdict:
    _log.exception(
        "the approver failed on call %s of %r; the call waits", call.id, call.name
    )
    return Verdict("defer")


def read_verdict(answer: Any) -> Verdict:
    """Exactly "approve", "deny" or "defer"; anything else refuses."""
    decision = answer.decision if isinstance(answer, Verdict) else answer
    if type(decision) is str and decision in get_args(Decision):
        return answer if isinstance(answer, Verdict) else Verdict(answer)
    return Verdict("deny", "the approval was no clear answer")
