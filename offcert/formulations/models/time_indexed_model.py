"""Start ticks and the literals "has started by", for one problem of atomic transfers.

Every start is an integer number of ticks, so precedences lose nothing whatever the grid. The grid
says at which instants link and memory are looked at: there, literals "has started by this instant"
are summed. Beside them memory is looked at when operations start and end, and transfers on one link
are ordered pair by pair. So only a prefetch that starts while an operation runs, between two
instants, may take memory that is not there: `claims_too_much` finds it in a solution, and
`add_claim` looks at memory whenever that prefetch starts. Each of these is a condition that every
schedule meets, so every bound is one for the problem as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations, pairwise
from typing import Any

from ortools.sat.python import cp_model

from offcert.core.platform import Kind
from offcert.formulations.common.grid import symmetric_pairs
from offcert.formulations.common.time_grid import GridGap, StartWindow, TimeGrid
from offcert.questions.schedule.schedule import Schedule, Transfer

# A literal, and a linear expression; the solver does not export their types.
Literal = Any
Linear = Any


class Start:
    """When something starts, in ticks, if it does.

    Parameters
    ----------
    model : ortools.sat.python.cp_model.CpModel
        Receives the variable, and the literals when they are asked for.
    item : StartWindow
        Its window, and how long it lasts.
    true : literal
        One that holds.
    certain : bool
        Whether it starts in any case. What need not start does so one tick after its window.
    """

    def __init__(
        self, model: cp_model.CpModel, item: StartWindow, true: Literal, certain: bool
    ) -> None:
        self.item = item
        self.tick = model.new_int_var(item.first, item.last + (not certain), "")
        self._model, self._true = model, true
        self._by: dict[int, Literal] = {}
        self.happens = true if certain else self._literal(item.last)

    def by(self, tick: int) -> Literal:
        """Return whether it has started by a tick."""
        if tick < self.item.first:
            return ~self._true
        return self.happens if tick >= self.item.last else self._literal(tick)

    def over(self, tick: int) -> Literal:
        """Return whether it has ended by a tick."""
        return self.by(tick - self.item.length)

    @property
    def end(self) -> Linear:
        """When it ends, if it happens."""
        return self.tick + self.item.length

    def _literal(self, tick: int) -> Literal:
        if tick not in self._by:
            here = self._model.new_bool_var("")
            self._model.add(self.tick <= tick).only_enforce_if(here)
            self._model.add(self.tick > tick).only_enforce_if(~here)
            self._by[tick] = here
        return self._by[tick]


class TickModel:
    """Variables and constraints for one problem.

    Parameters
    ----------
    data : TimeGrid
        The problem on an exact grid, whose cells are the ticks of this model.
    duplex : bool
        Whether the directions of the link are independent.
    instants : iterable of int
        Ticks at which link and memory are looked at.
    """

    def __init__(self, data: TimeGrid, duplex: bool, instants: Iterable[int]) -> None:
        self.data = data
        self.model = model = cp_model.CpModel()
        self.true = model.new_constant(1)
        self.operations = [Start(model, item, self.true, True) for item in data.operations]
        self.offloads = {
            tensor: Start(model, item, self.true, False) for tensor, item in data.offloads.items()
        }
        self.prefetches = [Start(model, gap.prefetch, self.true, False) for gap in data.gaps]
        self._before: dict[tuple[int, int], Literal] = {}
        self._absences: dict[tuple[int, int], Linear] = {}
        self._claims: set[int] = set()
        outward, inward = list(self.offloads.values()), self.prefetches
        self.queues = [outward, inward] if duplex else [[*outward, *inward]]
        for earlier, later in pairwise(self.operations):
            model.add(later.tick >= earlier.end)
        for index, gap in enumerate(data.gaps):
            self._add_eviction(index, gap)
        self._add_offloads()
        self._add_pairs()
        self._add_symmetry()
        for tick in instants:
            self._add_instant(tick)
        model.minimize(self.operations[-1].tick)

    # What happens in which order

    def _add_eviction(self, index: int, gap: GridGap) -> None:
        """A prefetch lies between the release and the next use."""
        model, back, out = self.model, self.prefetches[index], self.offloads[gap.tensor]
        model.add_implication(back.happens, out.happens)
        model.add(back.tick >= out.end).only_enforce_if(back.happens)
        if gap.before >= 0 and not gap.alone:
            model.add(back.tick >= self.operations[gap.before].end).only_enforce_if(back.happens)
        model.add(self.operations[gap.after].tick >= back.end).only_enforce_if(back.happens)

    def _add_offloads(self) -> None:
        """A tensor leaves once it is written, and only if it comes back."""
        returns: dict[int, list[Literal]] = {tensor: [] for tensor in self.offloads}
        writers: dict[int, int] = {}
        for back, gap in zip(self.prefetches, self.data.gaps, strict=True):
            returns[gap.tensor].append(back.happens)
            writers[gap.tensor] = gap.writer
        for tensor, out in self.offloads.items():
            self.model.add_bool_or([~out.happens, *returns[tensor]])
            if writers[tensor] >= 0:
                written = self.operations[writers[tensor]].end
                self.model.add(out.tick >= written).only_enforce_if(out.happens)

    def _add_pairs(self) -> None:
        """Of two transfers that share the link, one ends before the other starts."""
        for queue in self.queues:
            for one, two in combinations(queue, 2):
                self._order(one, two)

    def _order(self, one: Start, two: Start) -> None:
        both = [one.happens, two.happens]
        a, b = one.item, two.item
        if a.last + a.length <= b.first or b.last + b.length <= a.first:
            return
        if a.first + a.length > b.last:
            self.model.add(one.tick >= two.end).only_enforce_if(both)
        elif b.first + b.length > a.last:
            self.model.add(two.tick >= one.end).only_enforce_if(both)
        else:
            first = self.model.new_bool_var("")
            self.model.add(two.tick >= one.end).only_enforce_if([*both, first])
            self.model.add(one.tick >= two.end).only_enforce_if([*both, ~first])

    def _add_symmetry(self) -> None:
        """Of two gaps that may be exchanged the outer one leaves first and returns last."""
        data, model = self.data, self.model
        gaps = data.gaps
        times = [(data.offloads[gap.tensor].length, gap.prefetch.length) for gap in gaps]
        for outer, inner in symmetric_pairs(gaps, times):
            both = self.prefetches[inner].happens
            model.add_implication(both, self.prefetches[outer].happens)
            one, two = (self.offloads[gaps[index].tensor] for index in (outer, inner))
            model.add(two.tick >= one.end).only_enforce_if(both)
            first, second = self.prefetches[inner], self.prefetches[outer]
            model.add(second.tick >= first.end).only_enforce_if(both)

    # Instants

    def _add_instant(self, tick: int) -> None:
        """At an instant a link makes one transfer at most, and enough is absent."""
        for queue in self.queues:
            under_way = [
                start.by(tick) - start.over(tick)
                for start in queue
                if start.item.first <= tick < start.item.last + start.item.length
            ]
            if len(under_way) > 1:
                self.model.add(sum(under_way) <= 1)
        needs = self._needed(tick)
        if needs is not None:
            absent = [gap.size * self._absence(i, tick) for i, gap in enumerate(self.data.gaps)]
            self.model.add(sum(absent) >= needs)

    def _needed(self, tick: int) -> Linear | None:
        """Return the bytes that must be absent at an instant; None if it is never any."""
        terms = []
        for o, start in enumerate(self.operations):
            begun, over = start.by(tick), start.over(tick)
            required, idle = self.data.required[o], self.data.idle_required[o]
            before = self.operations[o - 1].over(tick) if o > 0 else self.true
            if required > 0 and start.item.first <= tick < start.item.last + start.item.length:
                terms.append(required * (begun - over))
            if idle > 0 and tick < start.item.last:
                terms.append(idle * (before - begun))
        return sum(terms) if terms else None

    def _absence(self, index: int, tick: int) -> Linear:
        """Return whether a gap is evicted, released by a tick and not claimed by it."""
        gap = self.data.gaps[index]
        left, back = self.offloads[gap.tensor].over(tick), self.prefetches[index]
        if gap.alone:
            return left - back.by(tick)
        key = index, tick
        if key not in self._absences:
            absent = self.model.new_bool_var("")
            self.model.add_implication(absent, back.happens)
            self.model.add_implication(absent, left)
            self.model.add_implication(absent, ~back.by(tick))
            if gap.before >= 0:
                self.model.add_implication(absent, self.operations[gap.before].over(tick))
            self._absences[key] = absent
        return self._absences[key]

    # What prefetches claim

    def claims_too_much(self, schedule: Schedule) -> list[int]:
        """Return the gaps whose prefetches start where too little is absent, as indices.

        Parameters
        ----------
        schedule : Schedule
            A solution's.
        """
        held = _Absences(self.data, schedule)
        return [
            index
            for index in range(len(self.data.gaps))
            if index not in self._claims and held.lacking(index)
        ]

    def add_claim(self, index: int) -> None:
        """Look at memory when the prefetch of a gap starts, whenever that is."""
        self._claims.add(index)
        data, model, gap = self.data, self.model, self.data.gaps[index]
        claim = self.prefetches[index]
        for o in range(gap.before + 1, gap.after + 1):
            opens = self.operations[o - 1].end if o > 0 else 0
            start = self.operations[o]
            stretches = [(opens, start.tick, data.idle_required[o], _across(data, o))]
            if o < gap.after:
                stretches.append((start.tick, start.end, data.required[o], data.over[o]))
            for first, last, needed, who in stretches:
                if needed > 0:
                    early, late, within = (model.new_bool_var("") for _ in range(3))
                    model.add(claim.tick < first).only_enforce_if(early)
                    model.add(claim.tick >= last).only_enforce_if(late)
                    model.add_bool_or([early, late, within, ~claim.happens])
                    absent = [data.gaps[i].size * self._away(i, index) for i in who if i != index]
                    model.add(sum(absent) >= needed).only_enforce_if(within)

    def _away(self, index: int, claiming: int) -> Literal:
        """Return a literal that implies that a gap is absent when another's prefetch starts."""
        key = index, claiming
        if key not in self._before:
            away = self.model.new_bool_var("")
            back, claim = self.prefetches[index], self.prefetches[claiming]
            out = self.offloads[self.data.gaps[index].tensor]
            self.model.add_implication(away, back.happens)
            self.model.add(out.end <= claim.tick).only_enforce_if(away)
            self.model.add(back.tick > claim.tick).only_enforce_if(away)
            self._before[key] = away
        return self._before[key]

    # Solutions

    def schedule(self, value: Callable[[Any], int]) -> Schedule:
        """Return the schedule of a solution, given what each expression is in it."""
        data = self.data
        starts = [value(start.tick) for start in self.operations]
        ends = [start + item.length for start, item in zip(starts, data.operations, strict=True)]
        transfers = []
        moved: set[int] = set()
        for gap, back in zip(data.gaps, self.prefetches, strict=True):
            if not value(back.happens):
                continue
            begin = value(back.tick)
            transfers.append(Transfer(Kind.PREFETCH, gap.number, begin, begin + back.item.length))
            if gap.tensor not in moved:
                moved.add(gap.tensor)
                out = self.offloads[gap.tensor]
                begin = value(out.tick)
                transfers.append(Transfer(Kind.OFFLOAD, gap.number, begin, begin + out.item.length))
        return Schedule(starts, ends, transfers)


