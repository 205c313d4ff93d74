"""The values that training really holds when it carries a program out, for the compiled search.

`offcert.core.carried` derives it for one program from what a capture recorded; here it is put into
arrays, so that the search can count with it. Where nothing was recorded, nothing more is known than
the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from offcert.core.carried.ranges import Ranges
from offcert.core.carried.record import StepRecord, Within, captured
from offcert.core.carried.unread import Lasting
from offcert.core.carried.unroll import CarriedUnrolling
from offcert.core.compiled import IntArray
from offcert.core.computations import held_to_the_end
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.program import Program, Segment
from offcert.questions.schedule.problem import Problem


class Carrying(NamedTuple):
    """A record of a step as arrays; rows ``x`` of a list are ``list[first[x]:first[x + 1]]``."""

    known: IntArray  # Shape (1,). 1 if there is a record; if not, the other arrays are empty.
    # Values that each of the search's ranges is given.
    input_first: IntArray
    input: IntArray
    # One entry a range. 1 if its calls are made one after another when it runs again, not by the
    # program's code.
    is_line: IntArray
    # One entry a range. The last computation that needs something saved in it, or -1.
    end: IntArray
    # Values that operators make in a computation; ``late`` is 1 if nothing is saved in it from then
    # on.
    result_first: IntArray
    result: IntArray
    late: IntArray
    # Two entries a computation. Bytes of what operators make in it that is no value of the network,
    # which stays if it is kept: before the last is saved in it, and from then on.
    beside: IntArray
    # Two entries a computation. The same of what nobody needs if it is kept: bytes of the largest.
    unread_beside: IntArray
    unread: IntArray  # The values that nobody needs if those that read them are kept like them.
    largest: IntArray  # One entry a value. Bytes of the largest of its storages.
    # The computations that read a value.
    reader_first: IntArray
    reader: IntArray
    storage_first: IntArray  # The storages of each value; they are numbered by value.
    # For each storage, by moment: the computation in which it is saved or, if ``made`` is 1, made
    # by an operator.
    sight_first: IntArray
    sight: IntArray
    made: IntArray
    # One entry a value. For what cannot leave: the computation in which the program gives it up, if
    # that can run again; otherwise -1.
    until: IntArray
    writer: IntArray  # One entry a value. Who makes it, or -1.
    # One entry a value. 1 if the program still holds it when what cannot run again has begun.
    lasting: IntArray
    # Shape (1,). The first computation that cannot run again. All before it run once before
    # anything runs again.
    turn: IntArray
    # The values that are there or made before it: from the last made to those that nobody makes.
    early: IntArray
    # One entry a value. The last computation before it that reads or holds the value, or -1, and
    # how often those before it change it in place.
    early_last: IntArray
    early_left: IntArray
    # For each value the calls in lines that take it: the first computation of each, and that during
    # which it returns.
    take_first: IntArray
    take: IntArray
    taken: IntArray
    # One entry a computation. Bytes beside its workspace unless all values of its row of ``dying``
    # die in its midst.
    more: IntArray
    dying_first: IntArray
    dying: IntArray
    # One entry a computation and one more. Its rows of ``asks``, in the order in which it asks.
    ask_first: IntArray
    # Shape (any, 5). Who has saved what is asked for, and `left`, `most`, `left_otherwise` and
    # `most_otherwise` of `offcert.core.carried.record.Ask`.
    asks: IntArray
    # For each of ``asks`` the values that have to die on the way, or it is otherwise.
    gone_first: IntArray
    gone: IntArray


@dataclass(frozen=True)
class Recorded:
    """The network, the ranges and the record of a captured step."""

    network: Network
    ranges: Ranges  # Ranges of computations that can run again as one.
    record: StepRecord

    def last_saved(self) -> list[int]:
        """Return for each computation the last moment at which something is saved, or -1."""
        last = [-1] * len(self.network)
        for sight in self.record.saved:
            number = self.record.operation(sight.moment)
            last[number] = max(last[number], sight.moment)
        return last

    def stops(self) -> list[int]:
        """Return for each computation the last one that runs again for what it saves, or -2."""
        launches = self.record.launches
        stops = [-2] * len(self.network)
        for number, moment in enumerate(self.last_saved()):
            if moment >= 0:
                stops[number] = number if launches[number] <= moment else number - 1
        return stops


def recorded(problem: Problem) -> Recorded | None:
    """Return the record of the captured step in a problem's source, or None without one."""
    if problem.computed is None or not isinstance(problem.network, Network):
        return None
    found = captured(problem.source)
    return None if found is None else Recorded(problem.computed, *found[:2])


