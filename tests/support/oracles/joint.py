"""Brute force where computations may run again: the shortest execution of a tiny network.

Without offloading, a search over what is on the device after each run; any computation may run
again as often as it likes. With offloading, all strategies with a few runs again, by total
duration, each scheduled by the brute force over transfers (`tests.support.oracles.schedules`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, combinations, count

from offcert.core.computations import Run
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.strategy import Strategy
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification.execution import execution_faults
from support.oracles.schedules import brute_force

# What a value's memory holds: the value, and how many computations have changed it in place.
Content = tuple[int, int]


def least_time(problem: Problem, most: int = 2) -> int | None:
    """Return the least makespan of any execution, or None if there is none within the memory.

    Parameters
    ----------
    problem : Problem
        Tiny, with a network; its transfers are taken as atomic.
    most : int
        Runs again of a strategy, where something may leave the device; otherwise any number.
    """
    network = problem.computed
    assert network is not None
    if problem.offload:
        return _with_offloading(replace(problem, transfers=Transfers.ATOMIC), network, most)
    return _Kept(network, problem.platform.memory).run()


def _with_offloading(problem: Problem, network: Network, most: int) -> int | None:
    best: int | None = None
    shortest_first = sorted(strategies(network, most), key=lambda item: item[0])
    for duration, _, execution in executions(problem, network, shortest_first):
        if best is not None and duration >= best:
            break
        found = brute_force(problem.executed(execution))
        if found is not None and (best is None or found < best):
            best = found
    return best


def executions(
    problem: Problem, network: Network, candidates: Iterable[tuple[int, tuple[Run, ...]]]
) -> Iterator[tuple[int, Strategy, Execution]]:
    """Yield the executions that fit, each once: duration, strategy, and the execution itself.

    Parameters
    ----------
    problem : Problem
        With the limit.
    network : Network
        The problem's.
    candidates : iterable of (int, tuple of Run)
        As `strategies` yields them, in any order.
    """
    seen = set()
    for duration, runs in candidates:
        strategy = Strategy(runs).without_unread(network)
        if _idle(network, strategy) or strategy in seen:
            continue
        seen.add(strategy)
        try:
            execution = strategy.expand(network)
        except InputError:
            continue
        fits = execution.trace.least_memory <= problem.platform.memory
        if fits and not execution_faults(network, execution):
            yield duration, strategy, execution


def _idle(network: Network, strategy: Strategy) -> bool:
    """Return whether something runs again of which nothing is kept: it might as well not."""
    ran: set[int] = set()
    for run in strategy.runs:
        if run.computation in ran and run.discards == network.computations[run.computation].writes:
            return True
        ran.add(run.computation)
    return False


def strategies(network: Network, most: int) -> Iterator[tuple[int, tuple[Run, ...]]]:
    """Yield the total duration and the runs of every strategy with up to `most` runs again."""
    plain = tuple(map(Run, range(len(network))))
    again = [list(_runs_again(network, after)) for after in range(len(network) - 1)]
    places = [(after, run) for after, runs in enumerate(again) for run in runs]
    for number in range(most + 1):
        for chosen in combinations(range(len(places)), number):
            inserted = [places[index] for index in chosen]
            # Those behind the same computation in both orders.
            for order in _orders(inserted):
                runs = chain.from_iterable(
                    (plain[c], *(run for after, run in order if after == c))
                    for c in range(len(network))
                )
                extra = sum(network.computations[run.computation].duration for _, run in order)
                yield network.compute_time + extra, tuple(runs)


def _orders(
    inserted: list[tuple[int, Run]],
) -> Iterator[list[tuple[int, Run]]]:
    if len(inserted) < 2:
        yield inserted
        return
    for index in range(len(inserted)):
        rest = inserted[:index] + inserted[index + 1 :]
        if any(after < inserted[index][0] for after, _ in rest):
            continue
        for order in _orders(rest):
            yield [inserted[index], *order]


def _runs_again(network: Network, after: int) -> Iterator[Run]:
    """Yield the runs again behind a computation, with every choice of what they keep."""
    for number in range(after + 1):
        computation = network.computations[number]
        if not computation.repeatable:
            continue
        own = [v for v in computation.writes if network.values[v].base is None]
        changes = len(own) < len(computation.writes)
        for kept in _subsets(own):
            if kept or changes:
                yield Run(number, tuple(v for v in own if v not in kept))


def _subsets(items: Iterable[int]) -> list[tuple[int, ...]]:
    items = list(items)
    return [chosen for size in range(len(items) + 1) for chosen in combinations(items, size)]


class _Kept:
    """Shortest path over what has run first and what is on the device."""

    def __init__(self, network: Network, memory: int) -> None:
        self.network, self.memory = network, memory
        self.changers: dict[int, list[int]] = {}
        for value, each in enumerate(network.values):
            if each.base is not None:
                changers = self.changers.setdefault(each.base, [])
                if network.writer[value] not in changers:
                    changers.append(network.writer[value])
        self.reads = [self._reads(c) for c in range(len(network))]

    def _reads(self, computation: int) -> frozenset[Content]:
        stored = set()
        for value in self.network.computations[computation].reads:
            base = self.network.values[value].base
            stored.add(value if base is None else base)
        return frozenset((value, self._changes(value, computation)) for value in stored)

    def _changes(self, value: int, computation: int) -> int:
        return sum(changer < computation for changer in self.changers.get(value, ()))

    def _size(self, contents: Iterable[Content]) -> int:
        return sum(self.network.values[value].size for value, _ in contents)

    def run(self) -> int | None:
        """Return the least sum of durations, or None."""
        network = self.network
        start = frozenset(
            (value, 0)
            for value, writer in enumerate(network.writer)
            if writer < 0 and network.values[value].base is None and network.readers[value]
        )
        if self._size(start) > self.memory:
            return None
        order = count()
        heap = [(0, next(order), 0, start)]
        seen: set[tuple[int, frozenset[Content]]] = set()
        while heap:
            time, _, following, present = heapq.heappop(heap)
            if following == len(network):
                return time
            if (following, present) in seen:
                continue
            seen.add((following, present))
            for computation in range(following + 1):
                each = network.computations[computation]
                if computation < following and not each.repeatable:
                    continue
                after = following + (computation == following)
                for held in self._after(computation, present):
                    if (after, held) not in seen:
                        heapq.heappush(heap, (time + each.duration, next(order), after, held))
        return None

    def _after(self, computation: int, present: frozenset[Content]) -> Iterator[frozenset[Content]]:
        """Yield what may be on the device after a run: as much as fits."""
        reads = self.reads[computation]
        if not reads <= present:
            return
        each = self.network.computations[computation]
        made = [v for v in each.writes if self.network.values[v].base is None]
        changed = {base for v in each.writes if (base := self.network.values[v].base) is not None}
        for kept in _subsets(made):
            workspace = each.workspace
            if len(kept) < len(made):
                beside = self._size((v, 0) for v in made if v not in kept)
                workspace = workspace + beside if each.lean is None else each.lean
            new = {(v, 0) for v in kept}
            others = present - reads - new
            room = self.memory - workspace - self._size(reads) - self._size(new)
            for held in self._fitting(sorted(others), room):
                result = {*held, *new}
                for value, changes in reads:
                    result.add((value, changes + 1) if value in changed else (value, changes))
                yield frozenset(result)

    def _fitting(self, contents: list[Content], room: int) -> Iterator[tuple[Content, ...]]:
        """Yield the subsets that fit and to which nothing can be added."""
        if room < 0:
            return
        for size in range(len(contents) + 1):
            for held in combinations(contents, size):
                left = room - self._size(held)
                others = (c for c in contents if c not in held)
                if left >= 0 and all(self._size([c]) > left for c in others):
                    yield held
