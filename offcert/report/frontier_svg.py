"""Picture of time against memory: the best schedules known, and lower bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from offcert.core.messages import cut
from offcert.core.units import format_size, format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem
from offcert.report.bars import size_scale
from offcert.report.frontier import FrontierRow, frontier_rows
from offcert.report.svg import LETTER, Element, drawing, element, ticks

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
