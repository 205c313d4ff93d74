"""A search for rungs of a ladder that would do better with other times: one at a time.

What is compared runs in turns on the same problems with the same seeds. The ladder itself runs
twice in every turn: by how much that differs from itself is the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from ladder_records import FAILED, RAN, TOO_LITTLE_TIME, Event, Run

from offcert.certification.rung import Rung
from offcert.questions.schedule.problem import Problem

# What is nearly closed is closed; gaps of long traces go down to some 1e-8.
LEAST_GAP, LEAST_SECONDS = 1e-9, 0.01
# An open problem counts as if it had been closed after that many times the limit.
OPEN_TIMES = 10.0
# A rung that takes less than this part of its time ends by itself: other times change nothing.
HARDLY = 0.05

Ladder = tuple[Rung, ...]
# Climbs such rungs on a problem, with a seed.
Trial = Callable[[Sequence[Rung], Problem, int], Run]
Score = Callable[[Run], float]


def gap_score(run: Run) -> float:
    """Return the logarithm of the gap that is left."""
    return math.log(max(run.gap, LEAST_GAP))


def time_score(time_limit: float) -> Score:
    """Return a function that gives the logarithm of the seconds until the gap was closed."""

    def score(run: Run) -> float:
        seconds = OPEN_TIMES * time_limit if run.gap else run.seconds
        return math.log(max(seconds, LEAST_SECONDS))

    return score


def score_by(name: str, time_limit: float) -> Score:
    """Return the score of this name: ``gap`` or ``time``."""
    return {"gap": gap_score, "time": time_score(time_limit)}[name]


def with_factor(rung: Rung, factor: float) -> Rung:
    """Return a rung with so many times the time: its share, and what bounds it in seconds.

    With another share alone nothing would change where a bound applies.
    """
    return replace(
        rung,
        share=min(1.0, factor * rung.share),
        at_least=factor * rung.at_least,
        at_most=factor * rung.at_most,
    )


@dataclass(frozen=True)
class Comparison:
    """A ladder, itself again, and another one, on the same problems with the same seeds.

    Attributes
    ----------
    base, again, other : tuple of float
        Sums of scores, one a repetition; less is better.
    problems : int
        In each sum.
    """

    base: tuple[float, ...]
    again: tuple[float, ...]
    other: tuple[float, ...]
    problems: int

    @property
    def difference(self) -> float:
        """By how much the other one's sum is larger, in the mean over repetitions."""
        return fmean(self.other) - (fmean(self.base) + fmean(self.again)) / 2

    @property
    def noise(self) -> float:
        """The most by which two sums of the same ladder differed."""
        return max(abs(one - two) for one, two in zip(self.base, self.again, strict=True))

    @property
    def ratio(self) -> float:
        """The other one's geometric mean, over this one's."""
        return math.exp(self.difference / self.problems)

    @property
    def noise_ratio(self) -> float:
        """The noise as a ratio."""
        return math.exp(self.noise / self.problems)

    @property
    def verdict(self) -> str:
        """Whether the other one is ``better``, ``worse``, or there is no difference: ``none``."""
        if abs(self.difference) <= self.noise:
            return "none"
        return "better" if self.difference < 0 else "worse"


