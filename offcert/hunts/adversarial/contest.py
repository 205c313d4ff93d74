"""`Contest`: how many times as much one value is as another, with what is cheap asked first."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from offcert.certify.search import UnsoundError
from offcert.core.errors import NoPlanError
from offcert.hunts.adversarial import values
from offcert.hunts.adversarial.values import BOUNDS, OPTIMUM, ORDERED, require_applicable, value
from offcert.questions.schedule.problem import Problem, Transfers


@dataclass(frozen=True)
class Score:
    """Two values on one problem, in ticks; `under` is more than 0."""

    over: int
    under: int

    @property
    def ratio(self) -> Fraction:
        """How many times as much the first one is."""
        return Fraction(self.over, self.under)


class Contest:
    """A ratio of two values of a problem that is to be maximised.

    Parameters
    ----------
    against : str
        Who shall look bad: a method or ``"ordered"``, whose value is divided by the other one, or a
        bound, by which the other one is divided. One of `values.NAMES`.
    by : str
        The value by which it is measured: the optimum, or another method or bound.
    transfers : Transfers
        Kind of transfers in all problems.

    Raises
    ------
    InputError
        If a name is not known, or means nothing with these transfers.
    """

    def __init__(self, against: str, by: str, transfers: Transfers) -> None:
        require_applicable(against, "against", transfers)
        require_applicable(by, "by", transfers)
        self.against = against
        self.by = by
        self.is_bound = against in BOUNDS

    def score(self, problem: Problem, at_least: Fraction = Fraction(0)) -> Score | None:
        """Return both values, or None if one is not established or the ratio is less than asked.

        Parameters
        ----------
        problem : Problem
            A feasible one.
        at_least : Fraction
            Ratios below it are of no interest, which often spares the more expensive value.

        Raises
        ------
        NoPlanError
            If the method finds no plan.
        UnsoundError
            If a bound exceeds an optimum, or a makespan is less than one.
        """
        if self._hopeless(problem, at_least):
            return None
        first = value(self.against, problem)
        if first is None and self.against in values.PLANNERS:
            raise NoPlanError(f"{self.against} finds no plan")
        if first is None or self._out_of_reach(problem, first, at_least):
            return None
        second = self._other(problem)
        if second is None:
            return None
        over, under = (second, first) if self.is_bound else (first, second)
        if self.by == OPTIMUM and over < under:
            raise UnsoundError(
                f"{self.against} is {first} where the optimum is {second}: {problem.network}, "
                f"{problem.platform}, {problem.transfers}"
            )
        score = Score(over, under) if under > 0 else None
        return score if score is not None and score.ratio >= at_least else None

    def _other(self, problem: Problem) -> int | None:
        if self.against == "pivot" and self.by == OPTIMUM:
            return values.independent_optimum(problem)
        return value(self.by, problem)

    def _hopeless(self, problem: Problem, at_least: Fraction) -> bool:
        """Whether the ordered optimum is in all likelihood too small to be worth computing."""
        if self.against != ORDERED or self.by != OPTIMUM:
            return False
        upper = values.ordered_guess(problem)
        return upper is not None and upper < at_least * values.quick_lower(problem)

    def _out_of_reach(self, problem: Problem, first: int, at_least: Fraction) -> bool:
        """Whether cheap bounds on the other value show that the ratio is less than asked."""
        if self.is_bound:
            below = self.by == OPTIMUM or self.by in BOUNDS
            return below and values.quick_upper(problem) < at_least * first
        return self.by == OPTIMUM and first < at_least * values.quick_lower(problem)
