"""`AdversarialChains`: chains on which a method or a bound does worst.

`Hunted`, what it is made of, is a search as a seeded generator, like those of `instances`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar

from offcert.certification.ladder import certify
from offcert.certification.search import UnsoundError
from offcert.core.errors import InputError, MethodError
from offcert.core.trace import require_integer
from offcert.instances.generator import Generator, knob
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Minimise, Problem, Transfers
from offcert_lab.hunts.adversarial.hunt import Find, Hunt, Terms
from offcert_lab.hunts.adversarial.numbers import Box
from offcert_lab.hunts.adversarial.values import BOUNDS, NAMES, OPTIMUM, Contest

# Stages beyond the fewest that a search tries if it is not told. Arbitrary.
WIDER = 2


@dataclass(frozen=True, kw_only=True)
class Hunted(Generator):
    """Small problems on which one thing is far from another by which it is measured.

    The problem of a seed is what a search of `steps` steps finds, minimised: of the simplest
    integers that keep all but `tolerance` per cent of what the worst ratio is above 1. Subclasses
    have a knob ``against``, and say by what that is measured.
    """

    takes_memory: ClassVar[bool] = False

    stages: int = knob(4, "fewest stages; minimising goes no further", least=1)
    most: int = knob(0, f"most stages to search with; 0: {WIDER} more than the fewest", least=0)
    largest: int = knob(20, "largest duration or size", least=1)
    shortest: int = knob(1, "shortest duration", least=0)
    tolerance: int = knob(10, "per cent of (ratio - 1) that simpler numbers may cost", least=0)
    steps: int = knob(2000, "problems to try", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tolerance >= 100:
            raise InputError(f"tolerance must be below 100, not {self.tolerance}")
        if self.shortest >= self.largest:
            raise InputError(f"shortest must be below largest, {self.largest}, not {self.shortest}")
        if 0 < self.most < self.stages:
            raise InputError(f"most must be 0 or at least stages, {self.stages}, not {self.most}")
        self.terms()

    @classmethod
    def again(cls, source: Mapping[str, Any]) -> Problem:
        """Search again for the problem that has a source; see `offcert.instances.kinds`."""
        knobs = {item.name: source[item.name] for item in fields(cls)}
        return cls(**knobs).problem(source["seed"])

    @abstractmethod
    def contest(self) -> Contest:
        """Return the ratio that is maximised."""

    def terms(self) -> Terms:
        """Return the terms of the search."""
        contest = self.contest()
        stages = range(self.stages, (self.most or self.stages + WIDER) + 1)
        box = Box(stages, self.largest, self.shortest, contest.numbers)
        return Terms(contest, box, Fraction(self.tolerance, 100))

    def draw(self, seed: int) -> Problem:
        """Return the problem that the search of a seed finds.

        Raises
        ------
        MethodError
            If it finds no problem on which the two values differ.
        """
        terms = self.terms()
        find = Hunt(terms, seed, steps=self.steps).run()
        if find is None:
            contest = terms.contest
            raise MethodError(
                f"{self.steps} steps from seed {seed} found nothing on which {contest.against} and "
                f"{contest.by} differ"
            )
        return self._problem(seed, find, terms)

    def hunt(
        self,
        seed: int,
        *,
        steps: int | None = None,
        time_limit: float | None = None,
        progress: Callable[[Hunt], None] | None = None,
    ) -> tuple[Hunt, Problem | None]:
        """Search for a time, or so many steps instead of the knob's, and keep what there is.

        Returns
        -------
        hunt : Hunt
            Ended.
        problem : Problem or None
            The problem that it found. Its source holds the number of steps that find it again.
        """
        require_integer(seed, "seed", 0)
        terms = self.terms()
        hunt = Hunt(terms, seed, steps=steps, time_limit=time_limit, progress=progress)
        find = hunt.run()
        if find is None:
            return hunt, None
        problem = self._problem(seed, find, terms)
        knobs = self.knobs() | {"steps": max(1, hunt.steps)}
        source = {"generator": self.kind, "seed": seed, **knobs, **(problem.source or {})}
        return hunt, replace(problem, source=source)

    def _problem(self, seed: int, find: Find, terms: Terms) -> Problem:
        name = f"{self.kind}-{terms.contest.against}-{self.stages}-{seed}"
        problem = find.numbers.problem(terms.contest.transfers, name)
        if problem.minimise is Minimise.MEMORY:
            problem = problem.with_memory(problem.peak_memory)
        score: dict[str, Any] = {"over": find.score.over, "under": find.score.under}
        return replace(problem, source=score)


@dataclass(frozen=True, kw_only=True)
class AdversarialChains(Hunted):
    """Small chains on which a method is far from the optimum, or the optimum far from a bound."""

    kind: ClassVar[str] = "adversarial"
    summary: ClassVar[str] = "search for the problem on which a method or a bound does worst"

    against: str = knob("greedy", "method or bound that shall look bad", choices=NAMES)
    by: str = knob(OPTIMUM, "what it is measured by", choices=(OPTIMUM, *NAMES))
    transfers: str = knob("atomic", "of the problems", choices=tuple(map(str, Transfers)))

    def contest(self) -> Contest:
        """Return the ratio that is maximised."""
        return Contest(self.against, self.by, Transfers(self.transfers))


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
