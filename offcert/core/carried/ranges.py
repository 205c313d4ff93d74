"""Ranges of operations that can be recomputed as one segment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.forms import TEXT, Absent, Integer, Integers, Object, Record
from offcert.core.list_forms import Each, InOrder

# A call of a module: its path, and which call of it.
Called = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive operations that can be recomputed together."""

    # Operations of the trace from `first` to `last`.
    first: int
    last: int
    # Path of the module that is called, or of the container; of the first module of a line.
    path: str
    call: int  # Number of the module's call.
    # The first and the last child, if these are children of an `nn.Sequential`.
    children: tuple[str, str] | None = None
    line: tuple[Called, ...] = ()  # The calls of modules, if these are calls in a line.


@dataclass(frozen=True, slots=True)
class SequentialCall:
    """The children of an `nn.Sequential` in one call: any consecutive ones are a range."""

    path: str  # Path of the container.
    call: int  # Number of the module's call.
    names: tuple[str, ...]  # Of those children that compute something.
    # Their operations.
    first: tuple[int, ...]
    last: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """Consecutive calls of modules, each of which takes only the result of the one before.

    Nothing is computed between them, and none of them calls other modules, whoever calls them
    itself. Any consecutive ones are a range that begins and ends with one that computes something.
    """

    calls: tuple[Called, ...]  # Path of each module, and which call of it.
    # Their operations; the last is before the first where nothing is computed.
    first: tuple[int, ...]
    last: tuple[int, ...]

    def computes(self, index: int) -> bool:
        """Whether a call computes anything."""
        return self.first[index] <= self.last[index]

    def stretches(self) -> Iterator[Range]:
        """Yield the ranges of at least two calls."""
        ends = [index for index in range(len(self.calls)) if self.computes(index)]
        for place, i in enumerate(ends):
            for j in ends[place + 1 :]:
                yield self.stretch(i, j)

    def find(self, first: int, last: int) -> Range | None:
        """Return the stretch from one operation to another, or None."""
        if first not in self.first or last not in self.last:
            return None
        ends = [index for index in range(len(self.calls)) if self.computes(index)]
        i = next((index for index in ends if self.first[index] == first), None)
        j = next((index for index in ends if self.last[index] == last), None)
        return None if i is None or j is None or i >= j else self.stretch(i, j)

    def stretch(self, i: int, j: int) -> Range:
        """Return the range from one call to another."""
        path, call = self.calls[i]
        return Range(self.first[i], self.last[j], path, call, None, self.calls[i : j + 1])


