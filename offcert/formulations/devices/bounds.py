"""Lower bounds for several devices: the work of one resource, from its head to its tail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import ceil

import numpy as np
from scipy.sparse import coo_array

from offcert.core.platform import Kind
from offcert.core.result import Bound, Evidence
from offcert.formulations.common.highs import run_linprog
from offcert.proofs.devices_certificate import DEVICE, RESOURCE, Resource, ResourceProof
from offcert.questions.devices.problem import AdditionPlace, DevicesProblem, GradientJob, JobKind
from offcert.questions.schedule.problem import Problem


@dataclass(frozen=True)
class JobGroup:
    """Jobs of one kind and gradient, of all devices together."""

    kind: JobKind
    gradient: int
    head: int  # Ticks before each of them.
    tail: int  # Ticks after each of them.
    ticks: int  # Of all of them together.


class Times:
    """Heads and tails of one problem: earliest ends of operations, and what must follow them.

    Of one device alone, every schedule takes at least `alone` ticks.
    """

    def __init__(self, problem: DevicesProblem, alone: int) -> None:
        self.problem = problem
        durations = problem.step.trace.durations
        # Ticks by which each operation can have ended at the earliest.
        self.ends = list(accumulate(durations))
        self.alone = max(alone, self.ends[-1])
        self.ends[-1] = self.alone
        # Ticks from the start of each operation to the end of the step, at least.
        self.rest = list(accumulate(reversed(durations)))[::-1]
        self._host = problem.accumulation.place is AdditionPlace.HOST
        if self._host and problem.devices > 1:
            self._extend_rest()

    def _ticks(self, kind: JobKind, gradient: int) -> int:
        return self.problem.ticks(GradientJob(kind, gradient, 0))

    def _extend_rest(self) -> None:
        for index, gradient in enumerate(self.problem.gradients):
            before = sum(self.problem.step.trace.durations[: gradient.ready + 1])
            used = sum(self.problem.step.trace.durations[: gradient.last_use + 1])
            follows = self._ticks(JobKind.SEND, index) + self._tail(JobKind.SEND, index)
            done = 0
            for operation, duration in enumerate(self.problem.step.trace.durations):
                if operation <= gradient.ready:
                    self.rest[operation] = max(self.rest[operation], before - done + follows)
                if operation <= gradient.last_use:
                    self.rest[operation] = max(
                        self.rest[operation], used - done + self._ticks(JobKind.RETURN, index)
                    )
                done += duration

    def works(self) -> list[JobGroup]:
        """Return all jobs, those of a kind and gradient together.

        Where the first device adds up, heads count from the moment all devices have ended.
        """
        kinds = {(job.kind, job.gradient) for job in self.problem.jobs}
        counts = dict.fromkeys(kinds, 0)
        for job in self.problem.jobs:
            counts[job.kind, job.gradient] += 1
        return [
            JobGroup(
                kind,
                gradient,
                self._head(kind, gradient),
                self._tail(kind, gradient),
                counts[kind, gradient] * self._ticks(kind, gradient),
            )
            for kind, gradient in sorted(kinds)
        ]

    def _head(self, kind: JobKind, index: int) -> int:
        gradient, count = self.problem.gradients[index], self.problem.devices
        send, add = self._ticks(JobKind.SEND, index), self._ticks(JobKind.ADD, index)
        if self._host:
            ready = self.ends[gradient.ready]
            if kind is JobKind.SEND:
                return ready
            if kind is JobKind.ADD:
                return ready + send
            added = ready + max(count * send + add, send + count * add)
            return max(self.ends[gradient.last_use], added)
        forward = self._ticks(JobKind.FORWARD, index)
        if kind in (JobKind.SEND, JobKind.ADD):
            return 0
        if kind is JobKind.FORWARD:
            return send
        others = count - 1
        added = max(
            others * send + forward + add,
            send + others * forward + add,
            send + forward + others * add,
            count * add,
        )
        return added + (self._ticks(JobKind.COLLECT, index) if kind is JobKind.RETURN else 0)

    def _tail(self, kind: JobKind, index: int) -> int:
        count = self.problem.devices
        back, add = self._ticks(JobKind.RETURN, index), self._ticks(JobKind.ADD, index)
        if kind is JobKind.RETURN:
            return 0
        if self._host:
            return count * back + (add if kind is JobKind.SEND else 0)
        tail = (count - 1) * back
        for later, ticks in (
            (JobKind.COLLECT, self._ticks(JobKind.COLLECT, index)),
            (JobKind.ADD, add),
            (JobKind.FORWARD, self._ticks(JobKind.FORWARD, index)),
        ):
            if kind is later:
                return tail
            tail += ticks
        return tail

    def activations(self, kinds: frozenset[Kind]) -> tuple[int, int]:
        """Return the least head and tail of transfers of activations in some directions."""
        trace, platform = self.problem.step.trace, self.problem.step.platform
        heads, tails = [], []
        for gap, size in zip(trace.gaps, trace.gap_sizes, strict=True):
            writer = trace.tensors[gap.tensor].uses[0]
            written = self.ends[writer] if writer >= 0 else 0
            out = platform.transfer_time(size, Kind.OFFLOAD)
            back = platform.transfer_time(size, Kind.PREFETCH)
            if Kind.OFFLOAD in kinds:
                heads.append(written)
                tails.append(back + self.rest[gap.after])
            if Kind.PREFETCH in kinds:
                opened = self.ends[gap.before] if gap.before >= 0 else 0
                heads.append(max(opened, written + out))
                tails.append(self.rest[gap.after])
        return min(heads, default=0), min(tails, default=0)

    def after(self, operation: int) -> tuple[int, int, int]:
        """Return head, tail and ticks of what must come back to one device after an operation."""
        step = self.problem.step
        missing = step.trace.demand[operation] - step.platform.memory
        tails = [self.rest[gap.after] for gap in step.trace.gaps if gap.spans(operation)]
        # Whole tensors come back, so at least as many bytes.
        ticks = step.platform.transfer_time(max(missing, 0), Kind.PREFETCH)
        return self.ends[operation], min(tails, default=0), ticks


# Bits of the largest multiplier. Arbitrary.
_BITS = 40


def lacking(problem: Problem) -> dict[int, int]:
    """Return, for each operation that does not fit beside everything else, the bytes too many."""
    memory = problem.platform.memory
    return {
        operation: demand - memory
        for operation, demand in enumerate(problem.trace.demand)
        if demand > memory
    }


def multipliers(
    problem: Problem, kinds: frozenset[Kind], time_limit: float = 10.0
) -> dict[int, Fraction]:
    """Return prices of bytes that must be absent, in ticks of transfers in some directions.

    The problem is one device's. The prices are by operation; none if nothing is forced, or if none
    were found within `time_limit` seconds.
    """
    missing = lacking(problem)
    trace = problem.trace
    if not missing or not trace.gaps:
        return {}
    rows = sorted(missing)
    entries: list[tuple[float, int, int]] = []
    tensors = sorted({gap.tensor for gap in trace.gaps})
    column = {tensor: len(trace.gaps) + index for index, tensor in enumerate(tensors)}
    for row, operation in enumerate(rows):
        for gap in trace.gaps_over[operation]:
            entries.append((-float(min(trace.gap_size(gap), missing[operation])), row, gap))
    for number, each in enumerate(trace.gaps):
        # What is evicted has been offloaded.
        entries += [
            (1.0, len(rows) + number, number),
            (-1.0, len(rows) + number, column[each.tensor]),
        ]
    values, places, columns = zip(*entries, strict=True)
    shape = (len(rows) + len(trace.gaps), len(trace.gaps) + len(tensors))
    limits = [-float(missing[operation]) for operation in rows] + [0.0] * len(trace.gaps)
    matrix = coo_array((values, (places, columns)), shape=shape).tocsr()
    answer = run_linprog(_costs(problem, kinds, tensors), matrix, limits, (0.0, 1.0), time_limit)
    if answer.x is None or answer.status != 0:
        return {}
    duals = -np.asarray(answer.ineqlin.marginals)[: len(rows)]
    return _rational({operation: float(y) for operation, y in zip(rows, duals, strict=True)})


def _costs(problem: Problem, kinds: frozenset[Kind], tensors: list[int]) -> list[float]:
    trace, platform = problem.trace, problem.platform
    back = [
        platform.transfer_time(size, Kind.PREFETCH) * (Kind.PREFETCH in kinds)
        for size in trace.gap_sizes
    ]
    out = [
        platform.transfer_time(trace.tensors[tensor].size, Kind.OFFLOAD) * (Kind.OFFLOAD in kinds)
        for tensor in tensors
    ]
    return [float(ticks) for ticks in back + out]


def _rational(prices: Mapping[int, float]) -> dict[int, Fraction]:
    most = max(prices.values(), default=0.0)
    if most <= 0:
        return {}
    scale = 2 ** max(0, _BITS - Fraction(most).__ceil__().bit_length())
    found = {operation: Fraction(int(y * scale), scale) for operation, y in prices.items()}
    return {operation: y for operation, y in found.items() if y > 0}


def priced_ticks(
    problem: Problem, kinds: frozenset[Kind], prices: Mapping[int, Fraction]
) -> Fraction:
    """Return the ticks of transfers that prices prove for one device; 0 at least."""
    trace, platform = problem.trace, problem.platform
    missing = lacking(problem)
    useful = {operation: y for operation, y in prices.items() if operation in missing}
    total = sum((y * missing[operation] for operation, y in useful.items()), Fraction(0))
    gains: dict[int, Fraction] = {}
    for gap, size in zip(trace.gaps, trace.gap_sizes, strict=True):
        worth = sum(
            (y * min(size, missing[o]) for o, y in useful.items() if gap.spans(o)), Fraction(0)
        )
        ticks = platform.transfer_time(size, Kind.PREFETCH) if Kind.PREFETCH in kinds else 0
        if worth > ticks:
            gains[gap.tensor] = gains.get(gap.tensor, Fraction(0)) + worth - ticks
    for tensor, worth in gains.items():
        ticks = 0
        if Kind.OFFLOAD in kinds:
            ticks = platform.transfer_time(trace.tensors[tensor].size, Kind.OFFLOAD)
        total -= max(Fraction(0), worth - ticks)
    return max(total, Fraction(0))


_BOTH = frozenset(Kind)
# Operations after which the bytes that must come back are looked at, at most. Arbitrary.
_MOST_OPERATIONS = 16

_Group = tuple[int, int, int]


def directions(resource: Resource) -> frozenset[Kind]:
    """Return the directions of the link that a resource is."""
    return {
        Resource.LINK: _BOTH,
        Resource.OUT: frozenset({Kind.OFFLOAD}),
        Resource.BACK: frozenset({Kind.PREFETCH}),
        Resource.ADDER: frozenset[Kind](),
    }[resource]


def devices_bounds(
    problem: DevicesProblem, alone: int = 0, *, time_limit: float = 10.0
) -> list[Bound]:
    """Return proved bounds on the makespan: ``devices-alone``, and the best of each resource.

    Of a single device, no schedule takes fewer than `alone` ticks; that is proved elsewhere. Each
    linear program may take `time_limit` seconds.
    """
    finder = _BoundFinder(problem, alone, time_limit)
    found = [Bound(DEVICE, finder.times.alone, Evidence.PROVED)]
    for resource in finder.resources:
        best: tuple[int, ResourceProof] | None = None
        for value, proof in finder.proofs(resource):
            if best is None or value > best[0]:
                best = value, proof
        if best is not None:
            found.append(Bound(RESOURCE, best[0], Evidence.PROVED, best[1].write()))
    return found


class _BoundFinder:
    def __init__(self, problem: DevicesProblem, alone: int, time_limit: float) -> None:
        self.problem = problem
        self.times = Times(problem, alone)
        self.host = problem.accumulation.place is AdditionPlace.HOST
        self.works = self.times.works()
        link = (Resource.OUT, Resource.BACK) if problem.step.platform.duplex else (Resource.LINK,)
        self.resources = (*link, Resource.ADDER) if self.works else link
        self.prices = {
            resource: multipliers(problem.step, directions(resource), time_limit)
            for resource in link
        }

    def proofs(self, resource: Resource) -> Iterator[tuple[int, ResourceProof]]:
        """Yield the best subset of jobs with each way to count activations."""
        works = [work for work in self.works if self._uses(work, resource)]
        units = self.problem.accumulation.cores if resource is Resource.ADDER else 1
        yield from self._subsets(resource, works, units, None, {}, None)
        prices = self.prices.get(resource, {})
        kinds = directions(resource)
        if prices:
            ticks = priced_ticks(self.problem.step, kinds, prices) * self.problem.devices
            if ticks > 0:
                group = (*self.times.activations(kinds), ceil(ticks))
                yield from self._subsets(resource, works, units, group, prices, None)
        if Kind.PREFETCH in kinds:
            for operation in self._operations():
                head, tail, ticks_each = self.times.after(operation)
                group = head, tail, ticks_each * self.problem.devices
                yield from self._subsets(resource, works, units, group, {}, operation)

    def _operations(self) -> Sequence[int]:
        """Return operations at which most is missing, each with all behind it taken together."""
        missing = lacking(self.problem.step)
        most, found = 0, []
        for operation in sorted(missing, reverse=True):
            if missing[operation] > most:
                most = missing[operation]
                found.append(operation)
        stride = -(-len(found) // _MOST_OPERATIONS) or 1
        return found[::-stride]

    def _uses(self, work: JobGroup, resource: Resource) -> bool:
        direction = work.kind.direction
        return (
            resource is Resource.ADDER if direction is None else direction in directions(resource)
        )

    def _subsets(
        self,
        resource: Resource,
        works: list[JobGroup],
        units: int,
        group: _Group | None,
        prices: Mapping[int, Fraction],
        after: int | None,
    ) -> Iterator[tuple[int, ResourceProof]]:
        barrier = self.times.alone
        if not self.host and group is not None:
            # All of it comes before the jobs.
            barrier = max(barrier, sum(group))
            group = None
        best: tuple[int, int, int] | None = None
        offset = 0 if self.host else barrier
        for value, head, tail in _best_thresholds(works, group, units):
            if best is None or offset + value > best[0]:
                best = offset + value, head, tail
        if best is None:
            if not self.host:
                yield barrier, ResourceProof(resource, {}, prices, after)
            return
        jobs: dict[JobKind, tuple[int, ...]] = {}
        for work in works:
            if work.head >= best[1] and work.tail >= best[2]:
                jobs[work.kind] = (*jobs.get(work.kind, ()), work.gradient)
        yield best[0], ResourceProof(resource, jobs, prices, after)


def _best_thresholds(
    works: list[JobGroup], group: _Group | None, units: int
) -> Iterator[tuple[int, int, int]]:
    """Yield, for least heads, the best value, that head, and the least tail it goes with.

    Among all subsets, one that holds everything with a head and a tail of at least so much is best.
    """
    # Activations are a piece of work that is always taken.
    base_head, base_tail, base = group or (None, None, 0)
    ordered = sorted(works, key=lambda work: -work.tail)
    if group is not None:
        assert base_head is not None
        assert base_tail is not None
        most = 1 + max((max(work.head, work.tail) for work in works), default=0)
        yield base_head + base + base_tail, most, most
    for least in sorted({work.head for work in works}):
        head = least if base_head is None else min(least, base_head)
        total = base
        best: tuple[int, int, int] | None = None
        for work in ordered:
            if work.head < least:
                continue
            total += work.ticks
            tail = work.tail if base_tail is None else min(work.tail, base_tail)
            value = head - (-total // units) + tail
            if best is None or value > best[0]:
                best = value, least, work.tail
        if best is not None:
            yield best
