"""When steps that have a plan are studied again: they do not do what the captured one did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offcert.runtime.capture import Capture
from offcert.runtime.follow.kinds import is_smaller
from offcert.runtime.follow.run import StepRun
from offcert.runtime.watch.signature import Signature

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
