"""Brute force tick by tick: the shortest execution with transfers, from the definitions alone.

At every tick anything that is allowed may begin, and if that lacks room, any set of what is not in
use may be given up; then a tick passes. No argument about when things begin, which copies are worth
having, or what to give up is used, so that those of the searches over labels can be wrong here. For
networks of three to five computations with durations of a few ticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Problem
from support.oracles.joint import _subsets

# Where a copy is; a number above 0 is the ticks until it is back on the device.
PRESENT, ABSENT = 0, -1


class _Copy(NamedTuple):
    """One copy of a value.

    ``level`` counts the computations that have changed it in place. ``leaving`` are the ticks until
    it is on the host, 0 if it is there, -1 if it has not begun to leave. ``busy`` is 1 while a run
    uses it, 2 while one writes it. ``away`` says whether it was ever absent, ``returned`` whether
    it came back since its last use, ``between`` whether another run began since that use.
    """

    value: int
    level: int
    where: int = PRESENT
    leaving: int = -1
    busy: int = 0
    away: bool = False
    returned: bool = False
    between: bool = False


class _State(NamedTuple):
    first: int
    copies: tuple[_Copy, ...]
    # Ticks until the run ends, and its workspace.
    running: int = 0
    workspace: int = 0


def least_ticks(problem: Problem, within: int = 2**62, most_states: int = 200_000) -> int | None:
    """Return the least makespan, or None if no execution keeps to the memory within a time.

    Raises
    ------
    OverflowError
        If there are too many states.
    """
    return _Ticks(problem).run(within, most_states)


class _Ticks:
    def __init__(self, problem: Problem) -> None:
        network = problem.computed
        assert network is not None
        self.problem, self.network = problem, network
        self.memory = problem.platform.memory
        self.sizes = [value.size for value in network.values]
        self.changers: dict[int, list[int]] = {}
        for value, each in enumerate(network.values):
            if each.base is not None:
                self.changers.setdefault(each.base, []).append(network.writer[value])
        self.users: dict[int, set[int]] = {}
        for number, computation in enumerate(network.computations):
            for value in (*computation.reads, *computation.writes):
                base = network.values[value].base
                self.users.setdefault(value if base is None else base, set()).add(number)

    def run(self, within: int, most: int) -> int | None:
        network = self.network
        start = tuple(
            _Copy(value, 0)
            for value, writer in enumerate(network.writer)
            if writer < 0 and network.values[value].base is None and network.readers[value]
        )
        if sum(self.sizes[copy.value] for copy in start) > self.memory:
            return None
        seen: set[_State] = set()
        now, time = {_State(0, start)}, 0
        while now and time <= within:
            waiting = list(now)
            reached: set[_State] = set()
            while waiting:
                state = waiting.pop()
                state = self._of_use(state)
                if state in reached or state in seen:
                    continue
                reached.add(state)
                if len(seen) + len(reached) > most:
                    raise OverflowError
                if state.first == len(network) and not state.running:
                    return time
                waiting += self._actions(state)
            seen |= reached
            now = {self._tick(state) for state in reached} - seen
            time += 1
        return None

    def _of_use(self, state: _State) -> _State:
        """Return a state without the copies that no run can use any more, if nothing moves them."""
        copies = [
            copy
            for copy in state.copies
            if copy.busy
            or copy.leaving > 0
            or copy.where > 0
            or copy.returned
            or any(
                self._level(copy.value, number) == copy.level
                for number in self.users.get(copy.value, ())
                if number >= state.first or self.network.computations[number].repeatable
            )
        ]
        return state if len(copies) == len(state.copies) else state._replace(copies=tuple(copies))

    def _level(self, value: int, computation: int) -> int:
        """Return how many changes of a value come before a computation."""
        return sum(changer < computation for changer in self.changers.get(value, ()))

    def _tick(self, state: _State) -> _State:
        running = max(0, state.running - 1)
        copies = []
        for copy in state.copies:
            busy = copy.busy if running else 0
            where, leaving = copy.where, copy.leaving
            returned = copy.returned
            if where > 0:
                where -= 1
                returned = where == PRESENT
            leaving -= leaving > 0
            copies.append(copy._replace(where=where, leaving=leaving, busy=busy, returned=returned))
        return _State(state.first, _sorted(copies), running, state.workspace if running else 0)

    def _actions(self, state: _State) -> Iterator[_State]:
        yield from self._transfers(state)
        if not state.running:
            for number in range(min(state.first + 1, len(self.network))):
                if number == state.first or self.network.computations[number].repeatable:
                    yield from self._begun(state, number)

    def _fitting(self, state: _State) -> Iterator[_State]:
        """Yield what may stay if too much is there: nothing that is in use, or moves, can go."""
        if self._taken(state) <= self.memory:
            yield state
            return
        loose = [
            index
            for index, copy in enumerate(state.copies)
            if copy.where == PRESENT
            and not (copy.busy or copy.leaving > 0 or copy.returned)
            and self.sizes[copy.value]
        ]
        for gone in _subsets(loose):
            copies = [copy for index, copy in enumerate(state.copies) if index not in gone]
            hosted = (copy for copy in map(state.copies.__getitem__, gone) if not copy.leaving)
            copies += [copy._replace(where=ABSENT, away=True) for copy in hosted]
            fits = state._replace(copies=_sorted(copies))
            if gone and self._taken(fits) <= self.memory:
                yield fits

    def _transfers(self, state: _State) -> Iterator[_State]:
        out = any(copy.leaving > 0 for copy in state.copies)
        back = any(copy.where > 0 for copy in state.copies)
        if not self.problem.platform.duplex:
            out = back = out or back
        platform, values = self.problem.platform, self.network.values
        for index, copy in enumerate(state.copies):
            rest, size = state.copies[:index] + state.copies[index + 1 :], self.sizes[copy.value]
            may = self.problem.offload and values[copy.value].evictable and size > 0
            if copy.where == PRESENT and copy.leaving < 0 and copy.busy < 2 and may and not out:
                moved = copy._replace(leaving=platform.transfer_time(size, Kind.OFFLOAD))
                yield state._replace(copies=_sorted([*rest, moved]))
            elif copy.where == ABSENT and not back:
                moved = copy._replace(where=platform.transfer_time(size, Kind.PREFETCH))
                yield from self._fitting(state._replace(copies=_sorted([*rest, moved])))

    def _taken(self, state: _State) -> int:
        there = sum(self.sizes[copy.value] for copy in state.copies if copy.where != ABSENT)
        return there + state.workspace

    def _begun(self, state: _State, number: int) -> Iterator[_State]:
        """Yield what is there when a run has begun, and over if it takes no time."""
        network, each = self.network, self.network.computations[number]
        values = network.values
        stored = {v if (b := values[v].base) is None else b for v in each.reads}
        changed = {b for v in each.writes if (b := values[v].base) is not None}
        wanted = sorted(stored | changed)
        choices = [self._usable(state, value, number, value in changed) for value in wanted]
        own = [v for v in each.writes if values[v].base is None]
        for used in product(*choices):
            copies = [
                copy if copy.where == ABSENT else copy._replace(between=True)
                for index, copy in enumerate(state.copies)
                if index not in used
            ]
            copies = [copy._replace(between=True) for copy in copies]
            for index, value in zip(used, wanted, strict=True):
                more = self.changers.get(value, []).count(number) if value in changed else 0
                copy = state.copies[index]
                copies.append(
                    copy._replace(level=copy.level + more, busy=1, returned=False, between=False)
                )
            for kept in _subsets(own):
                if len(kept) < len(own) and each.lean is None:
                    continue
                workspace = each.workspace if len(kept) == len(own) else each.lean
                assert workspace is not None
                made = [*copies, *(_Copy(value, 0, busy=2) for value in kept)]
                first = state.first + (number == state.first)
                begun = _State(first, _sorted(made), each.duration, workspace)
                if not self._idle_copies(made):
                    for fits in self._fitting(begun):
                        yield fits if each.duration else self._over(fits)

    def _over(self, state: _State) -> _State:
        copies = [copy._replace(busy=0) for copy in state.copies]
        return _State(state.first, _sorted(copies))

    def _usable(self, state: _State, value: int, number: int, changed: bool) -> list[int]:
        level = self._level(value, number)
        return [
            index
            for index, copy in enumerate(state.copies)
            if (copy.value, copy.level, copy.where) == (value, level, PRESENT)
            and not (changed and copy.away)
            and not (copy.returned and not copy.between)
        ]

    def _idle_copies(self, copies: list[_Copy]) -> bool:
        """Return whether there are more than two alike, of which no run needs the third."""
        alike = [(copy.value, copy.level) for copy in copies]
        return any(alike.count(pair) > 2 for pair in set(alike))


def _sorted(copies: list[_Copy]) -> tuple[_Copy, ...]:
    return tuple(sorted(copies))
