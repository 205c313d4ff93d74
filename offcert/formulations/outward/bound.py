"""A lower bound from the outward search, and the schedules that attain it.

The search divides regions at one pivot (``tree``). It starts with the operation that needs most,
and with large tensors only: small ones, of which a network has some (a batch normalisation's, say),
make for many classes and matter little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from offcert.core.problem import Problem
from offcert.core.schedule import Schedule
from offcert.formulations.outward.model import needs_of
from offcert.formulations.outward.proof import Proof, proof_of
from offcert.formulations.outward.tree import Tree

# Tensors of fewer bytes than this part of what the pivot needs are small.
SMALL = 4096


class _OutOfTimeError(Exception):
    """Time or patience has run out."""


@dataclass(frozen=True)
class OutwardOutcome:
    """What the search proved.

    Attributes
    ----------
    lower_bound : int
        Ticks; no schedule is shorter.
    proof : Proof
        What shows the bound.
    labels : int
        Stored so far.
    finished : bool
        Whether more time proves nothing more.
    """

    lower_bound: int
    proof: Proof
    labels: int
    finished: bool


class OutwardProgram:
    """The search at the operation that needs most; it can be taken up again where it was left.

    Parameters
    ----------
    problem : Problem
        Atomic transfers over a simplex link; any trace. A feasible one.
    stop : callable, optional
        Asked from time to time; if it returns true, the search ends with what is proved by then.

    Raises
    ------
    MethodError
        If transfers are not atomic, the link is duplex, or no tensor with a single gap has to leave
        for the operation that needs most.
    """

    def __init__(self, problem: Problem, *, stop: Callable[[], bool] | None = None) -> None:
        self._stop = stop
        self._deadline = 0.0
        # As far as whole traces tell: what is free does not change which operation needs most.
        needs = needs_of(problem, range(len(problem.trace.gaps)))
        pivot = max(range(len(needs)), key=needs.__getitem__)
        self._tree = Tree(problem, pivot, _details(problem, needs[pivot]), self._pause)

    def improve(
        self, upper_bound: int, time_limit: float, offer: Callable[[Schedule], int]
    ) -> OutwardOutcome:
        """Search on, until the bound is that of the best schedule, or the time is over.

        Parameters
        ----------
        upper_bound : int
            Makespan of the best schedule known, in ticks; not more than the time before.
        time_limit : float
            Seconds.
        offer : callable
            Given a promising schedule, which may lack small transfers that make it a valid one;
            returns the makespan of the best schedule known then.
        """
        self._deadline = time.monotonic() + time_limit
        upper = upper_bound

        def offered(schedule: Schedule) -> int:
            nonlocal upper
            upper = min(upper, offer(schedule))
            return upper

        with suppress(_OutOfTimeError):
            while not self._tree.finished(upper):
                self._tree.step(upper, offered)
        bound = self._tree.bound(upper)
        finished = self._tree.finished(upper)
        return OutwardOutcome(bound, proof_of(self._tree, bound), self._tree.labels, finished)

    def _pause(self) -> None:
        if time.monotonic() > self._deadline or (self._stop is not None and self._stop()):
            raise _OutOfTimeError


def _details(problem: Problem, need: int) -> tuple[int, ...]:
    """Return the sizes of the smallest tensors to count, at first and at last."""
    sizes = [problem.trace.gap_size(gap) for gap in range(len(problem.trace.gaps))]
    large = min((size for size in sizes if size >= need // SMALL), default=1)
    return (large, 1) if large > min(sizes, default=large) else (1,)
