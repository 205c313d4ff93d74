"""Instants and transfers of the stage model as variables, and the plan of a solution."""

from __future__ import annotations

from dataclasses import dataclass, field

from offcert.core.platform import Kind
from offcert.formulations.common.linear_model import ONE, LinearModel, Terms, scaled, value_of
from offcert.formulations.common.time_grid import StartWindow, TimeGrid
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem


class Instants:
    """The instants that matter, in order; instant -1 is time 0.

    The problem is on a grid of one tick. The model, whose unit of time has `unit` ticks, receives
    the start times of the operations.
    """

    def __init__(self, data: TimeGrid, model: LinearModel, unit: float) -> None:
        self.unit = unit
        self.data = data
        last = len(data.operations) - 1
        self.operations: list[Terms] = []
        for o, item in enumerate(data.operations):
            low, high = item.first / unit, item.last / unit
            cost = 1.0 if o == last else 0.0
            self.operations.append([(model.column(low, high, cost=cost), 1.0)])
            if o > 0:
                before = [(ONE, data.operations[o - 1].length / unit), *self.operations[o - 1]]
                model.row([*self.operations[o], *scaled(before, -1.0)], 0.0)
        starts = {o for o, amount in enumerate(data.required) if amount > 0}
        ends = set(starts)
        for gap in data.gaps:
            starts.add(gap.after)
            ends |= {gap.writer, gap.before} - {-1}
        self.instants: list[tuple[int, bool]] = []
        self._start: dict[int, int] = {}
        self._end: dict[int, int] = {-1: -1}
        for o, item in enumerate(data.operations):
            if o in starts or (o in ends and item.length == 0):
                self._start[o] = len(self.instants)
                self.instants.append((o, False))
            if o in ends and item.length > 0:
                self._end[o] = len(self.instants)
                self.instants.append((o, True))
            elif o in ends:
                self._end[o] = self._start[o]

    def __len__(self) -> int:
        """Return the number of instants."""
        return len(self.instants)

    def start(self, o: int) -> int:
        """Return the instant at which operation o starts."""
        return self._start[o]

    def end(self, o: int) -> int:
        """Return the instant at which operation o ends."""
        return self._end[o]

    def of(self, o: int) -> list[int]:
        """Return the instants of an operation at which memory can bind."""
        return sorted({self._start[o], self._end[o]})

    def time(self, k: int) -> Terms:
        """Return when an instant is, in units."""
        if k < 0:
            return []
        o, at_end = self.instants[k]
        length = self.data.operations[o].length if at_end else 0
        return [*self.operations[o], (ONE, length / self.unit)]

    def stretch(self, k: int) -> Terms:
        """Return the time from the instant before an instant to it."""
        return [*self.time(k), *scaled(self.time(k - 1), -1.0)]

    def window(self, k: int) -> tuple[int, int]:
        """Return the earliest and the latest tick of an instant."""
        o, at_end = self.instants[k]
        item = self.data.operations[o]
        length = item.length if at_end else 0
        return item.first + length, item.last + length


@dataclass
class StageLeg:
    """The variables of one transfer."""

    tensor: int  # Number of the tensor that it moves.
    # Instants: it has had no link time at the first and all of it at the second, if it happens.
    opens: int
    closes: int
    length: float  # Units of time.
    happens: Terms  # Whether it takes place.
    # Link time it has had, by instant between the two.
    amounts: dict[int, Terms] = field(default_factory=dict)
    # Whether it has begun or ended, by instant, where the model asks.
    begun: dict[int, Terms] = field(default_factory=dict)
    done: dict[int, Terms] = field(default_factory=dict)

    def amount(self, k: int) -> Terms:
        """Return the link time it has had by an instant, in units."""
        if k <= self.opens:
            return []
        if k >= self.closes:
            return scaled(self.happens, self.length)
        return self.amounts[k]


class TransferVariables:
    """The variables of all transfers.

    The model receives columns, and the rows that concern one transfer alone. If `exact`, every
    instant needs literals, for both ends of a transfer.
    """

    def __init__(self, data: TimeGrid, axis: Instants, model: LinearModel, exact: bool) -> None:
        self.axis, self.model = axis, model
        binding = {k for o, amount in enumerate(data.required) if amount > 0 for k in axis.of(o)}
        points = range(len(axis)) if exact else sorted(binding)
        evicted = [model.binary() for _ in data.gaps]
        self.out: dict[int, StageLeg] = {}
        self.inward: list[StageLeg] = []
        for index, gap in enumerate(data.gaps):
            if gap.tensor not in self.out:
                moved = evicted[index] if gap.single else model.binary()
                closes = max(axis.start(g.after) for g in data.gaps if g.tensor == gap.tensor)
                item = data.offloads[gap.tensor]
                length = item.length / axis.unit
                leg = StageLeg(gap.tensor, axis.end(gap.writer), closes, length, moved)
                self._add_amounts(leg)
                leg.done = self._literals(leg, points, item, item.length)
                if exact:
                    leg.begun = self._literals(leg, points, item, 0)
                self._tie(leg)
                self.out[gap.tensor] = leg
            model.at_most(evicted[index], self.out[gap.tensor].happens)
            length = gap.prefetch.length / axis.unit
            leg = StageLeg(
                gap.tensor, axis.end(gap.before), axis.start(gap.after), length, evicted[index]
            )
            self._add_amounts(leg)
            leg.begun = self._literals(leg, points, gap.prefetch, 0)
            if exact:
                leg.done = self._literals(leg, points, gap.prefetch, gap.prefetch.length)
            self._tie(leg)
            self.inward.append(leg)

    @property
    def outward(self) -> list[StageLeg]:
        """The offloads."""
        return list(self.out.values())

    def _add_amounts(self, leg: StageLeg) -> None:
        for k in range(leg.opens + 1, leg.closes):
            leg.amounts[k] = [(self.model.column(0.0, leg.length), 1.0)]
        for k in range(leg.opens + 1, leg.closes + 1):
            self.model.at_most(leg.amount(k - 1), leg.amount(k))

    def _literals(
        self, leg: StageLeg, points: range | list[int], item: StartWindow, passed: int
    ) -> dict[int, Terms]:
        """Return, by instant, whether `passed` ticks or more have passed since the leg's start.

        Windows fix it where every start, or none, is early enough.
        """
        found: dict[int, Terms] = {}
        previous: Terms = []
        for k in points:
            earliest, latest = self.axis.window(k)
            if k <= leg.opens or latest < item.first + passed:
                found[k] = []
            elif k >= leg.closes or earliest > item.last + passed:
                found[k] = leg.happens
            else:
                found[k] = self.model.binary()
            if found[k] is not previous:
                self.model.at_most(previous, found[k])
            previous = found[k]
        if previous is not leg.happens:
            self.model.at_most(previous, leg.happens)
        return found

    def _tie(self, leg: StageLeg) -> None:
        """Link time makes a transfer begun, and only all of it makes it done."""
        for k, terms in leg.begun.items():
            self.model.at_most(leg.amount(k), scaled(terms, leg.length))
            if k in leg.done:
                self.model.at_most(leg.done[k], terms)
        for k, terms in leg.done.items():
            self.model.at_most(scaled(terms, leg.length), leg.amount(k))


