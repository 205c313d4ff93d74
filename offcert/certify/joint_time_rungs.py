"""The rungs for least time where computations may run again, as data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offcert.certify.checkpoint_steps import descend_checkpoints
from offcert.certify.combined_steps import descend_combined
from offcert.certify.graph_steps import descend_graphs
from offcert.certify.joint_bound_steps import bound_computing, climb_joint, close_joint
from offcert.certify.joint_search_steps import descend_joint
from offcert.certify.joint_steps import descend_plain, descend_whole
from offcert.certify.rematerialisation_steps import (
    descend_persistent,
    descend_rematerialisation,
    solve_checkmate,
    solve_retention,
    solve_stages,
)
from offcert.certify.rung import Rung
from offcert.certify.rungs import LADDERS, ladder_for
from offcert.certify.search import Search, SearchProgress
from offcert.core.problem import Problem, Recompute

CLOSE = Rung(
    close_joint,
    0.4,
    "exact on networks of up to ten computations, and many larger ones",
    at_most=30.0,
    most_operations=20,
    gap_from=1e-9,
)

_LEAST_TIME = (
    Rung(bound_computing, 1.0, "a bound at once", always=True),
    Rung(descend_whole, 1.0, "if all fits nothing has to be done", always=True),
    CLOSE,
    Rung(descend_rematerialisation, 0.1, "a plan that moves nothing, at once", at_most=3.0),
    Rung(descend_graphs, 0.05, "stored vertices of graphs, as published", at_most=1.0),
    Rung(descend_persistent, 0.1, "on chains, optimal if stored copies stay", at_most=5.0),
    Rung(descend_checkpoints, 0.1, "on chains, the best segments if nothing leaves", at_most=5.0),
    Rung(
        descend_plain,
        0.2,
        "what offloading alone can do; seldom the best plan, so it gets little",
        at_most=3.0,
        always=True,
    ),
    Rung(descend_joint, 0.15, "a good plan for bounds to meet", at_most=6.0, always=True),
    Rung(climb_joint, 0.4, "what moving and running again can do together at best"),
    Rung(descend_combined, 0.3, "on chains, optimal under the paper's assumptions"),
    Rung(solve_stages, 0.3, "a bound where nothing may leave", gap_from=1e-9),
    Rung(solve_retention, 0.4, "exact on small networks where nothing may leave", gap_from=1e-9),
    Rung(solve_checkmate, 0.3, "exact in stages, on another solver", gap_from=1e-9),
    Rung(descend_joint, 1.0, "better plans in all the time that is left", gap_from=1e-9),
)

# Of a captured step, only programs of segments can be carried out.
_ANY_EXECUTION = (
    descend_rematerialisation,
    descend_graphs,
    descend_persistent,
    descend_checkpoints,
    descend_combined,
    solve_retention,
    solve_checkmate,
)


def of_captured_step(rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
    """Return the rungs of a ladder whose plans a captured step can carry out."""
    return tuple(rung for rung in rungs if rung.run not in _ANY_EXECUTION)


LEAST_TIME_LADDERS: dict[str, tuple[Rung, ...]] = {
    "least time": _LEAST_TIME,
    "least time of a captured step": of_captured_step(_LEAST_TIME),
}


def ladder_name(ladder: str, problem: Problem) -> str:
    """Return the name of the ladder for a problem, which may be a captured step."""
    captured = "capture" in (problem.source or {})
    return f"{ladder} of a captured step" if captured else ladder


def search_for_time(
    problem: Problem,
    time_limit: float,
    target_gap: float = 0.0,
    progress: Callable[[SearchProgress], None] | None = None,
    keep: Callable[[Search], None] | None = None,
) -> tuple[Search, Sequence[Rung]]:
    """Return a search for least time, and the ladder that suits the problem."""
    if problem.recompute is Recompute.NONE:
        plain = Search(problem, time_limit, target_gap, progress, keep)
        return plain, LADDERS[ladder_for(problem)]
    search = Search(problem, time_limit, target_gap, progress, keep)
    return search, LEAST_TIME_LADDERS[ladder_name("least time", problem)]
