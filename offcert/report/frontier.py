"""Table of the best time and lower bound at each memory limit of a problem.

A schedule for some memory is one for more, and a bound for some memory is one for less. So at each
limit the best schedule of all limits up to it counts, and the best bound of all limits from it on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from offcert.core.platform import Kind
from offcert.core.result import SolveStatus, relative_gap
from offcert.core.units import Units, format_size, format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.schedule import FluidSchedule
from offcert.report.execution import reruns_of

_HEADER = ("memory", "part", "step", "lower bound", "gap", "slowdown", "next limit saves")
_DONE = ("again", "moved")


@dataclass(frozen=True)
class FrontierRow:
    """The values at one limit."""

    memory: int  # The limit in bytes.
    part: float  # The same as a part of the way from the least memory to the peak.
    infeasible: bool  # Whether the limit is certified to be too small for any schedule.
    makespan: int | None  # Ticks of the best schedule of this limit and those below.
    makespan_at: int | None  # The limit whose certificate holds that schedule.
    lower_bound: int  # Ticks; the best bound of this limit and those above.
    lower_bound_at: int | None  # The limit whose certificate holds that bound; None without one.
    evidence: str | None  # For that bound.
    # The makespan by the computing time of a step in which everything runs once.
    slowdown: float | None
    # Ticks by which the makespan at the next limit is less; None where one of them is missing.
    saved_by_next: int | None
    # Ticks that the schedule computes again, and bytes that it moves out.
    recomputed_ticks: int | None
    moved_bytes: int | None

    @property
    def gap(self) -> float | None:
        """``(makespan - lower bound) / makespan``; None without a schedule or a bound."""
        if self.makespan is None or self.evidence is None:
            return None
        return relative_gap(self.makespan, self.lower_bound)

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON value; times in ticks, sizes in bytes."""
        return asdict(self) | {"gap": self.gap}


def frontier_rows(certificates: Sequence[Certificate]) -> list[FrontierRow]:
    """Return the best schedule and bound at each limit, of certificates sorted by memory."""
    bounds = _bounds_from_above(certificates)
    best: Certificate | None = None
    rows = []
    for certificate, (bound, bound_at, evidence) in zip(certificates, bounds, strict=True):
        found = certificate.result.objective
        known = None if best is None else best.result.objective
        if found is not None and (known is None or found < known):
            best = certificate
        rows.append(_row(certificate, best, bound, bound_at, evidence))
    return [_with_saving(row, after) for row, after in zip(rows, [*rows[1:], None], strict=True)]


def _bounds_from_above(
    certificates: Sequence[Certificate],
) -> list[tuple[int, int | None, str | None]]:
    found: list[tuple[int, int | None, str | None]] = []
    bound: tuple[int, int | None, str | None] = (0, None, None)
    for certificate in reversed(certificates):
        result = certificate.result
        # Of equal ones, that of the limit itself.
        if result.bounds and result.lower_bound >= bound[0]:
            bound = (
                result.lower_bound,
                certificate.problem.platform.memory,
                None if result.evidence is None else str(result.evidence),
            )
        found.append(bound)
    return found[::-1]


def _row(
    certificate: Certificate,
    best: Certificate | None,
    bound: int,
    bound_at: int | None,
    evidence: str | None,
) -> FrontierRow:
    problem = certificate.problem
    memory, least = problem.platform.memory, problem.least_memory
    makespan = None if best is None else best.result.objective
    reruns = None if best is None else reruns_of(best)
    return FrontierRow(
        memory=memory,
        part=(memory - least) / max(1, problem.peak_memory - least),
        infeasible=certificate.result.status is SolveStatus.INFEASIBLE,
        makespan=makespan,
        makespan_at=None if best is None else best.problem.platform.memory,
        lower_bound=bound,
        lower_bound_at=bound_at,
        evidence=evidence,
        slowdown=None if makespan is None else makespan / max(1, problem.trace.compute_time),
        saved_by_next=None,
        recomputed_ticks=None if reruns is None else reruns.ticks,
        moved_bytes=None if best is None else moved_bytes(best),
    )


def _with_saving(row: FrontierRow, after: FrontierRow | None) -> FrontierRow:
    if after is None or row.makespan is None or after.makespan is None:
        return row
    return FrontierRow(**asdict(row) | {"saved_by_next": row.makespan - after.makespan})


