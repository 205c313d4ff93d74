"""Sizes of steps: plans that a larger step makes superfluous, and sizes that may get one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import accumulate

from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Problem
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.watch.signature import Signature, as_if_on, covers, volume
from offcert.training.foretold import beyond
from offcert.training.planner import first_call

# Sizes that may get a plan of their own, at most; steps that are seen before the first choice, and
# how many times as many before the next one; how far up the range of sizes a small step may lie.
# Arbitrary.
_MOST = 8
_ENOUGH, _MORE = 32, 8
_LOWEST = Fraction(1, 8)


def is_covered(step_plans: Sequence[StepPlan], call: Signature, here: str) -> bool:
    """Whether a call, made on a device `here`, is at most as large as one that has a plan."""
    known = [each.capture for each in step_plans]
    return any(covers(each.calls[0], as_if_on(call, each.device, here)) for each in known)


def outgrown(
    step_plans: Sequence[StepPlan],
    call: Signature,
    here: str,
    own: Collection[Signature],
    full: bool,
) -> int | None:
    """Return the number of the plan in whose place one for a larger call is followed.

    It is the one for the largest of the calls that this one covers: if that is more than half as
    large, or no more plans may be made (`full`). Plans for calls of their `own`, for which a larger
    one did not do, stay.
    """
    found = []
    for number, each in enumerate(step_plans):
        known = each.capture.calls[0]
        asked = as_if_on(call, each.capture.device, here)
        if volume(known) < volume(asked) and covers(asked, known) and known not in own:
            found.append((volume(known), number))
    if not found:
        return None
    size, number = max(found)
    return number if full or 2 * size > volume(call) else None


def contained(problems: Sequence[Problem], problem: Problem) -> int | None:
    """Return the number of the first problem whose step does less than another one, or None.

    The two begin with the same call, and all that happens in the smaller one happens in the other.
    """
    more = _events(problem)
    for number, each in enumerate(problems):
        if first_call(each) == first_call(problem) and _events(each) < more:
            return number
    return None


def _events(problem: Problem) -> set[tuple[object, ...]]:
    assert problem.source is not None
    return set(map(tuple, problem.source["capture"]["ticks"]))


class Sizes:
    """The sizes of the steps that a training makes, and the captured ones among them.

    Sizes lie on a line from a small captured step to the largest one. Which lengths change along it
    is what changes in most steps.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._calls: dict[str, Signature] = {}
        self._captured: list[Problem] = []
        self._next = _ENOUGH

    def saw(self, call: Signature) -> None:
        """Take note of a step that begins with a call."""
        shown = repr(call)
        self._counts[shown] += 1
        self._calls[shown] = call

    def captured(self, problem: Problem) -> None:
        """Take note of a captured step, with the times of a hardware model."""
        self._captured.append(problem)

    @property
    def due(self) -> bool:
        """Whether enough steps have been seen for a choice, or for another one."""
        return self._counts.total() >= self._next

    def chose(self) -> None:
        """Take note that a choice has been made."""
        self._next = self._counts.total() * _MORE

    def wants(self, call: Signature) -> bool:
        """Whether a step that begins with a call is to be captured: the small end of the line."""
        return self.due and self._ends is None and self._is_small(call)

    @property
    def ends(self) -> tuple[Problem, Problem] | None:
        """The problems of the small captured step and of the largest; None before there are two."""
        return self._ends if self.due else None

    def beyond(self, call: Signature) -> Problem | None:
        """Return the problem of a step larger than all captured ones, at least as large as a call.

        It is the largest captured step with up to twice its length, foretold from two captures that
        differ in that length alone; None if there are none, or the call is larger still.
        """
        large = self._largest
        if large is None or not covers(call, first_call(large)):
            return None
        most, asked = _lengths(first_call(large)), _lengths(call)
        grow = [number for number, length in enumerate(most) if asked[number] > length]
        for small in reversed(self._captured):
            least = _lengths(first_call(small))
            if small is large or not covers(first_call(large), first_call(small)):
                continue
            changed = [number for number, length in enumerate(most) if length > least[number]]
            rows = {(least[n], most[n]) for n in changed}
            if grow and set(grow) <= set(changed) and len(rows) == 1:
                one, other = rows.pop()
                if max(asked[n] for n in changed) <= 2 * other:
                    # Tensors that are few bytes in one of them may be together, and so differ.
                    with suppress(InputError):
                        return beyond(small, large, (one, other, 2 * other))
        return None

    @property
    def _largest(self) -> Problem | None:
        return max(self._captured, key=lambda each: volume(first_call(each)), default=None)

    @property
    def _ends(self) -> tuple[Problem, Problem] | None:
        large = self._largest
        small = [each for each in self._captured if self._is_small(first_call(each))]
        if large is None or not small:
            return None
        return min(small, key=lambda each: volume(first_call(each))), large

    def _is_small(self, call: Signature) -> bool:
        """Whether a call is about as small as steps are that have the usual other lengths."""
        large = self._largest
        if large is None:
            return False
        most = first_call(large)
        found: dict[tuple[bool, ...], list[tuple[Signature, int]]] = {}
        for each, count in self._covered(most):
            if each != most:
                found.setdefault(_stays(each, most), []).append((each, count))
        if not found or not covers(most, call):
            return False
        usual = max(found, key=lambda stays: sum(count for _, count in found[stays]))
        least = min(volume(each) for each, _ in found[usual])
        near = volume(call) - least <= _LOWEST * (volume(most) - least)
        return near and call != most and _stays(call, most) == usual

    def _covered(self, most: Signature) -> list[tuple[Signature, int]]:
        pairs = ((self._calls[shown], count) for shown, count in self._counts.items())
        return [(call, count) for call, count in pairs if covers(most, call)]

    def candidates(self, small: Problem, large: Problem) -> list[tuple[Fraction, int]]:
        """Return sizes that may get a plan, and how many steps they are the next candidate for.

        A size says how far it is from the small step to the large one. Of more sizes than there may
        be candidates, each candidate stands for about as many steps.
        """
        one, other = first_call(small), first_call(large)
        seen: Counter[Fraction] = Counter()
        for call, count in self._covered(other):
            seen[_share(call, one, other)] += count
        rows = sorted({Fraction(1): 0, **seen}.items())
        total = sum(count for _, count in rows)
        found: list[tuple[Fraction, int]] = []
        waiting = 0
        for (share, count), so_far in zip(rows, accumulate(n for _, n in rows), strict=True):
            waiting += count
            if len(rows) <= _MOST or share == 1 or so_far * _MOST >= total * (len(found) + 1):
                found.append((share, waiting))
                waiting = 0
        return found


def _lengths(call: Signature) -> list[int]:
    return [length for each in call[0] if isinstance(each, list) for length in each[1]]


def _stays(call: Signature, most: Signature) -> tuple[bool, ...]:
    """Return which lengths of a call are those of the largest."""
    return tuple(a == b for a, b in zip(_lengths(call), _lengths(most), strict=True))


def _share(call: Signature, small: Signature, large: Signature) -> Fraction:
    """Return how far the size that covers a call is from a small one to a large one."""
    rows = zip(_lengths(call), _lengths(small), _lengths(large), strict=True)
    shares = (Fraction(n - a, b - a) for n, a, b in rows if b > a)
    return max(Fraction(0), *shares)
