"""Table and picture of the best time and lower bound at each memory limit of a problem.

A schedule for some memory is one for more, and a bound for some memory is one for less. So at each
limit the best schedule of all limits up to it counts, and the best bound of all limits from it on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from offcert.core.messages import cut
from offcert.core.platform import Kind
from offcert.core.result import SolveStatus, relative_gap
from offcert.core.units import Units, format_size, format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import FluidSchedule
from offcert.report.bars import size_scale
from offcert.report.execution import reruns_of
from offcert.report.svg import LETTER, Element, drawing, element, ticks

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
    for index, (row, after) in enumerate(pairwise(rows)):
        if row.makespan is not None and after.makespan is not None:
            rows[index] = replace(row, saved_by_next=row.makespan - after.makespan)
    return rows


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


# Pixels of the picture, and of the margins around the axes. Arbitrary.
_WIDTH, _HEIGHT = 820, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 80, 52
# Okabe and Ito's colours, and dashes, so that colours alone never tell.
_STYLES = (
    ("#0072b2", ""),
    ("#d55e00", "7 3"),
    ("#009e73", "2 3"),
    ("#cc79a7", "9 3 2 3"),
)
MOST_CURVES = len(_STYLES)


class _Scale:
    """Where bytes and slowdowns are on the picture."""

    def __init__(self, curves: Sequence[Sequence[FrontierRow]]) -> None:
        rows = [row for curve in curves for row in curve]
        self.first, self.last = min(r.memory for r in rows), max(r.memory for r in rows)
        highest = max((row.slowdown or 1.0 for row in rows), default=1.0)
        self.highest = 1.0 + max(highest - 1.0, 0.05) * 1.06

    def x(self, memory: float) -> float:
        """Return the horizontal coordinate of a memory limit."""
        span = max(1, self.last - self.first)
        return _LEFT + (memory - self.first) / span * (_WIDTH - _LEFT - _RIGHT)

    def y(self, slowdown: float) -> float:
        """Return the vertical coordinate of a multiple of the computing time."""
        part = (slowdown - 1.0) / (self.highest - 1.0)
        return _TOP + (1 - part) * (_HEIGHT - _TOP - _BOTTOM)


def frontier_svg(curves: Mapping[str, Sequence[Certificate]]) -> Element:
    """Draw frontiers of one problem, of which each leaves other things open.

    Between two limits the schedule of the lower one holds, and the bound of the upper one; so the
    band is what is known everywhere, not only at the limits.

    Parameters
    ----------
    curves : mapping of str to sequence of Certificate
        By what the legend calls them; certificates by increasing memory. At most `MOST_CURVES`.
    """
    rows = {name: frontier_rows(each) for name, each in curves.items() if each}
    problem = next(each[0].problem for each in curves.values() if each)
    scale = _Scale(list(rows.values()))
    label = f"{cut(problem.name, 80)}: time against memory"
    root = drawing(_WIDTH, _HEIGHT, label, 11)
    element(root, "text", cut(problem.name, 80), x=_LEFT, y=20, font_size=14, font_weight="600")
    _draw_axes(root, scale, problem)
    for number, (name, curve) in enumerate(rows.items()):
        _draw_curve(root, scale, problem, curve, name, number)
    return root


def _draw_axes(root: Element, scale: _Scale, problem: Problem) -> None:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    unit, name = size_scale(problem, scale.last)
    for value in ticks(scale.highest - 1.0, 6):
        y = scale.y(1.0 + value)
        element(root, "path", d=f"M{_LEFT},{y:.2f} H{right}", stroke="#e4e4e4")
        element(root, "text", f"{1.0 + value:g}", x=_LEFT - 8, y=y + 4, text_anchor="end")
    for value in ticks(scale.last / unit, 8):
        if scale.first <= value * unit <= scale.last:
            x = scale.x(value * unit)
            element(root, "path", d=f"M{x:.2f},{bottom} V{bottom + 5}", stroke="#444444")
            element(root, "text", f"{value:g}", x=x, y=bottom + 17, text_anchor="middle")
    element(root, "path", d=f"M{_LEFT},{bottom} H{right}", stroke="#444444")
    label = "step by computing time"
    element(root, "text", label, x=_LEFT - 52, y=_TOP - 10)
    element(root, "text", f"memory ({name})", x=right, y=bottom + 34, text_anchor="end")


def _draw_curve(
    root: Element,
    scale: _Scale,
    problem: Problem,
    rows: Sequence[FrontierRow],
    name: str,
    number: int,
) -> None:
    colour, dashes = _STYLES[number % MOST_CURVES]
    group = element(root, "g", class_="curve")
    compute = max(1, problem.trace.compute_time)
    known = [row for row in rows if row.slowdown is not None and not row.infeasible]
    best = [(scale.x(row.memory), scale.y(row.slowdown or 1.0)) for row in known]
    proved = [(scale.x(row.memory), scale.y(max(1.0, _proved(row) / compute))) for row in known]
    if best:
        upper = _steps(best, last=False)
        lower = _steps(proved, last=True)
        area = "L".join(f"{x:.2f},{y:.2f}" for x, y in (*upper, *reversed(lower)))
        element(group, "path", d=f"M{area} Z", fill=colour, fill_opacity=0.18)
        line = "L".join(f"{x:.2f},{y:.2f}" for x, y in upper)
        path = element(group, "path", d=f"M{line}", stroke=colour, stroke_width=1.8, fill="none")
        if dashes:
            path.set("stroke-dasharray", dashes)
        element(path, "title", name)
    for row, (x, y) in zip(known, best, strict=True):
        dot = element(group, "circle", cx=x, cy=y, r=3, fill=colour)
        element(dot, "title", _point_text(row, problem, name))
    # Two names a line: each has half of the picture's width, and is cut where that is too little.
    half = (_WIDTH - _LEFT - _RIGHT) / 2
    x, y = _LEFT + (number % 2) * half, 36 + (number // 2) * 16
    mark = element(group, "path", d=f"M{x:.2f},{y} h26", stroke=colour, stroke_width=3)
    if dashes:
        mark.set("stroke-dasharray", dashes)
    element(group, "text", cut(name, int((half - 40) / LETTER)), x=x + 32, y=y + 4)


def _proved(row: FrontierRow) -> int:
    """Return the bound of a limit if it is proved; the band is of nothing that a solver claims."""
    return row.lower_bound if row.evidence == "proved" else 0


def _steps(points: Sequence[tuple[float, float]], last: bool) -> list[tuple[float, float]]:
    """Return a line with corners: each value holds from its point on, or up to its point."""
    corners = [points[0]]
    for (x, y), (further, level) in pairwise(points):
        corners += [(x, level) if last else (further, y), (further, level)]
    return corners


def _point_text(row: FrontierRow, problem: Problem, name: str) -> str:
    units = problem.units
    assert row.makespan is not None
    text = f"{name}, {format_size(row.memory, units)}: {format_time(row.makespan, units)}"
    if row.evidence is not None:
        text += f", at least {format_time(row.lower_bound, units)} ({row.evidence})"
    return text
