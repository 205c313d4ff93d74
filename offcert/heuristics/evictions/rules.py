"""Plans by one rule each: `greedy`, `sequential`, `least_cover_plan`, and `tflms`.

GREEDY offloads the first activations until the peak fits (offloading paper, §4.2, Theorem 2).
The sequential plan works at any feasible memory limit: it evicts just before an operation needs the
room. The plan of the least cover, ours, evicts as little as whole tensors allow where most has to
be absent. Where one operation decides, as in the reductions from 2-partition, what must leave is a
subset of the tensors with the least sum that is enough, and searches by exchanges seldom hit it.

TFLMS: Le, Imai, Negishi and Kawachiya, "TFLMS: Large Model Support in TensorFlow by Graph
Rewriting", arXiv:1807.02037, 2018. Two parameters decide everything: the first ``n_tensors``
tensors that the backward phase uses again leave as soon as they are written; each returns ``lb``
nodes before its first backward reader, inside the backward phase. Nothing depends on sizes, times
or memory. As in the offloading paper (§6.1), both are swept here and the best result counts.

TFLMS rewrites a graph; it does not hold operations back until tensors have left (offloading paper,
§6.2). So everything runs as early as its data and the link allow, and a choice of parameters counts
only if that never exceeds the memory. If anything would have to wait for memory, the original
fails, and there is no plan here.

*Decisions where the sources leave room.* A node is an operation of the trace: distances are in
stages. The swap-in starts together with the operation ``lb`` before the reader. The backward phase
is the second half of the operations. Counting starts with the input of the network. Tensors whose
absence ends in the forward phase stay (``swap_branches`` is off by default).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from offcert.core.errors import MethodError, NoPlanError
from offcert.core.platform import Kind
from offcert.heuristics.orders.ordered import (
    ordered_makespan,
    ordered_orders,
    ordered_plan,
    require_possible,
    require_single_gaps,
)
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer


def greedy_gaps(problem: Problem) -> list[int]:
    """Return the gaps that GREEDY evicts, in the order in which their tensors become available.

    The least ``k`` with ``sum of the first k sizes >= M_peak - M``, as in the paper. Where every
    gap is nested around the turn, those that span an operation are the first ones, so this set
    serves every operation that any set serves. On other traces it may not; activations are then
    added, in the same order, until it does or all are taken.
    """
    trace, platform = problem.trace, problem.platform
    require_single_gaps(problem, "GREEDY")
    order, _ = ordered_orders(problem, range(len(trace.gaps)))
    excess = trace.peak_memory - platform.memory
    count = moved = 0
    while moved < excess and count < len(order):
        moved += trace.gap_size(order[count])
        count += 1
    # Where some operation still does not fit there is no schedule, and none is looked for.
    count = max(count, _least_that_fits(problem, order))
    while count < len(order) and ordered_makespan(problem, order[:count]) is None:
        count += 1
    return order[:count]


def _least_that_fits(problem: Problem, order: Sequence[int]) -> int:
    """Return how many gaps have to be absent for every operation to fit, at most all."""
    trace, memory = problem.trace, problem.platform.memory

    def fits(count: int) -> bool:
        chosen = set(order[:count])
        absent = 0
        for operation, demand in enumerate(trace.demand):
            absent += sum(trace.gap_size(g) for g in trace.gaps_entering[operation] if g in chosen)
            absent -= sum(trace.gap_size(g) for g in trace.gaps_leaving[operation] if g in chosen)
            if demand - absent > memory:
                return False
        return True

    return bisect_left(range(len(order)), True, key=fits)


def greedy(problem: Problem) -> Plan:
    """Return GREEDY's plan: the ordered, no-wait schedule of the first activations.

    It is empty if the peak fits. A `MethodError` says that some tensor has several gaps, or that no
    number of activations suffices.
    """
    return ordered_plan(problem, greedy_gaps(problem))


def sequential(problem: Problem) -> Plan:
    """Return a plan that serves the operations one after the other.

    Before each operation, tensors leave, the one needed furthest in the future first (Belady's
    rule), until the operation fits; then those it uses come back. No operation ever waits for
    anything later, so the plan runs whenever any plan does. It is the last resort of every search.
    A `MethodError` says that no plan exists at this memory limit.
    """
    trace = problem.trace
    moves: list[Move] = []
    gone: set[int] = set()
    copied: set[int] = set()
    absent = 0
    # What may leave, the one needed furthest in the future first.
    candidates: list[tuple[int, int]] = []
    for operation in range(len(trace)):
        back = [gap for gap in trace.gaps_leaving[operation] if gap in gone]
        absent -= sum(map(trace.gap_size, back))
        for gap in trace.gaps_entering[operation]:
            heappush(candidates, (-trace.gaps[gap].after, gap))
        need = trace.demand[operation] - problem.platform.memory - absent
        while need > 0 and candidates and -candidates[0][0] > operation:
            _, gap = heappop(candidates)
            need -= trace.gap_size(gap)
            absent += trace.gap_size(gap)
            gone.add(gap)
            if trace.gaps[gap].tensor not in copied:
                copied.add(trace.gaps[gap].tensor)
                moves.append(Move(Kind.OFFLOAD, gap, operation))
        if need > 0:
            name = trace.operations[operation].name
            raise MethodError(f"operation {operation} ({name}) lacks {need} bytes in every plan")
        moves += (Move(Kind.PREFETCH, gap, operation) for gap in back)
    return Plan(moves)


# Bits of the largest table, one for each tensor and reachable sum: 32 MB. Arbitrary.
MOST_BITS = 1 << 28


def least_cover_plan(problem: Problem) -> Plan:
    """Return the ordered plan that evicts the least cover of the operation that needs most.

    The problem is feasible. A `MethodError` says that there are too many sums, or that no ordered
    schedule evicts just these tensors.
    """
    trace = problem.trace
    need = [max(0, demand - problem.platform.memory) for demand in trace.demand]
    decisive = max(range(len(trace)), key=need.__getitem__)
    if not need[decisive]:
        return Plan()
    gaps = [number for number, gap in enumerate(trace.gaps) if gap.spans(decisive)]
    cover = least_cover([trace.gap_size(gap) for gap in gaps], need[decisive])
    return ordered_plan(problem, [gaps[index] for index in cover])


def least_cover(sizes: list[int], amount: int) -> list[int]:
    """Return the indices of a subset with the least sum that is at least `amount`."""
    unit = math.gcd(*sizes)
    units = [size // unit for size in sizes]
    # What stays behind is a subset with the greatest sum of at most the rest.
    rest = sum(units) - -(-amount // unit)
    if len(units) * (rest + 1) > MOST_BITS:
        raise NoPlanError(f"{len(units)} tensors have too many sums up to {rest} to be listed")
    window = (1 << (rest + 1)) - 1
    # Bit s of entry k: some subset of the first k sizes makes s.
    reachable = [1]
    for size in units:
        reachable.append((reachable[-1] | reachable[-1] << size) & window)
    rest = reachable[-1].bit_length() - 1
    leaving = []
    for index in reversed(range(len(units))):
        if reachable[index] >> rest & 1:
            leaving.append(index)
        else:
            rest -= units[index]
    return leaving[::-1]


def tflms_schedule(problem: Problem, n_tensors: int, lb: int) -> Schedule:
    """Return the schedule of TFLMS with these parameters, whether it fits or not."""
    trace, platform = problem.trace, problem.platform
    turn = len(trace) // 2
    spanning = [number for number, gap in enumerate(trace.gaps) if gap.before < turn < gap.after]
    available, _ = ordered_orders(problem, spanning)
    offloads, prefetches = ordered_orders(problem, available[:n_tensors])
    issued, closing = defaultdict(list), defaultdict(list)
    for gap in prefetches:
        issued[max(turn, trace.gaps[gap].after - lb)].append(gap)
        closing[trace.gaps[gap].after].append(gap)
    starts: list[int] = []
    ends: list[int] = []
    transfers: dict[tuple[Kind, int], Transfer] = {}
    free = dict.fromkeys(Kind, 0)

    def move(kind: Kind, gap: int, ready: int) -> None:
        start = max(ready, free[kind])
        end = start + platform.transfer_time(trace.gap_size(gap), kind)
        transfers[kind, gap] = Transfer(kind, gap, start, end)
        for other in (kind,) if platform.duplex else Kind:
            free[other] = end

    for o, duration in enumerate(trace.durations):
        if o == turn:
            # All are written by then, and queue before whatever comes back.
            for gap in offloads:
                writer = trace.tensors[trace.gaps[gap].tensor].uses[0]
                move(Kind.OFFLOAD, gap, ends[writer] if writer >= 0 else 0)
        back = (transfers[Kind.PREFETCH, gap].end for gap in closing[o])
        starts.append(max(ends[-1] if ends else 0, *back, 0))
        ends.append(starts[o] + duration)
        for gap in issued[o]:
            left = max(transfers[Kind.OFFLOAD, gap].end, ends[trace.gaps[gap].before])
            move(Kind.PREFETCH, gap, max(starts[o], left))
    return Schedule(starts, ends, transfers.values())


def tflms(problem: Problem, n_tensors: int | None = None, lb: int | None = None) -> Plan:
    """Return TFLMS's plan, the best over the parameters that are not given.

    So many tensors leave (`n_tensors`, at least 0), in the order in which they are available, and
    each starts to come back `lb` operations, at least 1, ahead of its reader. Of equally long
    schedules the one with the fewest tensors counts, and of these the one with the least `lb`; the
    plan is empty if the peak fits.

    A `MethodError` says that a parameter is out of range or a tensor has several gaps, a
    `NoPlanError` that every choice of the parameters exceeds the memory.
    """
    if n_tensors is not None and n_tensors < 0:
        raise MethodError(f"TFLMS needs an n_tensors of at least 0, not {n_tensors}")
    if lb is not None and lb < 1:
        raise MethodError(f"TFLMS needs an lb of at least 1, not {lb}")
    require_single_gaps(problem, "TFLMS")
    trace = problem.trace
    if trace.peak_memory <= problem.platform.memory:
        return Plan()
    require_possible(problem)
    numbers = range(1, len(trace.gaps) + 1) if n_tensors is None else (n_tensors,)
    # Beyond this, everything starts to come back with the first backward operation.
    aheads = range(1, max(2, len(trace) - len(trace) // 2)) if lb is None else (lb,)
    best = _best(problem, numbers, aheads)
    if best is None:
        raise NoPlanError(
            "TFLMS exceeds the memory with every choice of its parameters, "
            "as it never waits for tensors to leave"
        )
    return _plan(problem, best)


def _best(problem: Problem, numbers: Iterable[int], aheads: Iterable[int]) -> Schedule | None:
    """Return the shortest schedule that fits, the first of equals, or None."""
    best: Schedule | None = None
    for n_tensors in numbers:
        for lb in aheads:
            schedule = tflms_schedule(problem, n_tensors, lb)
            if best is not None and schedule.makespan >= best.makespan:
                continue
            lacking = _first_lacking(problem, schedule)
            if lacking is not None and lacking < len(problem.trace) // 2:
                # No lb changes the forward phase.
                break
            if lacking is None and not check(problem, schedule):
                best = schedule
                if best.makespan == problem.trace.compute_time:
                    return best
    return best


def _plan(problem: Problem, schedule: Schedule) -> Plan:
    """Return the plan whose no-wait schedule is `schedule`."""
    moves = []
    for move, transfer in zip(schedule.plan(problem.trace).moves, schedule.transfers, strict=True):
        if move.kind is Kind.PREFETCH:
            # After the operation that starts with it, not after the one before: it would be early.
            move = replace(move, before=bisect_right(schedule.starts, transfer.start))
        moves.append(move)
    return Plan(moves)


def _first_lacking(problem: Problem, schedule: Schedule) -> int | None:
    """Return the first operation that does not fit when it starts; quicker than the checker."""
    trace = problem.trace
    spare = [problem.platform.memory - demand for demand in trace.demand]
    back = {item.gap: item.start for item in schedule.transfers if item.kind is Kind.PREFETCH}
    for item in schedule.transfers:
        if item.kind is Kind.OFFLOAD:
            gap, released = trace.gaps[item.gap], schedule.release(trace, item)
            for o in range(gap.before + 1, gap.after):
                if released <= schedule.starts[o] <= back[item.gap]:
                    spare[o] += trace.gap_size(item.gap)
    return next((o for o, left in enumerate(spare) if left < 0), None)
