"""Plans that take no more of the host's memory than they may.

What a plan takes there depends on how this runtime orders and lays out copies, of which the search
for schedules knows nothing. It knows which tensors may leave. So where a plan takes too much, the
search is run again with some tensors that must stay (or be computed again): those whose copies had
to go into a file for the rest to fit (`offcert.runtime.plan.host_layout`). What may leave then is
made up to what the host has room for altogether, so that, usually, the limit holds by construction.
A schedule of such a problem is one of the problem itself; its lower bounds are about itself only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from offcert.certification.ladder import certify
from offcert.core.computations import Value
from offcert.core.errors import NoPlanError
from offcert.core.network import Network
from offcert.core.trace import Tensor, Trace
from offcert.core.units import format_size
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.residences import HOST_ALIGNMENT, host_residences_in_order
from offcert.questions.schedule.schedule import Schedule
from offcert.runtime.plan.host_layout import host_layout, layout_within

# Shares of the remaining seconds for a search in which everything may leave, for one in which as
# much may as probably fits, and for one in which only so much may that all of it fits; and the
# first share where everything fits. Arbitrary.
_SHARES = (0.5, 0.5, 1.0)
_MOST = 0.9
# Plans of a search that are looked at, the best first. Arbitrary.
_TRIED = 8


def certify_within_host(
    problem: Problem, room: int, seconds: float, pool_of: Callable[[Certificate], int]
) -> Certificate:
    """Return the best certificate found whose plan takes no more of the host's memory than `room`.

    `pool_of` says how many bytes the runtime takes for the plan of a certificate. One without a
    schedule is returned if none was found that fits the device; else one whose problem says which
    tensors were not to leave.

    Raises
    ------
    NoPlanError
        If plans were found, and all of them take more, or there can be none that does not.
    """
    lacking = problem.trace.peak_memory - problem.platform.memory
    fits = problem.least_memory <= problem.platform.memory
    if problem.recompute is Recompute.NONE and fits and room < lacking:
        # What is too much for the device at a time is on the host at that time.
        units = problem.units
        raise NoPlanError(
            f"every plan takes at least {format_size(lacking, units)} of the host's memory "
            f"({lacking} bytes), but may take {format_size(room, units)} ({room})"
        )
    return _Search(problem, room, pool_of).run(seconds)


class _Search:
    def __init__(self, problem: Problem, room: int, pool_of: Callable[[Certificate], int]) -> None:
        self.problem, self.room, self.pool_of = problem, room, pool_of
        self.best: Certificate | None = None
        # The least bytes that a plan takes of those that were looked at.
        self.least: int | None = None

    def run(self, seconds: float) -> Certificate:
        """Search, with fewer and fewer tensors that may leave, until a plan keeps to the limit."""
        asked, end = self.problem, time.monotonic() + seconds
        # If all that may leave fits altogether, there is hardly a reason to search again.
        fits = _aligned(_sizes(asked).values()) <= self.room
        for number, share in enumerate((_MOST, *_SHARES[1:]) if fits else _SHARES):
            seconds = max(0.1, share * (end - time.monotonic()))
            known: list[Certificate] = []
            known.append(certify(asked, time_limit=seconds, keep=known.append))
            latest = known[-1]
            if latest.result.schedule is None:
                if number == 0:
                    return latest
                break
            if self._choose(known) is latest:
                break
            asked = self._restricted(latest, certainly=number > 0)
        if self.best is not None:
            return self.best
        assert self.least is not None
        units = self.problem.units
        raise NoPlanError(
            f"no plan was found that takes at most {format_size(self.room, units)} of the host's "
            f"memory ({self.room} bytes): of those found, the one that takes least takes "
            f"{format_size(self.least, units)} ({self.least})"
        )

    def _choose(self, known: list[Certificate]) -> Certificate | None:
        """Take the best of what a search has found that the host has room for, and return it."""
        seen: set[int] = set()
        for each in reversed(known):
            objective = each.result.objective
            if objective is None or objective in seen:
                continue
            if len(seen) == _TRIED:
                break
            seen.add(objective)
            pool = self.pool_of(each)
            self.least = pool if self.least is None else min(self.least, pool)
            if pool > self.room:
                continue
            best = None if self.best is None else self.best.result.objective
            if best is None or objective < best:
                self.best = each
            return each
        return None

    def _restricted(self, found: Certificate, *, certainly: bool) -> Problem:
        """Return the problem in which less may leave than in a plan that takes too much."""
        sizes = _sizes(self.problem)
        leaving = _kept(found, self.room)
        if certainly or _aligned(sizes[each] for each in leaving) <= self.room:
            # Tensors that the plan moved first, then the largest ones.
            order = sorted(sizes, key=lambda each: (each not in leaving, -sizes[each], each))
            leaving, total = set(), 0
            for each in order:
                if total + _aligned([sizes[each]]) <= self.room:
                    leaving.add(each)
                    total += _aligned([sizes[each]])
        return _leaving(self.problem, leaving)


def _aligned(sizes: Iterable[int]) -> int:
    return sum(-(-size // HOST_ALIGNMENT) * HOST_ALIGNMENT for size in sizes)


def _chosen(problem: Problem) -> Network | Trace:
    """Return the network, or the trace if nothing may run again, whose tensors may leave."""
    if problem.recompute is Recompute.NONE or problem.computed is None:
        return problem.trace
    return problem.computed


def _rows(chosen: Network | Trace) -> Sequence[Value | Tensor]:
    return chosen.values if isinstance(chosen, Network) else chosen.tensors


def _sizes(problem: Problem) -> dict[int, int]:
    """Return the bytes of what may leave, by its number."""
    rows = enumerate(_rows(_chosen(problem)))
    return {n: each.size for n, each in rows if each.evictable and each.size}


def _leaving(problem: Problem, numbers: set[int]) -> Problem:
    """Return the problem in which nothing else may leave."""
    chosen = _chosen(problem)
    rows: list[Any] = [
        replace(each, evictable=each.evictable and number in numbers)
        for number, each in enumerate(_rows(chosen))
    ]
    if isinstance(chosen, Network):
        return replace(problem, network=Network(chosen.computations, rows))
    return replace(problem, network=Trace(chosen.operations, rows))


def _kept(found: Certificate, room: int) -> set[int]:
    """Return the tensors or values that a plan moves and that fit into the host's memory."""
    schedule, execution = found.result.schedule, found.result.execution
    assert isinstance(schedule, Schedule)
    problem = found.problem if execution is None else found.problem.executed(execution)
    stays = host_residences_in_order(problem.trace, schedule.plan(problem.trace))
    parts = {occupant.index: [(occupant.index, residence.size)] for occupant, residence in stays}
    layout = layout_within(host_layout(problem.name, stays, parts), room, spill=True)
    tensors = set(parts) - layout.spilled
    return tensors if execution is None else {execution.values[each] for each in tensors}
