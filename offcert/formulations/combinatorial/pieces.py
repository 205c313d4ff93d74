"""Pieces of a step between which nothing is away: each can be planned, and bounded, alone.

A step of several micro-batches is one forward and backward pass after the other. Where all tensors
that are written before the moment between two operations have their gaps before it, whatever moves
before that moment is back, and what moves later has not begun to. So the shortest schedule of the
step is that of its pieces, one after the other; equal pieces are planned once
(docs/theory/pieces.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from offcert.core.result import Bound
from offcert.core.trace import Tensor, Trace
from offcert.formulations.combinatorial.relaxations import heads_and_tails, required_absent
from offcert.proofs.kinds.computed import Computed
from offcert.proofs.registry import proved
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem, Recompute

METHOD = "fractional-pieces"


@dataclass(frozen=True)
class StepPiece:
    """Consecutive operations of a step that has gaps among them."""

    first: int  # The first operation.
    # These operations alone. What is there all the while takes its bytes off the memory limit.
    problem: Problem
    gaps: tuple[int, ...]  # For each gap of this problem, the same gap of the step.


def pieces_of(problem: Problem) -> list[StepPiece]:
    """Return the pieces of a step in their order, without those in which nothing can move.

    Parameters
    ----------
    problem : Problem
        Any; nothing runs again.
    """
    trace = problem.trace
    cuts = [*_cuts(trace), len(trace)]
    gap_of = {(gap.tensor, gap.before): number for number, gap in enumerate(trace.gaps)}
    with_gaps = {gap.before for gap in trace.gaps} | {gap.after for gap in trace.gaps}
    found = []
    for first, end in itertools.pairwise(cuts):
        # The tensors of a piece without gaps need not be looked at.
        if not with_gaps.isdisjoint(range(first, end)):
            found.append(_piece(problem, first, end, gap_of))
    return [piece for piece in found if piece.gaps]


def classes_of(pieces: list[StepPiece]) -> list[tuple[Problem, list[StepPiece]]]:
    """Return classes of equal pieces, each with its problem of least memory.

    The plan of that problem serves all pieces of the class.
    """
    found: dict[Trace, list[StepPiece]] = {}
    for piece in pieces:
        found.setdefault(piece.problem.trace, []).append(piece)
    return [
        (min((each.problem for each in group), key=lambda each: each.platform.memory), group)
        for group in found.values()
    ]


def pieces_bound(problem: Problem) -> Bound | None:
    """Return the bound of the fractional optima of all pieces, and what runs between them.

    None if there are fewer than two pieces, for then the fractional optimum says as much.

    Parameters
    ----------
    problem : Problem
        A feasible one.
    """
    pieces = pieces_of(problem)
    if len(pieces) < 2:
        return None
    total = problem.trace.compute_time
    for part, group in classes_of(pieces):
        # The one with the least memory has the highest bound; others may have lower ones.
        memories = {each.problem.platform.memory: each.problem for each in group}
        bounds = {
            memory: heads_and_tails(one, required_absent(one)).bound
            for memory, one in memories.items()
        }
        total += sum(bounds[each.problem.platform.memory] for each in group)
        total -= len(group) * part.trace.compute_time
    return proved(METHOD, total, Computed())


def joined(plans: Iterable[tuple[StepPiece, Plan]]) -> Plan:
    """Return the plan of a step from those of its pieces, in their order."""
    return Plan(
        Move(move.kind, piece.gaps[move.gap], piece.first + move.before)
        for piece, plan in plans
        for move in plan.moves
    )


def _cuts(trace: Trace) -> list[int]:
    """Return the operations before which a piece begins, in increasing order; 0 is the first."""
    # Gaps of a tensor come in order: that of the last one stays. It may leave once it is written.
    ends = {gap.tensor: (trace.tensors[gap.tensor].uses[0], gap.after) for gap in trace.gaps}
    # How many tensors are, or may be, on their way before each operation.
    away = [0] * (len(trace) + 1)
    for before, after in ends.values():
        away[before + 1] += 1
        away[after + 1] -= 1
    found, open_ = [], 0
    for operation in range(len(trace)):
        open_ += away[operation]
        if not open_ or operation == 0:
            found.append(operation)
    return found


def _piece(
    problem: Problem, first: int, end: int, gap_of: Mapping[tuple[int, int], int]
) -> StepPiece:
    """Return the piece of the operations from `first` up to but without `end`."""
    trace = problem.trace
    tensors: list[Tensor] = []
    origin: list[int] = []
    resident = 0
    for index, tensor in enumerate(trace.tensors):
        if tensor.uses[-1] < first or tensor.uses[0] >= end:
            continue
        uses = [use - first for use in tensor.uses if first <= use < end]
        earlier, later = tensor.uses[0] < first, tensor.uses[-1] >= end
        if earlier and later and (not uses or not tensor.evictable):
            resident += tensor.size
            continue
        # Across a cut there is no gap: what is used on either side is there at its ends.
        uses = [*([-1] if earlier else []), *uses]
        if later and uses[-1] != end - first - 1:
            uses.append(end - first - 1)
        tensors.append(Tensor("", tensor.size, tuple(uses), tensor.evictable))
        origin.append(index)
    operations = [replace(each, name="") for each in trace.operations[first:end]]
    alone = Trace(operations, tensors)
    part = replace(
        problem,
        name=f"{problem.name}, operations {first} to {end - 1}",
        network=alone,
        platform=replace(problem.platform, memory=problem.platform.memory - resident),
        source=None,
        recompute=Recompute.NONE,
        uncertainty=None,
    )
    gaps = tuple(gap_of[origin[gap.tensor], gap.before + first] for gap in alone.gaps)
    return StepPiece(first, part, gaps)
