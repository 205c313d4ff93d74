"""`CoreProblems`: the problems of the hard core, as a seeded generator like `instances`' own.

Where memory is plentiful or the link is fast, a schedule without waiting is found and proved
optimal at once; where both are scarce, the link never rests and simple bounds are tight. In between
lies a narrow region in which proving takes orders of magnitude longer, as around the phase
transition of satisfiability problems. The problem of a seed is a random chain at the hardest point
that a search of that region finds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar

from offcert.core.documents import parse_rational
from offcert.core.errors import InputError
from offcert.core.trace import require_integer
from offcert.instances.generator import Generator, knob
from offcert.instances.kinds import generator
from offcert.questions.schedule.problem import Problem
from offcert_lab.hunts.effort import ProofEffort, effort

# A point is measured with these parts of the labels, the next one if the one before left it open.
_PARTS = (16, 4, 1)
# Open points are given up whose gap is less than this part of the hardest point's gap after as many
# labels. Arbitrary.
_BEHIND = Fraction(1, 2)
# Steps of the finest grid between two points of the coarse one, and how often that is halved.
# Arbitrary.
_COARSE = 8
_HALVINGS = 3
# Memory: a coarse step is a tenth of the way from the least to the peak. Ratio: it is a doubling.
_MEMORY_STEPS = range(8 * _COARSE + 1)
_RATIO_STEPS = range(-_COARSE, 3 * _COARSE + 1)


@dataclass(frozen=True, order=True)
class Point:
    """A place on the map, in steps of its finest grid."""

    memory_step: int  # Eightieths of the way from the least feasible memory to the peak.
    ratio_step: int  # Eighths of a doubling, evenly spaced between two powers of 2.

    @property
    def memory(self) -> Fraction:
        """The limit, as a part of the way from the least feasible memory to the peak."""
        return Fraction(self.memory_step, 10 * _COARSE)

    @property
    def ratio(self) -> Fraction:
        """Link time by compute time of moving everything."""
        doublings, rest = divmod(self.ratio_step, _COARSE)
        return Fraction(2) ** doublings * Fraction(_COARSE + rest, _COARSE)

    @property
    def inside(self) -> bool:
        """Whether it is on the map."""
        return self.memory_step in _MEMORY_STEPS and self.ratio_step in _RATIO_STEPS

    def around(self, step: int) -> Iterator[Point]:
        """Yield the points at a distance of `step` that are on the map."""
        for memory in (-step, 0, step):
            for ratio in (-step, 0, step):
                point = Point(self.memory_step + memory, self.ratio_step + ratio)
                if point != self and point.inside:
                    yield point


class EffortMap:
    """Measures points of a grid: a coarse one everywhere, then a finer one around the hardest.

    A point gets few labels at first, and more if they leave it open, unless it is far behind the
    hardest by then. The order of the points depends on nothing but their efforts, so a search that
    ends early has the same map as one that is told to end after as many points.

    Parameters
    ----------
    measure : callable
        Returns the effort at a point with at most so many labels.
    labels : int
        How many a point may take.
    most_points : int
        End after so many; 0: none but the grid's end.
    time_limit : float, optional
        Seconds, after which it ends as if interrupted. One point is always measured.
    progress : callable, optional
        Called with the map after every point, the last one in `efforts`.

    Attributes
    ----------
    efforts : dict
        By point, in the order in which they were measured.
    behind : set of Point
        Points that were given up: open, but after fewer labels.
    complete : bool
        Whether the search came to its own end.
    interrupted : bool
        Whether an interrupt (Ctrl-C) or the time ended it.
    """

    def __init__(
        self,
        measure: Callable[[Point, int], ProofEffort],
        labels: int,
        *,
        most_points: int = 0,
        time_limit: float | None = None,
        progress: Callable[[EffortMap], None] | None = None,
    ) -> None:
        self.efforts: dict[Point, ProofEffort] = {}
        self.behind: set[Point] = set()
        self.complete = self.interrupted = False
        self.seconds = 0.0
        self._measure = measure
        self._limits = [max(1, labels // part) for part in _PARTS]
        self._gaps: dict[Point, list[Fraction]] = {}
        self._most_points = most_points
        self._time_limit = time_limit
        self._progress = progress

    @property
    def hardest(self) -> Point:
        """The point of the largest effort; of several, the first that was measured."""
        racing = [point for point in self.efforts if point not in self.behind]
        return max(racing, key=lambda point: self.efforts[point].rank)

    def run(self) -> None:
        """Measure until the end, a limit or an interrupt.

        Raises
        ------
        KeyboardInterrupt
            If not even one point was measured.
        """
        begun = time.monotonic()
        try:
            for point in self._points():
                if self.efforts and self._ended(begun):
                    return
                self._put(point)
                self.seconds = time.monotonic() - begun
                if self._progress is not None:
                    self._progress(self)
            self.complete = True
        except KeyboardInterrupt:
            if not self.efforts:
                raise
            self.interrupted = True

    def _put(self, point: Point) -> None:
        """Measure a point with more and more labels while it is open and not behind."""
        gaps: list[Fraction] = []
        behind = False
        for level, limit in enumerate(self._limits):
            found = self._measure(point, limit)
            gaps.append(found.gap)
            behind = level + 1 < len(self._limits) and self._is_behind(found, level)
            if behind or found.gap == 0:
                break
        self.efforts[point], self._gaps[point] = found, gaps
        if behind:
            self.behind.add(point)

    def _is_behind(self, found: ProofEffort, level: int) -> bool:
        """Whether the hardest is open to the last and was so by much more at this level."""
        if found.gap == 0 or not self.efforts or self.efforts[self.hardest].gap == 0:
            return False
        return found.gap < _BEHIND * self._gaps[self.hardest][level]

    def _ended(self, begun: float) -> bool:
        if self._time_limit is not None and time.monotonic() - begun > self._time_limit:
            self.interrupted = True
        return self.interrupted or len(self.efforts) == self._most_points

    def _points(self) -> Iterator[Point]:
        """Yield points not measured yet; whoever iterates measures each before the next."""
        for memory in _MEMORY_STEPS[::_COARSE]:
            for ratio in _RATIO_STEPS[::_COARSE]:
                yield Point(memory, ratio)
        step = _COARSE
        for _ in range(_HALVINGS):
            step //= 2
            center = None
            # The finer grid may hold a harder point, around which it is then looked at.
            while center != self.hardest:
                center = self.hardest
                yield from (p for p in center.around(step) if p not in self.efforts)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the map as a JSON value, in the order in which it was measured."""
        return [
            {
                "memory": str(point.memory),
                "ratio": str(point.ratio),
                **found.to_json(),
                "behind": point in self.behind,
            }
            for point, found in self.efforts.items()
        ]