@dataclass(frozen=True)
class Ranges:
    """All ranges of a captured step that can be recomputed as one segment."""

    calls: tuple[Range, ...] = ()  # Calls of modules, from the outermost to the innermost.
    rows: tuple[SequentialCall, ...] = ()  # Children of containers.
    # Calls of modules, of which each takes what the one before returned.
    lines: tuple[Line, ...] = ()

    def __iter__(self) -> Iterator[Range]:
        """Yield every range, each pair of ends once."""
        seen = set()
        for each in self.calls:
            if (each.first, each.last) not in seen:
                seen.add((each.first, each.last))
                yield each
        for row in self.rows:
            for i, first in enumerate(row.first):
                for j in range(i, len(row.last)):
                    if (first, row.last[j]) not in seen:
                        seen.add((first, row.last[j]))
                        yield self._run(row, i, j)
        for line in self.lines:
            for each in line.stretches():
                if (each.first, each.last) not in seen:
                    seen.add((each.first, each.last))
                    yield each

    def find(self, first: int, last: int, line: Sequence[Called] = ()) -> Range | None:
        """Return the range from one operation to another, or None.

        In a line, whose calls are made one after another when it runs again, it is one of them or
        a part of the line: nobody calls what else they are the calls of.
        """
        if line:
            return self._in_line(first, last, line)
        found = self._of_ends.get((first, last))
        if found is not None:
            return found
        for row in self.rows:
            if first in row.first and last in row.last:
                i, j = row.first.index(first), row.last.index(last)
                if i <= j:
                    return self._run(row, i, j)
        for one in self.lines:
            stretch = one.find(first, last)
            if stretch is not None:
                return stretch
        return None

    @cached_property
    def _of_ends(self) -> dict[tuple[int, int], Range]:
        """The outermost call with each first and last operation."""
        return {(each.first, each.last): each for each in reversed(self.calls)}

    def _in_line(self, first: int, last: int, line: Sequence[Called]) -> Range | None:
        for one in self.lines:
            for called, *ends in zip(one.calls, one.first, one.last, strict=True):
                if ends == [first, last] and called in line:
                    return Range(first, last, *called)
            stretch = one.find(first, last)
            if stretch is not None and set(stretch.line) <= set(line):
                return stretch
        return None

    def locate(
        self,
        path: str,
        call: int,
        children: tuple[str, str] | None = None,
        line: tuple[Called, ...] = (),
    ) -> Range | None:
        """Return the range of a call of a module, of children of a container, or of a line."""
        if line:
            found = (each for one in self.lines for each in one.stretches() if each.line == line)
            return next(found, None)
        if children is None:
            return next((r for r in self.calls if (r.path, r.call) == (path, call)), None)
        for row in self.rows:
            if (row.path, row.call) == (path, call) and set(children) <= set(row.names):
                return self._run(row, *(row.names.index(child) for child in children))
        return None

    def _run(self, row: SequentialCall, i: int, j: int) -> Range:
        ends = row.names[i], row.names[j]
        return Range(row.first[i], row.last[j], row.path, row.call, ends)

    def without(self, paths: Collection[str]) -> Ranges:
        """Return the ranges in which no module of these paths is called, nor any inside of one."""
        barred = {above for path in paths for above in _above(path)}
        rows = [
            SequentialCall(row.path, row.call, row.names[i:j], row.first[i:j], row.last[i:j])
            for row in self.rows
            for i, j in _stretches(_child(row.path, name) in barred for name in row.names)
        ]
        lines = [
            Line(line.calls[i:j], line.first[i:j], line.last[i:j])
            for line in self.lines
            for i, j in _stretches(path in barred for path, _ in line.calls)
        ]
        return Ranges(
            tuple(each for each in self.calls if each.path not in barred),
            tuple(rows),
            tuple(lines),
        )


def _above(path: str) -> Iterator[str]:
    """Yield the path of a module, and those of all that it lies in."""
    parts = path.split(".")
    return (".".join(parts[:count]) for count in range(len(parts), 0, -1))


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _stretches(barred: Iterable[bool]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of the longest stretches in which nothing is barred."""
    begin = 0
    flags = [*barred, True]
    for index, each in enumerate(flags):
        if each:
            if index > begin:
                yield begin, index
            begin = index + 1


NO_RANGES = Ranges()


class _Series(Record[Any]):
    """Children or calls in a row, each of which has its operations."""

    def read(self, fields: Fields) -> Any:
        made = super().read(fields)
        each = made.names if isinstance(made, SequentialCall) else made.calls
        if not len(each) == len(made.first) == len(made.last):
            raise InputError(f"{fields.path('first')} and last must name an operation of each call")
        return made


_ROW = _Series(
    SequentialCall,
    path=TEXT,
    call=Integer(0),
    names=Each(TEXT),
    first=Integers(0),
    last=Integers(0),
)
_LINE = _Series(
    Line, calls=Each(InOrder(tuple, TEXT, Integer(0))), first=Integers(0), last=Integers(-1)
)
RANGES = Record(
    Ranges,
    calls=Each(InOrder(Range, Integer(0), Integer(0), TEXT, Integer(0))),
    rows=Each(Object(_ROW)),
    # Older captures know of no lines.
    lines=Absent(Each(Object(_LINE)), (), always=True),
)
