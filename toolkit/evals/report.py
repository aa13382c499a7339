"""What an evaluation came to: rates with their intervals, the comparison with a baseline, and the report on a page.

Intervals are Wilson's, 95 percent. Their sample size is the number of cases: repeats of a case make its own rate
more exact, but they are no further cases. So they say what to expect of more cases of this kind.

The comparison is paired by case. Whether there is a regression is decided by an exact test of what the noise of a
model can do: in each case the passes of both reports are dealt out anew over their repeats, and of all ways to do so
at most one in 200 (`alpha`) may come out as low (one-sided; with one repeat this is McNemar's exact test). It is
asked for all cases and for those of each tool, and alarms wrongly in one of 200 comparisons at most, all these
questions together (Tarone's correction, 1990: a question that no outcome could answer with yes is not counted). The
repeats of a case count as independent here; where a model always answers the same, one is enough. The interval of
the difference is a bootstrap over the cases, 95 percent, with a fixed seed.
"""

from __future__ import annotations

import html
import itertools
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from toolkit.cost import Money, Price
from toolkit.display import page
from toolkit.evals.cases import NO_CALL, Label
from toolkit.messages import Usage, whole_characters

ALL = "all cases"
_WIDEST_MATRIX = 60
_MOST_LINES = 40  # of a part of the terminal's table


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one case, once.

    `label` is "right", or says what is wrong, and `explanation` says it in a sentence. "truncated": the output limit
    ended a reply; "error": something raised. Neither passes. `tools` are those expected (`NO_CALL`: none), `calls`
    those made, and `pairs` sets them side by side: expected, called, and whether the arguments were right too.
    """

    case: str
    label: Label
    explanation: str = ""
    repeat: int = 0
    input: str = ""
    expected: str = ""
    tools: tuple[str, ...] = ()
    calls: tuple[Mapping[str, Any], ...] = ()
    pairs: tuple[tuple[str, str, bool], ...] = ()
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the calls were those expected, arguments and all."""
        return self.label == "right"


