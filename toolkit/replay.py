"""A recorded run, done again offline: step by step through the loop, or as a model for a test."""

from __future__ import annotations

from dataclasses import replace

from toolkit.errors import ReplayError
from toolkit.messages import Message, Reply, ToolCall, Usage, Verdict
from toolkit.models.scripted import ScriptedModel
from toolkit.runs import loop
from toolkit.runs.results import RunResult
from toolkit.runs.state import Run, Turn

_COMPARED_FIELDS = ("messages", "turns", "usage", "finish", "stopped")


def replay(recorded: RunResult | Run | str) -> Run:
    """Do a run again without its model and its tools, and return it. It is equal to the record.

    `recorded` is a result, its JSON text, or a run (`SQLiteStore.load`). The model's replies, the
    verdicts and the results are taken from the record. What the loop decides and writes is done again:
    limits, guards, unanswered calls, the end. Raises ReplayError, which names the step, if that does not
    come out as recorded.
    """
    record = _run_of(recorded)
    run = _first_state(record)
    while True:
        step = loop.next_step(run)
        if isinstance(step, loop.Stop):
            run = loop.advance(run, step)
            break
        outcome = _recorded_outcome(record, run, step)
        if outcome is None:
            # The record ends here: the process ended, or the run was interrupted.
            run = replace(run, stopped=record.stopped)
            break
        held = _held_calls(record, outcome)
        run = loop.advance(run, step, outcome, held=held)
        if run.messages != record.messages[: len(run.messages)]:
            raise ReplayError(
                f"Step {type(step).__name__} of turn {run.turns} "
                "did not come out as recorded."
            )
    for name in _COMPARED_FIELDS:
        if getattr(run, name) != getattr(record, name):
            raise ReplayError(
                f"The run {record.id!r} does not end as recorded: its {name} differ."
            )
    return run


def as_model(recorded: RunResult | Run | str) -> ScriptedModel:
    """A model that repeats the replies of a run, to test today's tools against a conversation that happened.

    `recorded` is as for `replay`. The tools are really called, and what they return goes into the
    conversation.
    """
    record = _run_of(recorded)
    own = record.messages[record.history :]
    replies = [message for message in own if message.role == "assistant"]
    return ScriptedModel(
        [_reply(record, turn, message) for turn, message in enumerate(replies)]
    )


def _run_of(recorded: RunResult | Run | str) -> Run:
    if isinstance(recorded, str):
        recorded = RunResult.from_json(recorded)
    return recorded.run if isinstance(recorded, RunResult) else recorded


def _first_state(record: Run) -> Run:
    """The run before its first step."""
    messages = record.messages[: record.history + 1]
    if len(messages) <= record.history or messages[-1].role != "user":
        raise ReplayError(
            f"The record of run {record.id!r} has no prompt at message {record.history}."
        )
    return Run(
        record.id,
        messages,
        history=record.history,
        max_turns=record.max_turns,
        tool_choice=record.tool_choice,
        output=record.output,
        route=record.route,
        mode=record.mode,
        exempt=record.exempt,
        limits=record.limits,
    )


def _recorded_outcome(record: Run, run: Run, step: loop.Step) -> loop.Outcome:
    """The outcome of a step in the record. None if the record ends before it."""
    position = len(run.messages)
    match step:
        case loop.CallModel(messages):
            # With the loop's own reminder, if it added one.
            position = len(messages)
            if position >= len(record.messages):
                return None
            if run.turns >= len(record.log):
                raise ReplayError(
                    f"The record has no turn {run.turns + 1}, "
                    f"but a message {position} after it."
                )
            return _reply(record, run.turns, record.messages[position])
        case loop.AskApproval(calls):
            verdicts = {**record.decided, **record.verdicts}
            deferred = Verdict("defer")
            return {call.id: verdicts.get(call.id, deferred) for call in calls}
        case loop.CallTools() if position < len(record.messages):
            results = record.messages[position].tool_results
            return tuple(loop.without_note(result) for result in results)
    return None


def _held_calls(record: Run, outcome: loop.Outcome) -> list[ToolCall]:
    """The calls of a reply that needed a verdict when the run was recorded."""
    if not isinstance(outcome, Reply):
        return []
    held = record.held.keys() | record.verdicts.keys() | record.decided.keys()
    return [
        replace(call, arguments=record.validated.get(call.id, call.arguments))
        for call in outcome.message.tool_calls
        if call.id in held
    ]


def _reply(record: Run, turn: int, message: Message) -> Reply:
    entry = Turn(Usage(), "stop", 0.0)
    if turn < len(record.log):
        entry = record.log[turn]
    return Reply(message, entry.usage, entry.finish)
