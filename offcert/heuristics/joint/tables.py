"""A problem with a network as the arrays that the compiled search for joint plans reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from offcert.core.compiled import IntArray
from offcert.core.errors import InputError, MethodError
from offcert.core.network import Network
from offcert.core.platform import Kind
from offcert.heuristics.joint.carrying import (
    Carrying,
    Recorded,
    carrying,
    nothing_recorded,
    recorded,
)
from offcert.questions.schedule.problem import Problem

# Entries of `Tables.settings`.
MEMORY, DUPLEX, OFFLOAD, COMPUTE, LONGEST = range(5)
# The mark in `Tables.stop` of a computation that saves nothing. By definition.
NOTHING = -2
# Runs of the longest execution that is looked at, for each computation. Arbitrary.
_MOST_RUNS = 6

Ranges = Sequence[tuple[int, int]]


class Tables(NamedTuple):
    """A problem as arrays; rows ``x`` of a list are ``list[first[x]:first[x+1]]``.

    Values that in-place changes made stand for the value in whose memory they lie.
    """

    # One entry a computation. As in `Computation`; ``lean`` is -1 where there is none.
    duration: IntArray
    workspace: IntArray
    lean: IntArray
    repeatable: IntArray
    # Values that a computation reads, by how many in-place changes it has to find them changed, and
    # by how many it leaves them changed.
    read_first: IntArray
    read: IntArray
    found: IntArray
    left: IntArray
    # Values with memory of their own that it makes.
    write_first: IntArray
    write: IntArray
    # Values that it holds.
    hold_first: IntArray
    hold: IntArray
    # For what cannot run again: the computations that saved something that it reads. A segment that
    # holds one of them runs again before it.
    trigger_first: IntArray
    trigger: IntArray
    # One entry a computation. 1 if those are the writers of what it reads, which trigger nothing if
    # they are kept.
    by_writer: IntArray
    # One entry a computation. The last one that has to run again so that what this one saves is
    # there: itself, or that before it if it saves what it is given; `NOTHING` if it saves nothing.
    stop: IntArray
    # For each computation those that run again together with it unless the segment ends between
    # them: in-place changes of one value, its writer, and who reads it before the last of them.
    group_first: IntArray
    group: IntArray
    frozen: IntArray  # One entry a computation. 1 if it cannot run again inside of a segment.
    # One entry a computation and one more. 1 if it lies between no computations that run again
    # together.
    cut: IntArray
    # One entry a computation. Before which one a segment has to end that begins there: that changes
    # in place, or reads before it is changed, what is made before the segment. A segment may end
    # before its results are changed, if it keeps none of those, and nobody reads what was changed
    # once it has run again.
    beyond: IntArray
    # One entry a computation and one more. How many computations before it cannot run again at all.
    blocked: IntArray
    # The ranges that segments may have, by their first computations; empty if any may be one.
    range_first: IntArray
    range_last: IntArray
    # The same by their last computations.
    end_last: IntArray
    end_first: IntArray
    by_size: IntArray  # The values that take memory and may leave, the largest first.
    # One entry a value. Bytes, whether it may leave over the turn, and the ticks of a transfer in
    # either direction.
    size: IntArray
    evictable: IntArray
    offload: IntArray
    prefetch: IntArray
    source: IntArray  # One entry a value. 1 if it is there at the start.
    carrying: Carrying  # The captured step, as training carries programs out on it.
    # The memory limit, whether the link is duplex, whether anything may leave, the ticks of all
    # computations, and the most runs of an execution.
    settings: IntArray


def tables_of(problem: Problem, ranges: Ranges | None = None) -> Tables:
    """Return the arrays of a problem with a network.

    Ranges are first and last computations of what may be a segment; by default any range. Those
    that cannot run again as a whole are left out. If they are those of a captured step, its memory
    is counted as training will need it. Errors are those of `joint_search`.
    """
    network = problem.computed
    if network is None:
        raise MethodError("a search for what may run again needs a network, not a trace")
    source = None if ranges is None else recorded(problem)
    flow, groups = _Flow(network, source), _groups(network)
    beyond = _beyond(groups)
    blocked = np.cumsum([0, *(not each.repeatable for each in network.computations)])
    chosen = _usable(network, ranges, beyond, blocked)
    return Tables(
        *_computations(network),
        *_rows(flow.reads),
        _array(state for row in flow.found for state in row),
        _array(state for row in flow.left for state in row),
        *_rows(flow.writes),
        *_rows(flow.holds),
        *_rows(flow.triggers),
        _array(flow.guesses),
        _array(flow.stops),
        *_rows(groups),
        _array(_frozen(network, groups)),
        _cuts(groups),
        beyond,
        blocked.astype(np.int64),
        _array(first for first, _ in chosen),
        _array(last for _, last in chosen),
        *_ends(chosen),
        _array(_by_size(network)),
        _array(value.size for value in network.values),
        _array(_may_leave(network)),
        *_transfers(problem, network),
        _array(writer < 0 for writer in network.writer),
        nothing_recorded() if source is None else carrying(source, chosen),
        _settings(problem, network),
    )


def tables_within(tables: Tables, problem: Problem) -> Tables:
    """Return the arrays of a problem that differs in its limit and in what may leave, at most."""
    assert problem.computed is not None
    return tables._replace(settings=_settings(problem, problem.computed))


def _computations(network: Network) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return duration, workspace, lean workspace and whether it may run again, of each."""
    return (
        _array(each.duration for each in network.computations),
        _array(each.workspace for each in network.computations),
        _array(-1 if each.lean is None else each.lean for each in network.computations),
        _array(each.repeatable for each in network.computations),
    )


