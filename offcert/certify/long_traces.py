"""Where a trace is so long that other steps are of use than on short ones."""

from __future__ import annotations

from offcert.core.problem import Problem

# More than any chain of stages in the library has. Beyond, searches over labels close less and less
# and cannot be verified, while tensors are so many that the fractional bound is nearly met.
MOST_OPERATIONS, MOST_GAPS = 320, 200


def is_long(problem: Problem) -> bool:
    """Return whether the trace of a problem is long."""
    return len(problem.trace) > MOST_OPERATIONS or len(problem.trace.gaps) > MOST_GAPS


def has_early_gaps(problem: Problem) -> bool:
    """Return whether some tensor may leave and has to return before another one is written."""
    trace = problem.trace
    written = max((trace.tensors[gap.tensor].uses[0] for gap in trace.gaps), default=-1)
    return any(gap.after <= written for gap in trace.gaps)