class _Absences:
    """When the tensors of a schedule are absent.

    Parameters
    ----------
    data : TimeGrid
        The problem on an exact grid.
    schedule : Schedule
        Its times.
    """

    def __init__(self, data: TimeGrid, schedule: Schedule) -> None:
        self._data, self._schedule = data, schedule
        copied: dict[int, int] = {}
        self._claims: dict[int, int] = {}
        tensor_of = {gap.number: gap.tensor for gap in data.gaps}
        for transfer in schedule.transfers:
            if transfer.kind is Kind.OFFLOAD:
                copied[tensor_of[transfer.gap]] = transfer.end
            else:
                self._claims[transfer.gap] = transfer.start
        self._copied: Mapping[int, int] = copied

    def lacking(self, index: int) -> bool:
        """Whether too little is absent when the prefetch of a gap starts, if there is one."""
        claim = self._claims.get(self._data.gaps[index].number)
        if claim is None:
            return False
        schedule, data = self._schedule, self._data
        o = next(o for o, end in enumerate(schedule.ends) if claim < end)
        # In the idle time before an operation, what it is about to use may still be absent.
        idle = claim < schedule.starts[o]
        needed = data.idle_required[o] if idle else data.required[o]
        who = _across(data, o) if idle else data.over[o]
        return sum(data.gaps[i].size for i in who if self._absent(i, claim)) < needed

    def _absent(self, index: int, tick: int) -> bool:
        gap = self._data.gaps[index]
        claim = self._claims.get(gap.number)
        return claim is not None and self._copied[gap.tensor] <= tick < claim


def _across(data: TimeGrid, o: int) -> tuple[int, ...]:
    """Return the gaps that the idle time before an operation lies in, as indices."""
    return tuple(i for i, gap in enumerate(data.gaps) if gap.before < o <= gap.after)
