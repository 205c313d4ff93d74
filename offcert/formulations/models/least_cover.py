"""The fewest bytes over the link with which every operation fits, whatever the times."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
from scipy.optimize import Bounds, LinearConstraint
from scipy.sparse import coo_array

from offcert.formulations.common.highs import run_highs
from offcert.questions.schedule.problem import Problem

# Nonzeros of the largest covering problem that is solved. Arbitrary.
_MOST_ENTRIES = 100_000
# Cost of a transfer, as a part of the largest tensor's bytes: of as many bytes, the fewest tensors.
# Arbitrary.
_TRANSFER = 1e-6


def least_cover_gaps(problem: Problem, seconds: float) -> list[int] | None:
    """Return the gaps of which the fewest bytes of transfers make every operation fit.

    A plan moves no fewer bytes, and of as many bytes no fewer tensors, if HiGHS has ended within
    `seconds`; whether one of these gaps is quick enough is another question. None if nothing was
    found in time, nothing can leave, or the trace is too large for it.
    """
    trace, memory = problem.trace, problem.platform.memory
    tight = [o for o, demand in enumerate(trace.demand) if demand > memory]
    sizes = trace.gap_sizes
    # The places in `tight` of the operations in which a gap may be absent.
    over = [
        range(bisect_right(tight, gap.before), bisect_left(tight, gap.after)) for gap in trace.gaps
    ]
    if not 0 < sum(map(len, over)) <= _MOST_ENTRIES:
        return None
    unit = float(max(sizes, default=1))
    tensors = sorted({gap.tensor for gap in trace.gaps})
    place = {tensor: len(sizes) + number for number, tensor in enumerate(tensors)}
    # A variable a gap, that it is evicted, and one a tensor, that it leaves.
    cost = np.zeros(len(sizes) + len(tensors))
    entries: list[tuple[int, int, float]] = []
    for number, gap in enumerate(trace.gaps):
        cost[number] = cost[place[gap.tensor]] = sizes[number] / unit + _TRANSFER
        entries += [(row, number, sizes[number] / unit) for row in over[number]]
        row = len(tight) + number
        entries += [(row, place[gap.tensor], 1.0), (row, number, -1.0)]
    rows, columns, values = zip(*entries, strict=True)
    matrix = coo_array((values, (rows, columns)), (len(tight) + len(sizes), len(cost)))
    least = np.zeros(len(tight) + len(sizes))
    least[: len(tight)] = [(trace.demand[o] - memory) / unit for o in tight]
    seconds = max(seconds, 0.01)
    found = run_highs(
        "milp",
        seconds,
        c=cost,
        integrality=np.ones(len(cost)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix.tocsc(), least, np.inf),
        options={"time_limit": seconds},
    )
    return None if found.x is None else [g for g in range(len(sizes)) if found.x[g] > 0.5]
