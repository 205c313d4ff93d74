"""From cases in which a claim holds, fails or stays open, to a verdict.

A case is decided by exact comparison with bounds, so that a solver that ran out of time decides
nothing: what is compared with an optimum is compared with the best schedule known, if the claim is
to fail, and with the best lower bound, if it is to hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cached_property

from offcert_lab.comparisons.points import Point


class Outcome(StrEnum):
    """Of a claim in one case."""

    HOLDS = "holds"
    FAILS = "fails"
    OPEN = "open"


class Verdict(StrEnum):
    """On a claim."""

    CONFIRMED = "confirmed"
    PARTLY = "partly"
    REFUTED = "refuted"
    UNDECIDED = "cannot be decided"


@dataclass(frozen=True)
class Case:
    """A claim in one case.

    Attributes
    ----------
    label : str
        Where: a problem, with its memory limit if the claim is about single limits.
    outcome : Outcome
        Of the claim there.
    amount : Fraction or None
        How far the numbers are from what the claim says; the larger, the worse for the claim.
    text : str
        The numbers, for people.
    point : Point or None
        If one limit of one problem is the whole case, so that its certificate shows it.
    """

    label: str
    outcome: Outcome
    amount: Fraction | None = None
    text: str = ""
    point: Point | None = None


@dataclass(frozen=True)
class Share:
    """How many of the cases a claim speaks of.

    Attributes
    ----------
    confirm : Fraction
        The claim is confirmed if it holds in at least this share of its cases,
    refute : Fraction
        and refuted if in less than this; between the two it is partly right.
    """

    confirm: Fraction
    refute: Fraction

    def verdict(self, share: Fraction) -> Verdict:
        """Return the verdict if the claim holds in this share of its cases."""
        if share >= self.confirm:
            return Verdict.CONFIRMED
        return Verdict.REFUTED if share < self.refute else Verdict.PARTLY

    def __str__(self) -> str:
        if self.confirm == 1 and self.refute == 1:
            return "in every case"
        text = f"in at least {_percent(self.confirm)} of the cases"
        if self.refute < self.confirm:
            text += f" (below {_percent(self.refute)} it is refuted)"
        return text


ALWAYS = Share(Fraction(1), Fraction(1))
USUALLY = Share(Fraction(9, 10), Fraction(1, 2))
OFTEN = Share(Fraction(1, 2), Fraction(1, 4))


@dataclass(frozen=True)
class Finding:
    """The cases of a claim, and the verdict that follows.

    Parameters
    ----------
    cases : tuple of Case
        All there are.
    share : Share
        How many of them the claim speaks of.
    """

    cases: tuple[Case, ...]
    share: Share

    def count(self, outcome: Outcome) -> int:
        """Return the number of cases with an outcome."""
        return sum(case.outcome is outcome for case in self.cases)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict that no case still open can change; undecided if there is none."""
        total = len(self.cases)
        if not total:
            return Verdict.UNDECIDED
        least, most = self.count(Outcome.HOLDS), total - self.count(Outcome.FAILS)
        found = {self.share.verdict(Fraction(number, total)) for number in (least, most)}
        return found.pop() if len(found) == 1 else Verdict.UNDECIDED

    @cached_property
    def failures(self) -> tuple[Case, ...]:
        """The cases in which the claim fails, the worst first."""
        failed = [case for case in self.cases if case.outcome is Outcome.FAILS]
        return tuple(sorted(failed, key=_badness))

    @cached_property
    def worst(self) -> Case | None:
        """The worst failure, or what came closest to one; None if no case has an amount."""
        if self.failures:
            return self.failures[0]
        measured = [case for case in self.cases if case.amount is not None]
        return min(measured, key=_badness, default=None)

    def counts(self) -> str:
        """Return the counts for people."""
        total = len(self.cases)
        if not total:
            return "no cell of the table speaks of it"
        parts = [f"holds in {self.count(Outcome.HOLDS)} of {total}"]
        for outcome, word in ((Outcome.FAILS, "fails in"), (Outcome.OPEN, "open in")):
            if number := self.count(outcome):
                parts.append(f"{word} {number}")
        return ", ".join(parts)


def judge(cases: Sequence[Case], share: Share) -> Finding:
    """Return the finding of cases about a claim that speaks of a share of them."""
    return Finding(tuple(cases), share)


def _badness(case: Case) -> tuple[bool, Fraction, str]:
    return case.amount is None, -(case.amount or Fraction(0)), case.label


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):g} %"
