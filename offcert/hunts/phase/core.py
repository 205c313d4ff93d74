"""`CoreProblems`: the problems of the hard core, as a seeded generator like `instances`' own.

Where memory is plentiful or the link is fast, a schedule without waiting is found and proved
optimal at once; where both are scarce, the link never rests and simple bounds are tight. In between
lies a narrow region in which proving takes orders of magnitude longer, as around the phase
transition of satisfiability problems. The problem of a seed is a random chain at the hardest point
that a search of that region finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar

from offcert.core.documents import parse_rational
from offcert.core.errors import InputError
from offcert.core.problem import Problem
from offcert.core.trace import require_integer
from offcert.hunts.phase.effort import Effort, effort
from offcert.hunts.phase.search import EffortMap, MapProgress, Point
from offcert.instances.generator import Generator, knob
from offcert.instances.kinds import generator

# Sizes and times large enough that no two sums of sizes are the same by chance.
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

    The effort is counted in labels (`offcert.hunts.phase.effort`), never timed, so the same knobs
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
        progress: Callable[[MapProgress], None] | None = None,
    ) -> tuple[EffortMap, Problem]:
        """Search the map of a seed; the problem's source says how far the search came.

        An interrupt (Ctrl-C) and `time_limit`, in seconds, end it with the hardest point so far.
        The source then holds the number of points measured, with which the search ends there again.
        """
        require_integer(seed, "seed", 0)

        def measure(point: Point, labels: int) -> Effort:
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
