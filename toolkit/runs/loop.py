"""Decides what a run does next, and what has changed afterwards. Pure: it performs nothing.

    next_step(run) -> Step              what must happen next
    advance(run, step, outcome) -> Run  the run after the step

Three things hold on every path: the model's messages go back as they came, every call is answered
exactly once, and a verdict ends with its batch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolkit.calls.threads import HaltReason
from toolkit.messages import Message, Reply, ToolCall, ToolResult, Verdict
from toolkit.runs.state import Run, StopReason, Turn


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model. `tool_choice` is "auto", "required", "none" or the name of a tool."""

    messages: tuple[Message, ...]
    tool_choice: str = "auto"


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Get a verdict on each of these calls, which have their validated arguments."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class CallTools:
    """Run these calls, the calls of one reply, and answer each of them in this order."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """The run is over, or waits for verdicts. Calls that are still open get the answer `unanswered`."""

    reason: StopReason
    unanswered: str = ""


Step = CallModel | AskApproval | CallTools | Stop
Outcome = Reply | Mapping[str, Verdict] | tuple[ToolResult, ...] | None


def next_step(run: Run, halt: HaltReason = "") -> Step:
    """Return what must happen next. `halt` says why the run must stop now; empty if it may continue."""
    step = _step_for_calls(run) if run.open_calls else _step_for_messages(run)
    if halt and not isinstance(step, Stop):
        return Stop(halt, _UNANSWERED[halt])
    return step


_UNANSWERED = {
    "cancelled": "Not run: the run was cancelled.",
    "limit_reached": "Not run: a limit of this run is reached.",
}


def _step_for_messages(run: Run) -> Step:
    if run.stopped:
        return Stop(run.stopped)
    messages = run.messages
    if messages[-1].role == "assistant" and run.finish != "pause":
        if run.finish == "refusal":
            return Stop("refused")
        if run.finish == "length":
            return Stop("truncated")
        if not run.output:
            return Stop("max_turns" if run.turns == run.max_turns > 1 else "answered")
        reminder = Message("user", f"Give the answer as a call of {run.output}.")
        messages = (*messages, reminder)
    if run.turns >= run.max_turns:
        return Stop("max_turns")
    if run.is_spent:
        return Stop("limit_reached")
    if run.is_last_turn or messages is not run.messages:
        return CallModel(messages, run.output or "none")
    # A forced choice applies to the first turn only, or the model could never answer.
    # "none" and the output tool stay in force.
    is_in_force = run.turns == 0 or run.tool_choice in ("none", run.output)
    return CallModel(messages, run.tool_choice if is_in_force else "auto")


def _step_for_calls(run: Run) -> Step:
    # The call that is the answer falls under no limit.
    calls = [call for call in run.open_calls if call.name != run.output]
    limit = run.limits.tool_calls
    if run.finish == "refusal":
        return Stop("refused", "Not run: the model refused in the same reply.")
    if not calls:
        return CallTools(run.open_calls)
    if run.tool_choice == "none":
        return Stop("answered", "Not run: tools are switched off in this run.")
    if run.turns >= run.max_turns:
        return Stop("max_turns", "Not run: the turn limit of this run is reached.")
    if limit is not None and run.tool_calls + len(calls) > limit:
        why = f"Not run: this run may make {limit} tool calls at most."
        return Stop("limit_reached", why)
    if run.is_spent:
        return Stop("limit_reached", _UNANSWERED["limit_reached"])
    undecided = tuple(call for call in run.held_calls if call.id not in run.verdicts)
    if undecided:
        return AskApproval(undecided)
    if run.waiting:
        return Stop("awaiting_approval")
    # No call of a batch starts before all are decided, so a resumed run repeats none.
    return CallTools(run.open_calls)


def advance(
    run: Run,
    step: Step,
    outcome: Outcome = None,
    *,
    held: Iterable[ToolCall] = (),
    seconds: float = 0.0,
) -> Run:
    """Return the run after `step` had this `outcome` and took `seconds`.

    `held` are those calls of a new reply that need a verdict, with their validated arguments.
    Raises ValueError if an outcome does not answer its step: a call without a result or with two,
    or a verdict that is missing.
    """
    match step, outcome:
        case CallModel(messages), Reply():
            return _with_reply(run, messages, outcome, held, seconds)
        case AskApproval(calls), Mapping():
            return _with_verdicts(run, calls, outcome, seconds)
        case CallTools(calls), tuple():
            return _with_results(run, calls, outcome, seconds)
        case Stop(reason, unanswered), None:
            run = close(run, unanswered) if unanswered else run
            is_paused = reason == "awaiting_approval"
            return replace(run, stopped=None if is_paused else reason)
    raise TypeError(
        f"{type(outcome).__name__} cannot be the outcome of {type(step).__name__}."
    )


def hold(run: Run, calls: Iterable[ToolCall]) -> Run:
    """Hold open calls until somebody decides on them. They have their validated arguments."""
    held, validated = dict(run.held), dict(run.validated)
    for call in calls:
        held[call.id] = call.digest
        validated[call.id] = call.arguments
    return replace(run, held=held, validated=validated)


def close(
    run: Run,
    why: str,
    results: Mapping[str, ToolResult] | None = None,
    reason: str = "not_run",
) -> Run:
    """Answer all open calls: with their result if there is one, else with the error `why`."""
    if not run.open_calls:
        return run
    known = {**run.settled, **(results or {})}
    answers = tuple(
        known.get(call.id) or ToolResult(call.id, why, is_error=True, reason=reason)
        for call in run.open_calls
    )
    return replace(run, **_answered(run, answers))


def _with_reply(
    run: Run,
    messages: tuple[Message, ...],
    reply: Reply,
    held: Iterable[ToolCall],
    seconds: float,
) -> Run:
    run = replace(
        run,
        messages=(*messages, reply.message),
        finish=reply.finish,
        turns=run.turns + 1,
        usage=run.usage + reply.usage,
        log=(*run.log, Turn(reply.usage, reply.finish, seconds)),
        seconds=run.seconds + seconds,
    )
    if run.output and not run.open_calls and run.finish == "stop":
        # A reply in words, though the answer had to be a call of the output tool.
        stopped: StopReason | None = None
        if run.attempts_left == 0:
            stopped = "malformed_arguments"
        return replace(run, malformed=run.malformed + 1, stopped=stopped)
    return hold(run, held) if held else run


def _with_verdicts(
    run: Run, calls: Sequence[ToolCall], verdicts: Mapping[str, Verdict], seconds: float
) -> Run:
    missing = [call.id for call in calls if call.id not in verdicts]
    if missing:
        raise ValueError(f"There is no verdict on the calls {missing}.")
    bound = {call.id: verdicts[call.id].on(call) for call in calls}
    return replace(
        run, verdicts={**run.verdicts, **bound}, seconds=run.seconds + seconds
    )


def _with_results(
    run: Run,
    calls: Sequence[ToolCall],
    results: tuple[ToolResult, ...],
    seconds: float,
) -> Run:
    if [call.id for call in calls] != [result.call_id for result in results]:
        raise ValueError(
            "A batch needs exactly one result for each call, in the order of the calls."
        )
    is_malformed = all(result.reason == "malformed" for result in results)
    malformed = run.malformed + 1 if is_malformed else 0
    compared = [
        (call, result)
        for call, result in zip(calls, results, strict=True)
        if call.name not in run.exempt and result.reason != "malformed"
    ]
    fingerprint = _fingerprint(compared)
    repeated = run.repeated + 1 if fingerprint and fingerprint == run.fingerprint else 1
    repeats = repeated if fingerprint else 0
    stopped = _reason_to_stop(run, calls, results, malformed, repeats)
    if stopped is None and repeats >= max(run.limits.repeats // 2, 2):
        noted = {result.call_id for _, result in compared}
        results = tuple(
            _with_note(result, repeated) if result.call_id in noted else result
            for result in results
        )
    return replace(
        run,
        **_answered(run, results),
        tool_calls=run.tool_calls + sum(call.name != run.output for call in calls),
        malformed=malformed,
        repeated=repeated,
        fingerprint=fingerprint,
        stopped=stopped,
        seconds=run.seconds + seconds,
    )


def _reason_to_stop(
    run: Run,
    calls: Sequence[ToolCall],
    results: Sequence[ToolResult],
    malformed: int,
    repeats: int,
) -> StopReason | None:
    """Why the run ends with this batch; None if it continues."""
    for call, result in zip(calls, results, strict=True):
        if call.name == run.output and not result.is_error:
            return "answered"
    if malformed >= run.limits.malformed:
        return "malformed_arguments"
    if repeats >= run.limits.repeats:
        return "repeated_call"
    return None


def _answered(run: Run, results: tuple[ToolResult, ...]) -> dict[str, Any]:
    """The fields that change when all open calls are answered."""
    # Nothing about the open calls stays: a later call may have the same id.
    return {
        "messages": (*run.messages, Message("tool", tool_results=results)),
        "held": {},
        "validated": {},
        "settled": {},
        "verdicts": {},
        "decided": {**run.decided, **run.verdicts},
    }


def _fingerprint(compared: list[tuple[ToolCall, ToolResult]]) -> str:
    """Equal for batches of the same calls with the same results; empty without calls."""
    if not compared:
        return ""
    batch = [
        (call.name, call.arguments, call.raw if call.problem else "", result.content)
        for call, result in compared
    ]
    text = json.dumps(batch, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode("utf-8", "replace")).hexdigest()[:32]


_NOTE_START = "\n[The same call gave the same result "
_NOTE_END = " times in a row. Do something else, or answer.]"


def _with_note(result: ToolResult, repeated: int) -> ToolResult:
    note = f"{_NOTE_START}{repeated}{_NOTE_END}"
    return replace(result, content=result.content + note)


def without_note(result: ToolResult) -> ToolResult:
    """The result as the tool gave it, without the loop's note on repeated calls."""
    content, start, _ = result.content.rpartition(_NOTE_START)
    has_note = start and result.content.endswith(_NOTE_END)
    return replace(result, content=content) if has_note else result
