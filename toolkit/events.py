"""The events that a run reports to its sinks, and the sinks for a logger and for JSON lines.

| event | fields beside `run_id`, `turn`, `timestamp` |
|---|---|
| `run_start` | `model`, `provider`, `tools` (names), `max_turns`, `parent_call_id` (the call inside which it runs) |
| `model_request` | `model`, `messages` (how many), `tools` (how many), `tool_choice` |
| `model_reply` | `model`, `text` (raw), `tool_calls` (how many), `finish`, `time_ms`, and the four counts of `Usage` |
| `tool_call_request` | `tool_call_id`, `tool_name`, `arguments` (as read), `raw_arguments`, `repairs`, `model` |
| `approval` | `tool_call_id`, `tool_name`, `decision`, `by`, `reason` |
| `tool_exec_result` | id, name, `success`, `status`, `error_type`, `approval`, `started_ms`, `time_ms` … |
| `route_switch` | `route` ("prompted": the server accepts no tools, so the prompt describes them now), `reason` |
| `run_end` | `stop_reason` or `error` (a class name), `turns`, `input_tokens`, `output_tokens`, `time_ms` |

`tool_exec_result` also has `repairs` and `result_preview`. Its `status` is "ok", "error" (it ran and
failed, or was left behind) or "not_executed". Its `error_type` is the `ToolResult.reason` of an error
("malformed", "denied" …), else "". `provider` names whose API is spoken ("openai"). `timestamp` is UTC in
ISO 8601, and a field that ends in `_ms` is in milliseconds; `started_ms` counts from the
`tool_call_request`s of the batch. The words of people and models are in `text`, `arguments`,
`raw_arguments`, `result_preview` and `reason`. `without_content` removes them. So does the environment
variable TOOLKIT_LOG_CONTENT=0 for the logger `toolkit` (0.1 keeps them in one run of ten).
"""

from __future__ import annotations

import contextvars
import json
import logging
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

_log = logging.getLogger("toolkit")

current_call: contextvars.ContextVar[str] = contextvars.ContextVar(
    "current_call", default=""
)
"""The id of the tool call that the running code belongs to."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a run. `data` has the fields of its kind, see the table of this module.

    `subject` is the value itself, which is not part of the JSON: the tools by name (`run_start`), the
    messages (`model_request`), the Reply (`model_reply`) or the ToolResult (`tool_exec_result`).
    """

    name: str
    run_id: str
    turn: int
    timestamp: str
    data: Mapping[str, Any] = field(default_factory=dict)
    subject: Any = field(default=None, repr=False, compare=False)

    def to_json(self) -> str:
        """The event as one line of JSON."""
        fields = {
            "event": self.name,
            "run_id": self.run_id,
            "turn": self.turn,
            "timestamp": self.timestamp,
            **self.data,
        }
        return json.dumps(fields, ensure_ascii=False, default=str)


Sink = Callable[[Event], None]
"""Gets the events of a run. If it has a method `enter_call(call_id)`, that is called where a tool runs, before it."""

_CONTENT = {"text", "arguments", "raw_arguments", "result_preview", "reason"}


def log_event(event: Event) -> None:
    """The sink of every run: one JSON line at level INFO on the logger `toolkit`."""
    _log.info(event.to_json())


def write_lines(path: str | Path) -> Sink:
    """A sink that appends each event to a file as a line of JSON in UTF-8: `on_event=write_lines("events.jsonl")`."""
    lock = threading.Lock()

    def sink(event: Event) -> None:
        with lock, Path(path).open("a", encoding="utf-8") as file:
            file.write(event.to_json() + "\n")

    return sink


def without_content(sink: Sink, share: float = 0.0) -> Sink:
    """A sink that passes events on without the words of people and models: those fields and `subject` are None.

    They stay in a `share` (0 to 1) of all runs, which is chosen by the ids of the runs.
    """

    def filtered(event: Event) -> None:
        if zlib.crc32(event.run_id.encode()) >= share * 2**32:
            removed = dict.fromkeys(_CONTENT & event.data.keys())
            event = replace(event, data={**event.data, **removed}, subject=None)
        sink(event)

    if hasattr(sink, "enter_call"):
        filtered.enter_call = sink.enter_call  # type: ignore[attr-defined]
    return filtered


def listeners(on_event: Sink | Iterable[Sink] | None) -> tuple[Sink, ...]:
    """The sinks of a run, without the logger if nobody listens to it."""
    sinks = [on_event] if callable(on_event) else filter(None, on_event or ())
    if not _log.isEnabledFor(logging.INFO):
        return tuple(sinks)
    return (_logger_sink(), *sinks)


def _logger_sink() -> Sink:
    text = os.environ.get("TOOLKIT_LOG_CONTENT", "1")
    try:
        share = float(text)
    except ValueError:
        raise ValueError(
            f"TOOLKIT_LOG_CONTENT={text!r} is not a share of the runs. "
            "Set a number from 0 to 1."
        ) from None
    return log_event if share >= 1 else without_content(log_event, share)


def tell(sinks: Iterable[Sink], events: Iterable[Event]) -> None:
    """Report events to the sinks. A sink that fails is logged and stops nothing."""
    for event in events:
        for sink in sinks:
            try:
                sink(event)
            except Exception:
                _log.exception("an event sink failed on %s", event.name)
