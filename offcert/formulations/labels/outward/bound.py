"""A lower bound from the outward search, and the schedules that attain it.

The search divides regions at one pivot (``tree``). It starts with the operation that needs most,
and with large tensors only: small ones, of which a network has some (a batch normalisation's, say),
make for many classes and matter little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from offcert.formulations.labels.common import Deadline
from offcert.formulations.labels.outward.model import CutProblem, levels_of, needs_of
from offcert.formulations.labels.outward.split import RegionSplit, SplitKind
from offcert.formulations.labels.outward.tree import WINDOWS, Node, Tree
from offcert.proofs.kinds.labels import Outward
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule


def proof_of(tree: Tree, bound: int) -> Outward:
    """Return the proof that no schedule is shorter than `bound`, which the tree has proved."""
    pivots = [evaluator.pivot for evaluator in tree.evaluators]
    splits: list[list[Any]] = []
    waiting: list[Node] = tree.roots[::-1]
    while waiting:
        node = waiting.pop()
        if node.split is None or node.length >= bound:
            splits.append([])
            continue
        splits.append(_as_list(node.split, pivots[node.detail], len(node.children)))
        waiting += reversed(node.children)
    return Outward(
        pivot=pivots[0].operation,
        free_below=tuple(tree.details),
        windows=tuple(WINDOWS),
        splits=tuple(splits),
    )


def _as_list(split: RegionSplit, pivot: CutProblem, parts: int) -> list[Any]:
    match split.kind:
        case SplitKind.CLASS:
            values: list[Any] = [pivot.sizes[split.size_class], split.value]
        case SplitKind.BYTES | SplitKind.TICKS:
            values = [split.value]
        case SplitKind.SETS:
            values = [list(counts) for counts in split.sets]
        case SplitKind.WINDOW:
            values = []
        case SplitKind.DETAIL:
            values = [parts]
    return [split.kind.value, *values]


# Labels of a search for all schedules at first, and of one for those near the bound. Arbitrary.
BUDGET = 250_000
BUDGET_NEARBY = 400_000
# The divisor of the gap above the bound: schedules within that part of it are looked for. The first
# one, its factors after a failure and after a success, and the largest. Arbitrary.
_FIRST_PART = 8
_NEARER = 32
_FARTHER = 4
_LAST_PART = 256
# How many times the open part the best schedule must have become shorter for the regions to be
# ordered anew. Arbitrary.
_MUCH = 4
# If one part in so many of a schedule's length is open or less, all schedules are looked for at
# once. Arbitrary.
_LITTLE = 100_000


@dataclass(frozen=True)
class OutwardOutcome:
    """The outcome of the search."""

    lower_bound: int  # Ticks; no schedule is shorter.
    proof: Outward  # The proof of the bound.
    labels: int  # Stored so far.
    finished: bool  # Whether more time proves nothing more.


@dataclass
class _Round:
    """A stretch of work on one tree."""

    tree: Tree  # The tree that is worked on.
    target: int | None  # Only shorter schedules are looked for, or all of them.
    budget: int  # Labels that it may take without a better schedule.


class OutwardSearch:
    """The search at the operation that needs most; it can be taken up again where it was left.

    To look for fewer schedules takes fewer labels. So if the search for all of them does not end
    soon, searches for those near the bound come in between: they find one, or raise the bound. If
    `stop` returns true, which is asked from time to time, the search ends with what is proved by
    then.

    Raises
    ------
    MethodError
        If transfers are not atomic, or no tensor with a single gap has to leave for the operation
        that needs most.
    """

    def __init__(
        self, problem: Problem, *, stop: Callable[[], bool] | None = None, workers: int = 1
    ) -> None:
        self._problem = problem
        self._workers = workers
        self._deadline = Deadline(stop)
        # Which operation needs most, all tensors counted; small ones make no difference to that.
        needs = needs_of(problem, range(len(problem.trace.gaps)))
        self._pivot = max(range(len(needs)), key=needs.__getitem__)
        self._details = levels_of(problem, needs[self._pivot])
        self._whole = self._round = _Round(self._planted(), None, BUDGET)
        # The makespan of the best schedule known when work on the whole began, and the bound then.
        self._aimed_at = self._began_at = 0
        self._part = _FIRST_PART
        # The proved bound in ticks, and the tree that proves it.
        self._bound, self._best = 0, self._whole.tree
        # Labels of trees that are not worked on any more.
        self._stored = 0
        self._upper = 0
        self._offer: Callable[[Schedule], int] = lambda schedule: 0

    def improve(
        self, upper_bound: int, time_limit: float, offer: Callable[[Schedule], int]
    ) -> OutwardOutcome:
        """Search on, until the bound is that of the best schedule, or the time is over.

        It also ends when much has been tried and nothing come of it; called again, it goes on. The
        best schedule known takes `upper_bound` ticks, no more than the time before; `time_limit` is
        in seconds. `offer` is given a promising schedule, which may lack small transfers that make
        it a valid one, and returns the makespan of the best schedule known then.
        """
        self._upper, self._offer = upper_bound, offer
        self._aimed_at = self._aimed_at or upper_bound
        with self._deadline.within(time_limit):
            if self._round is not self._whole:
                # The rounds that were left to do the time before.
                self._go_through_rounds()
            known = None
            while not self._finished and known != (self._upper, self._bound):
                known = self._upper, self._bound
                self._go_through_rounds()
        return OutwardOutcome(
            min(self._bound, self._upper),
            proof_of(self._best, min(self._bound, self._upper)),
            self._labels,
            self._finished,
        )

    @property
    def _labels(self) -> int:
        trees = {id(tree): tree for tree in (self._whole.tree, self._round.tree)}
        return self._stored + sum(tree.labels for tree in trees.values())

    @property
    def _finished(self) -> bool:
        return self._bound >= self._upper or self._whole.tree.finished(self._upper)

    def _go_through_rounds(self) -> None:
        """Work through one round for all schedules and the rounds near the bound that follow it."""
        while not self._finished:
            begun, upper = self._round, self._upper
            try:
                self._work_on(begun)
            finally:
                self._note(begun)
            self._round = self._next(begun, upper)
            if self._round is self._whole and begun is not self._whole:
                return

    def _work_on(self, current: _Round) -> None:
        tree = current.tree
        until = tree.labels + current.budget
        while not tree.finished(self._goal(current)) and tree.labels < until:
            upper = self._upper
            tree.step(self._goal(current), self._offered)
            if self._upper < upper and current is not self._whole:
                until = tree.labels + current.budget

    def _goal(self, current: _Round) -> int:
        return self._upper if current.target is None else min(self._upper, current.target)

    def _offered(self, schedule: Schedule) -> int:
        self._upper = min(self._upper, self._offer(schedule))
        return self._goal(self._round)

    def _note(self, current: _Round) -> None:
        bound = current.tree.bound(self._goal(current))
        if bound > self._bound:
            self._bound, self._best = bound, current.tree
        # Progress is counted from what the first round proves.
        self._began_at = self._began_at or self._bound

    def _next(self, last: _Round, upper: int) -> _Round:
        """Return the round after one that began when `upper` was known and has ended."""
        if last is not self._whole:
            self._stored += last.tree.labels
        if last.target is not None and self._bound >= last.target:
            # So there is no such schedule; further on there may be one.
            self._part = max(1, self._part // _FARTHER)
        elif last is self._whole or self._upper < upper:
            self._part = _FIRST_PART
        else:
            self._part *= _NEARER
        gap = self._upper - self._bound
        if gap <= self._upper // _LITTLE:
            # Looking for all of them takes little more.
            return self._all_of_it()
        if self._part == 1 or gap // self._part == 0 or self._part > _LAST_PART:
            return self._all_of_it()
        return _Round(self._planted(), self._bound + gap // self._part, BUDGET_NEARBY)

    def _all_of_it(self) -> _Round:
        """Return the round for all schedules, maybe with a new tree.

        If the old tree was for much longer schedules, it is divided too finely. It is kept if most
        of what is proved came of it.
        """
        self._whole.budget *= 2
        still_open = self._upper - self._bound
        if (
            self._aimed_at - self._upper > _MUCH * still_open
            and still_open >= self._bound - self._began_at
        ):
            self._stored += self._whole.tree.labels
            self._whole = _Round(self._planted(), None, self._whole.budget)
            self._aimed_at, self._began_at = self._upper, self._bound
        return self._whole

    def _planted(self) -> Tree:
        check = self._deadline.check
        return Tree(self._problem, self._pivot, self._details, check, self._workers)
