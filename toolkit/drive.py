"""The drivers: perform the steps that the loop names, plainly and with `await`; nothing here decides."""

from __future__ import annotations

import contextlib
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from toolkit import events, threads
from toolkit.errors import ToolsRefused
from toolkit.execute import Done, arun_calls, needs_approval, run_calls
from toolkit.loop import (
    AskApproval,
    CallModel,
    CallTools,
    Decision,
    Outcome,
    Run,
    Step,
    Stop,
    Verdict,
    advance,
    close,
    next_step,
    waiting,
)
from toolkit.messages import ToolCall
from toolkit.models import Model
from toolkit.receive import receive
from toolkit.results import RunResult
from toolkit.schema import copied
from toolkit.tools import Tool, Toolset

_log = logging.getLogger("toolkit")

Approver = Callable[[ToolCall], "Decision | Verdict | Awaitable[Decision | Verdict]"]
"""Decides on a call of a sensitive tool. What is no exact approval keeps it from running."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run works with and its state does not hold."""

    model: Model
    tools: Toolset
    shown: tuple[Tool, ...]
    approve: Approver | None
    deps: Any
    options: Mapping[str, Any]
    sinks: tuple[events.Sink, ...]
    on_text: Callable[[str], None] | None
    output: str

    def gate(self, call: ToolCall) -> bool:
        return needs_approval(call, self.tools)

    def advance(self, run: Run, step: Step, outcome: Outcome, seconds: float) -> Run:
        if self.sinks:
            for event in events.step_ended(run, step, outcome, self.model.name, seconds):
                events.tell(self.sinks, event)
        active = 0.0 if isinstance(step, AskApproval) else seconds  # people take their time
        return advance(run, step, outcome, seconds=active, exempt=self.tools.exempt)

    def switch_route(self, run: Run, error: ToolsRefused) -> Run:
        """The run with the tools in its prompt from now on, unless they are there already."""
        if run.route == "prompted":
            raise error
        if self.sinks:
            events.tell(self.sinks, events.route_switched(run, str(error)))
        return replace(run, route="prompted")

    def tell_start(self, run: Run) -> None:
        if self.sinks:
            events.tell(self.sinks, events.run_started(run, self.model.name, tuple(self.tools)))

    def tell_begin(self, run: Run, step: Step) -> None:
        if self.sinks:
            for event in events.step_began(run, step, self.model.name, len(self.shown)):
                events.tell(self.sinks, event)

    def tell_end(self, run: Run, **outcome: str) -> None:
        if self.sinks:
            events.tell(self.sinks, events.run_ended(run, outcome))


def drive(run: Run, setting: Setting) -> RunResult:
    done: Done = {}
    step: Step | None = None
    setting.tell_start(run)
    try:
        while not isinstance(step := next_step(run, setting.gate), Stop):
            done.clear()
            setting.tell_begin(run, step)
            started = time.perf_counter()
            try:
                outcome = _perform(step, run, setting, done)
            except ToolsRefused as error:
                run = setting.switch_route(run, error)
                continue
            run = setting.advance(run, step, outcome, time.perf_counter() - started)
        return _finish(run, step, setting)
    except BaseException as error:
        _attach(error, run, step, done, setting)
        raise


async def adrive(run: Run, setting: Setting) -> RunResult:
    done: Done = {}
    step: Step | None = None
    setting.tell_start(run)
    try:
        while not isinstance(step := next_step(run, setting.gate), Stop):
            done.clear()
            setting.tell_begin(run, step)
            started = time.perf_counter()
            try:
                outcome = await _aperform(step, run, setting, done)
            except ToolsRefused as error:
                run = setting.switch_route(run, error)
                continue
            run = setting.advance(run, step, outcome, time.perf_counter() - started)
        return _finish(run, step, setting)
    except BaseException as error:
        _attach(error, run, step, done, setting)
        raise


def _perform(step: Step, run: Run, setting: Setting, done: Done) -> Outcome:
    match step:
        case CallModel(messages, tool_choice):
            model = setting.model.prompted if run.route else setting.model
            reply = model.complete(
                messages, setting.shown, tool_choice=tool_choice, options=setting.options, on_text=setting.on_text
            )
            return receive(reply, run, setting.tools)
        case AskApproval(calls):
            return {call.id: _ask(setting.approve, call) for call in calls}
        case CallTools(calls):
            return run_calls(calls, setting.tools, run, setting.deps, done)
    raise TypeError(f"{step!r} is no step to perform.")


async def _aperform(step: Step, run: Run, setting: Setting, done: Done) -> Outcome:
    match step:
        case CallModel(messages, tool_choice):
            model = setting.model.prompted if run.route else setting.model
            reply = await model.acomplete(
                messages, setting.shown, tool_choice=tool_choice, options=setting.options, on_text=setting.on_text
            )
            return receive(reply, run, setting.tools)
        case AskApproval(calls):
            return {call.id: await _aask(setting.approve, call) for call in calls}
        case CallTools(calls):
            return await arun_calls(calls, setting.tools, run, setting.deps, done)
    raise TypeError(f"{step!r} is no step to perform.")


def _finish(run: Run, step: Stop, setting: Setting) -> RunResult:
    open_calls = waiting(run, setting.gate) if step.reason == "awaiting_approval" else ()
    setting.tell_end(run, stop_reason=step.reason)
    return RunResult(advance(run, step), step.reason, open_calls)


def _attach(error: BaseException, run: Run, step: Step | None, done: Done, setting: Setting) -> None:
    """Leave a run behind that can be continued: every call answered, as far as is known."""
    began = isinstance(step, CallTools)
    why = "Interrupted while it ran; whether it took effect is not known." if began else "Not run: the run was stopped."
    with contextlib.suppress(AttributeError):  # some exceptions take no attribute
        error.run = close(run, why, done, "interrupted" if began else "not_run")  # type: ignore[attr-defined]
    setting.tell_end(run, error=type(error).__name__)


def _ask(approve: Approver | None, call: ToolCall) -> Verdict:
    if approve is None:
        return Verdict("defer")
    try:
        answer = approve(replace(call, arguments=copied(call.arguments)))  # what it does to them changes nothing
        return read_verdict(threads.wait_for(answer) if inspect.isawaitable(answer) else answer)
    except Exception:
        _log.exception("the approver failed on call %s of %r; the call waits", call.id, call.name)
        return Verdict("defer")


async def _aask(approve: Approver | None, call: ToolCall) -> Verdict:
    if approve is None:
        return Verdict("defer")
    try:
        answer = approve(replace(call, arguments=copied(call.arguments)))  # what it does to them changes nothing
        return read_verdict(await answer if inspect.isawaitable(answer) else answer)
    except Exception:
        _log.exception("the approver failed on call %s of %r; the call waits", call.id, call.name)
        return Verdict("defer")


def read_verdict(answer: Any) -> Verdict:
    """Exactly "approve", "deny" or "defer"; anything else refuses."""
    decision = answer.decision if isinstance(answer, Verdict) else answer
    if type(decision) is str and decision in get_args(Decision):
        return answer if isinstance(answer, Verdict) else Verdict(answer)
    return Verdict("deny", "the approval was no clear answer")
