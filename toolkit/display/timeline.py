"""A run as rows in their order in time: a row for each request to the model, and one for each call."""

from __future__ import annotations

from dataclasses import dataclass

from toolkit.display.shapes import ResultShape
from toolkit.messages import ToolCall, ToolResult, Usage, as_json

_MARKS = {"": "✓", "planned": "◇", "denied": "⊘", "not_run": "⊘"}
_FAILED, _WAITING = "✗", "?"


@dataclass(frozen=True, slots=True)
class Row:
    """A stretch of time, in seconds since the run began: a request to the model, or a call.

    `arguments` are those of a call as JSON. `text` is what came back.
    """

    name: str
    start: float
    seconds: float
    text: str
    note: str
    is_turn: bool = False
    arguments: str = ""
    mark: str = " "


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows of a run, and its seconds in all, without the time in which it waited for people."""

    prompt: str
    rows: list[Row]
    seconds: float
    summary: str


def timeline_of(result: ResultShape) -> Timeline:
    run = result.run
    messages = result.messages[run.history :]
    rows: list[Row] = []
    now = 0.0
    turn = 0
    for position, message in enumerate(messages):
        if message.role != "assistant":
            continue
        seconds, usage = 0.0, Usage()
        if turn < len(run.log):
            seconds, usage = run.log[turn].seconds, run.log[turn].usage
        turn += 1
        tokens = f"{usage.input_tokens} in, {usage.output_tokens} out"
        note = f"{duration(seconds)} · {tokens}"
        name = f"turn {turn}"
        rows.append(Row(name, now, seconds, message.text, note, is_turn=True))
        now += seconds
        has_results = position + 1 < len(messages)
        results = messages[position + 1].tool_results if has_results else ()
        by_id = {each.call_id: each for each in results}
        for call in message.tool_calls:
            rows.append(_call_row(call, by_id.get(call.id), result, now))
        now = max([now, *(now + each.started + each.seconds for each in results)])
    prompt = messages[0].text if messages else ""
    return Timeline(prompt, rows, now, _summary(result, now))


def _call_row(
    call: ToolCall, answer: ToolResult | None, result: ResultShape, now: float
) -> Row:
    arguments = as_json(call.arguments)
    if call.problem and isinstance(call.raw, str):
        arguments = call.raw
    elif answer is not None and answer.arguments is not None:
        arguments = as_json(answer.arguments)
    if answer is None:
        return Row(
            name=call.name,
            start=now,
            seconds=0.0,
            text="waits for approval",
            note="",
            arguments=arguments,
            mark=_WAITING,
        )
    notes = [duration(answer.seconds), answer.reason]
    verdict = result.run.decided.get(call.id)
    if verdict:
        notes.append(verdict.decision + (f" by {verdict.by}" if verdict.by else ""))
    repairs = answer.repairs or call.repairs
    if repairs:
        notes.append(f"repaired: {', '.join(repairs)}")
    return Row(
        name=call.name,
        start=now + answer.started,
        seconds=answer.seconds,
        text=answer.content,
        note=" · ".join(filter(None, notes)),
        arguments=arguments,
        mark=_MARKS.get(answer.reason, _FAILED),
    )


def _summary(result: ResultShape, seconds: float) -> str:
    calls = f"{len(result.calls)} calls"
    failed = sum(call.is_error for call in result.calls)
    if failed:
        calls += f", {failed} failed"
    run = result.run
    return (
        f"{result.stop_reason} · {run.turns} turns · {calls} · "
        f"{run.usage.total_tokens} tokens · {duration(seconds)}"
    )


def duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