def nothing_recorded() -> Carrying:
    """Return the arrays of a problem of which nothing was recorded."""
    empty = np.zeros(0, dtype=np.int64)
    arrays = dict.fromkeys(Carrying._fields, empty)
    arrays |= {"known": np.zeros(1, dtype=np.int64), "asks": np.zeros((0, 5), dtype=np.int64)}
    return Carrying(**arrays)


def carrying(source: Recorded, spans: Sequence[tuple[int, int]]) -> Carrying:
    """Return the arrays of a recorded step."""
    network, record = source.network, source.record
    needing = _needing(network)
    ends = [max(needing[first : last + 1], default=-1) for first, last in spans]
    unrolling = CarriedUnrolling(network, Program(), source.ranges, record)
    given = [_inputs(unrolling, *span) for span in spans]
    taking = _taking(source)
    made: list[dict[int, int]] = [{} for _ in range(len(network))]
    beside, unread_beside = [0] * (2 * len(network)), [0] * (2 * len(network))
    needed = Lasting(network, record)
    counted: set[int] = set()
    entries: list[list[tuple[int, int, int]]] = [[] for _ in record.storages]
    last_saved = source.last_saved()
    lasting = held_to_the_end(network.computations)
    for flag, sights in enumerate((record.saved, record.results)):
        for sight in sights:
            if sight.storage < 0:
                continue
            number = record.operation(sight.moment)
            entries[sight.storage].append((sight.moment, number, flag))
            size, value = record.storages[sight.storage]
            late = int(sight.moment > last_saved[number])
            if flag and value >= 0:
                made[number][value] = max(late, made[number].get(value, 0))
            elif flag and sight.storage not in needed.storages:
                part = 2 * number + late
                unread_beside[part] = max(size, unread_beside[part])
            elif flag and sight.storage not in counted:
                counted.add(sight.storage)
                beside[2 * number + late] += size
    order = [record.of_value.get(value, ()) for value in range(len(network.values))]
    sorted_entries = [sorted(entries[storage]) for row in order for storage in row]
    return Carrying(
        np.ones(1, dtype=np.int64),
        *_rows([values for values, _ in given]),
        np.array([line for _, line in given], dtype=np.int64),
        np.array(ends, dtype=np.int64),
        *_rows([sorted(row) for row in made]),
        np.array([row[value] for row in made for value in sorted(row)], dtype=np.int64),
        np.array(beside, dtype=np.int64),
        np.array(unread_beside, dtype=np.int64),
        np.array(sorted(set(range(len(network.values))) - needed.values), dtype=np.int64),
        np.array([max((record.storages[s][0] for s in row), default=0) for row in order]),
        *_rows(network.readers),
        _first(order),
        *_rows([[number for _, number, _ in row] for row in sorted_entries]),
        np.array([flag for row in sorted_entries for _, _, flag in row], dtype=np.int64),
        np.array(_until(network), dtype=np.int64),
        np.array(network.writer, dtype=np.int64),
        np.array([value in lasting for value in range(len(network.values))], dtype=np.int64),
        *_early(network),
        *_rows([[begin for begin, _ in row] for row in taking]),
        np.array([end for row in taking for _, end in row], dtype=np.int64),
        *_inside(network, record.within),
    )


