"""The events of a run: what its start, its steps and its end report to the sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from toolkit.events import Event, current_call
from toolkit.messages import Reply, ToolCall, ToolResult, copied
from toolkit.runs.loop import AskApproval, CallModel, CallTools, Outcome, Step
from toolkit.runs.state import Run

_PREVIEW_CHARACTERS = 200


def run_started(
    run: Run, model: str, provider: str, tools: Mapping[str, Any]
) -> Iterator[Event]:
    yield _event(
        "run_start",
        run,
        subject=tools,
        model=model,
        provider=provider,
        tools=list(tools),
        max_turns=run.max_turns,
        parent_call_id=current_call.get(),
    )


def route_switched(run: Run, reason: str) -> Iterator[Event]:
    yield _event("route_switch", run, route="prompted", reason=reason)


def run_ended(run: Run, outcome: Mapping[str, str]) -> Iterator[Event]:
    yield _event(
        "run_end",
        run,
        **outcome,
        turns=run.turns,
        input_tokens=run.usage.input_tokens,
        output_tokens=run.usage.output_tokens,
        time_ms=_milliseconds(run.seconds),
    )


def step_began(run: Run, step: Step, model: str, tools: int) -> Iterator[Event]:
    """The events before a step. `tools` is how many tools a request shows."""
    match step:
        case CallModel(messages, tool_choice):
            yield _event(
                "model_request",
                run,
                run.turns + 1,
                subject=messages,
                model=model,
                messages=len(messages),
                tools=tools,
                tool_choice=tool_choice,
            )
        case CallTools(calls):
            for call in calls:
                yield _event(
                    "tool_call_request",
                    run,
                    **_identity(call),
                    arguments=copied(dict(call.arguments)),
                    raw_arguments=copied(call.raw),
                    repairs=list(call.repairs),
                    model=model,
                )


def step_ended(
    run: Run, step: Step, outcome: Outcome, model: str, seconds: float
) -> Iterator[Event]:
    """The events after a step. `run` is the run before it."""
    match step, outcome:
        case CallModel(), Reply(message, usage, finish) as reply:
            yield _event(
                "model_reply",
                run,
                run.turns + 1,
                subject=reply,
                model=model,
                text=message.opaque.get("prompted") or message.text,
                tool_calls=len(message.tool_calls),
                finish=finish,
                **asdict(usage),
                time_ms=_milliseconds(seconds),
            )
        case AskApproval(calls), Mapping():
            for call in calls:
                verdict = outcome[call.id]
                yield _event(
                    "approval",
                    run,
                    **_identity(call),
                    decision=verdict.decision,
                    by=verdict.by,
                    reason=verdict.reason,
                )
        case CallTools(calls), tuple():
            for call, result in zip(calls, outcome, strict=True):
                yield _event(
                    "tool_exec_result",
                    run,
                    subject=result,
                    **_identity(call),
                    **_result_fields(run, result),
                )


def _event(
    name: str, run: Run, turn: int | None = None, /, subject: Any = None, **data: Any
) -> Event:
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return Event(name, run.id, run.turns if turn is None else turn, now, data, subject)


def _identity(call: ToolCall) -> dict[str, str]:
    return {"tool_call_id": call.id, "tool_name": call.name}


def _result_fields(run: Run, result: ToolResult) -> dict[str, Any]:
    status = "not_executed"
    if result.reason in ("", "failed", "timeout", "interrupted", "unknown"):
        status = "error" if result.is_error else "ok"
    verdict = run.verdicts.get(result.call_id)
    return {
        "success": not result.is_error,
        "status": status,
        "error_type": result.reason if result.is_error else "",
        "approval": verdict.decision if verdict else "",
        "started_ms": _milliseconds(result.started),
        "time_ms": _milliseconds(result.seconds),
        "result_preview": result.content[:_PREVIEW_CHARACTERS],
        "repairs": list(result.repairs),
    }


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
