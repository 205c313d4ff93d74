"""The rungs for problems in which computations may run again, or memory is minimised, as data."""

from __future__ import annotations

from offcert.certify.checkpoint_steps import descend_checkpoints
from offcert.certify.combined_steps import descend_combined
from offcert.certify.deadline_steps import climb_limits, descend_sinking, halve_limits
from offcert.certify.graph_steps import descend_graphs
from offcert.certify.joint_bound_steps import bound_computing, climb_joint, close_joint
from offcert.certify.joint_search_steps import descend_joint
from offcert.certify.joint_steps import descend_plain, descend_sequentially, descend_whole
from offcert.certify.rematerialisation_steps import (
    bound_least_memory,
    descend_persistent,
    descend_rematerialisation,
    solve_checkmate,
    solve_retention,
    solve_stages,
)
from offcert.certify.rung import Rung
from offcert.core.problem import Minimise, Problem, Recompute

_CLOSE = Rung(
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
    _CLOSE,
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

_LEAST_MEMORY = (
    Rung(bound_least_memory, 1.0, "bounds in bytes, at once", always=True),
    Rung(descend_whole, 1.0, "everything once: a plan that always works", always=True),
    Rung(descend_sequentially, 1.0, "what offloading can do in any time", always=True),
    _CLOSE,
    Rung(descend_checkpoints, 0.2, "on chains, the fewest live bytes of all segments"),
    Rung(descend_persistent, 0.2, "on chains, fewer still if nothing else stays"),
    Rung(descend_graphs, 0.1, "stored vertices of graphs, as published", at_most=5.0),
    Rung(descend_rematerialisation, 0.4, "gives up what is cheapest, at any size"),
    Rung(descend_combined, 0.4, "on chains with offloading, by halving the memory"),
    Rung(solve_retention, 0.5, "exact on small networks where nothing may leave", gap_from=1e-9),
    Rung(solve_checkmate, 0.8, "exact in stages, on another solver", gap_from=1e-9),
)

_LEAST_MEMORY_IN_TIME = (
    Rung(bound_least_memory, 0.1, "bounds in bytes, at once", always=True),
    Rung(descend_whole, 1.0, "everything once: a plan that always works", always=True),
    Rung(descend_sequentially, 1.0, "if offloading has any time", always=True),
    _CLOSE,
    Rung(descend_checkpoints, 0.1, "on chains, the fewest live bytes of all segments"),
    Rung(descend_persistent, 0.1, "on chains, fewer still if nothing else stays"),
    Rung(descend_graphs, 0.05, "stored vertices of graphs, as published", at_most=5.0),
    Rung(descend_rematerialisation, 0.1, "gives up what is cheapest, at any size"),
    Rung(descend_sinking, 0.3, "annealing under a limit that sinks: the best plans", always=True),
    Rung(climb_limits, 0.4, "the largest limit at which the bound on the time is above"),
    Rung(descend_combined, 0.2, "on chains with offloading, by halving the memory"),
    Rung(solve_retention, 0.4, "exact on small networks where nothing may leave", gap_from=1e-9),
    Rung(solve_checkmate, 0.4, "exact in stages, on another solver", gap_from=1e-9),
    Rung(descend_sinking, 0.85, "goes on where it stopped", gap_from=1e-9),
    Rung(halve_limits, 1.0, "all that is known about least time, limit by limit", gap_from=1e-9),
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


def _captured(rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
    return tuple(rung for rung in rungs if rung.run not in _ANY_EXECUTION)


JOINT_LADDERS: dict[str, tuple[Rung, ...]] = {
    "least time": _LEAST_TIME,
    "least time of a captured step": _captured(_LEAST_TIME),
    "least memory": _LEAST_MEMORY,
    "least memory of a captured step": _captured(_LEAST_MEMORY),
    "least memory in time": _LEAST_MEMORY_IN_TIME,
    "least memory in time of a captured step": _captured(_LEAST_MEMORY_IN_TIME),
}


def chooses_execution(problem: Problem) -> bool:
    """Return whether more than transfers is open, so that other rungs are needed."""
    return problem.recompute is not Recompute.NONE or problem.minimise is Minimise.MEMORY


def joint_ladder_for(problem: Problem) -> str:
    """Return the name of the ladder that suits a problem."""
    name = "least memory" if problem.minimise is Minimise.MEMORY else "least time"
    if problem.deadline is not None:
        name += " in time"
    captured = "capture" in (problem.source or {})
    return f"{name} of a captured step" if captured else name
