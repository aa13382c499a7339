"""The statistics of evaluations: intervals of rates, and whether noise explains a loss.

Intervals are Wilson's, 95 percent. Their sample size is the number of cases: repeats of a case make its own rate
more exact, but they are not further cases. So an interval says what to expect of more cases of this kind.

Comparisons are paired by case. An exact test decides whether there is a regression, from what the noise of a model
can do: in each case the passes of both reports are dealt out again over their repeats, and of all ways to do so at
most one in 200 (`alpha`) may be as low as the new report (one-sided; with one repeat this is McNemar's exact test).
The test is made for all cases and for those of each tool. Together these tests give a false alarm in at most one of
200 comparisons (Tarone's correction, 1990: a test that no outcome could make significant is not counted). The repeats
of a case count as independent; if a model always answers the same, one repeat is enough. The interval of the
difference is a bootstrap over the cases, 95 percent, with a fixed seed.

The test can tell something of 8 cases that passed once, or of 3 that passed twice (`repeat=2`, in both reports). With
fewer, a loss is reported as one that nobody can tell from noise. Only a fall of everything counts as a regression at
any size: at least three cases that always passed before, and none passes now.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

Results = Mapping[str, list[bool]]
"""Whether each repeat of each case passed."""

_Z = 1.959964  # of 95 percent
_SAMPLES = 2_000
_FALL_OF_CASES = 3


@dataclass(frozen=True, slots=True)
class Share:
    """A share of `of` cases. Each case counts by its own rate over the repeats."""

    passed: float
    of: int

    @classmethod
    def of_results(cls, results: Results) -> Share:
        """The share of cases that passed."""
        return cls(sum(map(fmean, results.values())), len(results))

    @property
    def value(self) -> float:
        """The share, from 0 to 1."""
        return self.passed / self.of if self.of else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval, 95 percent."""
        if not self.of:
            return 0.0, 1.0
        square = _Z * _Z / self.of
        variance = self.value * (1 - self.value) / self.of
        middle = self.value + square / 2
        spread = _Z * math.sqrt(variance + square / (4 * self.of))
        low, high = (middle - spread) / (1 + square), (middle + spread) / (1 + square)
        return max(low, 0.0), min(high, 1.0)

    def __str__(self) -> str:
        if not self.of:
            return "–"
        low, high = self.interval
        return f"{self.value:.1%} [{low:.1%}, {high:.1%}] of {self.of}"


def results_by_case(samples: Iterable[tuple[str, bool]]) -> Results:
    """Group samples, each a case and whether it passed."""
    results = defaultdict[str, list[bool]](list)
    for case, passed in samples:
        results[case].append(passed)
    return results


class Noise(NamedTuple):
    """How likely the noise of an equal model is to do as badly (`chance`), and as badly as possible (`least`)."""

    chance: float
    least: float

    @classmethod
    def of_results(cls, pairs: Iterable[tuple[list[bool], list[bool]]]) -> Noise:
        """Deal out the passes of each case at random over the new and the old repeats, and count all ways."""
        seen = 0
        total: Mapping[int, float] = {0: 1.0}
        for new, old in pairs:
            seen += sum(new)
            dealt = _dealt(sum(new) + sum(old), len(new), len(old))
            sums = defaultdict[int, float](float)
            for passes, share in dealt.items():
                for before, chance in total.items():
                    sums[before + passes] += chance * share
            total = sums
        chance = sum(chance for passes, chance in total.items() if passes <= seen)
        return cls(chance, total[min(total)])


def can_tell(old: Iterable[list[bool]], alpha: float) -> bool:
    """Whether the test would find it if all that passed before failed now."""
    worst = [([False] * len(results), results) for results in old]
    return Noise.of_results(worst).chance <= alpha


def is_fall_of_everything(new: Results, old: Results) -> bool:
    """Whether each of at least three cases always passed before, and none ever passes now."""
    before = [passed for case in new for passed in old[case]]
    now = [passed for passes in new.values() for passed in passes]
    return len(new) >= _FALL_OF_CASES and all(before) and not any(now)


def _dealt(passes: int, new: int, old: int) -> dict[int, float]:
    """How likely each number of passes falls to the new repeats of one case (hypergeometric)."""
    ways = math.comb(new + old, new)
    return {
        k: math.comb(passes, k) * math.comb(new + old - passes, new - k) / ways
        for k in range(max(0, passes - old), min(new, passes) + 1)
    }


def find_significant(tests: Mapping[str, Noise], alpha: float) -> tuple[str, ...]:
    """The tests whose loss noise does not explain, with Tarone's correction for several tests."""
    alpha *= 1 + 1e-9  # because 0.05 * 0.05 > 0.0025
    for divisor in itertools.count(1):
        limit = alpha / divisor
        if sum(noise.least <= limit for noise in tests.values()) <= divisor:
            break
    return tuple(name for name, noise in tests.items() if noise.chance <= limit)


def bootstrap_interval(values: list[float]) -> tuple[float, float]:
    """The interval of the mean, 95 percent, the same each time."""
    generator = random.Random(0)
    means = sorted(
        fmean(generator.choices(values, k=len(values))) for _ in range(_SAMPLES)
    )
    tail = _SAMPLES // 40
    return means[tail], means[-tail - 1]
