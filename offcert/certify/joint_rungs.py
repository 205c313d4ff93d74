"""The rungs for problems in which computations may run again, or memory is minimised, as data."""

from __future__ import annotations

from offcert.certify.checkpoint_steps import descend_checkpoints
from offcert.certify.combined_steps import descend_combined
from offcert.certify.deadline_steps import climb_limits, descend_sinking, halve_limits
from offcert.certify.graph_steps import descend_graphs
from offcert.certify.joint_steps import descend_sequentially, descend_whole
from offcert.certify.joint_time_rungs import (
    CLOSE,
    LEAST_TIME_LADDERS,
    ladder_name,
    of_captured_step,
)
from offcert.certify.rematerialisation_steps import (
    bound_least_memory,
    descend_persistent,
    descend_rematerialisation,
    solve_checkmate,
    solve_retention,
)
from offcert.certify.rung import Rung
from offcert.core.problem import Minimise, Problem

_LEAST_MEMORY = (
    Rung(bound_least_memory, 1.0, "bounds in bytes, at once", always=True),
    Rung(descend_whole, 1.0, "everything once: a plan that always works", always=True),
    Rung(descend_sequentially, 1.0, "what offloading can do in any time", always=True),
    CLOSE,
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
    CLOSE,
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

JOINT_LADDERS: dict[str, tuple[Rung, ...]] = {
    **LEAST_TIME_LADDERS,
    "least memory": _LEAST_MEMORY,
    "least memory of a captured step": of_captured_step(_LEAST_MEMORY),
    "least memory in time": _LEAST_MEMORY_IN_TIME,
    "least memory in time of a captured step": of_captured_step(_LEAST_MEMORY_IN_TIME),
}


def joint_ladder_for(problem: Problem) -> str:
    """Return the name of the ladder that suits a problem."""
    name = "least memory" if problem.minimise is Minimise.MEMORY else "least time"
    if problem.deadline is not None:
        name += " in time"
    return ladder_name(name, problem)
