"""The bound that any multipliers prove about every schedule, by the mathematics alone.

Facts about a schedule
----------------------
Let ``X(t)`` and ``Y(t)`` be the bytes that have left and come back by time t, with those of a
transfer spread evenly over it. Call an eviction of a tensor *first* if no earlier gap of that
tensor is evicted, and *later* otherwise; only first ones need an offload. For every operation o:

available
    when o ends, X is at most the size of the first evictions whose tensors were written before o;
due
    when o starts, Y is at least the size of the evictions whose gaps end at or before o;
opened
    when o ends, Y plus ``need[o]`` is at most the size of the evictions whose gaps begin before o:
    what is absent belongs to them, and is not what has come back;
end, start
    when o ends, and when it starts, Y plus ``need[o]`` is at most X plus the size of the later
    evictions whose gaps begin before o: what is absent has left, now or for an earlier gap, and has
    not come back.

Here ``need[o]`` is what must be absent while o runs. All five hold for transfers that move whole
tensors, that pause, or that move any part of any tensor: apply them to single bytes and add up.

Weighing them
-------------
Each fact says that some slack is at least 0, so the idle time is at least itself less any weighted
sum of slacks. In that expression everything separates:

- what moves while the device waits before o: at least the tick's price times the wait. The link
  moves so many bytes a tick in one direction (simplex) or in each (duplex), so it is never better
  than the best use of each tick. If waiting itself (1 a tick) and that price are together below 0
  for some o, the weights prove nothing;
- what moves while o runs: at least the price of its ticks;
- each tensor: its evictions have costs, and the least total over all choices is a minimum over the
  first eviction, followed by any later ones that are worth it;
- a constant, from `need`.

The sum of these minima is a lower bound on the idle time. If some evictions are decided, minima are
taken over what agrees with that. Weights are integers over a common denominator, in units of
``1 / rate`` ticks a byte, where `rate` is the largest of which both directions' bandwidths are
whole multiples; so everything below is a sum of integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, repeat

from offcert.core.platform import Kind, Link, Platform
from offcert.proofs.fluid_document import Weights
from offcert.questions.schedule.problem import Problem

# A gap by its tensor and the uses before and after it.
Key = tuple[int, int, int]


@dataclass(frozen=True)
class Interval:
    """A gap: where a tensor may be absent.

    Attributes
    ----------
    writer : int
        The operation that writes the tensor; -1 if it is there at the start.
    before, after : int
        The uses around it.
    size : int
        Bytes.
    """

    writer: int
    before: int
    after: int
    size: int


@dataclass(frozen=True)
class Priced:
    """The parts of the bound that some weights give, times their denominator.

    Attributes
    ----------
    over : int
        The denominator.
    ticks, units : int
        The constant: ``ticks + units / rate``.
    costs : mapping
        For each gap, the cost of its eviction as the first one and as a later one.
    least : mapping
        For each tensor with gaps, the least cost if nothing is decided.
    """

    over: int
    ticks: int
    units: int
    costs: Mapping[Key, tuple[int, int]]
    least: Mapping[int, int]
    sum_of_least: int


def speeds(platform: Platform) -> tuple[Fraction, int, int]:
    """Return `rate`, and how many times it each direction moves: to the host, and back."""
    out, back = platform.rate(Kind.OFFLOAD), platform.rate(Kind.PREFETCH)
    common = math.lcm(out.denominator, back.denominator)
    rate = Fraction(math.gcd(int(out * common), int(back * common)), common)
    return rate, int(out / rate), int(back / rate)


class FluidModel:
    """The facts about one problem's schedules.

    Parameters
    ----------
    problem : Problem
        Any problem.
    needs : sequence of int
        Bytes that must be absent during each operation.
    """

    def __init__(self, problem: Problem, needs: Sequence[int]) -> None:
        self.durations = [operation.duration for operation in problem.trace.operations]
        self.needs = list(needs)
        self.rate, self.out, self.back = speeds(problem.platform)
        self.both_at_once = problem.platform.link is Link.DUPLEX
        self.tensors: dict[int, list[Key]] = {}
        self.intervals: dict[Key, Interval] = {}
        for index, tensor in enumerate(problem.trace.tensors):
            if not tensor.evictable or tensor.size == 0:
                continue
            for position in range(1, len(tensor.uses)):
                before, after = tensor.uses[position - 1 : position + 1]
                if after > before + 1:
                    key = (index, before, after)
                    self.intervals[key] = Interval(tensor.uses[0], before, after, tensor.size)
                    self.tensors.setdefault(index, []).append(key)
        change = [0] * (len(self.durations) + 1)
        for interval in self.intervals.values():
            change[interval.before + 1] += interval.size
            change[interval.after] -= interval.size
        self.removable = list(accumulate(change[:-1]))

    def price(self, weights: Weights) -> Priced | int:
        """Return the bound that weights prove, in parts, or an operation at which they prove none.

        That is an operation before which waiting has a negative price.
        """
        count = len(self.durations)
        rows = [weights.rows[kind] for kind in ("available", "due", "opened", "end", "start")]
        # sums[kind][o]: what the rows of operation o and of all later ones weigh.
        sums = []
        for row in rows:
            backwards = accumulate(map(row.get, range(count - 1, -1, -1), repeat(0)), initial=0)
            sums.append(list(backwards)[::-1])
        available, due, opened, end, start = sums
        ticks = units = 0
        for o, duration in enumerate(self.durations):
            # A byte counts in every fact at or after the moment at which it moves.
            waiting = self._tick(
                available[o] - end[o] - start[o], opened[o] + end[o] + start[o] - due[o]
            )
            if weights.over + waiting < 0:
                return o
            running = self._tick(
                available[o] - end[o] - start[o + 1],
                opened[o] + end[o] + start[o + 1] - due[o + 1],
            )
            ticks += duration * running
            units += self.needs[o] * sum(row.get(o, 0) for row in rows[2:])
        costs = {}
        for key, gap in self.intervals.items():
            closing = due[gap.after] - opened[gap.before + 1]
            later = closing - end[gap.before + 1] - start[gap.before + 1]
            costs[key] = gap.size * (closing - available[gap.writer + 1]), gap.size * later
        least = {
            tensor: _least([(*costs[key], None) for key in keys])
            for tensor, keys in self.tensors.items()
        }
        return Priced(weights.over, ticks, units, costs, least, sum(least.values()))

    def _tick(self, byte_out: int, byte_back: int) -> int:
        """Return the least that a tick of the link can cost, given the costs of bytes."""
        leaving, returning = self.out * byte_out, self.back * byte_back
        if self.both_at_once:
            return min(leaving, 0) + min(returning, 0)
        return min(leaving, returning, 0)

    def bound(self, priced: Priced, decided: Mapping[int, Mapping[Key, bool]]) -> int:
        """Return the least makespan, in ticks, of schedules that agree with the decisions.

        Parameters
        ----------
        decided : mapping
            For each tensor, which of its gaps are evicted (true) or kept (false).
        """
        units = priced.units + priced.sum_of_least
        for tensor, choices in decided.items():
            keys = self.tensors[tensor]
            units += _least([(*priced.costs[key], choices.get(key)) for key in keys])
            units -= priced.least[tensor]
        idle = (priced.ticks + units / self.rate) / priced.over
        return sum(self.durations) + max(math.ceil(idle), 0)

    def crowded(self, operation: int, kept: Sequence[Key]) -> bool:
        """Whether an operation lacks room even if all gaps but the kept ones are absent."""
        lost = 0
        for key in kept:
            gap = self.intervals[key]
            if gap.before < operation < gap.after:
                lost += gap.size
        return self.removable[operation] - lost < self.needs[operation]


def _least(gaps: Sequence[tuple[int, int, bool | None]]) -> int:
    """Return the least total of one tensor's evictions.

    Each gap, in order, has its cost as the first eviction, its cost as a later one, and whether it
    is evicted, if that is decided.
    """
    # Totals with no eviction so far, and with one; None if no choice leads there.
    none: int | None = 0
    some: int | None = None
    for first, later, evicted in gaps:
        leads = []
        if evicted is not False:
            leads += [none + first] if none is not None else []
            leads += [some + later] if some is not None else []
        if evicted is not True:
            leads += [some] if some is not None else []
        else:
            none = None
        some = min(leads) if leads else None
    totals = [total for total in (none, some) if total is not None]
    return min(totals)
