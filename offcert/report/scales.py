"""Which unit an axis has."""

from __future__ import annotations

from offcert.core.placement import PlacementProblem
from offcert.core.problem import Problem
from offcert.core.training_record import TrainingRecord

_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))
_SIZES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def time_scale(problem: Problem | PlacementProblem | TrainingRecord, span: int) -> tuple[int, str]:
    """Return the ticks in a unit that suits a span of so many ticks, and its name."""
    if problem.units.time != "ns":
        return 1, "ticks"
    return next((scale for scale in _TIMES if span >= 2 * scale[0]), _TIMES[-1])


def size_scale(
    problem: Problem | PlacementProblem | TrainingRecord, largest: int
) -> tuple[int, str]:
    """Return the bytes in a unit that suits sizes of up to so many bytes, and its name."""
    if problem.units.size != "B":
        return 1, "units"
    return next((scale for scale in _SIZES if largest >= 2 * scale[0]), _SIZES[-1])
