"""`Hunted`: a search as a seeded generator of problems, like those of `instances`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar

from offcert.core.errors import InputError, MethodError
from offcert.core.trace import require_integer
from offcert.hunts.adversarial.hunt import Find, Hunt, HuntProgress, Terms
from offcert.instances.generator import Generator
from offcert.questions.schedule.problem import Problem

# Stages beyond the fewest that a search tries if it is not told. Arbitrary.
WIDER = 2


class Hunted(Generator):
    """Small problems on which one thing is far from another by which it is measured.

    The problem of a seed is what a search of `steps` steps finds, minimised. Subclasses are
    dataclasses with these knobs.
    """

    takes_memory: ClassVar[bool] = False

    against: str
    stages: int
    most: int
    largest: int
    shortest: int
    tolerance: int
    steps: int

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

    @property
    @abstractmethod
    def measure(self) -> str:
        """The value by which `against` is measured."""

    @abstractmethod
    def terms(self) -> Terms:
        """Return the terms of the search: contest, transfers, box of numbers, tolerance."""

    @abstractmethod
    def made_of(self, find: Find, name: str) -> Problem:
        """Return the problem of a find."""

    @property
    def stages_tried(self) -> range:
        """From the fewest stages to the most."""
        return range(self.stages, (self.most or self.stages + WIDER) + 1)

    def draw(self, seed: int) -> Problem:
        """Return the problem that the search of a seed finds.

        Raises
        ------
        MethodError
            If it finds no problem on which the two values differ.
        """
        find = Hunt(self.terms(), seed, steps=self.steps).run()
        if find is None:
            raise MethodError(
                f"{self.steps} steps from seed {seed} found nothing on which {self.against} and "
                f"{self.measure} differ"
            )
        return self._problem(seed, find)

    def hunt(
        self,
        seed: int,
        *,
        steps: int | None = None,
        time_limit: float | None = None,
        progress: Callable[[HuntProgress], None] | None = None,
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
        hunt = Hunt(self.terms(), seed, steps=steps, time_limit=time_limit, progress=progress)
        find = hunt.run()
        if find is None:
            return hunt, None
        problem = self._problem(seed, find)
        knobs = self.knobs() | {"steps": max(1, hunt.steps)}
        source = {"generator": self.kind, "seed": seed, **knobs, **(problem.source or {})}
        return hunt, replace(problem, source=source)

    def _problem(self, seed: int, find: Find) -> Problem:
        problem = self.made_of(find, f"{self.kind}-{self.against}-{self.stages}-{seed}")
        score: dict[str, Any] = {"over": find.score.over, "under": find.score.under}
        return replace(problem, source=score)
