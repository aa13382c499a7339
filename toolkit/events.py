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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

_log = logging.getLogger("toolkit")
_PREVIEW_CHARACTERS = 200

current_call: contextvars.ContextVar[str] = contextvars.ContextVar(
    "current_call", default=""
)
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
        whole = {
            "event": self.name,
            "run_id": self.run_id,
            "turn": self.turn,
            "timestamp": self.timestamp,
            **self.data,
        }
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
    return (
        *logged,
        *((on_event,) if callable(on_event) else filter(None, on_event or ())),
    )


def _logger_sink() -> Sink:
    share = os.environ.get("TOOLKIT_LOG_CONTENT", "1")
    try:
        return (
            log_event if float(share) >= 1 else without_content(log_event, float(share))
        )
    except ValueError:
        raise ValueError(
            f"TOOLKIT_LOG_CONTENT={share!r} is no share of runs. Set a number from 0 to 1."
        ) from None


def tell(sinks: tuple[Sink, ...], told: Iterator[Event]) -> None:
    """Give events, which are made only then, to the sinks. What goes wrong in one is logged and breaks nothing."""
    for event in told if sinks else ():
        for sink in sinks:
            try:
                sink(event)
            except Exception:
                _log.exception("an event sink failed on %s", event.name)