# Sizes and times large enough that no two sums of sizes are the same by chance. Assumed.
_WIDE = {"size": 1_000_000, "time": 10_000}
# What each shape draws from: a generator of `instances` and its knobs.
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "cnn": ("cnn", {}),
    "cnn-spiky": ("cnn", {"spikes": 2}),
    "uniform": ("uniform", _WIDE),
    "uniform-spiky": ("uniform", _WIDE | {"spikes": 2}),
    "broad": ("uniform", _WIDE | {"spread": "4"}),
    "narrow": ("uniform", _WIDE | {"spread": "6/5"}),
    "narrow-spiky": ("uniform", _WIDE | {"spread": "6/5", "spikes": 2}),
    "transformer": ("transformer", {"width": 1009}),
    "unet": ("unet", {"size": 1_000_003}),
}


@dataclass(frozen=True, kw_only=True)
class CoreProblems(Generator):
    """Problems at the memory and bandwidth where proving them takes most effort.

    The effort is counted in labels (`offcert_lab.hunts.effort`), never timed, so the same knobs
    and seed give the same problem on every machine.
    """

    kind: ClassVar[str] = "core"
    summary: ClassVar[str] = "search for the memory and bandwidth where proving takes longest"
    takes_memory: ClassVar[bool] = False

    stages: int = knob(16, "number of stages", least=2)
    shape: str = knob("uniform", "what the problem is drawn like", choices=tuple(SHAPES))
    labels: int = knob(160_000, "labels after which a point counts as open", least=100)
    points: int = knob(0, "points of the map to measure at most; 0: all that are wanted", least=0)

    @classmethod
    def again(cls, source: Mapping[str, Any]) -> Problem:
        """Make the problem of a source at the point that it names, without searching.

        Raises
        ------
        InputError
            If the source lacks a field or holds a wrong one.
        """
        for name in ("seed", "memory", "ratio", *(item.name for item in fields(cls))):
            if name not in source:
                raise InputError(f"source.{name} is missing")
        core = cls(**{item.name: source[item.name] for item in fields(cls)})
        memory, ratio = (
            parse_rational(source[name], f"source.{name}") for name in ("memory", "ratio")
        )
        problem = core.at(source["seed"], memory, ratio)
        return replace(problem, source=dict(source))

    def at(self, seed: int, memory: Fraction, ratio: Fraction) -> Problem:
        """Return the problem of a seed at a point of the map, searched or not.

        Parameters
        ----------
        seed : int
            At least 0.
        memory : Fraction
            As a part of the way from the least feasible memory (0) to the peak (1).
        ratio : Fraction
            Link time by compute time of moving everything.
        """
        kind, knobs = SHAPES[self.shape]
        problem = generator(kind, self._length(kind) | knobs | {"ratio": ratio}).problem(
            seed, memory
        )
        return replace(problem, name=f"{self.kind}-{self.shape}-{self.stages}-{seed}")

    def search(
        self,
        seed: int,
        *,
        time_limit: float | None = None,
        progress: Callable[[EffortMap], None] | None = None,
    ) -> tuple[EffortMap, Problem]:
        """Search the map of a seed; the problem's source says how far the search came.

        An interrupt (Ctrl-C) and `time_limit`, in seconds, end it with the hardest point so far.
        The source then holds the number of points measured, with which the search ends there again.
        """
        require_integer(seed, "seed", 0)

        def measure(point: Point, labels: int) -> ProofEffort:
            return effort(self.at(seed, point.memory, point.ratio), labels)

        found = EffortMap(
            measure, self.labels, most_points=self.points, time_limit=time_limit, progress=progress
        )
        found.run()
        return found, self._problem(seed, found)

    def draw(self, seed: int) -> Problem:
        """Return the problem at the hardest point of a seed's map."""
        return self.search(seed)[1]

    def _problem(self, seed: int, found: EffortMap) -> Problem:
        hardest = found.hardest
        source = {"generator": self.kind, "seed": seed, **self.knobs()}
        if not found.complete:
            source["points"] = len(found.efforts)
        source |= {
            "memory": str(hardest.memory),
            "ratio": str(hardest.ratio),
            "measured": len(found.efforts),
            "ended": "complete" if found.complete else "points",
            "effort": found.efforts[hardest].to_json(),
        }
        if found.interrupted:
            source["ended"] = "interrupted"
        return replace(self.at(seed, hardest.memory, hardest.ratio), source=source)

    def _length(self, kind: str) -> dict[str, Any]:
        """Return the knob by which a generator is told about how many stages to draw."""
        if kind == "transformer":
            return {"blocks": max(1, self.stages // 2)}
        if kind == "unet":
            return {"depth": max(1, (self.stages - 1) // 2)}
        return {"stages": self.stages}
