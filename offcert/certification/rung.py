"""`Rung`: one step of a ladder: a method, the problems that it suits, and its part of the time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from offcert.certification.method import Method
from offcert.certification.search import Search
from offcert.questions.schedule.problem import Problem, Transfers

# Operations, and gaps, beyond which a trace counts as long: more than any chain of stages in the
# library has. Searches over labels close less and less there, while the fractional bound is nearly
# met: measured, DenseNet-201 by dense layers (217 gaps) ends with smaller gaps on the ladder of
# long traces.
MOST_OPERATIONS, MOST_GAPS = 320, 200


def is_long(problem: Problem) -> bool:
    """Return whether the trace of a problem is long."""
    return len(problem.trace) > MOST_OPERATIONS or len(problem.trace.gaps) > MOST_GAPS


# Operations beyond which a trace that is no chain counts as fine: more than any network of the
# library has by stages. Derived.
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


def has_nested_gaps(problem: Problem) -> bool:
    """Return whether every gap lies within the one that opened before it, each of another tensor.

    With a simplex link, such small problems are closed by searches from a cut within milliseconds.
    """
    gaps = sorted((gap.before, -gap.after) for gap in problem.trace.gaps)
    single = len({gap.tensor for gap in problem.trace.gaps}) == len(gaps)
    return single and all(one[1] <= two[1] for one, two in pairwise(gaps))


@dataclass(frozen=True)
class Rung:
    """One step of a ladder."""

    method: Method  # The method that runs; also says for which transfers it is
    share: float  # The part of the remaining time that it may take
    reason: str  # Why it stands here, and why it gets this time
    # Minimum seconds, if so many are left, and maximum seconds.
    at_least: float = 0.0
    at_most: float = math.inf
    # Whether it runs even when the time is over, so that there is a plan and a bound.
    always: bool = False
    fallback: bool = False  # Whether it runs even then as long as there is no plan
    relaxed_only: bool = False  # Whether it is for all transfers but atomic ones
    fine_only: bool = False  # Whether it is for fine traces only; see `is_fine`
    # Whether it is only for traces on which a tensor has to return before another is written.
    early_gaps_only: bool = False
    unnested_only: bool = False  # Whether it is not for nested gaps on a simplex link
    gap_from: float = 0.0  # Least gap at which it is worth its time
    # Between which parts of the makespan the outward search must have left open.
    open_from: float = 0.0
    open_to: float = math.inf
    most_operations: float = math.inf  # Longest trace on which it ends in time
    most_gaps: float = math.inf  # Gaps of the largest trace on which it keeps to its time
    needs: float = 0.0  # Seconds below which it is not begun

    @property
    def name(self) -> str:
        """The name of its method."""
        return self.method.name or self.method.run.__name__

    @property
    def conditions(self) -> list[str]:
        """Conditions on the problem, the search and the time left, in words; [] if none."""
        words = [words for words, _ in self._demands()]
        return [*words, f"at least {self.needs:g} s for it"] if self.needs else words

    def unmet(self, search: Search) -> str | None:
        """Return the first condition that a problem does not meet at this point, or None."""
        return next((words for words, met in self._demands() if not met(search)), None)

    def suits(self, search: Search) -> bool:
        """Return whether it is for such a problem, at this point of the search."""
        return self.unmet(search) is None

    def _demands(self) -> Iterator[tuple[str, Callable[[Search], bool]]]:
        """Yield every condition on problem and search in words, with its test."""
        atomic = Transfers.ATOMIC
        if self.method.transfers == {atomic}:
            yield "atomic transfers", lambda search: search.problem.transfers is atomic
        if self.relaxed_only:
            said = "transfers that are not atomic"
            yield said, lambda search: search.problem.transfers is not atomic
        if self.gap_from > 0:
            said = f"gap at least {_percent(self.gap_from)}"
            yield said, lambda search: search.gap >= self.gap_from
        if self.most_operations < math.inf:
            said = f"at most {self.most_operations:g} operations"
            yield said, lambda search: len(search.problem.trace) <= self.most_operations
        if self.most_gaps < math.inf:
            said = f"at most {self.most_gaps:g} gaps"
            yield said, lambda search: len(search.problem.trace.gaps) <= self.most_gaps
        if self.fine_only:
            yield "a fine trace", lambda search: is_fine(search.problem)
        if self.early_gaps_only:
            yield "early returns", lambda search: has_early_gaps(search.problem)
        if self.unnested_only:
            yield (
                "gaps that are not nested, or a duplex link",
                lambda search: (
                    search.problem.platform.duplex or not has_nested_gaps(search.problem)
                ),
            )
        if self.open_from > 0:
            said = f"outward search leaves at least {_percent(self.open_from)}"
            yield said, lambda search: search.workings.outward_open >= self.open_from
        if self.open_to < math.inf:
            said = f"outward search leaves at most {_percent(self.open_to)}"
            yield said, lambda search: search.workings.outward_open <= self.open_to

    def seconds(self, left: float, slowness: float = 1.0) -> float:
        """Return the seconds that the rung may take if so many seconds are left.

        On a busy machine its least and its most are as many times longer as everything is.
        """
        least, most = self.at_least * slowness, self.at_most * slowness
        return min(max(self.share * left, min(least, left)), most)


def _percent(part: float) -> str:
    return f"{100 * part:g} %"
