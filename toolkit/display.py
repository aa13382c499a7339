"""Runs and registries as people see them: HTML for a notebook, lines for a terminal."""

from __future__ import annotations

import html
from collections.abc import Iterable

from toolkit.registry import ToolRegistry
from toolkit.results import CallRecord, RunResult
from toolkit.tools import Tool

_STYLE = "border-collapse:collapse;text-align:left;font-size:90%"
_CELL = "padding:2px 8px;vertical-align:top;text-align:left"
_MOST_CHARACTERS = 400  # of one argument list or result


def registry_html(registry: ToolRegistry) -> str:
    """The tools as a table."""
    return _table(("tool", "tier", "parameters", "description"), map(_tool_cells, registry))


def registry_text(registry: ToolRegistry) -> str:
    """The tools as lines, one each."""
    rows = [_tool_cells(tool) for tool in registry]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def result_html(result: RunResult) -> str:
    """The answer, and the calls that led to it, as a table that can be folded."""
    run = result.run
    summary = f"{result.stop_reason} · {run.turns} turns · {len(result.calls)} calls · {run.usage.total_tokens} tokens"
    table = _table(("call", "arguments", "result", "ms", "verdict"), map(_call_cells, result.calls))
    return (
        f"<div><p style='white-space:pre-wrap'>{html.escape(str(result))}</p>"
        f"<details><summary>{html.escape(summary)}</summary>{table if result.calls else ''}</details></div>"
    )


def _tool_cells(tool: Tool) -> tuple[str, ...]:
    required = tool.parameters.get("required", ())
    names = (name if name in required else f"{name}?" for name in tool.parameters["properties"])
    described = (tool.description or "").strip().splitlines() or [""]
    return tool.name, tool.permission, ", ".join(names), described[0]


def _call_cells(call: CallRecord) -> tuple[str, ...]:
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    outcome = f"{'error: ' if call.is_error else ''}{call.content}"
    return call.name, arguments, outcome, f"{call.seconds * 1000:.0f}", call.verdict


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [_row("th", head), *(_row("td", row) for row in rows)]
    return f"<table style='{_STYLE}'>{''.join(lines)}</table>"


def _row(tag: str, cells: tuple[str, ...]) -> str:
    shown = (cell if len(cell) <= _MOST_CHARACTERS else f"{cell[:_MOST_CHARACTERS]} …" for cell in cells)
    return f"<tr>{''.join(f'<{tag} style={_CELL!r}>{html.escape(cell)}</{tag}>' for cell in shown)}</tr>"
