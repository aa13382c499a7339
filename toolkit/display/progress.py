"""A run while it goes on: `on_event=live()`."""

from __future__ import annotations

import html
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, TextIO

from toolkit.display.text import one_line
from toolkit.display.timeline import duration
from toolkit.events import Event, Sink
from toolkit.messages import as_json, visible

_MAX_LINES = 40  # in a notebook


def live(stream: TextIO | None = None) -> Sink:
    """A sink that shows a run while it goes on: `on_event=live()`.

    In a notebook it keeps one place up to date. Elsewhere it writes a line for each step on `stream`
    (standard error by default), indented for a run inside a tool.
    """
    return _Live(stream).show


class _Live:
    """The lines of a live display, and how deep the runs inside of tools are."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        self.lock = threading.Lock()
        self.lines = deque[str](maxlen=_MAX_LINES)
        # By run id, and by call id for a run inside of the call.
        self.depth: dict[str, int] = {}
        self.handle = None if stream else _notebook_display()

    def show(self, event: Event) -> None:
        with self.lock:
            for line in self._lines(event):
                self._put("  " * self.depth.get(event.run_id, 0) + line)

    def _lines(self, event: Event) -> Iterator[str]:
        data = event.data
        seconds = duration(data.get("time_ms", 0) / 1000)
        match event.name:
            case "run_start":
                depth = self.depth.get(data["parent_call_id"], -1) + 1
                self.depth[event.run_id] = depth
                yield (
                    f"run {event.run_id[:8]} · {data['model']} · "
                    f"{len(data['tools'])} tools"
                )
            case "model_reply":
                tokens = f"{data['input_tokens']} in, {data['output_tokens']} out"
                line = f"turn {event.turn} · {seconds} · {tokens}"
                yield f"{line}  {one_line(data['text'])}".rstrip()
            case "tool_call_request":
                depth = self.depth.get(event.run_id, 0) + 1
                self.depth[data["tool_call_id"]] = depth
                arguments = data["arguments"]
                text = None if arguments is None else as_json(arguments)
                yield f"  … {data['tool_name']}({one_line(text)})"
            case "approval":
                yield f"  {data['tool_name']}: {data['decision']}"
            case "tool_exec_result":
                self.depth.pop(data["tool_call_id"], None)
                mark = "✓" if data["success"] else "✗"
                preview = one_line(data["result_preview"])
                yield f"  {mark} {data['tool_name']} · {seconds}  {preview}"
            case "run_end":
                yield f"{data.get('stop_reason') or data.get('error')} · {seconds}"
                self.depth.pop(event.run_id, None)

    def _put(self, line: str) -> None:
        self.lines.append(line)
        if self.handle is None:
            print(line, file=self.stream or sys.stderr, flush=True)
            return
        text = html.escape(visible("\n".join(self.lines), keep="\n"))
        content = {"text/html": f"<pre>{text}</pre>", "text/plain": line}
        self.handle.update(content, raw=True)


def _notebook_display() -> Any:
    """A place in the output of the running cell; None outside of a notebook."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    shell = get_ipython()
    if shell is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    return display({"text/plain": ""}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
