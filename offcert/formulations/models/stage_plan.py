"""From a solution of the stage model to a plan."""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.plan import Kind, Move, Plan
from offcert.core.problem import Problem
from offcert.formulations.common.linear_model import value_of
from offcert.formulations.common.outcome import first_evicted
from offcert.formulations.models.stage_instants import Line, StageLeg, TransferVariables

# Link time below this share of a transfer is rounding.
_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class _Placed:
    """A transfer and the stretches, named by the instant at their end, where it begins and ends.

    `share` is its link time in the stretch of its key, `length` all of it.
    """

    kind: Kind
    gap: int
    begins: int
    ends: int
    share: float
    length: float

    @property
    def key(self) -> tuple[int, int]:
        """Where it stands on the link.

        In a stretch, what is under way is finished; then come offloads inside, prefetches inside,
        and what continues beyond.
        """
        if self.kind is Kind.OFFLOAD:
            return self.ends, int(self.begins == self.ends)
        return self.begins, 2 + int(self.begins != self.ends)


def plan_of(
    problem: Problem, line: Line, transfers: TransferVariables, values: list[float]
) -> Plan:
    """Return the plan that a solution of the stage model amounts to.

    If the link is a simplex one and the order of transfers is part of the model, the plan is
    feasible and its makespan is the model's objective; otherwise it is a good guess.

    Parameters
    ----------
    problem : Problem
        The problem.
    line, transfers : Line, TransferVariables
        The model's variables.
    values : list of float
        Of the columns.
    """
    gaps = line.data.gaps
    evicted = {
        gap.number: index
        for index, gap in enumerate(gaps)
        if value_of(transfers.inward[index].happens, values) > 0.5
    }
    placed = [
        _place(Kind.PREFETCH, number, transfers.inward[index], values)
        for number, index in evicted.items()
    ]
    placed += [
        _place(Kind.OFFLOAD, number, transfers.out[tensor], values)
        for tensor, number in first_evicted(problem.trace, evicted).items()
    ]
    placed.sort(key=lambda item: (item.key, problem.trace.gaps[item.gap].after))
    begins = _begins(placed, line, problem.platform.duplex, values)
    moves, reached = [], 0
    for item, begin in zip(placed, begins, strict=True):
        gap = problem.trace.gaps[item.gap]
        if item.kind is Kind.OFFLOAD:
            moves.append(Move(item.kind, item.gap, gap.after - 1))
        else:
            # Claims keep the order of the moves.
            reached = max(reached, _position(line, item.begins, begin, values))
            moves.append(Move(item.kind, item.gap, min(reached, gap.after)))
    return Plan(moves)


def _place(kind: Kind, gap: int, leg: StageLeg, values: list[float]) -> _Placed:
    """Find the stretches in which a transfer has its first and its last link time."""
    slack = _TOLERANCE * max(leg.length, _TOLERANCE)
    shares = {k: value_of(leg.amount(k), values) for k in range(leg.opens + 1, leg.closes + 1)}
    begins = next((k for k, share in shares.items() if share > slack), leg.closes)
    ends = next((k for k, share in shares.items() if share >= leg.length - slack), leg.closes)
    stretch = ends if kind is Kind.OFFLOAD else begins
    share = shares[stretch] - shares.get(stretch - 1, 0.0)
    return _Placed(kind, gap, begins, ends, share, leg.length)


def _begins(placed: list[_Placed], line: Line, duplex: bool, values: list[float]) -> list[float]:
    """Return, for each transfer, when it begins in the stretch of its key, in units."""
    begins = []
    free: dict[Kind | None, float] = {}
    for item in placed:
        stretch = item.key[0]
        queue = item.kind if duplex else None
        begin = max(free.get(queue, 0.0), value_of(line.time(stretch - 1), values))
        rest = item.share
        if item.kind is Kind.PREFETCH and item.begins != item.ends:
            begin = max(begin, value_of(line.time(stretch), values) - item.share)
            rest = item.length
        begins.append(begin)
        free[queue] = begin + rest
    return begins


def _position(line: Line, stretch: int, begin: float, values: list[float]) -> int:
    """Return the operation before which a prefetch that begins in a stretch takes its memory."""
    low = line.instants[stretch - 1][0] + 1 if stretch > 0 else 0
    o, at_end = line.instants[stretch]
    high = o + 1 if at_end else o
    for position in range(low, high):
        if value_of(line.operations[position], values) >= begin:
            return position
    return high
