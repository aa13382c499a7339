"""Compares two evaluations case by case: what is worse, what is better, and whether noise explains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from toolkit.evals.statistics import (
    Noise,
    Results,
    bootstrap_interval,
    can_tell,
    find_significant,
    is_fall_of_everything,
)

ALL = "all cases"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two reports side by side, case by case. `str(comparison)` says what changed, and `exit_code` what to do.

    `difference` is that of the pass rates over the common cases, and `interval` its 95 percent. `chances` says for all
    cases and for each expected tool how likely the noise of an equal model is to do as badly, and `regressions` names
    those whose loss this does not explain. `too_few` is true if cases are worse, but are too few to tell it from noise:
    then more cases or a higher `repeat=` are needed. `worse` and `better` name cases, `only_here` and `only_there`
    those that were not compared.
    """

    difference: float
    interval: tuple[float, float]
    chances: Mapping[str, float]
    regressions: tuple[str, ...]
    too_few: bool
    worse: tuple[str, ...]
    better: tuple[str, ...]
    only_here: tuple[str, ...]
    only_there: tuple[str, ...]

    @classmethod
    def of_results(
        cls,
        new: Results,
        old: Results,
        tools: Mapping[str, set[str]],
        alpha: float,
    ) -> Comparison:
        """Compare the results of each case. `tools` holds the cases of each tool.

        Raises ValueError if there is no common case.
        """
        common = [case for case in new if case in old]
        if not common:
            raise ValueError(
                "The reports have no case in common. Cases are paired by their ids."
            )
        changes = {case: fmean(new[case]) - fmean(old[case]) for case in common}
        tests: dict[str, Noise] = {}
        for name, cases in {ALL: set(common), **tools}.items():
            pairs = [(new[case], old[case]) for case in common if case in cases]
            # A tool of all cases would be the same test once more.
            if name == ALL or 0 < len(pairs) < len(common):
                tests[name] = Noise.of_results(pairs)
        regressions = find_significant(tests, alpha)
        compared = {case: new[case] for case in common}
        if not regressions and is_fall_of_everything(compared, old):
            regressions = (ALL,)
        is_worse = any(change < 0 for change in changes.values())
        told = bool(regressions) or can_tell([old[case] for case in common], alpha)
        worst_first = sorted(common, key=changes.__getitem__)
        return cls(
            difference=fmean(changes.values()),
            interval=bootstrap_interval(list(changes.values())),
            chances={name: noise.chance for name, noise in tests.items()},
            regressions=regressions,
            too_few=is_worse and not told,
            worse=tuple(case for case in worst_first if changes[case] < 0),
            better=tuple(case for case in common if changes[case] > 0),
            only_here=tuple(case for case in new if case not in old),
            only_there=tuple(case for case in old if case not in new),
        )

    @property
    def exit_code(self) -> int:
        """1 if there is a regression, 3 if the cases are too few to tell, else 0."""
        if self.regressions:
            return 1
        return 3 if self.too_few else 0

    def __str__(self) -> str:
        low, high = self.interval
        first = f"difference {self.difference:+.1%} [{low:+.1%}, {high:+.1%}]"
        if self.too_few:
            first += ": too few cases to tell; add cases, or repeat= in both reports"
        elif not self.regressions:
            first += ": no regression beyond noise"
        lines = [first]
        for name in self.regressions:
            lines.append(f"REGRESSION in {name} (chance {self.chances[name]:.2g})")
        lists = {
            "worse": self.worse,
            "better": self.better,
            "new": self.only_here,
            "gone": self.only_there,
        }
        for title, cases in lists.items():
            if cases:
                lines.append(f"{title}: {', '.join(cases)}")
        return "\n".join(lines)