@dataclass(frozen=True, slots=True)
class Share:
    """A share of `of` cases; each counts by its own rate over the repeats."""

    passed: float
    of: int

    @property
    def value(self) -> float:
        """The share, from 0 to 1."""
        return self.passed / self.of if self.of else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval, 95 percent."""
        if not self.of:
            return 0.0, 1.0
        z, n, p = 1.959964, self.of, self.value
        middle, spread = (
            p + z * z / (2 * n),
            z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)),
        )
        return max((middle - spread) / (1 + z * z / n), 0.0), min(
            (middle + spread) / (1 + z * z / n), 1.0
        )

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.value:.1%} [{low:.1%}, {high:.1%}] of {self.of}" if self.of else "–"
        )


@dataclass(frozen=True, slots=True)
class Report:
    """The outcomes of an evaluation, in the order of its cases. `str(report)` is a table for a terminal.

    `planned` is how many outcomes there were to be: more than there are where it was interrupted.
    """

    outcomes: tuple[Outcome, ...]
    model: str = ""
    planned: int = 0
    price: Price | None = None
    version: Literal[1] = 1

    @property
    def pass_rate(self) -> Share:
        """The share of all cases that came out right."""
        return _rate((outcome.case, outcome.passed) for outcome in self.outcomes)

    @property
    def should_not_call(self) -> Share:
        """Of the cases in which no tool should be called, the share in which none was."""
        return _rate((o.case, o.passed) for o in self.outcomes if o.tools == (NO_CALL,))

    @property
    def tools(self) -> dict[str, Share]:
        """For each expected tool, the share of its expected calls that were right, arguments and all."""
        names = sorted(
            {name for outcome in self.outcomes for name in outcome.tools} - {NO_CALL}
        )
        paired = [(o.case, *pair) for o in self.outcomes for pair in o.pairs]
        return {
            n: _rate((case, right) for case, wanted, _, right in paired if wanted == n)
            for n in names
        }

    @property
    def matrix(self) -> dict[tuple[str, str], int]:
        """How often each tool was called where each was expected, by (expected, called)."""
        return dict(
            Counter(
                (wanted, called) for o in self.outcomes for wanted, called, _ in o.pairs
            )
        )

    @property
    def failures(self) -> list[Outcome]:
        """The outcomes that did not come out right."""
        return [outcome for outcome in self.outcomes if not outcome.passed]

    @property
    def usage(self) -> Usage:
        """The tokens of all outcomes together."""
        return sum((outcome.usage for outcome in self.outcomes), Usage())

    @property
    def seconds(self) -> tuple[float, float]:
        """How long a case took: the median, and what 95 percent stayed below."""
        took = sorted(outcome.seconds for outcome in self.outcomes) or [0.0]
        return statistics.median(took), took[math.ceil(0.95 * len(took)) - 1]

    @property
    def cost(self) -> Money | None:
        """What all tokens cost at `price`; None where there is no price."""
        return self.price.of(self.usage) if self.price else None

    def save(self, path: str | Path) -> None:
        """Write the report as JSON, for `Report.load` and as a baseline."""
        from pydantic import TypeAdapter

        plain = TypeAdapter(Report).dump_python(self, mode="json", fallback=str)
        Path(path).write_text(
            json.dumps(whole_characters(plain), ensure_ascii=False, indent=1),
            encoding="utf-8",
        )

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """Read what `save` wrote. Raises ValueError where it is something else."""
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(cls).validate_json(Path(path).read_bytes())
        except ValidationError as error:
            raise ValueError(
                f"{str(path)!r} is no saved report of version 1: {error}"
            ) from error

    def compare(
        self, baseline: Report | str | Path, *, alpha: float = 0.005
    ) -> Comparison:
        """Compare with a report, or the file of one, on the cases that both have; ValueError where there is none."""
        return _compare(
            self,
            baseline if isinstance(baseline, Report) else Report.load(baseline),
            alpha,
        )

    def save_html(self, path: str | Path) -> None:
        """Write the report as one HTML file that loads nothing."""
        Path(path).write_text(whole_characters(_page(self)), encoding="utf-8")

    def __str__(self) -> str:
        lines = [f"{name:<17} {value}" for name, value in _summary(self)]
        tools = sorted(self.tools.items(), key=lambda item: item[1].value)
        width = max((len(name) for name, _ in tools), default=0)
        lines += ["", *_clipped([f"{name:<{width}}  {rate}" for name, rate in tools])]
        confused = sorted(
            ((n, pair) for pair, n in self.matrix.items() if pair[0] != pair[1]),
            reverse=True,
        )
        lines += [
            "",
            *_clipped(
                [f"{wanted} → {called}  {n} ×" for n, (wanted, called) in confused]
            ),
        ]
        lines += [
            "",
            *_clipped(
                [
                    f"{what}  {case}: {why}"
                    for what, case, why, *_ in _told_once(self.failures)
                ]
            ),
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two reports side by side, case by case. `str(comparison)` says what changed; `exit_code` is 1 for a regression.

    `difference` is that of the pass rates over the common cases, and `interval` its 95 percent. `chances` says for all
    cases and for each expected tool how likely the noise of an equal model is to do as badly, and `regressions` where
    that does not explain the loss. `worse` and `better` name cases, `only_here` and `only_there` those not compared.
    """

    difference: float
    interval: tuple[float, float]
    chances: Mapping[str, float]
    regressions: tuple[str, ...]
    worse: tuple[str, ...]
    better: tuple[str, ...]
    only_here: tuple[str, ...]
    only_there: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """1 where there is a regression, else 0."""
        return int(bool(self.regressions))

    def __str__(self) -> str:
        low, high = self.interval
        lines = [f"difference {self.difference:+.1%} [{low:+.1%}, {high:+.1%}]"]
        lines += [
            f"REGRESSION in {name} (chance {self.chances[name]:.2g})"
            for name in self.regressions
        ]
        named = {
            "worse": self.worse,
            "better": self.better,
            "new": self.only_here,
            "gone": self.only_there,
        }
        lines += [
            f"{word}: {', '.join(cases)}" for word, cases in named.items() if cases
        ]
        return "\n".join(
            lines
            if self.exit_code
            else [f"{lines[0]}: no regression beyond noise", *lines[1:]]
        )


def _rate(samples: Iterable[tuple[str, bool]]) -> Share:
    by_case = _by_case(samples)
    return Share(sum(map(statistics.fmean, by_case.values())), len(by_case))


def _by_case(samples: Iterable[tuple[str, bool]]) -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = {}
    for case, passed in samples:
        found.setdefault(case, []).append(passed)
    return found


