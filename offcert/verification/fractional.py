"""Verification of bounds by the bytes that must pass the link: Proposition 3 and fractional ones.

The link moves bytes one by one (`LinkWork`), and each operation starts and ends accordingly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from offcert.core.platform import Kind, Link
from offcert.core.trace import Tensor, Trace
from offcert.proofs.kinds.computed import Computed, LargeTensors
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification.absence import Absence, absences, least_memory, needs, whole_tensors
from offcert.verification.absence import large_tensors as rounded_up
from offcert.verification.limits import UNLIMITED, Allowance


class LinkWork:
    """The link's work on tensors in the order in which they become ready; only some count.

    A tree over that order. Each node knows the bytes under it, and when the link, which works on
    them in this order, ends at the earliest, less the time that the work takes. So a node is joined
    to the one on its right without looking into either.
    """

    def __init__(self, count: int, per_byte: int) -> None:
        self._per_byte = per_byte
        self._leaves = 1 << max(count - 1, 0).bit_length()
        self._bytes = [0] * (2 * self._leaves)
        self._latest = [0] * (2 * self._leaves)

    def put(self, place: int, ready: int, size: int) -> None:
        """Let the tensor at a place count, with its time and bytes; none counts with 0 bytes."""
        amounts, latest, per_byte = self._bytes, self._latest, self._per_byte
        node = self._leaves + place
        amounts[node], latest[node] = size, ready
        while node > 1:
            node >>= 1
            left, right = 2 * node, 2 * node + 1
            amounts[node] = amounts[left] + amounts[right]
            if not amounts[right]:
                latest[node] = latest[left]
            elif not amounts[left]:
                latest[node] = latest[right]
            else:
                latest[node] = max(latest[left], latest[right] - amounts[left] * per_byte)

    def finish(self, need: int) -> int:
        """Return the first time at which `need` bytes can have passed the link.

        The link is last idle just before some tensor appears; from then on it works without a
        pause. Trying every such moment and taking the latest finish needs no simulation.
        """
        if need == 0:
            return 0
        finish, before = 0, 0
        node = 1
        while node < self._leaves:
            node *= 2
            if before + self._bytes[node] < need:
                finish = max(finish, self._from(node, need - before))
                before += self._bytes[node]
                node += 1
        return max(finish, self._from(node, need - before))

    def _from(self, node: int, rest: int) -> int:
        return self._latest[node] + rest * self._per_byte if self._bytes[node] else 0


def starts(problem: Problem, amounts: Sequence[int], rate: Fraction) -> list[int]:
    """Return when each operation can start at the earliest, in ticks times the numerator."""
    known = sorted(absences(problem.trace), key=lambda each: each.writer)
    link = LinkWork(len(known), rate.denominator)
    changes = _changes(problem, known)
    ends = {-1: 0}
    found = []
    for index, duration in enumerate(problem.trace.durations):
        for place, enters in changes[index]:
            link.put(place, ends[known[place].writer], known[place].size if enters else 0)
        found.append(max(ends[index - 1], link.finish(amounts[index])))
        ends[index] = found[index] + duration * rate.numerator
    return found


def rests(problem: Problem, amounts: Sequence[int], rate: Fraction) -> list[int]:
    """Return the least time from each start to the end, in ticks times the numerator."""
    known = sorted(absences(problem.trace), key=lambda each: -each.after)
    link = LinkWork(len(known), rate.denominator)
    changes = _changes(problem, known)
    found = [0] * (len(amounts) + 1)
    for index in reversed(range(len(amounts))):
        # Backwards, what an operation's successor has closed comes in and what it opened goes.
        for place, entered in changes[index + 1]:
            link.put(place, found[known[place].after], 0 if entered else known[place].size)
        work = problem.trace.durations[index] * rate.numerator
        found[index] = work + max(found[index + 1], link.finish(amounts[index]))
    return found[:-1]


def _changes(problem: Problem, known: Sequence[Absence]) -> list[list[tuple[int, bool]]]:
    """Return which tensors may be absent from each operation on (true), and which no longer."""
    changes: list[list[tuple[int, bool]]] = [[] for _ in range(len(problem.trace) + 1)]
    for place, each in enumerate(known):
        changes[each.before + 1].append((place, True))
        changes[each.after].append((place, False))
    return changes


def pieces(problem: Problem) -> Iterator[Problem]:
    """Yield the pieces between all moments at which nothing can be away, in their order."""
    trace = problem.trace
    spans = []
    for tensor in trace.tensors:
        pauses = [pair for pair in pairwise(tensor.uses) if pair[1] - pair[0] > 1]
        if pauses and tensor.evictable and tensor.size:
            # It may leave as soon as it has been written, in use or not.
            spans.append((tensor.uses[0], pauses[-1][1]))
    begins, beyond = [], -1
    waiting = sorted(spans)[::-1]
    for index in range(len(trace)):
        # All that were written before this operation, up to where their last pauses end.
        while waiting and waiting[-1][0] < index:
            beyond = max(beyond, waiting.pop()[1])
        if index == 0 or beyond < index:
            begins.append(index)
    for begin, end in pairwise([*begins, len(trace)]):
        yield _alone(problem, begin, end)


def _alone(problem: Problem, begin: int, end: int) -> Problem:
    """Return the problem of a stretch of operations, with all tensors that are there meanwhile."""
    trace = problem.trace
    tensors = []
    for tensor in trace.tensors:
        if tensor.uses[0] >= end or tensor.uses[-1] < begin:
            continue
        uses = {use - begin for use in tensor.uses if begin <= use < end}
        if tensor.uses[0] < begin:
            uses.add(-1)
        if tensor.uses[-1] >= end:
            uses.add(end - begin - 1)
        # What no absence spans is there all the while, as if it could not leave.
        tensors.append(Tensor(tensor.name, tensor.size, tuple(sorted(uses)), tensor.evictable))
    return replace(problem, network=Trace(trace.operations[begin:end], tensors), source=None)


def with_returned_apart(problem: Problem) -> tuple[Problem, int]:
    """Return the problem with each forced return cut out of its tensor, and the ticks cut out.

    Take the last pause of a tensor that has several, and the last operation of that pause, *the
    strait*. If all other tensors that may be absent there are not enough, this one is away in every
    schedule while the strait runs. It takes its memory again when the strait has ended, at the
    earliest, and is back before the next operation starts, at the latest: that is the one that ends
    the pause. So meanwhile no operation runs, and on a simplex link no other transfer. Cut these
    ticks out of a schedule. What is left keeps its order, and has the same bytes on the device as
    before, where the tensor ends with the use before its pause and a new one, which never leaves,
    begins with the use after it. It is a schedule of the problem returned, shorter by those ticks.
    Straits differ from each other or share no time, as on a simplex link returns do not overlap.
    """
    trace = problem.trace
    required = needs(problem)
    removable = [0] * len(trace)
    for each in absences(trace):
        for operation in range(each.before + 1, each.after):
            removable[operation] += each.size
    rate = problem.platform.rate(Kind.PREFETCH)
    tensors: list[Tensor] = []
    added: list[Tensor] = []
    ticks = 0
    for tensor in trace.tensors:
        pauses = [(one, two) for one, two in pairwise(tensor.uses) if two - one > 1]
        if tensor.evictable and tensor.size and len(pauses) > 1:
            leaves, returns = pauses[-1]
            if removable[returns - 1] - tensor.size < required[returns - 1]:
                ticks += math.ceil(tensor.size / rate)
                later = tuple(use for use in tensor.uses if use >= returns)
                added.append(Tensor(tensor.name, tensor.size, later, evictable=False))
                earlier = tuple(use for use in tensor.uses if use <= leaves)
                tensors.append(replace(tensor, uses=earlier))
                continue
        tensors.append(tensor)
    return replace(problem, network=Trace(trace.operations, [*tensors, *added])), ticks


Amounts = Callable[[Problem], Sequence[int]]
Time = Callable[[Problem, Sequence[int]], int]
Parts = Callable[[Problem], Iterable[Problem]]

NO_SCHEDULE = "no schedule exists, so there is no bound"


_Verifier = Callable[[Problem, int, Computed, Allowance], str | None]


def _computed(method: str) -> _Verifier:
    """Return the verifier of a bound that is computed from the problem alone."""

    def verifier(problem: Problem, value: int, proof: Computed, allowance: Allowance) -> str | None:
        if least_memory(problem)[0] > problem.platform.memory:
            return NO_SCHEDULE
        return _difference(value, recompute(method, problem, allowance))

    return verifier


prop3: _Verifier = _computed("prop3")
_prop3_whole: _Verifier = _computed("prop3-subset-sum")
fractional: _Verifier = _computed("fractional")
fractional_whole: _Verifier = _computed("fractional-subset-sum")
fractional_pieces: _Verifier = _computed("fractional-pieces")


def prop3_whole(problem: Problem, value: int, proof: Computed, allowance: Allowance) -> str | None:
    """Return None if this is the bound of Proposition 3 with whole tensors, or the fault."""
    pausing = problem.transfers is not Transfers.ATOMIC
    if pausing and problem.platform.link is not Link.SIMPLEX:
        # What leaves at all leaves and returns whole, one after the other on a simplex link only.
        return "with transfers that may pause it holds on a simplex link only"
    return _prop3_whole(problem, value, proof, allowance)


def large_tensors(
    problem: Problem, value: int, proof: LargeTensors, allowance: Allowance
) -> str | None:
    """Return None if this is the fractional optimum with large tensors whole, or the fault."""
    return _with_large(problem, value, proof.smallest)


def large_tensors_returns(
    problem: Problem, value: int, proof: LargeTensors, allowance: Allowance
) -> str | None:
    """Return None if this is that optimum once forced returns are cut out, or the fault."""
    rest, ticks = with_returned_apart(problem)
    return _with_large(rest, value, proof.smallest, ticks)


def _with_large(problem: Problem, value: int, smallest: int, beside: int = 0) -> str | None:
    """Compare a value with the fractional optimum with large tensors whole, and some ticks more."""
    if least_memory(problem)[0] > problem.platform.memory:
        return NO_SCHEDULE
    amounts = rounded_up(problem, smallest)
    if amounts is None:
        return f"details.smallest {smallest} leaves too many sums of tensors to be told apart"
    return _difference(value, beside + fluid_time(problem, amounts))


def recompute(method: str, problem: Problem, allowance: Allowance | None = None) -> int:
    """Return the value of a bound that is computed from the problem alone, in ticks.

    `method` is its name in the registry, and the problem is feasible. Raises `BeyondLimitsError` if
    it takes more time than is allowed.
    """
    allowed = UNLIMITED.begin() if allowance is None else allowance
    time, amounts, parts = _COMPUTED[method]
    found = 0
    for part in parts(problem):
        allowed.require_time()
        found += time(part, amounts(part))
    return found


def _difference(value: int, found: int) -> str | None:
    if value == found:
        return None
    return f"the document says {value}, but the computation gives {found}"


def _link_time(problem: Problem, amounts: Sequence[int]) -> int:
    """Return the time of what must move at the worst operation, or that of computing."""
    amount = Fraction(max(amounts))
    leaving = amount / problem.platform.rate(Kind.OFFLOAD)
    returning = amount / problem.platform.rate(Kind.PREFETCH)
    return max(sum(problem.trace.durations), math.ceil(leaving + returning))


def fluid_time(problem: Problem, amounts: Sequence[int]) -> int:
    """Return the longest of (earliest start + least rest) over the operations, in ticks.

    `amounts` are the bytes that must be absent during each operation of a feasible problem.
    """
    to_host = problem.platform.rate(Kind.OFFLOAD)
    to_device = problem.platform.rate(Kind.PREFETCH)
    # In ticks times the numerator of a rate, all times of its direction are whole.
    return max(
        math.ceil(Fraction(start, to_host.numerator) + Fraction(rest, to_device.numerator))
        for start, rest in zip(
            starts(problem, amounts, to_host), rests(problem, amounts, to_device), strict=True
        )
    )


def _whole(problem: Problem) -> tuple[Problem]:
    return (problem,)


# By the method's name, how a bound is computed: the sum, over parts of the step, of a time for the
# bytes that must be absent.
_COMPUTED: dict[str, tuple[Time, Amounts, Parts]] = {
    "prop3": (_link_time, needs, _whole),
    "prop3-subset-sum": (_link_time, whole_tensors, _whole),
    "fractional": (fluid_time, needs, _whole),
    "fractional-pieces": (fluid_time, needs, pieces),
    "fractional-subset-sum": (fluid_time, whole_tensors, _whole),
}
