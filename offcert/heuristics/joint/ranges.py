"""The ranges of computations that the runtime can run again as segments, read from a problem."""

from __future__ import annotations

from offcert.core.carried.ranges import RANGES, Line, Row
from offcert.core.documents import Fields
from offcert.questions.schedule.problem import Problem

Pairs = list[tuple[int, int]]


def ranges_of(problem: Problem) -> Pairs | None:
    """Return first and last computations of the ranges that may be segments, or None if any may.

    A captured step names them in ``source["capture"]["ranges"]``: calls of modules, rows of
    children and lines of calls, of both of which any consecutive ones are a range.
    """
    capture = (problem.source or {}).get("capture")
    if not isinstance(capture, dict) or "ranges" not in capture:
        return None
    ranges = RANGES.read_in(Fields(capture, "source.capture"), "ranges")
    found = {(call.first, call.last) for call in ranges.calls}
    series: list[Row | Line] = [*ranges.rows, *ranges.lines]
    for row in series:
        found.update(_runs_of(row))
    return sorted(found)


def _runs_of(row: Row | Line) -> Pairs:
    """Return all consecutive children of a row, or calls of a line."""
    # A call in a line may compute nothing; a range begins and ends with one that does.
    ends = [each for each in zip(row.first, row.last, strict=True) if each[0] <= each[1]]
    return [(first, last) for i, (first, _) in enumerate(ends) for _, last in ends[i:]]
