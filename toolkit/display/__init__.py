"""Runs and registries as people see them: HTML for a notebook or a file, lines for a terminal, and progress."""

from __future__ import annotations

import html
import sys
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from toolkit.events import Event, Sink
from toolkit.messages import ToolCall, ToolResult, Usage, as_json
from toolkit.runs.results import RunResult
from toolkit.tools.registry import ToolRegistry
from toolkit.tools.tool import Tool

_TABLE = "border-collapse:collapse;text-align:left;font-size:90%"
_CELL = "padding:2px 8px;vertical-align:top;text-align:left"
_MOST_IN_CELL = 400
_MOST_IN_DETAIL = 20_000  # characters of one text; of what is longer, its head
_MOST_IN_LINE = 100
_MOST_LINES = 40  # of a live display in a notebook


def registry_html(registry: ToolRegistry) -> str:
    """The tools as a table."""
    rows = [_cells("td", _tool_cells(tool)) for tool in registry]
    head = _cells("th", ("tool", "tier", "parameters", "description"))
    return f"<table style='{_TABLE}'>{head}{''.join(rows)}</table>"


def registry_text(registry: ToolRegistry) -> str:
    """The tools as lines, one each."""
    rows = [_tool_cells(tool) for tool in registry]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def result_html(result: RunResult) -> str:
    """The answer, and under it the run as a timeline that can be folded; nothing is loaded from elsewhere."""
    rows, total = _timeline(result)
    lines = "".join(_row_html(row, total) for row in rows)
    return (
        f"<div class='toolkit-run'><style>{_STYLE}</style><div class='answer'>{html.escape(str(result))}</div>"
        f"<details{'' if result.text else ' open'}><summary>{html.escape(_summary(result, total))}</summary>"
        f"{lines}</details></div>"
    )


def result_page(result: RunResult) -> str:
    """The same as a whole page, unfolded, for a file."""
    title = f"Run {result.run.id}"
    shown = result_html(result).replace(
        "<details><summary>", "<details open><summary>", 1
    )
    return page(
        title,
        f"<h1>{html.escape(title)}</h1><p>{html.escape(_prompt(result))}</p>{shown}",
    )