# Part of a transfer's link time below which an amount is rounding. Arbitrary.
_TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class _Placed:
    """A transfer and the stretches, named by the instant at their end, where it begins and ends.

    `share` is its link time in the stretch of its key, `length` all of it.
    """

    kind: Kind
    gap: int
    begins: int
    ends: int
    share: float
    length: float

    @property
    def key(self) -> tuple[int, int]:
        """Where it stands on the link.

        In a stretch, what is under way is finished; then come offloads inside, prefetches inside,
        and what continues beyond.
        """
        if self.kind is Kind.OFFLOAD:
            return self.ends, int(self.begins == self.ends)
        return self.begins, 2 + int(self.begins != self.ends)


def plan_of(
    problem: Problem, axis: Instants, transfers: TransferVariables, values: list[float]
) -> Plan:
    """Return the plan that a solution of the stage model, its values of columns, amounts to.

    If the link is a simplex one and the order of transfers is part of the model, the plan is
    feasible and its makespan is the model's objective; otherwise it is a good guess.
    """
    gaps = axis.data.gaps
    evicted = {
        gap.number: index
        for index, gap in enumerate(gaps)
        if value_of(transfers.inward[index].happens, values) > 0.5
    }
    placed = [
        _place(Kind.PREFETCH, number, transfers.inward[index], values)
        for number, index in evicted.items()
    ]
    placed += [
        _place(Kind.OFFLOAD, number, transfers.out[tensor], values)
        for tensor, number in problem.trace.first_gaps(evicted).items()
    ]
    placed.sort(key=lambda item: (item.key, problem.trace.gaps[item.gap].after))
    begins = _begins(placed, axis, problem.platform.duplex, values)
    moves, reached = [], 0
    for item, begin in zip(placed, begins, strict=True):
        gap = problem.trace.gaps[item.gap]
        if item.kind is Kind.OFFLOAD:
            moves.append(Move(item.kind, item.gap, gap.after - 1))
        else:
            # Claims keep the order of the moves.
            reached = max(reached, _position(axis, item.begins, begin, values))
            moves.append(Move(item.kind, item.gap, min(reached, gap.after)))
    return Plan(moves)


def _place(kind: Kind, gap: int, leg: StageLeg, values: list[float]) -> _Placed:
    """Find the stretches in which a transfer has its first and its last link time."""
    slack = _TOLERANCE * max(leg.length, _TOLERANCE)
    shares = {k: value_of(leg.amount(k), values) for k in range(leg.opens + 1, leg.closes + 1)}
    begins = next((k for k, share in shares.items() if share > slack), leg.closes)
    ends = next((k for k, share in shares.items() if share >= leg.length - slack), leg.closes)
    stretch = ends if kind is Kind.OFFLOAD else begins
    share = shares[stretch] - shares.get(stretch - 1, 0.0)
    return _Placed(kind, gap, begins, ends, share, leg.length)


def _begins(
    placed: list[_Placed], axis: Instants, duplex: bool, values: list[float]
) -> list[float]:
    """Return, for each transfer, when it begins in the stretch of its key, in units."""
    begins = []
    free: dict[Kind | None, float] = {}
    for item in placed:
        stretch = item.key[0]
        queue = item.kind if duplex else None
        begin = max(free.get(queue, 0.0), value_of(axis.time(stretch - 1), values))
        rest = item.share
        if item.kind is Kind.PREFETCH and item.begins != item.ends:
            begin = max(begin, value_of(axis.time(stretch), values) - item.share)
            rest = item.length
        begins.append(begin)
        free[queue] = begin + rest
    return begins


def _position(axis: Instants, stretch: int, begin: float, values: list[float]) -> int:
    """Return the operation before which a prefetch that begins in a stretch takes its memory."""
    low = axis.instants[stretch - 1][0] + 1 if stretch > 0 else 0
    o, at_end = axis.instants[stretch]
    high = o + 1 if at_end else o
    for position in range(low, high):
        if value_of(axis.operations[position], values) >= begin:
            return position
    return high
