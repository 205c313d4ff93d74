"""Views of documents on the report page: words, numbers, bars and curves, as JSON values.

``web/read.js`` makes the same of a certificate that is dropped into the viewer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from offcert.core.messages import cut
from offcert.core.result import Evidence, SolveStatus
from offcert.core.trace import Trace
from offcert.core.units import format_size, format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Minimise, Problem, format_objective
from offcert.questions.schedule.residences import residences
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.training_record import TrainingRecord
from offcert.report.bars import (
    BOUND,
    HELD,
    LOOKS,
    Bar,
    bars_of,
    looks_of,
    rows_of,
    size_scale,
    time_scale,
)
from offcert.report.execution import reruns_of, times_said
from offcert.report.findings import best_first
from offcert.report.forecasts import behind_host
from offcert.report.memory_curve import fluid_memory_curve, memory_curve
from offcert.report.svg import clean
from offcert.report.text import offloaded_names
from offcert.report.training_figure import bars_of_course, courses_of, said_of_times, span_of
from offcert.verification.findings import Verification

_LOOKS = list(LOOKS)
# Letters of a name, and of a title. Arbitrary.
_NAME, _TITLE = 80, 120
# Percent from the best possible within which a plan reads as a good one. Arbitrary.
_NEAR = 5


class _Names:
    """Texts, each once, by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self.numbers.setdefault(clean(cut(name, _NAME)), len(self.numbers))


def certificate_view(
    name: str, certificate: Certificate, verification: Verification[Certificate] | None
) -> dict[str, Any]:
    """Return the view of a certificate, valid or not, and of its verification, if any."""
    problem, result, schedule = (
        certificate.executed,
        certificate.result,
        certificate.result.schedule,
    )
    asked, names = certificate.problem, _Names()
    rows: Sequence[str] = rows_of(problem)
    bars: list[Bar] = []
    line: dict[str, Any] = {"name": "on the device", "colour": HELD, "slanted": False}
    inside = None
    if isinstance(schedule, Schedule):
        line["times"], line["sizes"] = memory_curve(problem, schedule)
        inside = _inside(problem.trace, schedule, names)
    elif schedule is not None:
        points = fluid_memory_curve(problem, schedule)
        line |= {"times": [float(t) for t, _ in points], "sizes": [float(s) for _, s in points]}
        line["slanted"] = True
    if schedule is not None:
        bars = list(bars_of(problem, schedule, looks_of(certificate)))
    in_time = asked.minimise is Minimise.TIME
    span = max(1, schedule.makespan if schedule else 1, result.lower_bound if in_time else 0)
    return {
        "choice": f"{name}: {asked.objective_summary if not in_time else asked.memory_summary}",
        "title": clean(cut(problem.name, _TITLE)),
        "status": _status(certificate, verification),
        "tiles": list(_tiles(certificate, line)),
        "known": _known(certificate),
        "facts": list(_facts(certificate)),
        "bounds": _bounds(certificate, verification),
        "bound": (result.proved_bound or None) if in_time else None,
        "limit": problem.platform.memory,
        "lines": [line] if schedule is not None else [],
        "inside": inside,
        "training": None,
        **_drawn(problem, span, rows, bars, names),
    }


def _status(
    certificate: Certificate, verification: Verification[Certificate] | None
) -> dict[str, str]:
    """Return in words the status of a plan, and whether it was verified."""
    tone, said = _said_of_plan(certificate)
    if verification is None:
        said = f"{said} (says the file)"
        return {"tone": tone, "said": said, "mark": "open", "checked": "Not verified for this page"}
    if verification.valid:
        return {"tone": tone, "said": said, "mark": "good", "checked": "Verified for this page"}
    outcome = str(verification.outcome).upper()
    checked = f"{outcome}: {verification.reason}"
    said = "This document does not prove what it says"
    return {"tone": "bad", "said": said, "mark": "bad", "checked": clean(checked)}


def _said_of_plan(certificate: Certificate) -> tuple[str, str]:
    result = certificate.result
    if result.infeasibility is not None:
        lack = result.infeasibility.said(certificate.problem.units)
        return "bad", f"There is no plan: {clean(lack)}"
    if result.objective is None:
        return "open", "No plan was found; whether there is one is not known"
    best = "fastest" if certificate.problem.minimise is Minimise.TIME else "smallest"
    if result.objective == result.proved_bound:
        return "good", f"The {best} plan there is: proved"
    away, tone = "how far from the best possible is not known", "open"
    if result.proved_bound:
        gap = 100 * (result.objective - result.proved_bound) / max(1, result.objective)
        away = f"at most {percent_said(gap)} from the best possible"
        tone = "good" if gap <= _NEAR else "open"
    said = f"The best plan found; {away}"
    if result.status is SolveStatus.OPTIMAL:
        said += "; solvers say that none is better, which is not proved"
    return tone, said


