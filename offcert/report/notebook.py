"""The display of a problem, a certificate or addresses: numbers, a picture, the bounds.

One element, both XML and HTML, with nothing that is loaded from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from offcert.certification.diagnosis import Diagnoses
from offcert.core.messages import cut
from offcert.core.notebook import Shown
from offcert.core.units import format_size, format_time
from offcert.proofs.certificate import Certificate
from offcert.proofs.placement_certificate import PlacementCertificate
from offcert.questions.schedule.problem import Minimise, Problem, format_objective
from offcert.report.bars import BOUND, HELD
from offcert.report.doctor import describe_doctor, shown_doctor
from offcert.report.execution import choices_facts, reruns_of
from offcert.report.findings import best_first
from offcert.report.gantt import (
    MEMORY,
    draw_memory,
    draw_time_axis,
    gantt_svg,
    largest_shown,
    picture,
    steps,
    time_labels,
)
from offcert.report.placement_text import exact_size
from offcert.report.space import space_svg, spaces_of
from offcert.report.svg import Axes, Element, element, ticks, write
from offcert.report.text import offloaded_names

# Pixels of the picture's width, and of the margin above. Arbitrary.
_WIDTH = 900
_TOP = 56
# Rows of a table that are shown in a notebook, which is scrolled; others are counted. Arbitrary.
_MOST_ROWS = 30
# Residences that are drawn in a notebook, with which the picture is stored; smaller ones are
# counted. Arbitrary.
_MOST_SPACES = 1500
_CELL = "text-align:left;padding:1px 14px 1px 0;vertical-align:top"


def html(value: Problem | Certificate | PlacementCertificate | Diagnoses | Shown) -> str:
    """Return a value's display in a notebook as HTML, of a size that is bounded."""
    value = shown_doctor(value) if isinstance(value, Diagnoses) else value
    root = element(None, "div", class_="offcert", style="max-width:100%;overflow-x:auto")
    _ADDED[type(value)](root, value)
    return write(root)


def text(value: Diagnoses) -> str:
    """Return a value as text, as the command prints it."""
    return describe_doctor(value)


def _add_problem(root: Element, problem: Problem) -> None:
    trace, units = problem.trace, problem.units
    leaving = len({gap.tensor for gap in trace.gaps})
    element(element(root, "div"), "b", cut(problem.name, 100))
    _add_facts(
        root,
        [
            ("operations", f"{len(trace)}"),
            ("tensors", f"{len(trace.tensors)}, of which {leaving} may leave"),
            ("compute time", format_time(trace.compute_time, units)),
            ("memory limit", problem.memory_summary),
            ("link", f"{problem.platform.link}, {problem.rates}"),
            ("transfers", str(problem.transfers)),
            *choices_facts(problem),
        ],
    )
    root.append(problem_svg(problem))


def problem_svg(problem: Problem) -> Element:
    """Draw the memory that a problem needs if nothing leaves, and at least, against its limit.

    Against time if every operation takes some, else against the operations' numbers.
    """
    trace = problem.trace
    timed = all(trace.durations)
    lengths = trace.durations if timed else (1,) * len(trace)
    span = sum(lengths)
    frame = Axes(_WIDTH, span, largest_shown(problem, trace.peak_memory), _TOP, MEMORY)
    root = picture(frame, "Memory without offloading")
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    curves = [
        (steps(starts, (*demand, demand[-1])), colour, name)
        for demand, colour, name in (
            (trace.demand, HELD, "if nothing leaves"),
            (trace.least_demand, BOUND, "if everything that may leave has left"),
        )
    ]
    for number, (_, colour, name) in enumerate(curves):
        x = 330 + 150 * number
        element(root, "path", d=f"M{x},16 h22", stroke=colour, stroke_width=3)
        element(root, "text", name, x=x + 28, y=20)
    draw_memory(root, frame, problem, problem.platform.memory, curves, step=1.0)
    if timed:
        labels, unit = time_labels(problem, span)
        draw_time_axis(root, frame, labels, f"compute time ({unit})")
    else:
        labels = [(value, f"{value:g}") for value in ticks(span) if value == int(value)]
        draw_time_axis(root, frame, labels, "operation")
    return root