@dataclass(frozen=True)
class Tried:
    """The outcome of other times for one rung; no comparison where nothing can change."""

    position: int
    step: str
    factor: float
    comparison: Comparison | None

    def document(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        facts = {"position": self.position, "step": self.step, "factor": self.factor}
        return facts | comparison_document(self.comparison)


def comparison_document(found: Comparison | None) -> dict[str, Any]:
    """Return a comparison as a JSON value."""
    if found is None:
        return {"verdict": "not tried"}
    sums = {name: list(getattr(found, name)) for name in ("base", "again", "other")}
    facts = {"verdict": found.verdict, "ratio": found.ratio, "noise_ratio": found.noise_ratio}
    return facts | sums | {"problems": found.problems}


@dataclass(frozen=True)
class Fitted:
    """The outcome of a search over the times of a ladder's rungs.

    Attributes
    ----------
    tried : tuple of Tried
        In the order in which they were tried, each compared with the ladder at that point.
    rungs : tuple of Rung
        The ladder with what was better.
    check : Comparison or None
        Of today's ladder with that, with seeds that chose nothing; None if nothing was better.
    """

    tried: tuple[Tried, ...]
    rungs: Ladder
    check: Comparison | None

    @property
    def holds(self) -> bool:
        """Whether the better times are better with other seeds, too."""
        return self.check is not None and self.check.verdict == "better"


@dataclass(frozen=True)
class Fit:
    """A search over the times of a ladder's rungs, one rung at a time.

    Attributes
    ----------
    problems : sequence of Problem
        All of this ladder.
    trial : callable
        Climbs rungs on a problem.
    score : callable
        Of a run; less is better.
    factors : sequence of float
        By which a rung's time is multiplied.
    repetitions : int
        Each with a seed of its own, on all problems.
    seed : int
        Of the first.
    say : callable
        Told what is done.
    """

    problems: Sequence[Problem]
    trial: Trial
    score: Score
    factors: Sequence[float] = (0.5, 2.0)
    repetitions: int = 2
    seed: int = 0
    say: Callable[[str], None] = lambda text: None

    def run(self, rungs: Sequence[Rung], positions: Sequence[int]) -> Fitted:
        """Try the factors on the rungs at these positions, counted from 1."""
        current = tuple(rungs)
        surveyed = self._survey(current)
        tried: list[Tried] = []
        for position in positions:
            rung = current[position - 1]
            active = {key for key, run in surveyed.items() if matters(run.events[position - 1])}
            others = {
                factor: _replaced(current, position, changed)
                for factor in self.factors
                if (changed := with_factor(rung, factor)) != rung
            }
            found: dict[float, Comparison] = {}
            if active and others:
                self.say(f"rung {position} {rung.name}: {len(active)} of {len(surveyed)} runs")
                found = self._compare(current, others, self._seeds(), surveyed, active)
            # A factor that changes nothing, as of a share that is 1, is not tried either.
            tried += [
                Tried(position, rung.name, factor, found.get(factor)) for factor in self.factors
            ]
            better = [factor for factor in found if found[factor].verdict == "better"]
            if better:
                current = others[min(better, key=lambda factor: found[factor].difference)]
                surveyed = self._survey(current)
        check = None
        if current != tuple(rungs):
            self.say("what was better, all together, with other seeds")
            fresh = [seed + self.repetitions for seed in self._seeds()]
            check = self._compare(tuple(rungs), {1.0: current}, fresh)[1.0]
        return Fitted(tuple(tried), current, check)

    def _seeds(self) -> list[int]:
        return [self.seed + repetition for repetition in range(self.repetitions)]

    def _survey(self, rungs: Ladder) -> dict[tuple[int, int], Run]:
        """Return a run of every problem with every seed, to see which rungs matter there."""
        self.say(f"survey: {len(self.problems)} problems, {self.repetitions} repetitions")
        return {
            (place, seed): self.trial(rungs, problem, seed)
            for seed in self._seeds()
            for place, problem in enumerate(self.problems)
        }

    def _compare(
        self,
        base: Ladder,
        others: dict[float, Ladder],
        seeds: Sequence[int],
        known: dict[tuple[int, int], Run] | None = None,
        active: set[tuple[int, int]] | None = None,
    ) -> dict[float, Comparison]:
        """Compare ladders with one, in turns; where nothing can change, with what is known."""
        sums: dict[str | float, list[float]] = {"base": [], "again": []}
        sums |= {factor: [] for factor in others}
        for seed in seeds:
            scores: dict[str | float, float] = dict.fromkeys(sums, 0.0)
            for place, problem in enumerate(self.problems):
                if known is not None and active is not None and (place, seed) not in active:
                    same = self.score(known[place, seed])
                    scores = {key: total + same for key, total in scores.items()}
                    continue
                turns: list[tuple[str | float, Ladder]] = [("base", base), *others.items()]
                for key, rungs in [*turns, ("again", base)]:
                    scores[key] += self.score(self.trial(rungs, problem, seed))
            for key, total in scores.items():
                sums[key].append(total)
        pair = tuple(sums["base"]), tuple(sums["again"])
        return {
            factor: Comparison(*pair, tuple(sums[factor]), len(self.problems)) for factor in others
        }


def matters(event: Event) -> bool:
    """Return whether a rung with another time could do anything else than it did."""
    if event.outcome == TOO_LITTLE_TIME:
        return True
    return event.outcome in (RAN, FAILED) and event.seconds > HARDLY * event.allowed


def _replaced(rungs: Ladder, position: int, rung: Rung) -> Ladder:
    return (*rungs[: position - 1], rung, *rungs[position:])


def proposals(today: Sequence[Rung], fitted: Sequence[Rung]) -> list[str]:
    """Return in words what would have to be changed in a ladder, a line a rung."""
    lines = []
    for position, (old, new) in enumerate(zip(today, fitted, strict=True), start=1):
        changed = [
            f"{name} {getattr(old, name):g} -> {getattr(new, name):g}"
            for name in ("share", "at_least", "at_most")
            if getattr(old, name) != getattr(new, name)
        ]
        if changed:
            lines.append(f"rung {position} {old.name}: {', '.join(changed)}")
    return lines
