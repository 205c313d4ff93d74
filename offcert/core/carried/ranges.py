"""Which operations of a captured step can run again as one segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from offcert.core.documents import Fields


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive operations that can run again as one.

    Attributes
    ----------
    first, last : int
        Operations of the trace from `first` to `last`.
    path : str
        Of the module that is called, or of the container.
    call : int
        Which call of it.
    children : tuple of two str, or None
        The first and the last child, if these are children of an `nn.Sequential`.
    """

    first: int
    last: int
    path: str
    call: int
    children: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """The children of an `nn.Sequential` in one call: any consecutive ones are a range.

    Attributes
    ----------
    path : str
        Of the container.
    call : int
        Which call of it.
    names : tuple of str
        Of those children that compute something.
    first, last : tuple of int
        Their operations.
    """

    path: str
    call: int
    names: tuple[str, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]


@dataclass(frozen=True)
class Ranges:
    """All stretches of a captured step that can run again as one segment.

    Attributes
    ----------
    calls : tuple of Range
        Calls of modules, from the outermost to the innermost.
    rows : tuple of Row
        Children of containers.
    """

    calls: tuple[Range, ...] = ()
    rows: tuple[Row, ...] = ()

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

    def find(self, first: int, last: int) -> Range | None:
        """Return the range from one operation to another, or None."""
        for each in self.calls:
            if (each.first, each.last) == (first, last):
                return each
        for row in self.rows:
            if first in row.first and last in row.last:
                i, j = row.first.index(first), row.last.index(last)
                if i <= j:
                    return self._run(row, i, j)
        return None

    def locate(self, path: str, call: int, children: tuple[str, str] | None) -> Range | None:
        """Return the range of a call of a module, or of children of a container, or None."""
        if children is None:
            return next((r for r in self.calls if (r.path, r.call) == (path, call)), None)
        for row in self.rows:
            if (row.path, row.call) == (path, call) and set(children) <= set(row.names):
                return self._run(row, *(row.names.index(child) for child in children))
        return None

    def _run(self, row: Row, i: int, j: int) -> Range:
        ends = row.names[i], row.names[j]
        return Range(row.first[i], row.last[j], row.path, row.call, ends)

    def to_json(self) -> dict[str, Any]:
        """Return them as a JSON value."""
        return {
            "calls": [[each.first, each.last, each.path, each.call] for each in self.calls],
            "rows": [
                {
                    "path": row.path,
                    "call": row.call,
                    "names": list(row.names),
                    "first": list(row.first),
                    "last": list(row.last),
                }
                for row in self.rows
            ],
        }


NO_RANGES = Ranges()


def ranges_from_json(value: Any, place: str) -> Ranges:
    """Return the ranges that a JSON value describes.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    fields = Fields(value, place)
    calls = tuple(
        Range(int(first), int(last), str(path), int(call))
        for first, last, path, call in fields.get("calls", list)
    )
    rows = []
    for item in fields.each("rows"):
        rows.append(
            Row(
                item.get("path", str),
                item.integer("call", 0),
                tuple(map(str, item.get("names", list))),
                item.integers("first", 0),
                item.integers("last", 0),
            )
        )
        item.finish()
    fields.finish()
    return Ranges(calls, tuple(rows))