def _transfers(problem: Problem, network: Network) -> tuple[IntArray, IntArray]:
    """Return the ticks that each value takes out and back."""
    out, back = (
        _array(problem.platform.transfer_time(value.size, kind) for value in network.values)
        for kind in (Kind.OFFLOAD, Kind.PREFETCH)
    )
    return out, back


def _settings(problem: Problem, network: Network) -> IntArray:
    """Return the entries MEMORY to LONGEST."""
    platform = problem.platform
    longest = _MOST_RUNS * len(network) + 64
    return _array(
        (platform.memory, platform.duplex, problem.offload, network.compute_time, longest)
    )


class _Flow:
    """Reads, writes and holds of each computation, in values that have memory of their own."""

    def __init__(self, network: Network, source: Recorded | None) -> None:
        self.network = network
        known = any(each.of for each in network.computations)
        # Where it is known of some who saved what they need, the others need nothing.
        self.guesses = [not (each.of or known) for each in network.computations]
        root, computations = network.stored, network.computations
        self.reads = [sorted({root[v] for v in each.reads}) for each in computations]
        self.holds = [sorted({root[v] for v in each.holds}) for each in computations]
        self.writes = [[v for v in each.writes if root[v] == v] for each in computations]
        self.found, self.left = _states(network, root, self.reads)
        self.stops = [NOTHING] * len(network)
        self.triggers = [self._triggers(index) for index in range(len(network))]
        if source is not None:
            # Whatever is asked for makes a segment run again, weights of the model too.
            self.triggers = [
                [] if each.repeatable else list(each.of) for each in network.computations
            ]
            self.stops = source.stops()

    def _triggers(self, backward: int) -> list[int]:
        """Return who saved what a computation reads, if that cannot run again; note the stops."""
        network = self.network
        computation = network.computations[backward]
        if computation.repeatable:
            return []
        read = set(computation.reads)
        writers = sorted({network.writer[value] for value in read} - {-1})
        found = []
        for each in writers if self.guesses[backward] else computation.of:
            forward = network.computations[each]
            own = not read.isdisjoint(forward.writes)
            self.stops[each] = max(self.stops[each], each if own else each - 1)
            if own or not read.isdisjoint(forward.reads):
                found.append(each)
        return found


def _states(
    network: Network, root: Sequence[int], reads: Sequence[Sequence[int]]
) -> tuple[list[list[int]], list[list[int]]]:
    """Return how often the values a computation reads were changed in place, before and after."""
    changed = [0] * len(network.values)
    found, left = [], []
    for each, row in zip(network.computations, reads, strict=True):
        found.append([changed[value] for value in row])
        for value in each.writes:
            if root[value] != value:
                changed[root[value]] += 1
        left.append([changed[value] for value in row])
    return found, left