def page(title: str, body: str, style: str = "") -> str:
    """A whole page of HTML that loads nothing. `body` is HTML, `title` plain text."""
    return (
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        f"<meta name='viewport' content='width=device-width'><style>{_PAGE_STYLE}{style}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def result_text(result: RunResult) -> str:
    """The run as a tree of lines: its turns, their calls, and what came of them."""
    rows, total = _timeline(result)
    lines = [_line(_prompt(result) or "(no prompt)")]
    for at, row in enumerate(rows):
        is_last = row.is_turn and not any(later.is_turn for later in rows[at + 1 :])
        if row.is_turn:
            stem = "   " if is_last else "│  "
            lines.append(
                f"{'└' if is_last else '├'}─ {row.name}  {row.note}  {_line(row.came)}".rstrip()
            )
        else:
            lines.append(
                f"{stem}{row.mark} {row.name}({_line(row.given)}) → {_line(row.came)}  {row.note}".rstrip()
            )
    return "\n".join([*lines, f"{_summary(result, total)}"])


def live(stream: TextIO | None = None) -> Sink:
    """A sink that shows a run while it goes on: `on_event=live()`.

    In a notebook one place that is renewed; else a line for each step on `stream` (standard error), indented for a run
    inside a tool.
    """
    shown = _Live(stream)
    return shown.show


@dataclass(frozen=True, slots=True)
class _Row:
    """A stretch of time: a request to the model, or a call."""

    is_turn: bool
    name: str
    began: float
    seconds: float
    given: str
    came: str
    note: str
    mark: str = " "


_MARKS = {
    "": "✓",
    "planned": "◇",
    "denied": "⊘",
    "not_run": "⊘",
    "waits": "?",
}  # any other ends in failure


def _timeline(result: RunResult) -> tuple[list[_Row], float]:
    """The rows in their order in time, and the seconds of the whole, waiting for people left out."""
    run, now, turn = result.run, 0.0, 0
    rows: list[_Row] = []
    messages = run.messages[run.history :]
    for at, message in enumerate(messages):
        if message.role != "assistant":
            continue
        said = run.log[turn] if turn < len(run.log) else None
        turn += 1
        seconds, usage = (said.seconds, said.usage) if said else (0.0, Usage())
        note = f"{_time(seconds)} · {usage.input_tokens} in, {usage.output_tokens} out"
        rows.append(_Row(True, f"turn {turn}", now, seconds, "", message.text, note))
        now += seconds
        answers = messages[at + 1].tool_results if at + 1 < len(messages) else ()
        results = {answer.call_id: answer for answer in answers}
        rows += (
            _call_row(call, results.get(call.id), result, now)
            for call in message.tool_calls
        )
        now = max([now, *(now + answer.started + answer.seconds for answer in answers)])
    return rows, now


def _call_row(
    call: ToolCall, answer: ToolResult | None, result: RunResult, now: float
) -> _Row:
    arguments = (
        call.arguments
        if answer is None or answer.arguments is None
        else answer.arguments
    )
    given = (
        call.raw if call.problem and isinstance(call.raw, str) else as_json(arguments)
    )
    if answer is None:
        return _Row(
            False, call.name, now, 0.0, given, "waits for approval", "", _MARKS["waits"]
        )
    verdict = result.run.decided.get(call.id)
    decided = (
        f"{verdict.decision}{f' by {verdict.by}' if verdict.by else ''}"
        if verdict
        else ""
    )
    repairs = (
        f"repaired: {', '.join(answer.repairs or call.repairs)}"
        if answer.repairs or call.repairs
        else ""
    )
    notes = [_time(answer.seconds), answer.reason, decided, repairs]
    mark = _MARKS.get(answer.reason, "✗")
    note = " · ".join(filter(None, notes))
    return _Row(
        False,
        call.name,
        now + answer.started,
        answer.seconds,
        given,
        answer.content,
        note,
        mark,
    )


def _row_html(row: _Row, total: float) -> str:
    left, width = (
        100 * part / total if total else 0 for part in (row.began, row.seconds)
    )
    kind = (
        "turn" if row.is_turn else {"✓": "done", "✗": "failed"}.get(row.mark, "unrun")
    )
    texts = [("arguments", row.given), ("text" if row.is_turn else "result", row.came)]
    details = "".join(
        f"<dt>{name}</dt><dd>{html.escape(_cut(text))}</dd>"
        for name, text in texts
        if text
    )
    return (
        f"<details class='row {kind}'><summary><span class='name'>{html.escape(f'{row.mark} {row.name}')}</span>"
        f"<span class='track'><i style='left:{min(left, 99.5):.2f}%;width:{max(width, 0.5):.2f}%'></i></span>"
        f"<span class='note'>{html.escape(row.note)}</span></summary><dl>{details}</dl></details>"
    )


_STYLE = (
    ".toolkit-run{font:14px/1.45 system-ui,sans-serif;max-width:70em}"
    ".toolkit-run .answer{white-space:pre-wrap;margin:.3em 0 .6em;overflow-wrap:anywhere}"
    ".toolkit-run summary{cursor:pointer;padding:2px 0}"
    ".toolkit-run .row>summary{display:flex;gap:.8em;align-items:center;list-style:none}"
    ".toolkit-run .row>summary::-webkit-details-marker{display:none}"
    ".toolkit-run .row>summary:hover{background:rgba(128,128,128,.12)}"
    ".toolkit-run .name{flex:0 0 15em;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}"
    ".toolkit-run .turn .name{font-weight:600}"
    ".toolkit-run .row:not(.turn) .name{padding-left:1.4em;box-sizing:border-box;font-family:ui-monospace,monospace}"
    ".toolkit-run .track{flex:1 1 10em;position:relative;height:10px;border-radius:3px;"
    "background:rgba(128,128,128,.15)}"
    ".toolkit-run .track i{position:absolute;top:0;bottom:0;border-radius:3px;background:#5b7fd6}"
    ".toolkit-run .done i{background:#2f9e75}.toolkit-run .failed i{background:#cc3f4c}"
    ".toolkit-run .unrun i{background:#999}.toolkit-run .failed .name{color:#cc3f4c}"
    ".toolkit-run .note{flex:0 1 22em;opacity:.75;font-size:90%;overflow:hidden;text-overflow:ellipsis;"
    "white-space:nowrap}"
    ".toolkit-run dl{margin:.2em 0 .6em 1.4em;border-left:2px solid rgba(128,128,128,.4);padding-left:.8em}"
    ".toolkit-run dt{font-size:80%;opacity:.7}"
    ".toolkit-run dd{margin:0 0 .4em;white-space:pre-wrap;overflow-wrap:anywhere;max-height:24em;overflow:auto;"
    "font-family:ui-monospace,monospace;font-size:90%}"
)
_PAGE_STYLE = (
    ":root{color-scheme:light dark}"
    "body{margin:2em auto;max-width:70em;padding:0 1em;font:15px/1.5 system-ui,sans-serif}"
    "h1{font-size:1.2em;overflow-wrap:anywhere}"
)


def _summary(result: RunResult, total: float) -> str:
    run = result.run
    counts = f"{run.turns} turns · {len(result.calls)} calls · {run.usage.total_tokens} tokens · {_time(total)}"
    return f"{result.stop_reason} · {counts}"


def _prompt(result: RunResult) -> str:
    at = result.run.history
    return result.messages[at].text if at < len(result.messages) else ""


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _line(text: str | None) -> str:
    """The beginning of a text as one line that a terminal can show: no control character gets through."""
    if text is None:  # taken out, by `without_content`
        return "…"
    flat = "".join(c if c.isprintable() else " " for c in text[: 2 * _MOST_IN_LINE])
    flat = " ".join(flat.split())
    return flat if len(flat) <= _MOST_IN_LINE else f"{flat[:_MOST_IN_LINE]}…"


def _cut(text: str, most: int = _MOST_IN_DETAIL) -> str:
    return (
        text
        if len(text) <= most
        else f"{text[:most]}… ({len(text):,} characters in all)"
    )


class _Live:
    """What `live` shows, and how deep the runs inside tools are."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream, self.lock, self.lines = (
            stream,
            threading.Lock(),
            deque[str](maxlen=_MOST_LINES),
        )
        self.depth: dict[
            str, int
        ] = {}  # of a run; and of each call, for a run inside it
        self.handle = None if stream else _notebook_display()

    def show(self, event: Event) -> None:
        with self.lock:
            for line in self._lines(event):
                self._put("  " * self.depth.get(event.run_id, 0) + line)

    def _lines(self, event: Event) -> Iterator[str]:
        data = event.data
        match event.name:
            case "run_start":
                self.depth[event.run_id] = (
                    self.depth.get(data["parent_call_id"], -1) + 1
                )
                yield f"run {event.run_id[:8]} · {data['model']} · {len(data['tools'])} tools"
            case "model_reply":
                tokens = f"{data['input_tokens']} in, {data['output_tokens']} out"
                yield f"turn {event.turn} · {_time(data['time_ms'] / 1000)} · {tokens}  {_line(data['text'])}".rstrip()
            case "tool_call_request":
                self.depth[data["tool_call_id"]] = self.depth.get(event.run_id, 0) + 1
                given = (
                    None if data["arguments"] is None else as_json(data["arguments"])
                )
                yield f"  … {data['tool_name']}({_line(given)})"
            case "approval":
                yield f"  {data['tool_name']}: {data['decision']}"
            case "tool_exec_result":
                self.depth.pop(data["tool_call_id"], None)
                mark = "✓" if data["success"] else "✗"
                taken, came = (
                    _time(data["time_ms"] / 1000),
                    _line(data["result_preview"]),
                )
                yield f"  {mark} {data['tool_name']} · {taken}  {came}"
            case "run_end":
                yield f"{data.get('stop_reason') or data.get('error')} · {_time(data['time_ms'] / 1000)}"
                self.depth.pop(event.run_id, None)

    def _put(self, line: str) -> None:
        self.lines.append(line)
        if self.handle is None:
            print(line, file=self.stream or sys.stderr, flush=True)
        else:
            text = html.escape("\n".join(self.lines))
            self.handle.update(
                {"text/html": f"<pre>{text}</pre>", "text/plain": line}, raw=True
            )


def _notebook_display() -> Any:
    """A place in the output of the running cell; None outside a notebook."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    shell = get_ipython()
    is_notebook = shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
    empty = {"text/plain": ""}
    return display(empty, raw=True, display_id=True) if is_notebook else None  # type: ignore[no-untyped-call]


def _tool_cells(tool: Tool) -> tuple[str, ...]:
    required = tool.parameters.get("required", ())
    names = (
        name if name in required else f"{name}?"
        for name in tool.parameters["properties"]
    )
    described = (tool.description or "").strip().splitlines() or [""]
    return tool.name, tool.permission, ", ".join(names), described[0]


def _cells(tag: str, cells: tuple[str, ...]) -> str:
    shown = (html.escape(_cut(cell, _MOST_IN_CELL)) for cell in cells)
    return f"<tr>{''.join(f'<{tag} style={_CELL!r}>{cell}</{tag}>' for cell in shown)}</tr>"
