"""Carries a run from step to step until it stops. The loop decides; the acts are performed by a trampoline."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from toolkit import events
from toolkit.calls.execution import Results, permitted_calls
from toolkit.calls.receiving import receive
from toolkit.calls.threads import Halt, HaltReason
from toolkit.calls.validation import CheckedCall, check_call
from toolkit.errors import ToolsRefused
from toolkit.messages import ToolCall, Verdict, copied
from toolkit.runs import reporting
from toolkit.runs.acts import Act, AskApprover, AskModel, ChooseTools, Halted, RunCalls
from toolkit.runs.context import RunContext
from toolkit.runs.loop import (
    AskApproval,
    CallModel,
    CallTools,
    Outcome,
    Step,
    Stop,
    advance,
    close,
    next_step,
)
from toolkit.runs.results import RunResult
from toolkit.runs.state import Run
from toolkit.tools.request import Request

_log = logging.getLogger("toolkit")

Flow = Generator[Act, Any, RunResult]
Acts = Generator[Act, Any, None]


def perform(flow: Flow) -> RunResult:
    """Carry out a flow on this thread."""
    try:
        act = next(flow)
        while True:
            try:
                outcome = act.perform()
            except BaseException as error:
                act = flow.throw(error)
            else:
                act = flow.send(outcome)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def aperform(flow: Flow) -> RunResult:
    """Carry out a flow on the running event loop."""
    try:
        act = next(flow)
        while True:
            try:
                outcome = await act.aperform()
            except BaseException as error:
                act = flow.throw(error)
            else:
                act = flow.send(outcome)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def drive(run: Run, context: RunContext, batch: list[CheckedCall]) -> Flow:
    """Carry a run on until it stops, and return its result.

    `batch` are the run's open calls, validated. An exception leaves with the run attached as
    `error.run`, in a state that can be continued.
    """
    return (yield from _Drive(run, context, batch).steps())


class _Drive:
    """A run on its way: its state, its open calls, and the results of the batch that is running."""

    def __init__(self, run: Run, context: RunContext, batch: list[CheckedCall]) -> None:
        self.run, self.context, self.batch = run, context, batch
        self.policy = context.policy(run)
        self.results: Results = {}
        self.step: Step | None = None

    def steps(self) -> Flow:
        """Take one step after the other until the run stops."""
        context = self.context
        try:
            model = context.model
            self._tell(
                reporting.run_started(
                    self.run, model.name, model.provider, context.tools
                )
            )
            reason = self._halt_reason()
            while True:
                self.step = step = next_step(self.run, reason)
                self.results = {}
                try:
                    if isinstance(step, Stop):
                        return self._stop(step)
                    if isinstance(step, CallModel):
                        yield from self._call_model(step)
                    elif isinstance(step, AskApproval):
                        yield from self._ask_approval(step)
                    else:
                        yield from self._call_tools(step)
                    reason = self._halt_reason()
                except Halted as halted:
                    reason = halted.reason
        except BaseException as error:
            self._attach_to(error)
            raise
        finally:
            if context.store:
                context.store.release(self.run.id)

    def _halt_reason(self) -> HaltReason:
        cancel = self.context.cancel
        return "cancelled" if cancel is not None and cancel.is_set() else ""

    def _call_model(self, step: CallModel) -> Acts:
        run, context = self.run, self.context
        tools = context.all_tools
        if context.retrieve is not None:
            chosen = yield ChooseTools(
                context.retrieve, step.messages, context.retrievable
            )
            tools = context.tools_in_view(chosen, run)
        self._tell_beginning(step, len(tools))
        started = time.perf_counter()
        request = Request(
            step.messages, tools, step.tool_choice, context.fields, context.on_text
        )
        model = context.model.prompted if run.route else context.model
        try:
            reply = yield AskModel(model, request, context.halt(run))
        except ToolsRefused as error:
            self._switch_route(error)
            return
        reply = receive(
            reply,
            context.tools,
            used_ids={call.id for each in run.messages for call in each.tool_calls},
            seed=f"{run.id}:{run.turns}",
            limits=run.limits,
        )
        self.batch = [
            check_call(call, context.tools) for call in reply.message.tool_calls
        ]
        held = [
            checked.pending()
            for checked in self.batch
            if self.policy.needs_verdict(checked)
        ]
        self._advance(step, reply, time.perf_counter() - started, held)

    def _ask_approval(self, step: AskApproval) -> Acts:
        self._tell_beginning(step)
        started = time.perf_counter()
        checked = {each.call.id: each for each in self.batch}
        verdicts: dict[str, Verdict] = {}
        for call in step.calls:
            # The arguments that are held, whatever the approver does to its copy of them.
            arguments = copied(call.arguments)
            pending = replace(checked[call.id].pending(), arguments=arguments)
            verdicts[call.id] = yield AskApprover(
                self.context.approve, pending, self.policy, Halt(self.context.cancel)
            )
        self._advance(step, verdicts, time.perf_counter() - started)

    def _call_tools(self, step: CallTools) -> Acts:
        run, context = self.run, self.context
        self._tell_beginning(step)
        started = time.perf_counter()
        batch = context.batch(run)
        self.results.update(run.settled)
        ready = permitted_calls(
            [each for each in self.batch if each.call.id not in run.settled],
            self.policy,
            batch,
            self.results,
            tools=context.tools,
            held=run.held,
            attempts_left=run.attempts_left,
        )
        yield RunCalls(ready, batch, self.results)
        outcome = tuple(self.results[call.id] for call in step.calls)
        self._advance(step, outcome, time.perf_counter() - started)

    def _advance(
        self,
        step: Step,
        outcome: Outcome,
        seconds: float,
        held: Sequence[ToolCall] = (),
    ) -> None:
        context = self.context
        if context.sinks:
            model = context.model.name
            self._tell(reporting.step_ended(self.run, step, outcome, model, seconds))
        # Waiting for a person's verdict does not count as time of the run.
        active = 0.0 if isinstance(step, AskApproval) else seconds
        self.run = advance(self.run, step, outcome, held=held, seconds=active)
        if context.store:
            context.store.save(self.run, "running")

    def _stop(self, step: Stop) -> RunResult:
        is_paused = step.reason == "awaiting_approval"
        waiting = self.run.waiting if is_paused else ()
        run = self.run = advance(self.run, step)
        if self.context.store:
            self.context.store.save(run, step.reason)
        self._tell(reporting.run_ended(run, {"stop_reason": step.reason}))
        return RunResult(run, step.reason, waiting, self.context.tools)

    def _switch_route(self, error: ToolsRefused) -> None:
        """Describe the tools in the prompt from now on, unless that was refused as well."""
        if self.run.route == "prompted":
            raise error
        self._tell(reporting.route_switched(self.run, str(error)))
        self.run = replace(self.run, route="prompted")

    def _attach_to(self, error: BaseException) -> None:
        """Leave a run behind that can be continued: every call is answered, as far as anything is known."""
        has_begun = isinstance(self.step, CallTools)
        if has_begun:
            why = "Interrupted while it ran; whether it took effect is not known."
            left = close(self.run, why, self.results, "interrupted")
        else:
            why = "Not run: the run was stopped."
            left = close(self.run, why, self.results)
        with contextlib.suppress(AttributeError):  # some exceptions take no attribute
            error.run = left  # type: ignore[attr-defined]
        if has_begun:
            self._audit_interrupted(left)
        if self.context.store:
            try:
                self.context.store.save(left, "stopped")
            except Exception as failure:
                # What is raised already says more.
                _log.warning("run %s could not be saved: %r", left.id, failure)
        self._tell(reporting.run_ended(self.run, {"error": type(error).__name__}))

    def _audit_interrupted(self, left: Run) -> None:
        audit, run = self.context.audit, self.run
        if audit is None or left is run:
            return
        results = {result.call_id: result for result in left.messages[-1].tool_results}
        for checked in self.batch:
            call_id = checked.call.id
            if checked.tool is None or call_id in self.results:
                continue
            pending = checked.pending(run.verdicts.get(call_id))
            try:
                audit.ended(run.id, run.turns, pending, results[call_id])
            except Exception as failure:
                _log.warning("call %s could not be audited: %r", call_id, failure)

    def _tell_beginning(self, step: Step, tools: int = 0) -> None:
        if self.context.sinks:
            model = self.context.model.name
            self._tell(reporting.step_began(self.run, step, model, tools))

    def _tell(self, told: Iterator[events.Event]) -> None:
        if self.context.sinks:
            events.tell(self.context.sinks, told)
