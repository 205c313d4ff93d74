"""When a link that moves bytes one by one lets each operation start, and end, for verification."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from offcert.core.problem import Problem
from offcert.verify.common.absence import Absence, absences
from offcert.verify.common.link_work import LinkWork


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
