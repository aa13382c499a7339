"""The events of a run: what its beginning, its steps and its end tell the sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import datetime, timezone
from typing import Any

from toolkit.events import Event, current_call
from toolkit.messages import Reply, ToolCall, ToolResult, copied
from toolkit.runs.loop import AskApproval, CallModel, CallTools, Outcome, Run, Step

_PREVIEW_CHARACTERS = 200


def run_started(
    run: Run, model: str, provider: str, tools: Mapping[str, Any]
) -> Iterator[Event]:
    asked = {
        "model": model,
        "provider": provider,
        "tools": list(tools),
        "max_turns": run.max_turns,
    }
    yield _event(
        "run_start", run, subject=tools, **asked, parent_call_id=current_call.get()
    )


def route_switched(run: Run, reason: str) -> Iterator[Event]:
    yield _event("route_switch", run, route="prompted", reason=reason)


def run_ended(run: Run, outcome: Mapping[str, str]) -> Iterator[Event]:
    tokens = {
        "input_tokens": run.usage.input_tokens,
        "output_tokens": run.usage.output_tokens,
    }
    yield _event(
        "run_end",
        run,
        **outcome,
        turns=run.turns,
        **tokens,
        time_ms=_milliseconds(run.seconds),
    )


def step_began(run: Run, step: Step, model: str, tools: int) -> Iterator[Event]:
    """What is to be told before a step."""
    match step:
        case CallModel(messages, tool_choice):
            asked = {
                "messages": len(messages),
                "tools": tools,
                "tool_choice": tool_choice,
            }
            yield _event(
                "model_request",
                run,
                run.turns + 1,
                subject=messages,
                model=model,
                **asked,
            )
        case CallTools(calls):
            for call in calls:
                read = {
                    "arguments": copied(dict(call.arguments)),
                    "raw_arguments": copied(call.raw),
                }
                sent = {**_named(call), **read, "repairs": list(call.repairs)}
                yield _event("tool_call_request", run, **sent, model=model)


def step_ended(
    run: Run, step: Step, outcome: Outcome, model: str, seconds: float
) -> Iterator[Event]:
    """What is to be told after a step; `run` is as it was before it."""
    match step, outcome:
        case CallModel(), Reply(message, usage, finish) as reply:
            text, calls = (
                message.opaque.get("prompted") or message.text,
                len(message.tool_calls),
            )
            said = {"text": text, "tool_calls": calls, "finish": finish}
            tokens = {field.name: getattr(usage, field.name) for field in fields(usage)}
            taken = {"time_ms": _milliseconds(seconds)}
            yield _event(
                "model_reply",
                run,
                run.turns + 1,
                subject=reply,
                model=model,
                **said,
                **tokens,
                **taken,
            )
        case AskApproval(calls), Mapping():
            for call in calls:
                verdict = outcome[call.id]
                decided = {
                    "decision": verdict.decision,
                    "by": verdict.by,
                    "reason": verdict.reason,
                }
                yield _event("approval", run, **_named(call), **decided)
        case CallTools(calls), tuple():
            for call, result in zip(calls, outcome, strict=True):
                yield _event(
                    "tool_exec_result",
                    run,
                    subject=result,
                    **_named(call),
                    **_came_of(run, call, result),
                )


def _event(
    name: str, run: Run, turn: int | None = None, /, subject: Any = None, **data: Any
) -> Event:
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return Event(name, run.id, run.turns if turn is None else turn, now, data, subject)


def _named(call: ToolCall) -> dict[str, str]:
    return {"tool_call_id": call.id, "tool_name": call.name}


def _came_of(run: Run, call: ToolCall, result: ToolResult) -> dict[str, Any]:
    ran = result.reason in ("", "failed", "timeout", "interrupted", "unknown")
    verdict = run.verdicts.get(call.id)
    return {
        "success": not result.is_error,
        "status": ("error" if result.is_error else "ok") if ran else "not_executed",
        "error_type": result.reason if result.is_error else "",
        "approval": verdict.decision if verdict else "",
        "started_ms": _milliseconds(result.started),
        "time_ms": _milliseconds(result.seconds),
        "result_preview": result.content[:_PREVIEW_CHARACTERS],
        "repairs": list(result.repairs),
    }


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 3)
