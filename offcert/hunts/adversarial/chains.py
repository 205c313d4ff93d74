"""`AdversarialChains`: chains on which a method or a bound does worst."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from offcert.certify.ladder import certify
from offcert.certify.search import UnsoundError
from offcert.hunts.adversarial.contest import Contest
from offcert.hunts.adversarial.hunt import Find, Terms
from offcert.hunts.adversarial.hunted import WIDER, Hunted
from offcert.hunts.adversarial.numbers import Box
from offcert.hunts.adversarial.values import BOUNDS, NAMES, OPTIMUM
from offcert.instances.generator import knob
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Transfers


@dataclass(frozen=True, kw_only=True)
class AdversarialChains(Hunted):
    """Small chains on which a method is far from the optimum, or the optimum far from a bound.

    The problem of a seed is what a search of `steps` steps finds, minimised: of the simplest
    integers that keep all but `tolerance` per cent of what the worst ratio is above 1.
    """

    kind: ClassVar[str] = "adversarial"
    summary: ClassVar[str] = "search for the problem on which a method or a bound does worst"

    against: str = knob("greedy", "method or bound that shall look bad", choices=NAMES)
    by: str = knob(OPTIMUM, "what it is measured by", choices=(OPTIMUM, *NAMES))
    transfers: str = knob("atomic", "of the problems", choices=tuple(map(str, Transfers)))
    stages: int = knob(4, "fewest stages; minimising goes no further", least=1)
    most: int = knob(0, f"most stages to search with; 0: {WIDER} more than the fewest", least=0)
    largest: int = knob(20, "largest duration or size", least=1)
    shortest: int = knob(1, "shortest duration", least=0)
    tolerance: int = knob(10, "per cent of (ratio - 1) that simpler numbers may cost", least=0)
    steps: int = knob(2000, "problems to try", least=1)

    @property
    def measure(self) -> str:
        """The value by which `against` is measured."""
        return self.by

    def terms(self) -> Terms:
        """Return the terms of the search: contest, transfers, box of numbers, tolerance."""
        transfers = Transfers(self.transfers)
        return Terms(
            Contest(self.against, self.by, transfers),
            transfers,
            Box(self.stages_tried, self.largest, self.shortest),
            Fraction(self.tolerance, 100),
        )

    def made_of(self, find: Find, name: str) -> Problem:
        """Return the problem of a find."""
        return find.numbers.problem(Transfers(self.transfers), name)


def certified(problem: Problem, *, time_limit: float = 60.0) -> Certificate:
    """Return a certificate of a find's optimum.

    Parameters
    ----------
    problem : Problem
        From `AdversarialChains`; its source holds both values.
    time_limit : float
        Seconds.

    Raises
    ------
    UnsoundError
        If the certificate refutes what the search took for the optimum.
    """
    certificate = certify(problem, time_limit=time_limit, workers=1)
    source, result = problem.source or {}, certificate.result
    if source.get("by") == OPTIMUM:
        claimed = source["over"] if source["against"] in BOUNDS else source["under"]
        above = result.objective is not None and result.objective < claimed
        if above or result.lower_bound > claimed:
            raise UnsoundError(
                f"{problem.name}: the search took {claimed} for the optimum, but it lies from "
                f"{result.lower_bound} to {result.objective}"
            )
    return certificate
