"""Runs and registries as HTML, for a notebook or a file. Nothing is loaded from elsewhere."""

from __future__ import annotations

import functools
import html
from collections.abc import Iterable
from pathlib import Path

from toolkit.display.shapes import ResultShape, ToolShape
from toolkit.display.text import shortened, tool_cells
from toolkit.display.timeline import Row, timeline_of
from toolkit.messages import visible

_MAX_CELL_CHARS = 400
_MAX_DETAIL_CHARS = 20_000
_CELL_STYLE = "padding:2px 8px;vertical-align:top;text-align:left"
_TABLE_STYLE = "border-collapse:collapse;text-align:left;font-size:90%"
_KINDS = {"✓": "done", "✗": "failed"}


def registry_html(tools: Iterable[ToolShape]) -> str:
    """The tools as a table."""
    rows = [_table_row("td", tool_cells(tool)) for tool in tools]
    head = _table_row("th", ("tool", "tier", "parameters", "description"))
    return f"<table style='{_TABLE_STYLE}'>{head}{''.join(rows)}</table>"


def result_html(result: ResultShape, *, is_open: bool = False) -> str:
    """The answer, and under it the run as a timeline that folds; open if there is no answer."""
    timeline = timeline_of(result)
    rows = "".join(_row_html(row, timeline.seconds) for row in timeline.rows)
    state = " open" if is_open or not result.text else ""
    return (
        f"<div class='toolkit-run'><style>{_style('timeline')}</style>"
        f"<div class='answer'>{_escaped(str(result))}</div>"
        f"<details{state}><summary>{_escaped(timeline.summary)}</summary>"
        f"{rows}</details></div>"
    )


def result_page(result: ResultShape) -> str:
    """The same as a whole page for a file, unfolded."""
    title = _escaped(f"Run {result.run.id}")
    prompt = _escaped(timeline_of(result).prompt)
    timeline = result_html(result, is_open=True)
    return page(f"Run {result.run.id}", f"<h1>{title}</h1><p>{prompt}</p>{timeline}")


def page(title: str, body: str, style: str = "") -> str:
    """A whole page of HTML that loads nothing. `body` is HTML, `title` plain text."""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f"<title>{_escaped(title)}</title>"
        "<meta name='viewport' content='width=device-width'>"
        f"<style>{_style('page')}{style}</style></head><body>{body}</body></html>\n"
    )


@functools.cache
def _style(name: str) -> str:
    return Path(__file__).with_name(f"{name}.css").read_text("utf-8")


def _row_html(row: Row, total: float) -> str:
    left = 100 * row.start / total if total else 0
    width = 100 * row.seconds / total if total else 0
    bar = f"left:{min(left, 99.5):.2f}%;width:{max(width, 0.5):.2f}%"
    kind = "turn" if row.is_turn else _KINDS.get(row.mark, "unrun")
    texts = {"arguments": row.arguments, "text" if row.is_turn else "result": row.text}
    details = "".join(
        f"<dt>{name}</dt><dd>{_escaped(shortened(text, _MAX_DETAIL_CHARS))}</dd>"
        for name, text in texts.items()
        if text
    )
    name = _escaped(f"{row.mark} {row.name}")
    return (
        f"<details class='row {kind}'><summary><span class='name'>{name}</span>"
        f"<span class='track'><i style='{bar}'></i></span>"
        f"<span class='note'>{_escaped(row.note)}</span></summary>"
        f"<dl>{details}</dl></details>"
    )


def _escaped(text: str) -> str:
    """A text as HTML in which nothing is invisible or turns the direction of what stands around it."""
    return html.escape(visible(text, keep="\n\t"))


def _table_row(tag: str, cells: Iterable[str]) -> str:
    entries = "".join(
        f"<{tag} style={_CELL_STYLE!r}>"
        f"{_escaped(shortened(cell, _MAX_CELL_CHARS))}</{tag}>"
        for cell in cells
    )
    return f"<tr>{entries}</tr>"
