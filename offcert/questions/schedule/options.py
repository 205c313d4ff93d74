"""The options of every search for a schedule, checked together."""

from __future__ import annotations

from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.options import require_count, require_gap, require_seconds, require_seed
from offcert.questions.schedule.problem import Problem


def require_problem(value: object) -> Problem:
    """Return a problem if it is one."""
    if not isinstance(value, Problem):
        raise InputError(
            f"problem must be a Problem, as read_problem and profile return, not "
            f"{short_repr(value)}"
        )
    return value


def require_search(
    problem: object, time_limit: object, workers: object, target_gap: object, seed: object
) -> tuple[float, int, float, int]:
    """Return the checked options of a search: time limit, workers, target gap and seed."""
    require_problem(problem)
    return (
        require_seconds(time_limit, "time_limit"),
        require_count(workers, "workers"),
        require_gap(target_gap, "target_gap"),
        require_seed(seed, "seed"),
    )
