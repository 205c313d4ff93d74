"""Kinds of steps: those that turn out to be others; sizes that grow, or depend on data.

Longer steps than were captured are foretold: see docs/theory/smaller-steps.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from offcert.core.errors import InputError
from offcert.questions.schedule.files import problem_from_json, problem_to_json
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture import Capture
from offcert.runtime.follow.kinds import is_smaller
from offcert.runtime.follow.run import StepRun
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.watch.signature import Signature, as_if_on, covers, volume
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
    """Counts how often steps with a plan have turned out to be others; which ones have none."""

    def __init__(self) -> None:
        # Calls with which steps begin that are left without a plan, and why.
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

    def missed(self, run: StepRun) -> None:
        """Take note of a step that did not follow its plan, or was overtaken by the next one.

        A smaller step the plan was not made for (`offcert.runtime.follow.kinds`).
        """
        if not (is_smaller(run) or run.failed or run.broken):
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


def is_covered(step_plans: Sequence[StepPlan], call: Signature, here: str) -> bool:
    """Whether a call, made on a device `here`, is at most as large as one that has a plan."""
    pairs = ((each.capture.calls[0], each.capture.device) for each in step_plans)
    return any(covers(known, as_if_on(call, there, here)) for known, there in pairs)


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


def foretold(captured: Sequence[Problem], call: Signature) -> Problem | None:
    """Return the problem of a step larger than all captured ones, at least as large as a call.

    It is the largest captured step with up to twice its length, foretold from two captures that
    differ in that length alone; None if there are none, or the call is larger still. Captures have
    the times of a hardware model.
    """
    large = max(captured, key=lambda each: volume(first_call(each)), default=None)
    if large is None or not covers(call, first_call(large)):
        return None
    most, asked = _lengths(first_call(large)), _lengths(call)
    grow = [number for number, length in enumerate(most) if asked[number] > length]
    for small in reversed(captured):
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


def _lengths(call: Signature) -> list[int]:
    return [length for each in call[0] if isinstance(each, list) for length in each[1]]


# How much more is foreseen of what varies with data. Arbitrary.
_MARGIN = Fraction(5, 4)


def varied(known: Problem, other: Problem) -> Problem:
    """Return one problem for steps whose sizes depend on data, made of two that are called alike.

    What is the same in both stays; of what varies a quarter more than the most is foreseen, once it
    has exceeded what was. Nothing runs again in such steps. `known` may be such a problem; if it is
    foretold otherwise, or they differ in something else, an `InputError` is raised.
    """
    known, other = known.plain(), other.plain()
    assert known.source is not None
    foreseen = known.source.get("varied", False)
    if known.source["capture"].get("interpolated", False) is not foreseen:
        raise InputError("its sizes are those of steps that are called otherwise")
    if _structure(known) != _structure(other):
        raise InputError("steps differ in what they save, or in when it is used")
    documents = _documents(other, known)
    for document in documents:
        document["source"]["capture"].pop("interpolated", None)

    def number(one: int, before: int) -> int:
        if one <= before and foreseen:
            return before
        return math.ceil(max(one, before) * _MARGIN)

    found = _problem(_between(*documents, number, ""), known)
    return replace(found, source={**(found.source or {}), "varied": True})


def _structure(problem: Problem) -> Any:
    """Return which storages a step saves, and when its tensors are used, whatever their sizes."""
    assert problem.source is not None
    saved = [(row[0], row[2], row[4]) for row in problem.source["capture"]["saved"]]
    return saved, [tensor.uses for tensor in problem.trace.tensors]


def beyond(small: Problem, large: Problem, lengths: tuple[int, int, int]) -> Problem:
    """Return the problem of a step larger than two captured ones, extrapolated from them.

    What is a constant or a power of the length goes on as such. Of all else no more is known than
    two numbers: it is taken to be a constant and a square, or else a cube, which bounds every sum
    of lower powers. So more is foretold than there is. `lengths` are those of the two steps and the
    one that is asked for; what grows faster than a cube is an `InputError`.
    """

    def number(one: int, other: int) -> int:
        return grown(one, other, lengths)

    documents = _documents(small, large)
    for document in documents:
        record = document["source"]["capture"].get("record")
        if record is not None:
            # It may differ in kind: its bytes grow like a square of the length, as scores do.
            more = Fraction(lengths[2] ** 2, lengths[1] ** 2)
            document["source"]["capture"]["record"] = record | {"within": _scaled(large, more)}
    found = _problem(_between(*documents, number, ""), large)
    assert found.source is not None
    rows = [(each.source or {}).get("uncounted", {}).get("batch", 0) for each in (small, large)]
    batch = {"uncounted": {**found.source.get("uncounted", {}), "batch": number(*rows)}}
    return replace(found, source={**found.source, **batch})


def grown(small: int, large: int, lengths: tuple[int, int, int]) -> int:
    """Return the number that two numbers grow to, at most, rounded up; see `beyond`."""
    one, other, most = lengths
    if small >= large:
        return max(small, large)
    for power in (1, 2, 3):
        if large * one**power == small * other**power:
            return math.ceil(Fraction(large * most**power, other**power))
    for power in (2, 3):
        slope = Fraction(large - small, other**power - one**power)
        if slope * one**power <= small:
            return large + math.ceil(slope * (most**power - other**power))
    raise InputError(f"{small} bytes or ticks at length {one} grow to {large} at {other}")


def _scaled(problem: Problem, share: Fraction) -> dict[str, Any]:
    """Return the events within operations that a problem's step records, with more bytes."""
    assert problem.source is not None
    within = problem.source["capture"]["record"]["within"]
    makings = [[who, math.ceil(more * share), of] for who, more, of in within["makings"]]
    asks = [
        [who, saver, *(math.ceil(each * share) for each in sizes), of]
        for who, saver, *sizes, of in within["asks"]
    ]
    return {"makings": makings, "asks": asks}


