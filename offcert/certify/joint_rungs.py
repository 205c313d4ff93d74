"""The rungs for problems in which computations may run again, or memory is minimised, as data."""

from __future__ import annotations

from offcert.certify.joint_steps import descend_plain
from offcert.certify.rung import Rung
from offcert.core.problem import Minimise, Problem, Recompute

JOINT_LADDERS: dict[str, tuple[Rung, ...]] = {
    "least time": (
        Rung(descend_plain, 0.2, "what offloading alone can do is a plan, too", always=True),
    ),
    "least memory": (),
}


def chooses_execution(problem: Problem) -> bool:
    """Return whether more than transfers is open, so that other rungs are needed."""
    return problem.recompute is not Recompute.NONE or problem.minimise is Minimise.MEMORY


def joint_ladder_for(problem: Problem) -> str:
    """Return the name of the ladder that suits a problem."""
    return "least memory" if problem.minimise is Minimise.MEMORY else "least time"