def _groups(network: Network) -> list[list[int]]:
    """Return for each computation those that run again with it, or not at all."""
    parent = list(range(len(network)))

    def find(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for members in _families(network).values():
        for other in members[1:]:
            parent[find(other)] = find(members[0])
    together: dict[int, list[int]] = defaultdict(list)
    for index in range(len(network)):
        together[find(index)].append(index)
    return [together[find(index)] for index in range(len(network))]


def _families(network: Network) -> dict[int, list[int]]:
    """Return for each value that is changed in place who has to meet the same copy of it.

    Its writer, who changes it, and who reads it before the last change: on a copy that has been
    changed already these could not run again.
    """
    readers: dict[int, set[int]] = defaultdict(set)
    for value, stored in enumerate(network.stored):
        readers[stored].update(network.readers[value])
    families = {}
    for base, changing in network.changers.items():
        reading = {each for each in readers[base] if each < changing[-1]}
        families[base] = sorted({network.writer[base], *changing, *reading} - {-1})
    return families


def _frozen(network: Network, groups: Sequence[Sequence[int]]) -> list[bool]:
    """Return which computations cannot run again: what they change, or who changes, cannot."""
    fixed = {index for index, each in enumerate(network.computations) if not each.repeatable}
    for value, changers in network.changers.items():
        if network.writer[value] < 0:
            fixed.update(changers)
    return [not fixed.isdisjoint(group) for group in groups]


def _cuts(groups: Sequence[Sequence[int]]) -> IntArray:
    """Return 1 for each place that lies inside of no group of computations, else 0."""
    inside = np.zeros(len(groups) + 1, dtype=np.int64)
    for index, group in enumerate(groups):
        if index == group[0]:
            inside[group[0] + 1] += 1
            # The last place inside is just before the last member.
            inside[min(group[-1] + 1, len(groups))] -= 1
    return (np.cumsum(inside) == 0).astype(np.int64)


def _beyond(groups: Sequence[Sequence[int]]) -> IntArray:
    """Return for each computation the first after it that runs again with one before it, or all."""
    beyond = np.full(len(groups), len(groups), dtype=np.int64)
    for index, group in enumerate(groups):
        if index == group[0]:
            for before, member in pairwise(group):
                # Whoever begins after the first member has to end before the next one.
                between = beyond[before + 1 : member + 1]
                np.minimum(between, member, out=between)
    return beyond


def _may_leave(network: Network) -> list[bool]:
    """Return which values may leave: none that is changed in place after the turn."""
    late = {
        value
        for value, changers in network.changers.items()
        if not all(network.computations[each].repeatable for each in changers)
    }
    return [value.evictable and index not in late for index, value in enumerate(network.values)]


def _by_size(network: Network) -> list[int]:
    sizes = [value.size if value.evictable else 0 for value in network.values]
    return sorted(filter(sizes.__getitem__, range(len(sizes))), key=lambda v: (-sizes[v], v))


def _usable(
    network: Network, ranges: Ranges | None, beyond: IntArray, blocked: IntArray
) -> list[tuple[int, int]]:
    if ranges is None:
        return []
    chosen = set()
    for index, (first, last) in enumerate(ranges):
        if not 0 <= first <= last < len(network):
            raise InputError(
                f"ranges[{index}] must lie inside of computations 0 to {len(network) - 1}, "
                f"not be ({first}, {last})"
            )
        if last < beyond[first] and blocked[first] == blocked[last + 1]:
            chosen.add((first, last))
    # No range at all is another thing than any range.
    return sorted(chosen) or [(len(network), len(network))]


def _ends(ranges: Ranges) -> tuple[IntArray, IntArray]:
    """Return last and first computations of ranges, by the last."""
    turned = sorted((last, first) for first, last in ranges)
    return _array(last for last, _ in turned), _array(first for _, first in turned)


def _array(values: Iterable[int]) -> IntArray:
    return np.array([int(value) for value in values], dtype=np.int64)


def _rows(rows: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    first = np.cumsum([0, *(len(row) for row in rows)]).astype(np.int64)
    return first, _array(value for row in rows for value in row)
