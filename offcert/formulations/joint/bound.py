"""Joint bounds, the cheapest first: the computing time, then one grid after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator

from offcert.core.problem import Problem, Transfers
from offcert.core.result import Bound
from offcert.formulations.joint.contents import Contents, contents
from offcert.formulations.joint.grid import Grid, grids
from offcert.formulations.joint.multipliers import rounded
from offcert.formulations.joint.program import JointProgram
from offcert.formulations.joint.room import demands, rooms
from offcert.proofs.claims import proved
from offcert.proofs.joint_document import PLACES, JointWeights, write
from offcert.proofs.kinds import JointProof

METHOD = "joint-lp"


def computing_bound(problem: Problem) -> Bound:
    """Return the bound that every computation has to run once, as a proof without multipliers.

    Parameters
    ----------
    problem : Problem
        With a network.
    """
    assert problem.computed is not None
    nothing = JointWeights(1, {family: {} for family in PLACES})
    proof = JointProof(moments=(), spans=(), whole=False, proof=write(nothing))
    return proved(METHOD, problem.computed.compute_time, proof)


def joint_bounds(problem: Problem, seconds: float) -> Iterator[Bound]:
    """Yield proved bounds, each better than those before.

    Parameters
    ----------
    problem : Problem
        With a network, and memory enough for each computation by itself.
    seconds : float
        For the linear programs together.
    """
    network = problem.computed
    assert network is not None
    deadline = time.monotonic() + seconds
    known = contents(network, problem.offload)
    # Whole values cannot be told from parts where transfers may pause.
    whole = not problem.offload or problem.transfers is Transfers.ATOMIC
    most = network.compute_time
    for grid in grids(network, demands(network, known), problem.platform.memory):
        found = cut(problem, known, grid, whole, deadline - time.monotonic())
        if found is None:
            return
        if found.value > most:
            most = found.value
            yield found


def cut(problem: Problem, known: Contents, grid: Grid, whole: bool, seconds: float) -> Bound | None:
    """Return the bound that a grid gives, or None if the solver does not end in time."""
    room = rooms(known, grid, problem.platform.memory, whole)
    program = JointProgram(problem, known, grid, room)
    solved = program.solve(seconds)
    if solved is None:
        return None
    bound = rounded(program, solved)
    proof = JointProof(
        moments=grid.moments, spans=grid.joined, whole=whole, proof=write(bound.weights)
    )
    return proved(METHOD, bound.value, proof)
