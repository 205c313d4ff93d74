"""Moving at once, between two operations: how long that takes by a problem's numbers.

Needs no torch.
"""

from __future__ import annotations

from offcert.core.plan import Kind
from offcert.core.problem import Problem
from offcert.core.schedule import Schedule, Transfer
from offcert.core.trace import Trace
from offcert.runtime.predict import Prediction


class GapsOfTensors:
    """Finds the gap of a tensor that an operation lies in.

    Parameters
    ----------
    trace : Trace
        Whose gaps they are.
    """

    def __init__(self, trace: Trace) -> None:
        self._rows: dict[int, list[tuple[int, int]]] = {}
        for number, gap in enumerate(trace.gaps):
            self._rows.setdefault(gap.tensor, []).append((gap.after, number))

    def at(self, tensor: int, operation: int) -> int:
        """Return the gap in which a tensor is absent that moves before an operation."""
        return next(number for after, number in self._rows[tensor] if operation <= after)


def forecast_at_once(problem: Problem, prediction: Prediction) -> Schedule:
    """Return the times of a plan whose transfers all happen between two operations.

    Before each operation, everything that is to leave is copied first, the first time that it
    leaves, and then what is to come back, one after the other. Nothing overlaps.

    Parameters
    ----------
    problem : Problem
        What runs, and how fast its platform copies.
    prediction : Prediction
        Of the plan: what leaves and comes back before each operation.
    """
    trace, platform, gaps = problem.trace, problem.platform, GapsOfTensors(problem.trace)
    now, copied = 0, set()
    starts, ends, transfers = [], [], []
    for index, duration in enumerate(trace.durations):
        leaving = [each for each in prediction.releases[index] if each not in copied]
        copied.update(leaving)
        moves = [(Kind.OFFLOAD, each) for each in leaving]
        moves += [(Kind.PREFETCH, each) for each in prediction.claims[index]]
        for kind, tensor in moves:
            begin, size = now, trace.tensors[tensor].size
            now += platform.transfer_time(size, kind)
            transfers.append(Transfer(kind, gaps.at(tensor, index), begin, now))
        starts.append(now)
        now += duration
        ends.append(now)
    return Schedule(starts, ends, transfers)
