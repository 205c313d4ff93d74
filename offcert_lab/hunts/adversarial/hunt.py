"""The search: random restarts and local moves, then delta debugging of the worst that was found."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from offcert.core.errors import NoPlanError
from offcert_lab.hunts.adversarial.numbers import Box, Numbers, draw, moved, simplifications
from offcert_lab.hunts.adversarial.values import Contest, Score


def minimise(numbers: Numbers, holds: Callable[[Numbers], bool], box: Box) -> Numbers:
    """Return numbers of which no single simplification has the property any more.

    Parameters
    ----------
    numbers : Numbers
        Numbers that have the property.
    holds : callable
        Whether simpler numbers have it too. It may raise to end the search early; whoever calls
        then remembers the last numbers for which it returned true.
    box : Box
        Limits for simpler numbers; of its stages, only the fewest matter.

    Notes
    -----
    Every step lowers `Numbers.cost`, whose values are well-ordered, so this ends.
    """
    tried: set[Numbers] = set()
    while True:
        for simpler in simplifications(numbers, box):
            if simpler not in tried:
                tried.add(simpler)
                if holds(simpler):
                    numbers = simpler
                    break
        else:
            return numbers


# Draws of which the best starts a climb, and moves without gain that end it. Arbitrary.
_DRAWS = 20
_PATIENCE = 400
# Moves of which one may lose, the share of the ratio that it may lose, and moves that throw the
# best candidate off. Arbitrary.
_LENIENCE = 12
_LOSS = Fraction(3, 100)
_KICK = 4
# Share of a time limit for searching, the rest being for minimising; seconds between two reports.
# Arbitrary.
_SEARCH_SHARE = 0.75
SECONDS_BETWEEN_REPORTS = 1.0


@dataclass(frozen=True)
class Find:
    """Numbers and both values on them."""

    numbers: Numbers
    score: Score


@dataclass(frozen=True)
class Terms:
    """The terms of a hunt: the ratio, and the numbers that problems may have."""

    contest: Contest  # The ratio that is maximised.
    box: Box  # Limits of the numbers.
    tolerance: Fraction  # Share of the best ratio's excess over 1 that minimising may give up.


class _EndedError(Exception):
    """Steps or time are over."""


class Hunt:
    """One search from one seed; what it knows is in its attributes at any time.

    Parameters
    ----------
    terms : Terms
        The terms of the search.
    seed : int
        Of all random choices. Two searches with the same seed agree in everything if `steps`, not
        the time, ends them.
    steps : int, optional
        Problems to try before minimising.
    time_limit : float, optional
        Seconds, for everything.
    progress : callable, optional
        Called with the hunt after every improvement, and about every second.

    Attributes
    ----------
    best : Find or None
        The worst that was found for whom the search is against; None if all ratios were 1 or less.
    simplest : Find or None
        The simplest find, after minimising.
    no_plan : Numbers or None
        The simplest problem met on which the method found no plan.
    no_plans : int
        On how many problems it found none.
    steps : int
        Problems tried in the search.
    phase : str
        Name of the phase.
    minimised : bool
        Whether minimising ended by itself.
    interrupted : bool
        Whether the user ended the search.
    """

    def __init__(
        self,
        terms: Terms,
        seed: int,
        *,
        steps: int | None = None,
        time_limit: float | None = None,
        progress: Callable[[Hunt], None] | None = None,
    ) -> None:
        self.terms = terms
        self.best: Find | None = None
        self.simplest: Find | None = None
        self.no_plan: Numbers | None = None
        self.no_plans = 0
        self.steps = 0
        self.minimised = False
        self.interrupted = False
        self._rng = random.Random(f"adversarial {seed}")
        self._most_steps = steps
        self._time_limit = time_limit
        self._progress = progress
        self.phase = "search"
        self._begin = time.monotonic()
        self._told = self._begin

    @property
    def seconds(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._begin

    @property
    def find(self) -> Find | None:
        """The best find so far; since it is minimised, the simplest that is bad enough."""
        return self.simplest or self.best

    @property
    def ratio(self) -> Fraction:
        """The best ratio so far; 1 if there is none above it."""
        return Fraction(1) if self.best is None else self.best.score.ratio

    def run(self) -> Find | None:
        """Search, minimise, and return the simplest problem that is bad enough.

        An interrupt (Ctrl-C) ends it with what is known then.
        """
        try:
            for _ in self.improvements():
                pass
            self._minimise()
        except KeyboardInterrupt:
            self.interrupted = True
        return self.find

    def improvements(self) -> Iterator[Find]:
        """Search, and yield every find that is worse than all before it."""
        with suppress(_EndedError):
            while True:
                yield from self._climb(self._start())

    def _start(self) -> Find | None:
        """Return the best of some random draws, or in turn the best find with some moves."""
        terms, rng = self.terms, self._rng
        if self.best is not None and rng.random() < 0.5:
            numbers = self.best.numbers
            for _ in range(_KICK):
                numbers = moved(rng, numbers, terms.box)
            return self._try(numbers, Fraction(0))
        best: Find | None = None
        for _ in range(_DRAWS):
            numbers = draw(rng, terms.box)
            # An equal one replaces the best too; where all are 1, any is as good.
            least = Fraction(0) if best is None else best.score.ratio
            best = self._try(numbers, least) or best
        return best

    def _climb(self, current: Find | None) -> Iterator[Find]:
        terms, rng = self.terms, self._rng
        fruitless = 0
        while current is not None and fruitless < _PATIENCE:
            if current.score.ratio > self.ratio:
                self.best = current
                self._tell(force=True)
                yield current
            neighbour = moved(rng, current.numbers, terms.box)
            least = current.score.ratio
            lenient = rng.randrange(_LENIENCE) == 0
            found = self._try(neighbour, least * (1 - _LOSS) if lenient else least)
            fruitless += 1
            if found is not None:
                if found.score.ratio > least:
                    fruitless = 0
                current = found

    def _try(self, numbers: Numbers, least: Fraction) -> Find | None:
        over = self._most_steps is not None and self.steps >= self._most_steps
        if over or self._late(_SEARCH_SHARE):
            raise _EndedError
        self.steps += 1
        self._tell()
        try:
            return self._scored(numbers, least)
        except NoPlanError:
            self.no_plans += 1
            if self.no_plan is None or numbers.cost < self.no_plan.cost:
                self.no_plan = numbers
            return None

    def _scored(self, numbers: Numbers, least: Fraction) -> Find | None:
        problem = numbers.problem(self.terms.contest.transfers)
        score = self.terms.contest.score(problem, least)
        return None if score is None else Find(numbers, score)

    def _late(self, share: float) -> bool:
        return self._time_limit is not None and self.seconds > share * self._time_limit

    def _minimise(self) -> None:
        """Minimise the best find, and the example of no plan."""
        with suppress(_EndedError):
            if self.best is not None:
                self.phase = "minimise"
                self.simplest = self.best
                least = 1 + (self.ratio - 1) * (1 - self.terms.tolerance)
                minimise(self.best.numbers, lambda n: self._keeps(n, least), self.terms.box)
            if self.no_plan is not None:
                self.phase = "minimise no plan"
                minimise(self.no_plan, self._leaves_no_plan, self.terms.box)
            self.minimised = True

    def _keeps(self, numbers: Numbers, least: Fraction) -> bool:
        self._end_if_late()
        with suppress(NoPlanError):
            found = self._scored(numbers, least)
            if found is not None and found.score.ratio > 1:
                self.simplest = found
                return True
        return False

    def _leaves_no_plan(self, numbers: Numbers) -> bool:
        self._end_if_late()
        try:
            # Of the values only whether there is one matters, and no ratio is this large.
            self._scored(numbers, Fraction(10**9))
        except NoPlanError:
            self.no_plan = numbers
            return True
        return False

    def _end_if_late(self) -> None:
        self._tell()
        if self._late(1.0):
            raise _EndedError

    def _tell(self, force: bool = False) -> None:
        now = time.monotonic()
        if self._progress is None or not (force or now - self._told > SECONDS_BETWEEN_REPORTS):
            return
        self._told = now
        self._progress(self)
