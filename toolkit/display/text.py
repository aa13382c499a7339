"""Runs and registries as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from toolkit.display.shapes import ResultShape, ToolShape
from toolkit.display.timeline import timeline_of

_MAX_LINE_CHARS = 100


def registry_text(tools: Iterable[ToolShape]) -> str:
    """The tools as lines, one each."""
    rows = [tool_cells(tool) for tool in tools]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def result_text(result: ResultShape) -> str:
    """The run as a tree of lines: its turns, their calls, and the results."""
    timeline = timeline_of(result)
    lines = [one_line(timeline.prompt or "(no prompt)")]
    turns = [row for row in timeline.rows if row.is_turn]
    stem = ""
    for row in timeline.rows:
        text = one_line(row.text)
        if row.is_turn:
            is_last = row is turns[-1]
            stem = "   " if is_last else "│  "
            branch = "└" if is_last else "├"
            line = f"{branch}─ {row.name}  {row.note}  {text}"
        else:
            call = f"{row.name}({one_line(row.arguments)})"
            line = f"{stem}{row.mark} {call} → {text}  {row.note}"
        lines.append(line.rstrip())
    return "\n".join([*lines, timeline.summary])


def tool_cells(tool: ToolShape) -> tuple[str, str, str, str]:
    """The name, the tier, the parameters and the first line of the description of a tool."""
    required = tool.parameters.get("required", ())
    names = [
        name if name in required else f"{name}?"
        for name in tool.parameters["properties"]
    ]
    description = (tool.description or "").strip().partition("\n")[0]
    return tool.name, tool.permission, ", ".join(names), description


def one_line(text: str | None) -> str:
    """The beginning of a text as one line that a terminal can show: no control character gets through."""
    if text is None:  # removed by `without_content`
        return "…"
    start = text[: 2 * _MAX_LINE_CHARS]
    printable = "".join(char if char.isprintable() else " " for char in start)
    line = " ".join(printable.split())
    return line if len(line) <= _MAX_LINE_CHARS else f"{line[:_MAX_LINE_CHARS]}…"


def shortened(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}… ({len(text):,} characters in all)"