def _add_certificate(root: Element, certificate: Certificate) -> None:
    result, problem = certificate.result, certificate.problem
    units = problem.units
    head = element(root, "div")
    element(head, "b", cut(problem.name, 100))
    limit = problem.objective_summary
    if problem.minimise is Minimise.TIME:
        limit = f"at {problem.memory_summary}"
    element(head, "span", f" {limit}: {result.status}")
    facts = [("found by", cut(certificate.method))]
    if result.infeasibility is not None:
        facts.append(("no schedule", result.infeasibility.said(units)))
    if result.objective is not None and result.schedule is not None:
        ticks = result.schedule.makespan
        slowdown = ticks / max(1, problem.trace.compute_time)
        makespan = format_time(ticks, units)
        leaving = len(offloaded_names(certificate))
        if problem.minimise is Minimise.MEMORY:
            facts.append(("memory", format_size(result.objective, units)))
        facts += [
            ("makespan", f"{makespan}, {slowdown:.3f} times the compute time"),
            ("gap", f"{100 * result.gap:.4g} %"),
            ("offloaded", f"{leaving} of {len(certificate.executed.trace.tensors)} tensors"),
        ]
        reruns = reruns_of(certificate)
        if reruns is not None:
            facts.append(("recomputed", reruns.said(units)))
    _add_facts(root, facts)
    if result.schedule is not None:
        root.append(gantt_svg(certificate, width=_WIDTH, whole=False))
    _add_bounds(root, certificate)


def _add_placement(root: Element, placed: PlacementCertificate) -> None:
    problem, result, units = placed.problem, placed.result, placed.problem.units
    head = element(root, "div")
    element(head, "b", cut(problem.name, 100))
    element(head, "span", f" {result.summary(units)}")
    facts = [
        ("found by", cut(placed.method)),
        ("residences", f"{len(problem.residences)}"),
        ("load", exact_size(problem.load, units)),
    ]
    if problem.capacity is not None:
        facts.append(("capacity", exact_size(problem.capacity, units)))
    if problem.alignment > 1:
        facts.append(("alignment", exact_size(problem.alignment, units)))
    _add_facts(root, facts)
    if result.placement is None:
        return
    # Time and bytes together: the largest are what is seen.
    spaces = sorted(
        spaces_of(placed), key=lambda each: (each.start - each.end) * (each.high - each.low)
    )
    root.append(space_svg(placed, spaces[:_MOST_SPACES], width=_WIDTH))
    if len(spaces) > _MOST_SPACES:
        element(root, "div", f"the largest {_MOST_SPACES} of {len(spaces)} are drawn")


def _add_facts(root: Element, facts: Iterable[tuple[str, str]]) -> None:
    body = element(element(root, "table", style="border-collapse:collapse"), "tbody")
    for name, value in facts:
        row = element(body, "tr")
        element(row, "th", name, style=_CELL, scope="row")
        element(row, "td", value, style=_CELL)


def _add_bounds(root: Element, certificate: Certificate) -> None:
    """Add the table of the lower bounds, the best first, of equal ones the best supported."""
    bounds = best_first(certificate.result.bounds)
    if not bounds:
        return
    problem, objective = certificate.problem, certificate.result.objective
    rows = [
        (format_objective(each.value, problem, objective), cut(each.method), str(each.evidence))
        for each in bounds
    ]
    header = ("lower bound", "method", "evidence")
    more = _add_table(root, header, rows, class_="bounds")
    claimed = "As the certificate claims; offcert.verify checks it."
    element(root, "div", f"{more} more bounds. {claimed}" if more > 0 else claimed)


def _add_shown(root: Element, shown: Shown) -> None:
    element(element(root, "div"), "b", cut(shown.title, 100))
    if shown.facts:
        _add_facts(root, shown.facts)
    if shown.header:
        more = _add_table(root, shown.header, list(shown.rows))
        if more:
            element(root, "div", f"{more} more")


def _add_table(
    root: Element, header: Sequence[str], rows: Sequence[Sequence[str]], **attributes: str
) -> int:
    """Add a table of the first rows; return how many are left out."""
    table = element(root, "table", style="border-collapse:collapse", **attributes)
    parts = (("thead", "th", [header]), ("tbody", "td", rows[:_MOST_ROWS]))
    for part, tag, lines in parts:
        body = element(table, part)
        for line in lines:
            row = element(body, "tr")
            for text in line:
                element(row, tag, cut(text, 100), style=_CELL)
    return max(0, len(rows) - _MOST_ROWS)


_ADDED: dict[type, Callable[[Element, Any], None]] = {
    Problem: _add_problem,
    Certificate: _add_certificate,
    PlacementCertificate: _add_placement,
    Shown: _add_shown,
}