def percent_said(part: float) -> str:
    """Return a percentage in two digits, rounded up: it is a promise."""
    digits = 0 if part >= 10 else 1 if part >= 1 else 2
    factor = 10**digits
    whole = -int(-part * factor // 1)
    return f"{whole / factor:.{digits}f} %"


def _tiles(certificate: Certificate, line: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield the numbers that stand at the top: a name, a value, a remark, and a part of 1."""
    problem, result, units = certificate.problem, certificate.result, certificate.problem.units
    trace = problem.trace
    if result.schedule is not None:
        makespan, computing = result.schedule.makespan, trace.compute_time
        slower = f"{makespan / max(1, computing):.3f} times the computing time"
        yield _tile("step", format_time(makespan, units), slower)
        host = behind_host(certificate)
        if host is not None:
            idle = f"host-bound: {format_time(host.idle, units)} idle"
            said = idle if host.idle else "it is never waited for"
            yield _tile("step with its host", format_time(host.behind, units), said)
        most = max(line["sizes"], default=0)
        whole = max(1, trace.peak_memory)
        whole_said = format_size(trace.peak_memory, units)
        of = f"{100 * most / whole:.0f} % of the {whole_said} without a plan"
        yield _tile("memory", format_size(round(most), units), of, most / whole)
        yield _tile("leave the device", _counted(len(offloaded_names(certificate)), "tensor"))
    else:
        yield _tile("memory limit", format_size(problem.platform.memory, units))
        yield _tile("needed without a plan", format_size(trace.peak_memory, units))
    reruns = reruns_of(certificate)
    if reruns is not None:
        cost = f"{format_time(reruns.ticks, units)} of computing"
        yield _tile("run again", _counted(len(reruns.operations), "operation"), cost)


def _tile(name: str, value: str, note: str = "", part: float | None = None) -> dict[str, Any]:
    return {"name": name, "value": value, "note": note, "part": part}


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _drawn(
    of: Problem | TrainingRecord, span: int, rows: Sequence[str], bars: Sequence[Bar], names: _Names
) -> dict[str, Any]:
    """Return the bars by rows, each row by columns; rows that are not there have none."""
    by_row: dict[str, dict[str, list[Any]]] = {
        row: {"start": [], "end": [], "look": [], "name": []} for row in rows
    }
    largest = max(of.trace.peak_memory if isinstance(of, Problem) else of.predicted_peak, 1)
    for bar in sorted(bars, key=lambda bar: bar.start):
        columns = by_row[bar.row]
        columns["start"].append(_number(bar.start))
        columns["end"].append(_number(bar.end))
        columns["look"].append(_LOOKS.index(bar.look))
        columns["name"].append(names.number(bar.label))
    return {
        "span": span,
        "rows": list(rows),
        "bars": list(by_row.values()),
        "names": list(names.numbers),
        "time": list(time_scale(of, span)),
        "size": list(size_scale(of, largest)),
    }


def _number(value: Any) -> float | int:
    return int(value) if value.denominator == 1 else float(value)


def _inside(trace: Trace, schedule: Schedule, names: _Names) -> dict[str, list[int]]:
    """Return names, sizes, first and last ticks of residences, by columns."""
    # A moment of the axis of residences is a tick, and the operations of no duration before it.
    instants = [index for index, duration in enumerate(trace.durations) if duration == 0]
    moments = [schedule.starts[index] + number for number, index in enumerate(instants)]
    columns: dict[str, list[int]] = {"name": [], "size": [], "from": [], "to": []}
    for _, residence in residences(trace, schedule):
        columns["name"].append(names.number(residence.name))
        columns["size"].append(residence.size)
        for name, moment in (("from", residence.start), ("to", residence.end)):
            columns[name].append(moment - bisect_left(moments, moment))
    return columns


def _known(certificate: Certificate) -> str:
    """Return a sentence about the proved bound, and about a better one that is claimed."""
    problem, result = certificate.problem, certificate.result
    if not result.bounds:
        return ""
    proved = format_objective(result.proved_bound, problem, result.objective)
    what = "shorter than" if problem.minimise is Minimise.TIME else "with less memory than"
    text = f"Proved: no schedule is {what} {proved}."
    if result.lower_bound > result.proved_bound:
        claimed = format_objective(result.lower_bound, problem)
        return f"{text} Claimed by solvers, and not proved: none is {what} {claimed}."
    same = result.objective == result.proved_bound
    return f"{text} This one is optimal." if same else text


def _facts(certificate: Certificate) -> Iterable[tuple[str, str]]:
    problem, result, units = certificate.problem, certificate.result, certificate.problem.units
    yield "operations", f"{len(certificate.executed.trace):,}"
    yield "memory limit", problem.memory_summary
    yield "computing time", format_time(problem.trace.compute_time, units)
    yield "link", f"{problem.platform.link}, {problem.rates}"
    yield "may be done", problem.means
    if problem.minimise is Minimise.MEMORY:
        yield "wanted", problem.objective_summary
    reruns = reruns_of(certificate)
    if reruns is not None:
        yield "run again", reruns.said(units)
    yield "result", result.summary(units)
    yield "found by", f"{cut(certificate.method)}{_seconds(certificate)}"
    times = times_said(problem)
    if times is not None:
        yield "times", clean(times)


def _seconds(certificate: Certificate) -> str:
    """Return how long the search took, or, as files do not say so, how long it might take."""
    if certificate.result.runtime:
        return f" in {certificate.result.runtime:.1f} s"
    limit = certificate.settings.time_limit
    return "" if limit is None else f" in at most {limit:g} s"


def _bounds(
    certificate: Certificate, verification: Verification[Certificate] | None
) -> list[dict[str, Any]]:
    """Return the lower bounds, the best first; proved is only what is: never a solver's word."""
    checked = [] if verification is None else verification.bounds
    found = {
        id(b): each.finding for b, each in zip(certificate.result.bounds, checked, strict=False)
    }
    sound = verification is None or verification.valid
    return [
        {
            "value": format_objective(
                bound.value, certificate.problem, certificate.result.objective
            ),
            "proved": bound.evidence is Evidence.PROVED and sound,
            "said": _said(bound.evidence, verification),
            "method": clean(cut(bound.method)),
            "finding": clean(found.get(id(bound), "not checked for this page")),
        }
        for bound in best_first(certificate.result.bounds)
    ]


def _said(evidence: Evidence, verification: Verification[Certificate] | None) -> str:
    if evidence is not Evidence.PROVED:
        by = "two solvers say so" if evidence is Evidence.CROSS_ATTESTED else "a solver says so"
        return f"{by} ({evidence}), not proved"
    if verification is None:
        return "proved, says the certificate"
    return "proved" if verification.valid else "not proved: the document is not valid"


def training_view(name: str, record: TrainingRecord) -> dict[str, Any]:
    """Return the view of a report of training in a file of some name, planned above measured."""
    courses = courses_of(record)
    names, bars, lines = _Names(), [], []
    kinds = ("device", "link", "link back") if record.duplex else ("device", "link")
    rows = [f"{kind}, {course}" for kind in kinds for course in courses]
    for course_name, (course, factor) in courses.items():
        for bar in bars_of_course(record, course, factor):
            bars.append(replace(bar, row=f"{bar.row}, {course_name}"))
        points = list(course.live())
        if points:
            line: Mapping[str, Any] = {
                "name": course_name,
                "colour": HELD if course_name == "planned" else BOUND,
                "slanted": False,
                "times": [round(time * factor) for time, _ in points],
                "sizes": [size for _, size in points],
            }
            lines.append(line)
    said = clean(said_of_times(record))
    return {
        "choice": f"{name}: training",
        "title": clean(cut(record.name, _TITLE)),
        "status": {"tone": "open", "said": said, "mark": "", "checked": ""},
        "tiles": list(_training_tiles(record)),
        "known": "",
        "facts": [("trained on", clean(cut(record.device_name)))],
        "bounds": [],
        "bound": None,
        "limit": record.limit,
        "lines": lines,
        "inside": None,
        "training": None,
        **_drawn(record, span_of(record), rows, bars, names),
    }


def _training_tiles(record: TrainingRecord) -> Iterable[dict[str, Any]]:
    units, measured = record.units, record.measured
    yield _tile("step, planned", format_time(record.predicted_time, units))
    if record.measured_time is not None:
        yield _tile("step, measured", format_time(record.measured_time, units))
    limit = f"limit {format_size(record.limit, units)}"
    yield _tile("memory, planned", format_size(record.predicted_peak, units), limit)
    if measured is not None and measured.peak is not None:
        yield _tile("memory, measured", format_size(measured.peak, units), limit)
    differences = sum(step.differences for step in record.steps)
    said = "no bit differs" if not differences else f"{differences:,} differ"
    steps = f"{_counted(len(record.steps), 'step')} beside plain training"
    yield _tile("losses, gradients, weights", said, steps)