def _documents(small: Problem, large: Problem) -> tuple[Any, Any]:
    """Return two problems as JSON values that differ in sizes and times, if in nothing else."""
    assert large.source is not None
    told = large.source["capture"]
    documents = problem_to_json(small), problem_to_json(large)
    for document in documents:
        capture = dict(document["source"]["capture"])
        # With data or without, it is the same step; numbers of nodes are only compared with it.
        capture |= {name: told[name] for name in ("tensors", "nodes")}
        document["source"] = {"capture": capture}
        document |= {"memory": large.platform.memory, "name": large.name}
    return documents


def _problem(found: Any, large: Problem) -> Problem:
    """Return the problem of a JSON value that was computed of two others."""
    assert large.source is not None
    found["source"]["capture"]["interpolated"] = True
    found["source"] = {**large.source, **found["source"]}
    _add_up(found)
    return problem_from_json(found)


def _between(small: Any, large: Any, number: Callable[[int, int], int], place: str) -> Any:
    if small == large and type(small) is type(large):
        return large
    if isinstance(small, dict) and isinstance(large, dict) and small.keys() == large.keys():
        return {n: _between(small[n], large[n], number, f"{place}.{n}") for n in large}
    if isinstance(small, list | tuple) and isinstance(large, list | tuple):
        if len(small) == len(large):
            pairs = enumerate(zip(small, large, strict=True))
            return [_between(a, b, number, f"{place}[{index}]") for index, (a, b) in pairs]
    elif type(small) is int and type(large) is int:
        return number(small, large)
    elif _is_number(small) and _is_number(large):
        # A whole number as an argument, such as the time step of a diffusion.
        return large
    raise InputError(f"steps differ in more than sizes and times: see {place.removeprefix('.')}")


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and value.removeprefix("-").isdecimal()


def _add_up(document: dict[str, Any]) -> None:
    """Let each tensor have the bytes of its storages, which were rounded one by one."""
    capture = document["source"]["capture"]
    if "network" in document:
        rows, tensors = capture["record"]["storages"], document["network"]["values"]
    else:
        rows, tensors = [(row[1], row[4]) for row in capture["saved"]], document["trace"]["tensors"]
    sizes: Counter[int] = Counter()
    for size, tensor in rows:
        if tensor is not None and tensor >= 0:
            sizes[tensor] += size
    for tensor, size in sizes.items():
        tensors[tensor]["size"] = size
