"""A run once more, offline, from its own record: step by step through the loop, or as a model for a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from toolkit.errors import ReplayError
from toolkit.messages import Message, Reply, ToolCall, Usage, Verdict
from toolkit.models.scripted import ScriptedModel
from toolkit.runs import loop
from toolkit.runs.results import RunResult
from toolkit.runs.state import Run, Turn


def replay(recorded: RunResult | Run | str) -> Run:
    """Do a run again without a model and without its tools, and return it as it came out: equal to the record.

    `recorded` is a result, its JSON text, or a run (`SQLiteStore.load`). The model's replies, the verdicts and the
    results are taken from the record; what the loop decides and writes (limits, guards, unanswered calls, the end) is
    done anew. Raises ReplayError, naming the step, where that does not come out as recorded.
    """
    was = _run_of(recorded)
    run = _beginning(was)
    while not isinstance(step := loop.next_step(run), loop.Stop):
        outcome = _outcome(was, run, step)
        if (
            outcome is None
        ):  # the record ends here: the process ended, or the run was interrupted
            return _compared(replace(run, stopped=was.stopped), was)
        run = loop.advance(run, step, outcome, held=_held(was, outcome))
        if run.messages != was.messages[: len(run.messages)]:
            raise ReplayError(
                f"Step {type(step).__name__} of turn {run.turns} did not come out as recorded."
            )
    return _compared(loop.advance(run, step), was)


def as_model(recorded: RunResult | Run | str) -> ScriptedModel:
    """A model that gives the replies of a run again: a test of today's tools against a conversation that happened.

    `recorded` is as for `replay`. The tools are really called, and what they return now goes into the conversation.
    """
    run = _run_of(recorded)
    replies = [
        message
        for message in run.messages[run.history :]
        if message.role == "assistant"
    ]
    return ScriptedModel(
        [_reply(run, turn, message) for turn, message in enumerate(replies)]
    )


def _run_of(recorded: RunResult | Run | str) -> Run:
    if isinstance(recorded, str):
        recorded = RunResult.from_json(recorded)
    return recorded.run if isinstance(recorded, RunResult) else recorded


def _beginning(was: Run) -> Run:
    first = was.messages[: was.history + 1]
    if len(first) <= was.history or first[-1].role != "user":
        raise ReplayError(
            f"The record of run {was.id!r} has no prompt at message {was.history}."
        )
    return Run(
        was.id, first, was.history, was.max_turns, was.tool_choice, was.output,
        route=was.route, mode=was.mode, exempt=was.exempt, limits=was.limits,
    )  # fmt: skip


def _held(was: Run, outcome: Any) -> list[ToolCall]:
    """The calls of a reply that needed a verdict when the run was recorded."""
    if not isinstance(outcome, Reply):
        return []
    decided = {*was.held, *was.verdicts, *was.decided}
    return [
        replace(call, arguments=was.validated.get(call.id, call.arguments))
        for call in outcome.message.tool_calls
        if call.id in decided
    ]


def _outcome(was: Run, run: Run, step: loop.Step) -> Any:
    """What the record says that came of a step; None where it says nothing."""
    match step:
        case loop.CallModel(messages):
            if len(messages) >= len(was.messages):
                return None
            if run.turns >= len(was.log):
                raise ReplayError(
                    f"The record has no turn {run.turns + 1}, but a message {len(messages)} after it."
                )
            return _reply(was, run.turns, was.messages[len(messages)])
        case loop.AskApproval(calls):
            verdicts = {**was.decided, **was.verdicts}
            return {call.id: verdicts.get(call.id, Verdict("defer")) for call in calls}
        case loop.CallTools():
            at = len(run.messages)
            return (
                tuple(map(loop.without_note, was.messages[at].tool_results))
                if at < len(was.messages)
                else None
            )


def _reply(was: Run, turn: int, message: Message) -> Reply:
    said = was.log[turn] if turn < len(was.log) else Turn(Usage(), "stop", 0.0)
    return Reply(message, said.usage, said.finish)


def _compared(run: Run, was: Run) -> Run:
    """The record, once the run that was done again is equal to it (but for the time that it took)."""
    for name in ("messages", "turns", "usage", "finish", "stopped"):
        if getattr(run, name) != getattr(was, name):
            raise ReplayError(
                f"The run {was.id!r} does not end as recorded: its {name} differ."
            )
    return run
