"""When a link that moves bytes one by one lets each operation start, and end, for verification."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from offcert.questions.schedule.problem import Problem
from offcert.verify.common.absence import Absence, absences


class LinkWork:
    """Tensors in the order in which they become ready, of which some count; for many questions.

    A tree over that order. Each node knows the bytes under it, and when the link, which works on
    them in this order, ends at the earliest, less the time that the work takes. So a node is joined
    to the one on its right without looking into either.

    Parameters
    ----------
    count : int
        How many tensors there are.
    per_byte : int
        Time that a byte takes.
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
