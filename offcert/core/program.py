"""`Program`: a strategy that checkpointing carries out, segment by segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from offcert.core.computations import Computation, Run
from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.forms import Integer, Integers, Object, Record
from offcert.core.list_forms import Each
from offcert.core.network import Network
from offcert.core.strategy import Strategy


@dataclass(frozen=True)
class Segment:
    """Consecutive computations that run again, as one, when the backward pass first needs them.

    In the first run nothing that they write stays for the backward pass but what is kept; then all
    of them that are not kept run again, in their order, up to the last one whose result is needed.

    Attributes
    ----------
    first, last : int
        The computations from `first` to `last`.
    kept : tuple of int
        Computations among them whose results stay, so that they do not run again.
    inner : tuple of Segment
        Segments inside of it: what they write does not stay when this segment runs again, but only
        when they themselves do. They do not overlap.
    """

    first: int
    last: int
    kept: tuple[int, ...] = ()
    inner: tuple[Segment, ...] = ()

    def __contains__(self, computation: int) -> bool:
        """Whether a computation is one of the segment's."""
        return self.first <= computation <= self.last

    @property
    def again(self) -> list[int]:
        """The computations that are not kept, neither here nor in a segment inside."""
        kept = set(self.kept).union(*(each.kept for each in self.nested()))
        return [each for each in range(self.first, self.last + 1) if each not in kept]

    def nested(self) -> Iterator[Segment]:
        """Yield the segments inside, at any depth."""
        for each in self.inner:
            yield each
            yield from each.nested()


@dataclass(frozen=True)
class Program:
    """Segments of a network, disjoint and increasing; what is in none of them runs once.

    This is what checkpointing can carry out on a program that somebody else wrote: when something
    runs again, and how much, follows from the backward pass.

    Parameters
    ----------
    segments : iterable of Segment
        The outermost ones.

    Raises
    ------
    InputError
        If segments are empty, out of order or overlap.
    """

    segments: tuple[Segment, ...]

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        object.__setattr__(self, "segments", tuple(segments))
        _require_order(self.segments, 0, None, "segments")

    def __repr__(self) -> str:
        again = sum(len(segment.again) for segment in self.segments)
        return f"<Program: {len(self.segments)} segments, {again} computations in them run again>"

    def strategy(self, network: Network) -> Strategy:
        """Return the strategy that this program carries out on a network.

        Raises
        ------
        InputError
            If a segment holds what cannot run again.
        """
        return BackwardUnrolling(network, self).strategy()

    def to_json(self) -> dict[str, Any]:
        """Return the program as a JSON value."""
        return _PROGRAM.write(self)


_SEGMENT = Record(Segment, first=Integer(0), last=Integer(0), kept=Integers(0))
_SEGMENT.forms["inner"] = Each(Object(_SEGMENT))
_PROGRAM = Record(Program, segments=Each(Object(_SEGMENT)))


def program_from_json(value: Any, place: str) -> Program:
    """Return the program that a JSON value describes."""
    return _PROGRAM.read(Fields(value, place))


def _require_order(segments: tuple[Segment, ...], first: int, last: int | None, place: str) -> None:
    for index, segment in enumerate(segments):
        where = f"{place}[{index}]"
        if segment.first < first:
            raise InputError(f"{where}.first must be at least {first}, not {segment.first}")
        if segment.last < segment.first or (last is not None and segment.last > last):
            raise InputError(f"{where}.last must not be {segment.last}")
        for kept in segment.kept:
            if kept not in segment:
                raise InputError(f"{where}.kept names computation {kept}, which is not in it")
        _require_order(segment.inner, segment.first, segment.last, f"{where}.inner")
        first = segment.last + 1


class BackwardUnrolling:
    """Unrolling of a backward pass: segments run again when their results are needed."""

    def __init__(self, network: Network, program: Program) -> None:
        self.network = network
        self.waiting = list(program.segments)
        for segment in program.segments:
            for computation in (segment.first, segment.last, *segment.again):
                self._require_repeatable(computation)
        self.runs: list[Run | int] = []
        self._known = any(each.of for each in network.computations)

    def _require_repeatable(self, computation: int) -> None:
        if computation >= len(self.network):
            raise InputError(f"a segment ends with computation {computation}, which does not exist")
        if not self.network.computations[computation].repeatable:
            name = self.network.computations[computation].name
            raise InputError(f"a segment holds {name}, which cannot run again")

    def strategy(self) -> Strategy:
        """Return the runs, in their order."""
        for computation in range(len(self.network)):
            if not self.network.computations[computation].repeatable:
                self._run_needed(computation)
            self.runs.append(computation)
        return Strategy(self.runs)

    def _run_needed(self, computation: int) -> None:
        while (segment := self._needed_by(computation)) is not None:
            self.waiting.remove(segment)
            self.waiting += segment.inner
            self.runs += self._again(segment)

    def _needed_by(self, computation: int) -> Segment | None:
        """Return a segment in which something was saved that is needed now, or None."""
        return next((each for each in self.waiting if self._saved(computation, each)), None)

    def _again(self, segment: Segment) -> list[int]:
        """Return the computations that run again: up to the last that saves a value needed.

        Checkpointing stops once all that was saved in the segment is there again. What is kept is
        not run, but what comes before it is. Of a segment inside, only its inputs are saved here.
        """
        stop = max(
            (
                self._stop(index, segment)
                for index, computation in enumerate(self.network.computations)
                if not computation.repeatable
            ),
            default=-1,
        )
        return [each for each in segment.again if each <= stop]

    def _stop(self, backward: int, segment: Segment) -> int:
        """Return where a segment can stop so that a backward computation has what it needs."""
        computation = self.network.computations[backward]
        stop = -1
        for each in self._savers(computation, segment):
            inner = next((one for one in segment.inner if each in one), None)
            if inner is not None:
                stop = max(stop, inner.first - 1)
            elif set(self.network.computations[each].writes).isdisjoint(computation.reads):
                # The computation saves its inputs, before it runs.
                stop = max(stop, each - 1)
            else:
                stop = max(stop, each)
        return stop

    def _savers(self, computation: Computation, segment: Segment) -> list[int]:
        """Return the computations of a segment that save what a backward computation needs."""
        if not self._guesses(computation):
            return [each for each in computation.of if each in segment]
        writers = (self.network.writer[value] for value in computation.reads)
        return [each for each in writers if each in segment]

    def _guesses(self, computation: Computation) -> bool:
        """Whether nothing is known about who saves what a computation needs.

        Where it is known of some, the others need nothing that was saved: the loss, for example.
        """
        return not computation.of and not self._known

    def _saved(self, backward: int, segment: Segment) -> set[int]:
        """Return the values that a backward computation reads and a segment's computations saved.

        A value that another computation reads as well is saved by that one, too, and stays.
        """
        computation = self.network.computations[backward]
        if self._guesses(computation):
            return {v for v in computation.reads if self.network.writer[v] in segment.again}
        saved: set[int] = set()
        for each in computation.of:
            if each in segment:
                forward = self.network.computations[each]
                saved.update(forward.reads, forward.writes)
        return saved.intersection(computation.reads)
