"""The report of an evaluation: rates by case and by tool, as a table for the terminal and as a page.

The frame of the page is report.html, its style report.css.
"""

from __future__ import annotations

import html
import itertools
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from statistics import median
from string import Template
from typing import Literal, get_args

from pydantic import TypeAdapter, ValidationError

from toolkit.cost import Money, Price
from toolkit.display import page
from toolkit.evals.cases import NO_CALL, Label, Outcome
from toolkit.evals.comparison import Comparison
from toolkit.evals.statistics import Results, Share, results_by_case
from toolkit.messages import Usage, visible, whole_characters

_SECTION_LINES = 40  # in the terminal
_MATRIX_TOOLS = 60  # on the page
_BODY = Template(files(__package__).joinpath("report.html").read_text("utf-8"))
_STYLE = files(__package__).joinpath("report.css").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Report:
    """The outcomes of an evaluation, in the order of its cases. `str(report)` is a table for a terminal.

    `planned` is how many outcomes there were to be: more than there are after an interruption.
    """

    outcomes: tuple[Outcome, ...]
    model: str = ""
    planned: int = 0
    price: Price | None = None
    version: Literal[1] = 1

    @property
    def results(self) -> Results:
        """Whether each repeat of each case passed."""
        return results_by_case((each.case, each.passed) for each in self.outcomes)

    @property
    def pass_rate(self) -> Share:
        """The share of all cases that are right."""
        return Share.of_results(self.results)

    @property
    def should_not_call(self) -> Share:
        """Of the cases in which no tool should be called, the share in which none was."""
        calm = [each for each in self.outcomes if each.tools == (NO_CALL,)]
        return replace(self, outcomes=tuple(calm)).pass_rate

    @property
    def tools(self) -> dict[str, Share]:
        """For each expected tool, the share of its expected calls that were right, with their arguments."""
        names = {name for outcome in self.outcomes for name in outcome.tools}
        pairs = [(each.case, *pair) for each in self.outcomes for pair in each.pairs]
        return {
            name: Share.of_results(
                results_by_case(
                    (case, is_right)
                    for case, expected, _, is_right in pairs
                    if expected == name
                )
            )
            for name in sorted(names - {NO_CALL})
        }

    @property
    def matrix(self) -> dict[tuple[str, str], int]:
        """How often each tool was called where each was expected, by (expected, called)."""
        return dict(Counter(pair[:2] for each in self.outcomes for pair in each.pairs))

    @property
    def failures(self) -> list[Outcome]:
        """The outcomes that are not right."""
        return [outcome for outcome in self.outcomes if not outcome.passed]

    @property
    def usage(self) -> Usage:
        """The tokens of all outcomes together."""
        return sum((outcome.usage for outcome in self.outcomes), Usage())

    @property
    def seconds(self) -> tuple[float, float]:
        """The duration of a case: the median, and what 95 percent stayed below."""
        durations = sorted(outcome.seconds for outcome in self.outcomes) or [0.0]
        return median(durations), durations[math.ceil(0.95 * len(durations)) - 1]

    @property
    def cost(self) -> Money | None:
        """What all tokens cost at `price`; None without a price."""
        return self.price.of(self.usage) if self.price else None

    def save(self, path: str | Path) -> None:
        """Write the report as JSON, for `Report.load` and as a baseline."""
        plain = TypeAdapter(Report).dump_python(self, mode="json", fallback=str)
        text = json.dumps(whole_characters(plain), ensure_ascii=False, indent=1)
        Path(path).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """Read a report that `save` wrote. Raises ValueError if it is something else."""
        try:
            return TypeAdapter(cls).validate_json(Path(path).read_bytes())
        except ValidationError as error:
            raise ValueError(
                f"{str(path)!r} is not a saved report of version 1: {error}"
            ) from error

    def compare(
        self, baseline: Report | str | Path, *, alpha: float = 0.005
    ) -> Comparison:
        """Compare with a report, or the file of one, on their common cases. Raises ValueError if there are none."""
        if not isinstance(baseline, Report):
            baseline = Report.load(baseline)
        tools: dict[str, set[str]] = {}
        for outcome in self.outcomes:
            for tool in outcome.tools:
                tools.setdefault(tool, set()).add(outcome.case)
        return Comparison.of_results(self.results, baseline.results, tools, alpha)

    def save_html(self, path: str | Path) -> None:
        """Write the report as one HTML file that loads nothing."""
        text = page(f"Evaluation of {self.model}", _page_body(self), _STYLE)
        Path(path).write_text(whole_characters(text), encoding="utf-8")

    def __str__(self) -> str:
        tools = sorted(self.tools.items(), key=lambda item: item[1].value)
        width = max((len(name) for name, _ in tools), default=0)
        confused = sorted(
            ((n, pair) for pair, n in self.matrix.items() if pair[0] != pair[1]),
            reverse=True,
        )
        sections = [
            [f"{name:<17} {value}" for name, value in self._summary().items()],
            [f"{name:<{width}}  {share}" for name, share in tools],
            [f"{expected} → {called}  {n} ×" for n, (expected, called) in confused],
            [f"{row[0]}  {row[1]}: {row[2]}" for row in self._distinct_failures()],
        ]
        return "\n\n".join("\n".join(_clipped(lines)) for lines in sections if lines)

    def _summary(self) -> dict[str, str]:
        count = f"{self.pass_rate.of}, asked {len(self.outcomes)} times in all"
        if len(self.outcomes) != self.planned:
            count += f" of {self.planned} (interrupted)"
        labels = Counter(outcome.label for outcome in self.outcomes)
        numbers = (
            f"{labels[label]} {label}" for label in get_args(Label) if labels[label]
        )
        half, most = self.seconds
        usage = self.usage
        rows = {
            "model": self.model,
            "cases": count,
            "pass rate": str(self.pass_rate),
            "should not call": str(self.should_not_call),
            "outcomes": ", ".join(numbers),
            "tokens": f"{usage.input_tokens:,} in, {usage.output_tokens:,} out",
            "seconds a case": f"{half:.2f} median, {most:.2f} at 95 %",
        }
        return {**rows, "cost": str(self.cost)} if self.price else rows

    def _distinct_failures(self) -> list[tuple[str, ...]]:
        """Label, case, explanation, input and expected calls of each failure, with the count of equal ones."""
        counts = Counter(
            (each.label, each.case, each.explanation, each.input, each.expected)
            for each in self.failures
        )
        return [
            (f"{label} {count} ×" if count > 1 else label, *rest)
            for (label, *rest), count in counts.items()
        ]


