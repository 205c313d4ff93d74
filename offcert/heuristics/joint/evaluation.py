"""How long a program takes with the transfers that it needs, compiled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offcert.core.compiled import inlined, plain
from offcert.heuristics.joint.leaving import INFEASIBLE, choose, order, ordered_length
from offcert.heuristics.joint.lives import live
from offcert.heuristics.joint.pruning import prune, restore
from offcert.heuristics.joint.state import (
    GAPS,
    LACKING,
    MOVED,
    RUNS,
    UNCOVERED,
    JointState,
    Work,
    new_work,
)
from offcert.heuristics.joint.tables import DUPLEX, MEMORY, Tables
from offcert.heuristics.joint.unrolling import unroll

# The value of a program with too many runs, or one that would read a value changed otherwise. By
# definition.
_IMPOSSIBLE = 1e30


@plain
def evaluate(tables: Tables, state: JointState, work: Work, weight: float) -> float:
    """Return the ticks of a program, and more for every byte that does not fit.

    Parameters
    ----------
    tables, state, work : Tables, JointState, Work
        The problem, the program, and scratch, on which the result is written: ``facts``, the runs,
        what they need, and the gaps.
    weight : float
        Ticks a byte that does not fit.

    Returns
    -------
    float
        If everything fits, the makespan of the ordered schedule that moves what is chosen; if not,
        what that would be if there were as much more memory as is lacking, and the price of that.
    """
    runs = unroll(tables, state, work)
    work.facts[RUNS] = runs
    if runs < 0 or not live(tables, state, work, runs):
        work.facts[UNCOVERED] = 2**60
        return _IMPOSSIBLE
    order(work, runs)
    choose(tables, work, runs)
    if work.facts[UNCOVERED] == 0:
        length = _fitting_length(tables, work, runs)
        if length != INFEASIBLE:
            return float(length)
        work.facts[UNCOVERED] = 1
    lacking = work.facts[UNCOVERED]
    raised = ordered_length(tables, work, runs, tables.settings[MEMORY] + lacking)
    price = weight * (lacking + work.facts[LACKING])
    return price + (_length_without(tables, work, runs) if raised == INFEASIBLE else float(raised))


@inlined
def _fitting_length(tables: Tables, work: Work, runs: int) -> int:
    """Return the makespan with the gaps chosen, or with the fewest of them, if that is less."""
    length = ordered_length(tables, work, runs, tables.settings[MEMORY])
    compute = 0
    for run in range(runs):
        compute += tables.duration[work.runs[run]]
    if length <= compute or not prune(tables, work, runs):
        return length
    shorter = ordered_length(tables, work, runs, tables.settings[MEMORY])
    if shorter == INFEASIBLE or shorter > length:
        restore(tables, work)
        return length
    return shorter


@inlined
def _length_without(tables: Tables, work: Work, runs: int) -> float:
    """Return the ticks that it takes at least, whatever does not fit."""
    compute = out = back = 0
    for run in range(runs):
        compute += tables.duration[work.runs[run]]
    for gap in range(work.facts[GAPS]):
        if work.chosen[gap]:
            out += tables.offload[work.gap_value[gap]]
            back += tables.prefetch[work.gap_value[gap]]
    moving = max(out, back) if tables.settings[DUPLEX] else out + back
    return float(max(compute, moving))


@dataclass(frozen=True)
class Estimate:
    """The estimate of a program: its time, its memory and the gaps that leave.

    Attributes
    ----------
    makespan : int or None
        Ticks of the ordered schedule that moves `gaps`; on a duplex link a little less at times.
        None if it does not fit.
    lacking : int
        Bytes that do not fit.
    moved : int
        Bytes that leave.
    runs : tuple of int
        The computation of each run.
    demand : tuple of int
        Bytes on the device during each run if nothing leaves.
    gaps : tuple of tuple of int
        Value, and the runs before and after, of what leaves.
    """

    makespan: int | None
    lacking: int
    moved: int
    runs: tuple[int, ...]
    demand: tuple[int, ...]
    gaps: tuple[tuple[int, int, int], ...]


def estimate(tables: Tables, state: JointState) -> Estimate:
    """Return the evaluation of a program: ticks, bytes that are lacking, runs and gaps."""
    work = new_work(tables)
    found = evaluate(tables, state, work, 0.0)
    lacking = int(work.facts[UNCOVERED])
    if found >= _IMPOSSIBLE:
        return Estimate(None, lacking, 0, (), (), ())
    count = int(work.facts[RUNS])
    chosen = np.flatnonzero(work.chosen[: work.facts[GAPS]])
    return Estimate(
        int(found) if lacking == 0 else None,
        lacking,
        int(work.facts[MOVED]),
        tuple(work.runs[:count].tolist()),
        tuple(work.need[:count].tolist()),
        tuple(
            (int(work.gap_value[gap]), int(work.gap_before[gap]), int(work.gap_after[gap]))
            for gap in chosen
        ),
    )
