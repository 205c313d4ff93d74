"""`Result`: what a method found and what it proved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

from offcert.core.fluid_schedule import FluidSchedule
from offcert.core.schedule import Schedule


class SolveStatus(StrEnum):
    """What is known when a method stops.

    ``OPTIMAL`` is claimed only when the integer objective equals the lower bound.
    """

    OPTIMAL = "OPTIMAL"
    FEASIBLE = "FEASIBLE"
    INFEASIBLE = "INFEASIBLE"
    UNKNOWN = "UNKNOWN"


class Evidence(StrEnum):
    """Why a lower bound should be believed (design document, §3), strongest first."""

    PROVED = "proved"
    CROSS_ATTESTED = "cross-attested"
    ATTESTED = "attested"


@dataclass(frozen=True)
class Bound:
    """A lower bound on the makespan.

    Attributes
    ----------
    method : str
        The name under which the registry of bounds knows it.
    value : int
        Ticks; makespans are integers, so a fractional bound is rounded up.
    evidence : Evidence
        Its level.
    details : mapping
        What a verifier needs to check it again, and what is good to know; JSON values only.
    """

    method: str
    value: int
    evidence: Evidence
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Infeasibility:
    """Why no schedule exists: an operation that cannot run, and the bytes it lacks.

    ``operation`` is -1 when what is resident at the start does not fit.
    """

    operation: int
    name: str
    needed: int
    lacking: int


@dataclass(frozen=True)
class Result:
    """What a method found.

    Attributes
    ----------
    status : SolveStatus
        What is known.
    schedule : Schedule, FluidSchedule or None
        The best schedule found; its transfers are in pieces only if the problem allows that.
    bounds : tuple of Bound
        Every lower bound established on the way.
    runtime : float
        Seconds.
    infeasibility : Infeasibility or None
        Set if the status is ``INFEASIBLE``.
    """

    status: SolveStatus
    schedule: Schedule | FluidSchedule | None
    bounds: tuple[Bound, ...] = ()
    runtime: float = 0.0
    infeasibility: Infeasibility | None = None

    @property
    def objective(self) -> int | None:
        """Makespan of the schedule in ticks, or None."""
        return None if self.schedule is None else self.schedule.makespan

    @property
    def lower_bound(self) -> int:
        """The best lower bound in ticks; 0 if there is none."""
        return max((bound.value for bound in self.bounds), default=0)

    @property
    def gap(self) -> float:
        """``(objective - lower bound) / objective``; infinite without a schedule."""
        if self.objective is None:
            return math.inf
        if self.objective == 0:
            return 0.0
        return float(Fraction(self.objective - self.lower_bound, self.objective))