def _clipped(lines: list[str]) -> list[str]:
    left_out = len(lines) - _SECTION_LINES
    if left_out <= 0:
        return lines
    return [*lines[:_SECTION_LINES], f"… and {left_out} more"]


# The page


def _page_body(report: Report) -> str:
    summary = (
        f"<tr><th>{name}</th><td>{_escaped(value)}</td></tr>"
        for name, value in report._summary().items()
    )
    failures = itertools.starmap(_failure, report._distinct_failures())
    note, matrix = _matrix(report.matrix)
    return _BODY.substitute(
        rate=f"{report.pass_rate.value:.1%}",
        summary="".join(summary),
        note=note,
        matrix=matrix,
        count=len(report.failures),
        failures="".join(failures) or "<p>None.</p>",
        tools="".join(itertools.starmap(_tool, report.tools.items())),
    )


def _matrix(matrix: Mapping[tuple[str, str], int]) -> tuple[str, str]:
    """A note if some tools are left out, and the rows of the table."""
    note = ""
    tools = {name for pair in matrix for name in pair} - {NO_CALL}
    names = [NO_CALL, *sorted(tools)]
    if len(names) > _MATRIX_TOOLS:
        note = f"<p>Of {len(names)} tools, those most often taken for another.</p>"
        confused = Counter[str]()
        for (expected, called), count in matrix.items():
            if expected != called:
                confused.update({expected: count, called: count})
        names = sorted(name for name, _ in confused.most_common(_MATRIX_TOOLS))
    heads = [f'<th title="{_escaped(name)}">{_escaped(name)}</th>' for name in names]
    rows = [f"<thead><tr><td></td>{''.join(heads)}</tr></thead><tbody>"]
    for head, expected in zip(heads, names, strict=True):
        total = sum(count for pair, count in matrix.items() if pair[0] == expected)
        cells = (
            _cell(expected, called, matrix.get((expected, called), 0), total)
            for called in names
        )
        rows.append(f"<tr>{head}{''.join(cells)}</tr>")
    return note, f"{''.join(rows)}</tbody>"


def _cell(expected: str, called: str, count: int, total: int) -> str:
    is_right = expected == called
    if not count:
        return '<td class="right"></td>' if is_right else "<td></td>"
    colour = "42,138,74" if is_right else "204,51,51"
    style = f"background:rgba({colour},{0.25 + 0.6 * count / total:.2f})"
    title = f"{_escaped(expected)} expected, {_escaped(called)} called"
    return f'<td style="{style}" title="{title}">{count}</td>'


def _failure(label: str, case: str, reason: str, text: str, expected: str) -> str:
    return (
        f'<div class="failure"><p><span class="label">{label}</span> {_escaped(reason)}</p><small>{_escaped(case)} · '
        f"asked: {_escaped(text[:300])} · expected: {_escaped(expected)}</small></div>"
    )


def _tool(name: str, share: Share) -> str:
    bar = f'<div class="bar"><div style="width:{share.value:.0%}"></div></div>'
    return f"<tr><th>{_escaped(name)}</th><td>{bar}</td><td>{share}</td></tr>"


def _escaped(text: str) -> str:
    return html.escape(visible(text[:1_000], keep="\n\t"))