def moved_bytes(certificate: Certificate) -> int:
    """Return how many bytes a certificate's schedule moves from the device to the host."""
    schedule, trace = certificate.result.schedule, certificate.executed.trace
    if schedule is None:
        return 0
    if isinstance(schedule, FluidSchedule):
        return round(schedule.offloaded_size)
    return sum(
        trace.gap_size(transfer.gap)
        for transfer in schedule.transfers
        if transfer.kind is Kind.OFFLOAD
    )


def frontier_json(certificates: Sequence[Certificate]) -> dict[str, Any]:
    """Return the table as a JSON value."""
    if not certificates:
        return {"limits": []}
    problem = certificates[0].problem
    return {
        "problem": problem.name,
        "recompute": str(problem.recompute),
        "offload": problem.offload,
        "compute_time": problem.trace.compute_time,
        "least_memory": problem.least_memory,
        "peak_memory": problem.peak_memory,
        "interrupted": certificates[-1].notes.interrupted,
        "limits": [row.to_json() for row in frontier_rows(certificates)],
    }


def frontier_table(certificates: Sequence[Certificate]) -> str:
    """Return the table as Markdown whose columns are aligned, so that it can be read as it is."""
    if not certificates:
        return "no limits"
    problem = certificates[0].problem
    rows = frontier_rows(certificates)
    again = any(row.recomputed_ticks is not None for row in rows)
    header = [*_HEADER, *(name for name in _DONE if again or name != "again")]
    cells = [_cells(row, problem.units, again) for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    lines = [
        " | ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
        for line in (header, *cells)
    ]
    rule = " | ".join("-" * (width - 1) + ":" for width in widths)
    lines.insert(1, rule)
    return "\n".join(f"| {line} |" for line in lines)


def _cells(row: FrontierRow, units: Units, again: bool) -> list[str]:
    def time(ticks: int | None) -> str:
        return "–" if ticks is None else format_time(ticks, units)

    def size(count: int | None) -> str:
        return "–" if count is None else format_size(count, units)

    step = "infeasible" if row.infeasible else time(row.makespan)
    cells = [
        size(row.memory),
        f"{100 * row.part:.4g} %",
        step,
        "–" if row.infeasible else _bound_text(row, units),
        "–" if row.gap is None else f"{100 * row.gap:.3g} %",
        "–" if row.slowdown is None else f"{row.slowdown:.3f}",
        time(row.saved_by_next),
    ]
    if again:
        cells.append(time(row.recomputed_ticks))
    return [*cells, size(row.moved_bytes)]


def _bound_text(row: FrontierRow, units: Units) -> str:
    if row.evidence is None:
        return "–"
    text = format_time(row.lower_bound, units)
    return text if row.evidence == "proved" else f"{text} ({row.evidence})"


def describe_frontier(certificates: Sequence[Certificate], asked: int = 0) -> str:
    """Return the table with what it is about, for people.

    `asked` is the number of limits that were asked for, of which an interrupt may have left some.
    """
    if not certificates:
        return "no limits"
    problem = certificates[0].problem
    lines = [
        f"{problem.name}: {problem.means}; computing takes "
        f"{format_time(problem.trace.compute_time, problem.units)}",
        "",
        frontier_table(certificates),
    ]
    best = _largest_saving(frontier_rows(certificates))
    if best is not None:
        row, after = best
        assert row.saved_by_next is not None
        units = problem.units
        lines += [
            "",
            f"The step that buys most: from {format_size(row.memory, units)} to "
            f"{format_size(after.memory, units)} saves {format_time(row.saved_by_next, units)}.",
        ]
    if certificates[-1].notes.interrupted:
        left = asked - len(certificates)
        rest = f", and {left} of {asked} limits not at all" if left > 0 else ""
        lines.append(f"Interrupted: the last limit was not searched to its end{rest}.")
    return "\n".join(lines)


def _largest_saving(rows: Sequence[FrontierRow]) -> tuple[FrontierRow, FrontierRow] | None:
    """Return the step between limits that saves most time by byte, and saves any."""
    steps = [
        (Fraction(row.saved_by_next, after.memory - row.memory), row, after)
        for row, after in pairwise(rows)
        if row.saved_by_next
    ]
    if not steps:
        return None
    _, row, after = max(steps, key=lambda step: step[0])
    return row, after
