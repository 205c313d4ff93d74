"""Launch times: the host hands operations over, and the device may wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from offcert.core.execution import Execution
from offcert.questions.schedule.problem import Problem


def launch_times(problem: Problem, execution: Execution | None = None) -> tuple[int, ...] | None:
    """Return the nanoseconds that the host took to hand over each operation; None if nobody knows.

    The problem of a measured step has them in ``source.measurement.launch_ns``; a computation that
    runs again in an execution is handed over again, in the same time.
    """
    found = ((problem.source or {}).get("measurement") or {}).get("launch_ns")
    operations = len(problem.trace if execution is None else execution.trace)
    once = operations if problem.computed is None else len(problem.computed)
    if not isinstance(found, list) or len(found) != once or not all(map(_is_time, found)):
        return None
    return tuple(found if execution is None else (found[run] for run in execution.runs))


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def with_host(durations: Sequence[int], launches: Sequence[int]) -> int:
    """Return when operations have ended of which none starts before it is launched."""
    end = 0
    for duration, handed in zip(durations, accumulate(launches), strict=True):
        end = max(end + duration, handed)
    return end
