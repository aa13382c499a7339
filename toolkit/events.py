"""What a run tells the outside; the logging and JSON-lines sinks.

| event | fields beside `run_id`, `turn`, `timestamp` |
|---|---|
| `run_start` | `model`, `provider`, `tools` (names), `max_turns`, `parent_call_id` (of the call inside which it runs) |
| `model_request` | `model`, `messages` (how many), `tools` (how many), `tool_choice` |
| `model_reply` | `model`, `text` (raw), `tool_calls` (how many), `finish`, `time_ms`, and the four counts of `Usage` |
| `tool_call_request` | `tool_call_id`, `tool_name`, `arguments` (as read), `raw_arguments`, `repairs`, `model` |
| `approval` | `tool_call_id`, `tool_name`, `decision`, `by`, `reason` |
| `tool_exec_result` | id, name, `success`, `status`, `error_type`, `approval`, `started_ms`, `time_ms` … |
| `route_switch` | `route` ("prompted": the server takes no tools, so the prompt describes them from now on), `reason` |
| `run_end` | `stop_reason` or `error` (a class name), `turns`, `input_tokens`, `output_tokens`, `time_ms` |

`tool_exec_result` also has `repairs` and `result_preview`. Its `status` is "ok", "error" (it ran and failed, or was
left behind) or "not_executed", its `error_type` the `ToolResult.reason` of an error ("malformed", "denied" …), else "".
`provider` names whose API is spoken ("openai"). `timestamp` is UTC in ISO 8601, and all that ends in `_ms`
milliseconds; `started_ms` counts from the batch's `tool_call_request`s. What people or models said is in `text`,
`arguments`, `raw_arguments`, `result_preview` and `reason`: `without_content` takes these out, and so does the
environment variable TOOLKIT_LOG_CONTENT=0 for the logger `toolkit` (0.1: they stay in one run of ten).
"""

from __future__ import annotations

import contextvars
import json
import logging
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from toolkit.loop import AskApproval, CallModel, CallTools, Outcome, Run, Step
from toolkit.messages import Reply, ToolCall, ToolResult
from toolkit.schema import copied

_log = logging.getLogger("toolkit")
_PREVIEW_CHARACTERS = 200

current_call: contextvars.ContextVar[str] = contextvars.ContextVar("current_call", default="")
"""The id of the tool call that the running code belongs to."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a run. `data` holds the fields of its kind, see above.

    `subject` is the value that it tells of, which is in no JSON: the tools by name (`run_start`), the messages
    (`model_request`), the Reply (`model_reply`) or the ToolResult (`tool_exec_result`).
    """

    name: str
    run_id: str
    turn: int
    timestamp: str
    data: Mapping[str, Any] = field(default_factory=dict)
    subject: Any = field(default=None, repr=False, compare=False)

    def to_json(self) -> str:
        """The event as one line of JSON."""
        whole = {"event": self.name, "run_id": self.run_id, "turn": self.turn, "timestamp": self.timestamp, **self.data}
        return json.dumps(whole, ensure_ascii=False, default=str)


Sink = Callable[[Event], None]
"""What is told of a run. A method `enter_call(call_id)` of one is called where the tool of a call runs, before it."""

_CONTENT = ("text", "arguments", "raw_arguments", "result_preview", "reason")


def log_event(event: Event) -> None:
    """The sink of every run: one JSON line at level INFO on the logger `toolkit`."""
    _log.info(event.to_json())


def write_lines(path: str | Path) -> Sink:
    """A sink that appends each event to a file as a line of JSON (UTF-8): `on_event=write_lines("events.jsonl")`."""
    lock = threading.Lock()

    def sink(event: Event) -> None:
        with lock, Path(path).open("a", encoding="utf-8") as file:
            file.write(event.to_json() + "\n")

    return sink