def _compare(here: Report, there: Report, alpha: float) -> Comparison:
    new, old = (
        _by_case((o.case, o.passed) for o in report.outcomes)
        for report in (here, there)
    )
    common = [case for case in new if case in old]
    if not common:
        raise ValueError(
            "The reports have no case in common. Cases are paired by their ids."
        )
    lost = {
        case: statistics.fmean(new[case]) - statistics.fmean(old[case])
        for case in common
    }
    groups: dict[str, set[str]] = {ALL: set(common)}
    for outcome in here.outcomes:
        for tool in outcome.tools if outcome.case in lost else ():
            groups.setdefault(tool, set()).add(outcome.case)
    distinct = {
        name: cases
        for name, cases in groups.items()
        if name == ALL or len(cases) < len(common)
    }
    tested = {
        name: _chance([(new[case], old[case]) for case in sorted(cases)])
        for name, cases in distinct.items()
    }
    alpha *= 1 + 1e-9  # 0.05 * 0.05 > 0.0025
    share = next(
        k
        for k in itertools.count(1)
        if sum(least <= alpha / k for _, least in tested.values()) <= k
    )
    generator, differences = random.Random(0), list(lost.values())
    means = sorted(
        statistics.fmean(generator.choices(differences, k=len(common)))
        for _ in range(2_000)
    )
    return Comparison(
        statistics.fmean(differences),
        (means[50], means[-51]),
        {name: chance for name, (chance, _) in tested.items()},
        tuple(name for name, (chance, _) in tested.items() if chance <= alpha / share),
        tuple(
            case
            for case in sorted(common, key=lambda case: lost[case])
            if lost[case] < 0
        ),
        tuple(case for case in common if lost[case] > 0),
        tuple(case for case in new if case not in old),
        tuple(case for case in old if case not in new),
    )


def _chance(pairs: list[tuple[list[bool], list[bool]]]) -> tuple[float, float]:
    """How likely so few of the new repeats pass, were the passes of each case dealt out at random; and the fewest."""
    ways = {0: 1.0}
    for new, old in pairs:
        passed, all_ways = sum(new) + sum(old), math.comb(len(new) + len(old), len(new))
        total: dict[int, float] = {}
        for k in range(max(0, passed - len(old)), min(len(new), passed) + 1):
            share = (
                math.comb(passed, k)
                * math.comb(len(new) + len(old) - passed, len(new) - k)
                / all_ways
            )
            for so_far, chance in ways.items():
                total[so_far + k] = total.get(so_far + k, 0.0) + chance * share
        ways = total
    seen = sum(sum(new) for new, _ in pairs)
    return sum(chance for count, chance in ways.items() if count <= seen), ways[
        min(ways)
    ]


# Words and pages


def _told_once(failures: list[Outcome]) -> list[tuple[str, ...]]:
    """Label, case, explanation, input and what was expected of each failure; how often it came stands at the label."""
    told = Counter(
        (o.label, o.case, o.explanation, o.input, o.expected) for o in failures
    )
    return [
        (f"{label} {count} ×" if count > 1 else label, *rest)
        for (label, *rest), count in told.items()
    ]


def _clipped(lines: list[str]) -> list[str]:
    return (
        lines
        if len(lines) <= _MOST_LINES
        else [*lines[:_MOST_LINES], f"… and {len(lines) - _MOST_LINES} more"]
    )


def _summary(report: Report) -> list[tuple[str, str]]:
    cases, usage, (median, most) = report.pass_rate.of, report.usage, report.seconds
    labels = Counter(outcome.label for outcome in report.outcomes)
    asked = f"{cases}, asked {len(report.outcomes)} times in all"
    rows = [
        ("model", report.model),
        (
            "cases",
            asked
            if len(report.outcomes) == report.planned
            else f"{asked} of {report.planned} (interrupted)",
        ),
        ("pass rate", str(report.pass_rate)),
        ("should not call", str(report.should_not_call)),
        (
            "outcomes",
            ", ".join(
                f"{labels[label]} {label}" for label in get_args(Label) if labels[label]
            ),
        ),
        ("tokens", f"{usage.input_tokens:,} in, {usage.output_tokens:,} out"),
        ("seconds a case", f"{median:.2f} median, {most:.2f} at 95 %"),
    ]
    return rows if report.cost is None else [*rows, ("cost", str(report.cost))]


