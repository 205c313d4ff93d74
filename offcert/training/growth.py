"""Kinds of steps: those that turn out to be others, and sizes that grow or may get a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture import Capture
from offcert.runtime.follow.kinds import is_smaller
from offcert.runtime.follow.run import StepRun
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.watch.signature import Signature, as_if_on, covers, volume
from offcert.training.foretold import beyond
from offcert.training.planner import first_call

# Steps that deviate before one is studied again, and studies that may meet a known kind: where
# kinds of steps take turns, the next step is not like the last one. Arbitrary.
_MISSES = 3
_WASTED = 3


@dataclass
class _Kind:
    """Steps that begin with the same call."""

    misses: int = 0
    wasted: int = 0
    enough: float = _MISSES


class Branches:
    """Counts how often steps with a plan have turned out to be others; which ones have none.

    Attributes
    ----------
    settled : list of (Signature, str)
        Calls with which steps begin that are left without a plan, and why.
    """

    def __init__(self) -> None:
        self.settled: list[tuple[Signature, str]] = []
        self._kinds: dict[str, _Kind] = {}

    def settle(self, call: Signature, reason: str) -> None:
        """Leave steps that begin with a call without a plan, and study none of them any more."""
        self.settled.append((call, reason))
        self._of(call).enough = float("inf")

    def reason(self, call: Signature) -> str | None:
        """Return why steps that begin with a call are left without a plan, if they are."""
        return next((reason for each, reason in self.settled if each == call), None)

    def _of(self, call: Signature) -> _Kind:
        return self._kinds.setdefault(repr(call), _Kind())

    def ended(self, run: StepRun) -> None:
        """Take note of a step that followed a plan, or did not."""
        if is_smaller(run):
            # The plan was not made for a smaller step (`offcert.runtime.follow.kinds`).
            return
        if run.finished and run.deviation is not None and not (run.failed or run.broken):
            self._of(run.step_plan.capture.calls[0]).misses += 1

    def overlapped(self, run: StepRun) -> None:
        """Take note of a step whose backward pass came after the next step had begun."""
        if not is_smaller(run) and not (run.failed or run.broken):
            self._of(run.step_plan.capture.calls[0]).misses += 1

    def wants(self, call: Signature) -> bool:
        """Whether a step that begins with the call is to be studied, although there is a plan."""
        kind = self._kinds.get(repr(call))
        return kind is not None and kind.misses >= kind.enough

    def studied(self, capture: Capture, known: Sequence[Capture]) -> bool:
        """Take note of what a step was; return whether that is new."""
        kind = self._of(capture.calls[0])
        if not any(_does_the_same(capture, each) for each in known):
            kind.misses = kind.wasted = 0
            return True
        kind.wasted += 1
        if kind.wasted == _WASTED:
            # Such steps deviate for other reasons, or rarely do something else.
            kind.misses = kind.wasted = 0
            kind.enough *= 4
        return False

    def varies(self, call: Signature) -> None:
        """Study steps that begin with a call more rarely each time: their sizes depend on data."""
        self._of(call).enough *= 2


def _does_the_same(one: Capture, other: Capture) -> bool:
    if one.calls[0][1:] != other.calls[0][1:]:
        # Other state makes two steps differ: gradients are made, or added to those that are there.
        return False
    places = [[each.place for each in capture.storages] for capture in (one, other)]
    return one.ticks == other.ticks and places[0] == places[1]


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
