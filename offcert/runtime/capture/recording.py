"""The recording of a step, and which of its layers stand for others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from offcert.runtime.capture.moments import Life, Moment, Saved, Seen
from offcert.runtime.capture.recorder import Recorder
from offcert.runtime.watch.events import Event


class NotRepeatingError(Exception):
    """A recording is none of equal layers, as far as can be seen."""


class Lines(NamedTuple):
    """The lines that a `LineFinder` has found."""

    found: list[list[Event]]


@dataclass
class Recording:
    """The data that a `Recorder` has collected, apart from it; the attributes are as there."""

    moments: list[Moment]
    lives: list[Life]
    saved: list[Saved]
    unpacked: list[tuple[int, int]]
    packed: list[Seen]
    made: list[Seen]
    given: list[tuple[int, list[Seen]]]
    only_once: set[Event]
    lines: Lines
    calls: list[Any]
    nodes: list[int]
    autocast: bool
    attention: dict[str, Fraction]
    backward_passes: int
    hooks: Any

    @classmethod
    def of(cls, recorder: Recorder) -> Recording:
        """Return the recording of a recorder that has finished."""
        names = [name for name in cls.__dataclass_fields__ if name != "lines"]
        values: dict[str, Any] = {name: getattr(recorder, name) for name in names}
        return cls(lines=Lines(recorder.lines.found), **values)


class LayerPlace(NamedTuple):
    """Where a moment is: in which traversal of the layers, in which of them, how far in."""

    traversal: int
    layer: int
    offset: int


@dataclass(frozen=True)
class Repeat:
    """A stack of repeated layers, and how often it is repeated."""

    path: str  # Path of the container of the layers
    count: int  # Layers in it that were recorded
    # The first layer that is repeated, and how many are.
    first: int
    period: int
    times: int  # Copies beside the original

    @property
    def end(self) -> int:
        """The layer behind those that are repeated."""
        return self.first + self.period

    @property
    def moved(self) -> int:
        """By how many layers those behind are moved."""
        return self.period * self.times

    def shifts(self, layer: int) -> Iterable[int]:
        """Return by how many layers something in a layer is moved, once for each of its copies."""
        if layer < self.first:
            return (0,)
        if layer < self.end:
            return range(0, self.moved + 1, self.period)
        return (self.moved,)

    def source(self, layer: int) -> int:
        """Return of which recorded layer one of the larger model is a copy."""
        if layer < self.end:
            return layer
        if layer >= self.end + self.moved:
            return layer - self.moved
        return self.first + (layer - self.first) % self.period
