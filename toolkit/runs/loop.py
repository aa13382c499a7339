"""What must happen next, and what has changed once it has. Pure; knows tools by name and tier only.

    next_step(run, gate) -> Step        says what must happen; does nothing
    advance(run, step, outcome) -> Run  the run as it is afterwards

Three things hold on every path: the model's messages go back as they came, every call is answered
exactly once, and a verdict dies with its batch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from toolkit.messages import (
    Finish,
    Limits,
    Message,
    Reply,
    ToolCall,
    ToolResult,
    Usage,
    Verdict,
)

StopReason = Literal[
    "answered", "max_turns", "awaiting_approval", "malformed_arguments", "repeated_call",
    "limit_reached", "refused", "truncated", "cancelled",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Turn:
    """One request to the model, as it came out: tokens, how it ended, and how long it took."""

    usage: Usage
    finish: Finish
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """The whole state of a run: save it, and it goes on elsewhere.

    The first `history` messages were there before it began. `output` names the tool whose call is the answer of a run
    with an `output_type`. `route` is "prompted" once the server has refused tools. In the mode "plan" only tools that
    read are run. `exempt` names the tools that may be called over and over. `log` has one `Turn` a request.

    Of the open calls, `held` has the digest of each that needs a verdict, `verdicts` those that were given, and
    `settled` the results that are known already, of a run whose process ended amid a batch.
    """

    id: str
    messages: tuple[Message, ...]
    history: int = 0
    max_turns: int = 10
    tool_choice: str = "auto"
    output: str = ""
    route: Literal["", "prompted"] = ""
    mode: Literal["run", "plan"] = "run"
    exempt: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    turns: int = 0
    tool_calls: int = 0
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    finish: Finish = "stop"
    log: tuple[Turn, ...] = ()
    held: Mapping[str, str] = field(default_factory=dict)
    settled: Mapping[str, ToolResult] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    decided: Mapping[str, Verdict] = field(default_factory=dict)
    malformed: int = 0
    repeated: int = 0
    fingerprint: str = ""
    stopped: StopReason | None = None
    applied: bool = False

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls of the last reply, while they are unanswered."""
        return self.messages[-1].tool_calls if self.messages else ()

    @property
    def attempts_left(self) -> int:
        """How often the model may still send arguments that cannot be read."""
        return max(self.limits.malformed - self.malformed - 1, 0)

    @property
    def is_last_turn(self) -> bool:
        """Whether the turn to come is the last, in which tools are switched off."""
        return self.max_turns > 1 and self.turns == self.max_turns - 1


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model. `tool_choice` is "auto", "required", "none" or a tool's name."""

    messages: tuple[Message, ...]
    tool_choice: str = "auto"


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Get a verdict on each of these calls."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class CallTools:
    """Run these calls, the calls of one reply; answer each, in their order."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """The run is over, or waits; calls still open are answered as not run."""

    reason: StopReason
    unanswered: str = ""


Step = CallModel | AskApproval | CallTools | Stop
Outcome = Reply | Mapping[str, Verdict] | tuple[ToolResult, ...] | None
Gate = Callable[[ToolCall], bool]
"""Whether a call needs a verdict before it runs."""


def next_step(run: Run, gate: Gate) -> Step:
    """Say what must happen next; do nothing."""
    if run.open_calls:
        return _next_for_calls(run, gate)
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
        messages = (
            *messages,
            Message("user", f"Give the answer as a call of {run.output}."),
        )
    if run.turns >= run.max_turns:
        return Stop("max_turns")
    if _is_spent(run):
        return Stop("limit_reached")
    if run.is_last_turn or messages is not run.messages:
        return CallModel(messages, run.output or "none")
    # A forced choice holds for the first turn only, or the model could never answer; unless it is the answer.
    is_kept = run.turns == 0 or run.tool_choice in ("none", run.output)
    return CallModel(run.messages, run.tool_choice if is_kept else "auto")


def advance(
    run: Run, step: Step, outcome: Outcome = None, *, seconds: float = 0.0
) -> Run:
    """Return the run as it is after `step` came out as `outcome` and took `seconds`.

    Raises ValueError where an outcome does not answer its step: a call left out, answered twice, or a verdict missing.
    """
    match step, outcome:
        case CallModel(messages), Reply(message, usage, finish):
            run = replace(
                run,
                messages=(*messages, message),
                finish=finish,
                turns=run.turns + 1,
                usage=run.usage + usage,
                log=(*run.log, Turn(usage, finish, seconds)),
                seconds=run.seconds + seconds,
            )
            return _without_output(run)
        case CallTools(calls), tuple():
            return _answered(run, calls, outcome, run.seconds + seconds)
        case AskApproval(calls), Mapping():
            if missing := [call.id for call in calls if call.id not in outcome]:
                raise ValueError(
                    f"The calls {missing} were asked about, but got no verdict."
                )
            verdicts = {
                **run.verdicts,
                **{call.id: outcome[call.id].on(call) for call in calls},
            }
            held = {**run.held, **{call.id: call.digest for call in calls}}
            return replace(
                run, verdicts=verdicts, held=held, seconds=run.seconds + seconds
            )
        case Stop(reason, why), None:
            run = close(run, why) if why else run
            return replace(
                run, stopped=None if reason == "awaiting_approval" else reason
            )
    raise TypeError(
        f"{type(outcome).__name__} cannot be the outcome of {type(step).__name__}."
    )


def close(
    run: Run,
    why: str,
    done: Mapping[str, ToolResult] | None = None,
    reason: str = "not_run",
) -> Run:
    """Answer all open calls: with what is `done`, else as an error that says `why`."""
    if not run.open_calls:
        return run
    rest = (
        ToolResult(call.id, why, is_error=True, reason=reason)
        for call in run.open_calls
    )
    known = {**run.settled, **(done or {})}
    results = tuple(known.get(result.call_id, result) for result in rest)
    return replace(
        run,
        messages=(*run.messages, Message("tool", tool_results=results)),
        **_batch_over(run),
    )


def waiting(run: Run, gate: Gate) -> tuple[ToolCall, ...]:
    """The open calls that nobody has decided yet."""
    decided = {
        call_id
        for call_id, verdict in run.verdicts.items()
        if verdict.decision in ("approve", "deny")
    }
    return tuple(call for call in _gated(run, gate) if call.id not in decided)


def _next_for_calls(run: Run, gate: Gate) -> Step:
    limits = run.limits
    others = [
        call for call in run.open_calls if call.name != run.output
    ]  # the answer itself falls under no limit
    if run.finish == "refusal":
        return Stop("refused", "Not run: the model refused in the same reply.")
    if not others:
        return CallTools(run.open_calls)
    if run.tool_choice == "none":
        return Stop("answered", "Not run: tools are switched off in this run.")
    if run.turns >= run.max_turns:
        return Stop("max_turns", "Not run: the turn limit of this run is reached.")
    if (
        limits.tool_calls is not None
        and run.tool_calls + len(others) > limits.tool_calls
    ):
        return Stop(
            "limit_reached",
            f"Not run: this run may make {limits.tool_calls} tool calls at most.",
        )
    if _is_spent(run):
        return Stop("limit_reached", "Not run: a limit of this run is reached.")
    if undecided := tuple(
        call for call in _gated(run, gate) if call.id not in run.verdicts
    ):
        return AskApproval(undecided)
    if waiting(run, gate):
        return Stop("awaiting_approval")
    # No call of a batch starts before all are decided, so that a resumed run repeats none.
    return CallTools(run.open_calls)


def _gated(run: Run, gate: Gate) -> list[ToolCall]:
    """The open calls that need a verdict: what was held once stays so, whatever approver or tools a resumed run has."""
    return [
        c
        for c in run.open_calls
        if c.id not in run.settled and (c.id in run.held or gate(c))
    ]


def _batch_over(run: Run) -> dict[str, Any]:
    """What a run no longer holds of its open calls, once answered: a later call may bear the same id."""
    return {
        "held": {},
        "settled": {},
        "verdicts": {},
        "decided": {**run.decided, **run.verdicts},
    }


def _is_spent(run: Run) -> bool:
    tokens, seconds = run.limits.total_tokens, run.limits.seconds
    return (tokens is not None and run.usage.total_tokens >= tokens) or (
        seconds is not None and run.seconds >= seconds
    )


def _answered(
    run: Run, calls: tuple[ToolCall, ...], results: tuple[Any, ...], seconds: float
) -> Run:
    if [call.id for call in calls] != [result.call_id for result in results]:
        raise ValueError(
            "A batch is answered by exactly one result per call, in the order of the calls."
        )
    pairs = list(zip(calls, results, strict=True))
    malformed = (
        run.malformed + 1
        if all(result.reason == "malformed" for result in results)
        else 0
    )
    counted = [
        (call, result)
        for call, result in pairs
        if call.name not in run.exempt and result.reason != "malformed"
    ]
    fingerprint = _fingerprint(counted)
    repeated = run.repeated + 1 if fingerprint and fingerprint == run.fingerprint else 1
    stopped: StopReason | None = None
    if any(call.name == run.output and not result.is_error for call, result in pairs):
        stopped = "answered"
    elif malformed >= run.limits.malformed:
        stopped = "malformed_arguments"
    elif fingerprint and repeated >= run.limits.repeats:
        stopped = "repeated_call"
    elif fingerprint and repeated >= max(run.limits.repeats // 2, 2):
        note = _NOTE.format(repeated)
        results = tuple(
            replace(r, content=r.content + note) if (c, r) in counted else r
            for c, r in pairs
        )
    return replace(
        run,
        **_batch_over(run),
        messages=(*run.messages, Message("tool", tool_results=results)),
        tool_calls=run.tool_calls + sum(call.name != run.output for call in calls),
        malformed=malformed,
        repeated=repeated,
        fingerprint=fingerprint,
        stopped=stopped,
        seconds=seconds,
    )


def _without_output(run: Run) -> Run:
    """Count a reply in words where a call of the output tool was wanted."""
    if not run.output or run.open_calls or run.finish != "stop":
        return run
    is_over = run.attempts_left == 0
    return replace(
        run,
        malformed=run.malformed + 1,
        stopped="malformed_arguments" if is_over else None,
    )


def _fingerprint(counted: list[tuple[ToolCall, ToolResult]]) -> str:
    """Equal for batches of the same calls with the same results; empty where there are none."""
    if not counted:
        return ""
    seen = [
        (call.name, call.arguments, call.raw if call.problem else "", result.content)
        for call, result in counted
    ]
    return hashlib.blake2b(
        json.dumps(seen, sort_keys=True, default=repr).encode("utf-8", "replace")
    ).hexdigest()[:32]


_NOTE = "\n[The same call gave the same result {} times in a row. Do something else, or answer.]"


def without_note(result: ToolResult) -> ToolResult:
    """The result as it came, without what the loop remarked on its repetition."""
    before, after = _NOTE.split("{}")
    content, remarked, _ = result.content.rpartition(before)
    return (
        replace(result, content=content)
        if remarked and result.content.endswith(after)
        else result
    )
