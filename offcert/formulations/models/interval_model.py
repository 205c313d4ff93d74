"""The interval model of atomic transfers, general: a prefetch may precede a later offload.

Operations start in their fixed order. A gap is evicted or not; if it is, its tensor has one
offload and the gap one prefetch. Evictable tensors take the capacity of a cumulative constraint
from the end of the use before the gap to their release, and from the start of their prefetch to the
use after it; operations take what of it the tensors in use leave no room for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from ortools.sat.python import cp_model

from offcert.core.platform import Kind
from offcert.formulations.common.grid import symmetric_pairs
from offcert.formulations.models.interval_data import (
    Instant,
    IntervalData,
    IntervalGap,
    instants,
)
from offcert.questions.schedule.schedule import Schedule, Transfer

# A linear expression over variables of the solver; its Python types are not exported.
Linear = Any


class IntervalModel:
    """Variables and constraints for one problem on one grid.

    On a duplex link the directions are independent. If `ordered`, every offload must end before any
    prefetch starts (a restriction: its optimum may be larger, notes on the papers §1.2).
    """

    def __init__(self, data: IntervalData, duplex: bool, ordered: bool) -> None:
        self.data = data
        self.duplex = duplex
        self.model = cp_model.CpModel()
        self.instants = instants(data)
        self.gaps_of: dict[int, list[int]] = {}
        for index, gap in enumerate(data.gaps):
            self.gaps_of.setdefault(gap.tensor, []).append(index)
        self._add_operations()
        self._add_transfers()
        self._add_link()
        self._add_memory()
        self._add_absence()
        self._add_symmetry()
        if ordered:
            self._add_order_of_directions()
        self.model.minimize(self.start[-1])

    # Operations and transfers

    def _add_operations(self) -> None:
        """Operations run in order, within their windows."""
        data, model = self.data, self.model
        self.start = [
            model.new_int_var(low, high, f"start{o}")
            for o, (low, high) in enumerate(zip(data.earliest, data.latest, strict=True))
        ]
        for o in range(1, len(self.start)):
            model.add(self.start[o] >= self.start[o - 1] + data.durations[o - 1])
        for a, b, cells in data.distances:
            model.add(self.start[b] >= self.start[a] + cells)

    def end(self, operation: int) -> Linear:
        """Return the end of an operation; -1 ends at 0."""
        return 0 if operation < 0 else self.start[operation] + self.data.durations[operation]

    def _earliest_end(self, operation: int) -> int:
        if operation < 0:
            return 0
        return self.data.earliest[operation] + self.data.durations[operation]

    def _add_transfers(self) -> None:
        """An evicted gap has a release after its tensor's offload, and a prefetch after that."""
        model, data = self.model, self.data
        self.evicted = [model.new_bool_var(f"evicted{gap.number}") for gap in data.gaps]
        self.release: list[Linear] = []
        self.prefetch: list[Linear] = []
        self.moved: dict[int, Linear] = {}
        self.offload: dict[int, Linear] = {}
        self.latest_release = [_presence(data, data.latest, gap)[1] for gap in data.gaps]
        for gap in data.gaps:
            opens, _ = _presence(data, data.earliest, gap)
            low = max(self._earliest_end(gap.writer) + gap.offload_time, opens)
            high = max(low, data.latest[gap.after] - gap.prefetch_time)
            self.prefetch.append(model.new_int_var(low, high, f"prefetch{gap.number}"))
        for tensor, members in self.gaps_of.items():
            first = data.gaps[members[0]]
            low = self._earliest_end(first.writer)
            high = max(low, max(self.latest_release[i] for i in members) - first.offload_time)
            self.offload[tensor] = model.new_int_var(low, high, f"offload{tensor}")
            if len(members) == 1:
                self.moved[tensor] = self.evicted[members[0]]
            else:
                self.moved[tensor] = model.new_bool_var(f"moved{tensor}")
                model.add_max_equality(self.moved[tensor], [self.evicted[i] for i in members])
            model.add(self.offload[tensor] >= self.end(first.writer)).only_enforce_if(
                self.moved[tensor]
            )
        for index, gap in enumerate(data.gaps):
            self._add_eviction(index, gap)

    def _add_eviction(self, index: int, gap: IntervalGap) -> None:
        model, out = self.model, self.evicted[index]
        starts, ends = _presence(self.data, self.start, gap)
        earliest, latest = (
            _presence(self.data, self.data.earliest, gap)[0],
            self.latest_release[index],
        )
        release = model.new_int_var(earliest, max(earliest, latest), f"release{gap.number}")
        self.release.append(release)
        model.add(release >= starts)
        model.add(release <= ends)
        model.add(release == ends).only_enforce_if(~out)
        model.add(release >= self.offload[gap.tensor] + gap.offload_time).only_enforce_if(out)
        model.add(self.prefetch[index] >= release).only_enforce_if(out)
        back = self.prefetch[index] + gap.prefetch_time
        model.add(back <= self.start[gap.after]).only_enforce_if(out)

    def _add_link(self) -> None:
        """One transfer at a time, or one in each direction."""
        model = self.model
        outward = [
            model.new_optional_fixed_size_interval_var(
                self.offload[tensor],
                self.data.gaps[members[0]].offload_time,
                self.moved[tensor],
                f"out{tensor}",
            )
            for tensor, members in self.gaps_of.items()
        ]
        inward = [
            model.new_optional_fixed_size_interval_var(
                self.prefetch[index], gap.prefetch_time, self.evicted[index], f"in{gap.number}"
            )
            for index, gap in enumerate(self.data.gaps)
        ]
        for queue in [outward, inward] if self.duplex else [outward + inward]:
            if len(queue) > 1:
                model.add_no_overlap(queue)

    def _add_order_of_directions(self) -> None:
        """All offloads come before all prefetches."""
        turn = self.model.new_int_var(0, max(self.data.latest, default=0), "turn")
        for tensor, members in self.gaps_of.items():
            end = self.offload[tensor] + self.data.gaps[members[0]].offload_time
            self.model.add(end <= turn).only_enforce_if(self.moved[tensor])
        for prefetch, out in zip(self.prefetch, self.evicted, strict=True):
            self.model.add(prefetch >= turn).only_enforce_if(out)

    # Memory

    def _add_memory(self) -> None:
        """Add rows: present items fit, at every time at which some operation runs or could.

        Items appear only where memory can bind: elsewhere everything fits whatever is present.
        """
        data, model = self.data, self.model
        intervals, heights = [], []
        for o, (room, idle) in enumerate(zip(data.room, data.idle_room, strict=True)):
            if room is not None and data.durations[o] > 0 and room < data.capacity:
                intervals.append(
                    model.new_fixed_size_interval_var(self.start[o], data.durations[o], f"op{o}")
                )
                heights.append(data.capacity - room)
            if idle is not None and idle < data.capacity:
                intervals.append(
                    self._stretch(self.end(o - 1), self.start[o], data.latest[o], None, f"idle{o}")
                )
                heights.append(data.capacity - idle)
        for index, gap in enumerate(data.gaps):
            starts, _ = _presence(data, self.start, gap)
            latest = max(data.latest)
            intervals.append(
                self._stretch(starts, self.release[index], latest, None, f"before{gap.number}")
            )
            intervals.append(
                self._stretch(
                    self.prefetch[index],
                    self.start[gap.after],
                    latest,
                    self.evicted[index],
                    f"after{gap.number}",
                )
            )
            heights += [gap.height, gap.height]
        if intervals:
            model.add_cumulative(intervals, heights, data.capacity)

    def _stretch(self, start: Linear, end: Linear, longest: int, literal: Any, name: str) -> Any:
        """Return an interval from `start` to `end`, present if `literal` holds or is None."""
        length = self.model.new_int_var(0, longest, f"length-{name}")
        if literal is None:
            return self.model.new_interval_var(start, length, end, name)
        return self.model.new_optional_interval_var(start, length, end, literal, name)

    def _add_absence(self) -> None:
        """At chosen instants enough is absent, counted by literals.

        Needed where an operation takes no time, as the cumulative does not see it; elsewhere
        redundant, but it speaks of reachable sums.
        What is absent when an operation starts must have left before, what is absent in its last
        cell comes back after; so instants before the largest requirement are starts, the others
        ends.
        """
        data = self.data
        self.left: dict[tuple[int, Instant], Any] = {}
        self.stays: dict[tuple[int, Instant], Any] = {}
        for instant in self.instants:
            absent: list[Linear] = []
            for index in data.over[instant.operation]:
                left, stays = self._literals(index, instant)
                gap = data.gaps[index]
                absent.append(gap.size * (left + stays - self.evicted[index]))
                self.model.add_bool_or([left, stays, ~self.evicted[index]])
            self.model.add(sum(absent) >= data.required[instant.operation])
        for literals, forward in ((self.left, True), (self.stays, False)):
            for index in range(len(data.gaps)):
                chain = [literals[index, i] for i in self.instants if (index, i) in literals]
                for earlier, later in pairwise(chain):
                    first, second = (earlier, later) if forward else (later, earlier)
                    self.model.add_implication(first, second)

    def _literals(self, index: int, instant: Instant) -> tuple[Any, Any]:
        """Return literals for "has left by the instant" and "is not back by it"."""
        model, data, out = self.model, self.data, self.evicted[index]
        number = data.gaps[index].number
        left = model.new_bool_var(f"left{number}by{instant.operation}")
        stays = model.new_bool_var(f"stays{number}by{instant.operation}")
        start: Linear = self.start[instant.operation]
        duration = data.durations[instant.operation]
        last_release, first_claim = _around(instant, start, duration)
        model.add_implication(left, out)
        model.add_implication(stays, out)
        model.add(self.release[index] <= last_release).only_enforce_if(left)
        model.add(self.prefetch[index] >= first_claim).only_enforce_if(stays)
        self.left[index, instant], self.stays[index, instant] = left, stays
        return left, stays

    # Strengthening

    def _add_symmetry(self) -> None:
        """Among tensors of one size, outer gaps are evicted first, leave first, return last.

        Valid for two tensors of one useful gap each if the outer one is written no later and its
        gap contains the other's. Take an optimal schedule. If only the inner one moves, the outer
        one can use both its slots. If both move, give the outer one the earlier of the two offload
        slots and the later of the two prefetch slots, the inner one the others: the two releases,
        sorted, become no later, and the claims stay. If the inner one would be back before it has
        left, leaving it in place frees as much. Each exchange moves the schedule towards fewer
        transfers, then outer gaps, then sorted slots; so all pairs hold at once in the last one
        (notes on the papers, §1, "Symmetry", argues by counting).
        """
        times = [(gap.offload_time, gap.prefetch_time) for gap in self.data.gaps]
        for outer, inner in symmetric_pairs(self.data.gaps, times):
            model, gap = self.model, self.data.gaps[outer]
            both = self.evicted[inner]
            first = self.offload[gap.tensor]
            second = self.offload[self.data.gaps[inner].tensor]
            model.add_implication(both, self.evicted[outer])
            back = self.prefetch[inner] + gap.prefetch_time
            model.add(first + gap.offload_time <= second).only_enforce_if(both)
            model.add(back <= self.prefetch[outer]).only_enforce_if(both)

    # Solutions

    def hint(self, schedule: Schedule) -> None:
        """Hint the model with a schedule at full resolution, rounded down to the grid."""
        data, grid = self.data, self.data.grid
        starts = [time // grid for time in schedule.starts]
        offloads, prefetches = _transfers_of(data, schedule)
        values: list[tuple[Any, int]] = list(zip(self.start, starts, strict=True))
        moved = set()
        for index, gap in enumerate(data.gaps):
            opens, closes = _presence(data, starts, gap)
            release, prefetch = closes, prefetches.get(gap.number)
            out = prefetch is not None and gap.tensor in offloads
            if out:
                release = max(opens, offloads[gap.tensor] + gap.offload_time)
                out = release <= closes
            values.append((self.evicted[index], out))
            values.append((self.release[index], min(release, closes)))
            if out and prefetch is not None:
                moved.add(gap.tensor)
                values.append((self.prefetch[index], prefetch))
                values += self._hinted_literals(index, starts, release, prefetch)
        for tensor, members in self.gaps_of.items():
            if len(members) > 1:
                values.append((self.moved[tensor], tensor in moved))
            if tensor in moved:
                values.append((self.offload[tensor], offloads[tensor]))
        for variable, value in values:
            self.model.add_hint(variable, int(value))

    def _hinted_literals(
        self, index: int, starts: list[int], release: int, prefetch: int
    ) -> Iterable[tuple[Any, bool]]:
        """Yield the literals of an evicted gap with the values that its times imply."""
        for instant in self.instants:
            if (index, instant) in self.left:
                start = starts[instant.operation]
                duration = self.data.durations[instant.operation]
                last, claim = _around(instant, start, duration)
                yield self.left[index, instant], release <= last
                yield self.stays[index, instant], prefetch >= claim

    def schedule(self, value: Any) -> Schedule:
        """Return a solution, a function from variables to values, as a schedule in grid cells."""
        data = self.data
        transfers = []
        for members in self.gaps_of.values():
            out = [index for index in members if value(self.evicted[index])]
            for position, index in enumerate(out):
                gap = data.gaps[index]
                if position == 0:
                    start = value(self.offload[gap.tensor])
                    end = start + gap.offload_time
                    transfers.append(Transfer(Kind.OFFLOAD, gap.number, start, end))
                start = value(self.prefetch[index])
                end = start + gap.prefetch_time
                transfers.append(Transfer(Kind.PREFETCH, gap.number, start, end))
        starts = [value(variable) for variable in self.start]
        ends = [start + time for start, time in zip(starts, data.durations, strict=True)]
        return Schedule(starts, ends, transfers)


def _transfers_of(data: IntervalData, schedule: Schedule) -> tuple[dict[int, int], dict[int, int]]:
    """Return the starts, in cells, of offloads by tensor and of prefetches by gap number."""
    tensor_of = {gap.number: gap.tensor for gap in data.gaps}
    offloads, prefetches = {}, {}
    for transfer in schedule.transfers:
        if transfer.gap in tensor_of:
            if transfer.kind is Kind.PREFETCH:
                prefetches[transfer.gap] = transfer.start // data.grid
            else:
                offloads[tensor_of[transfer.gap]] = transfer.start // data.grid
    return offloads, prefetches


def _presence(data: IntervalData, starts: Sequence[Any], gap: IntervalGap) -> tuple[Any, Any]:
    """Return when presence begins and absence stops to matter in a gap.

    It depends on the starts of all operations: times, or variables for them.
    """
    opens, closes = starts[gap.first], starts[gap.last] + data.durations[gap.last]
    if data.idle_room[gap.first] is not None:
        opens = starts[gap.first - 1] + data.durations[gap.first - 1] if gap.first else 0
    if data.idle_room[gap.last + 1] is not None:
        closes = starts[gap.last + 1]
    return opens, closes


def _around(instant: Instant, start: Any, duration: int) -> tuple[Any, Any]:
    """Return the last time of a release, and the first of a prefetch, that an instant counts."""
    if instant.at_end:
        return start + duration - 1, start + duration
    # A prefetch that starts with an operation that takes time is seen by it.
    return start, start + (1 if duration > 0 else 0)