def without_content(sink: Sink, share: float = 0.0) -> Sink:
    """A sink that passes events on without what people or models said in them: those fields and `subject` are None.

    In a `share` (0 to 1) of all runs, chosen by their id, they stay.
    """

    def without(event: Event) -> None:
        if zlib.crc32(event.run_id.encode()) >= share * 2**32:
            data = {k: None if k in _CONTENT else v for k, v in event.data.items()}
            event = replace(event, data=data, subject=None)
        sink(event)

    if hasattr(sink, "enter_call"):
        without.enter_call = sink.enter_call  # type: ignore[attr-defined]
    return without


def listeners(on_event: Sink | Iterable[Sink] | None) -> tuple[Sink, ...]:
    """The sinks of a run; none where nobody listens, so that then nothing is spent on events."""
    logged = (_logger_sink(),) if _log.isEnabledFor(logging.INFO) else ()
    return (*logged, *((on_event,) if callable(on_event) else filter(None, on_event or ())))


def _logger_sink() -> Sink:
    share = os.environ.get("TOOLKIT_LOG_CONTENT", "1")
    try:
        return log_event if float(share) >= 1 else without_content(log_event, float(share))
    except ValueError:
        raise ValueError(f"TOOLKIT_LOG_CONTENT={share!r} is no share of runs. Set a number from 0 to 1.") from None


def tell(sinks: tuple[Sink, ...], told: Iterator[Event]) -> None:
    """Give events, which are made only then, to the sinks. What goes wrong in one is logged and breaks nothing."""
    for event in told if sinks else ():
        for sink in sinks:
            try:
                sink(event)
            except Exception:
                _log.exception("an event sink failed on %s", event.name)


def run_started(run: Run, model: str, provider: str, tools: Mapping[str, Any]) -> Iterator[Event]:
    asked = {"model": model, "provider": provider, "tools": list(tools), "max_turns": run.max_turns}
    yield _event("run_start", run, subject=tools, **asked, parent_call_id=current_call.get())


def route_switched(run: Run, reason: str) -> Iterator[Event]:
    yield _event("route_switch", run, route="prompted", reason=reason)


def run_ended(run: Run, outcome: Mapping[str, str]) -> Iterator[Event]:
    tokens = {"input_tokens": run.usage.input_tokens, "output_tokens": run.usage.output_tokens}
    yield _event("run_end", run, **outcome, turns=run.turns, **tokens, time_ms=_milliseconds(run.seconds))


def step_began(run: Run, step: Step, model: str, tools: int) -> Iterator[Event]:
    """What is to be told before a step."""
    match step:
        case CallModel(messages, tool_choice):
            asked = {"messages": len(messages), "tools": tools, "tool_choice": tool_choice}
            yield _event("model_request", run, run.turns + 1, subject=messages, model=model, **asked)
        case CallTools(calls):
            for call in calls:
                read = {"arguments": copied(dict(call.arguments)), "raw_arguments": copied(call.raw)}
                sent = {**_named(call), **read, "repairs": list(call.repairs)}
                yield _event("tool_call_request", run, **sent, model=model)


def step_ended(run: Run, step: Step, outcome: Outcome, model: str, seconds: float) -> Iterator[Event]:
    """What is to be told after a step; `run` is as it was before it."""
    match step, outcome:
        case CallModel(), Reply(message, usage, finish) as reply:
            text, calls = message.opaque.get("prompted") or message.text, len(message.tool_calls)
            said = {"text": text, "tool_calls": calls, "finish": finish}
            tokens = {field.name: getattr(usage, field.name) for field in fields(usage)}
            taken = {"time_ms": _milliseconds(seconds)}
            yield _event("model_reply", run, run.turns + 1, subject=reply, model=model, **said, **tokens, **taken)
        case AskApproval(calls), Mapping():
            for call in calls:
                verdict = outcome[call.id]
                decided = {"decision": verdict.decision, "by": verdict.by, "reason": verdict.reason}
                yield _event("approval", run, **_named(call), **decided)
        case CallTools(calls), tuple():
            for call, result in zip(calls, outcome, strict=True):
                yield _event("tool_exec_result", run, subject=result, **_named(call), **_came_of(run, call, result))


def _event(name: str, run: Run, turn: int | None = None, /, subject: Any = None, **data: Any) -> Event:
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