def _inside(network: Network, within: Within) -> tuple[IntArray, ...]:
    """Return the arrays from `more` to `gone`."""
    makings = [within.making_of.get(number) for number in range(len(network))]
    asks = [within.asks_of.get(number, ()) for number in range(len(network))]
    rows = [
        (each.saver, each.left, each.most, each.left_otherwise, each.most_otherwise)
        for row in asks
        for each in row
    ]
    return (
        np.array([0 if each is None else each.more for each in makings], dtype=np.int64),
        *_rows([() if each is None else each.values for each in makings]),
        _first(asks),
        np.array(rows, dtype=np.int64).reshape(len(rows), 5),
        *_rows([each.values for row in asks for each in row]),
    )


def _inputs(unrolling: CarriedUnrolling, first: int, last: int) -> tuple[list[int], bool]:
    """Return the values that a range is given, and whether it is a line."""
    if last >= len(unrolling.network):
        # It stands for no range at all.
        return [], False
    try:
        span = unrolling.first_run(Segment(first, last))
    except InputError:
        # Such a segment is never drawn.
        return [], False
    storages = {sight.storage for sight in span.inputs} - {-1}
    stored = unrolling.record.storages
    return sorted({stored[each][1] for each in storages} - {-1}), bool(span.line)


def _taking(source: Recorded) -> list[list[tuple[int, int]]]:
    """Return for each value the calls in lines that take it: where they begin and return."""
    found: list[set[tuple[int, int]]] = [set() for _ in source.network.values]
    record = source.record
    for line in source.ranges.lines:
        for called, first in zip(line.calls, line.first, strict=True):
            call = record.call(*called)
            for sight in call.inputs:
                value = record.storages[sight.storage][1] if sight.storage >= 0 else -1
                if value >= 0:
                    found[value].add((first, record.operation(call.leave)))
    return [sorted(row) for row in found]


def _needing(network: Network) -> list[int]:
    """Return for each computation the last that cannot run again and needs what it saved, or -1."""
    last = [-1] * len(network)
    for number, each in enumerate(network.computations):
        if not each.repeatable:
            for saver in each.of or [network.writer[value] for value in each.reads]:
                if saver >= 0:
                    last[saver] = number
    return last


def _until(network: Network) -> list[int]:
    """Return the computations at which the program gives up values that cannot leave."""
    last: dict[int, int] = {}
    for index, each in enumerate(network.computations):
        for value in (*each.writes, *each.reads, *each.holds):
            last[network.stored[value]] = index
    return [
        last[index]
        if index in last
        and not value.evictable
        and value.base is None
        and network.computations[last[index]].repeatable
        else -1
        for index, value in enumerate(network.values)
    ]


def _early(network: Network) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return arrays about the forward pass: `turn`, `early`, `early_last`, `early_left`."""
    values, computations, root = network.values, network.computations, network.stored
    turn = next((i for i, each in enumerate(computations) if not each.repeatable), len(network))
    last, left = [-1] * len(values), [0] * len(values)
    early: list[int] = []
    for index, each in enumerate(computations[:turn]):
        for value in (*each.reads, *each.holds):
            last[root[value]] = index
        for value in each.writes:
            if root[value] == value:
                early.append(value)
            else:
                left[root[value]] += 1
    early.reverse()
    early += [v for v, writer in enumerate(network.writer) if writer < 0 and root[v] == v]
    rows = ([turn], early, last, left)
    return tuple(np.array(row, dtype=np.int64) for row in rows)  # type: ignore[return-value]


def _first(rows: Iterable[Sequence[Any]]) -> IntArray:
    return np.cumsum([0, *(len(row) for row in rows)]).astype(np.int64)


def _rows(rows: Sequence[Sequence[int]]) -> tuple[IntArray, IntArray]:
    flat = [value for row in rows for value in row]
    return _first(rows), np.array(flat, dtype=np.int64)
