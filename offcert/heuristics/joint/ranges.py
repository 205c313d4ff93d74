"""The ranges of computations that the runtime can run again as segments, read from a problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offcert.questions.schedule.problem import Problem

Pairs = list[tuple[int, int]]


def ranges_of(problem: Problem) -> Pairs | None:
    """Return first and last computations of the ranges that may be segments, or None if any may.

    A captured step names them in ``source["capture"]["ranges"]``: calls of modules, rows of
    children and lines of calls, of both of which any consecutive ones are a range.
    """
    capture = (problem.source or {}).get("capture")
    ranges = capture.get("ranges") if isinstance(capture, Mapping) else None
    if not isinstance(ranges, Mapping):
        return None
    found = {(int(call[0]), int(call[1])) for call in ranges.get("calls", ())}
    for row in (*ranges.get("rows", ()), *ranges.get("lines", ())):
        found.update(_runs_of(row))
    return sorted(found)


def _runs_of(row: Mapping[str, Any]) -> Pairs:
    """Return all consecutive children of a row, or calls of a line."""
    # A call in a line may compute nothing; a range begins and ends with one that does.
    ends = [each for each in zip(row["first"], row["last"], strict=True) if each[0] <= each[1]]
    return [(first, last) for i, (first, _) in enumerate(ends) for _, last in ends[i:]]
