"""Where a trace is so long that other steps are of use than on short ones."""

from __future__ import annotations

from offcert.core.problem import Problem

# More than any chain of stages in the library has. Beyond, searches over labels close less and less
# and cannot be verified, while tensors are so many that the fractional bound is nearly met:
# DenseNet-201 by dense layers (217 gaps) ends with smaller gaps on the ladder of long traces.
MOST_OPERATIONS, MOST_GAPS = 320, 200


def is_long(problem: Problem) -> bool:
    """Return whether the trace of a problem is long."""
    return len(problem.trace) > MOST_OPERATIONS or len(problem.trace.gaps) > MOST_GAPS


# More than any network of the library has by stages, chains apart.
_MOST_BY_STAGES = 120


def is_fine(problem: Problem) -> bool:
    """Return whether a trace that may not be long has many operations between its gaps.

    So have networks by modules or operators. Their many small tensors make searches over labels
    hold more of them at once, and what those do not close with few they do not with gigabytes.
    """
    trace = problem.trace
    many = len(trace) > _MOST_BY_STAGES and 3 * len(trace.gaps) <= 2 * len(trace)
    return many and problem.chain is None


def has_early_gaps(problem: Problem) -> bool:
    """Return whether some tensor may leave and has to return before another one is written."""
    trace = problem.trace
    written = max((trace.tensors[gap.tensor].uses[0] for gap in trace.gaps), default=-1)
    return any(gap.after <= written for gap in trace.gaps)