def _page(report: Report) -> str:
    summary = "".join(
        f"<tr><th>{name}</th><td>{_escaped(value)}</td></tr>"
        for name, value in _summary(report)
    )
    tools = "".join(itertools.starmap(_tool, report.tools.items()))
    failures = (
        "".join(itertools.starmap(_failure, _told_once(report.failures)))
        or "<p>None.</p>"
    )
    body = f"""<h1>{report.pass_rate.value:.1%} right</h1>
<table class="plain">{summary}</table>
<h2>Expected (rows) and called (columns)</h2>{_matrix(report)}
<h2>Failures ({len(report.failures)})</h2>{failures}
<h2>Tools: expected calls that were right</h2><table class="plain">{tools}</table>"""
    return page(f"Evaluation of {report.model}", body, _STYLE)


_STYLE = """
h2 { margin: 2rem 0 .5rem; font-size: 1.2rem } table { border-collapse: collapse }
.plain th { text-align: left; font-weight: 600; overflow-wrap: anywhere }
.plain th, .plain td { padding: .1rem 1.5rem .1rem 0 } .wide { overflow-x: auto }
.bar { background: #c33; width: 10rem; height: .7rem } .bar div { background: #2a8a4a; height: 100% }
.failure { border-left: 4px solid #c33; padding: .1rem .8rem; margin: .6rem 0; overflow-wrap: anywhere }
.failure p { margin: 0 } .failure small { opacity: .75 } .label { color: #c33; font-weight: 600 }
.matrix { font-size: 12px; line-height: 1.3 }
.matrix td { border: 1px solid #8884; min-width: 1.3rem; height: 1.3rem; padding: 0; text-align: center }
.matrix th { font-weight: 400; max-width: 14rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.matrix tbody th { text-align: right; padding-right: .5rem; position: sticky; left: 0; background: Canvas }
.matrix thead th { writing-mode: vertical-rl; transform: rotate(180deg); max-height: 14rem; padding: .3rem 0 }
"""


def _matrix(report: Report) -> str:
    counts = report.matrix
    names = [NO_CALL, *sorted({name for pair in counts for name in pair} - {NO_CALL})]
    note = ""
    if len(names) > _WIDEST_MATRIX:
        confused = Counter(
            name
            for pair, count in counts.items()
            if pair[0] != pair[1]
            for name in pair * count
        )
        note = f"<p>Of {len(names)} tools, those most often taken for another.</p>"
        names = sorted(name for name, _ in confused.most_common(_WIDEST_MATRIX))
    head = "".join(
        f'<th title="{_escaped(name)}">{_escaped(name)}</th>' for name in names
    )
    rows = []
    for wanted in names:
        total = sum(count for (one, _), count in counts.items() if one == wanted)
        cells = "".join(
            _cell(wanted, called, counts.get((wanted, called), 0), total)
            for called in names
        )
        rows.append(
            f'<tr><th title="{_escaped(wanted)}">{_escaped(wanted)}</th>{cells}</tr>'
        )
    body = f"<thead><tr><td></td>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'{note}<div class="wide"><table class="matrix">{body}</table></div>'


def _cell(wanted: str, called: str, count: int, total: int) -> str:
    if not count:
        return f"<td{' style=background:#2a8a4a18' if wanted == called else ''}></td>"
    colour = "42,138,74" if wanted == called else "204,51,51"
    style = f"background:rgba({colour},{0.25 + 0.6 * count / total:.2f})"
    return f'<td style="{style}" title="{_escaped(wanted)} expected, {_escaped(called)} called">{count}</td>'


def _failure(label: str, case: str, why: str, said: str, expected: str) -> str:
    return (
        f'<div class="failure"><p><span class="label">{label}</span> {_escaped(why)}</p><small>{_escaped(case)} · '
        f"asked: {_escaped(said[:300])} · expected: {_escaped(expected)}</small></div>"
    )


def _tool(name: str, rate: Share) -> str:
    bar = f'<div class="bar"><div style="width:{rate.value:.0%}"></div></div>'
    return f"<tr><th>{_escaped(name)}</th><td>{bar}</td><td>{rate}</td></tr>"


def _escaped(text: str) -> str:
    return html.escape(text[:1_000])
