"""One page of HTML for certificates and reports of training, to be opened without network.

What it shows is computed here; what happens when it is used is in ``web/page.js``, and the curves
are drawn by uPlot, which is part of the page, with its licence.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from offcert.core.documents import write_text
from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.result import Bound, Evidence
from offcert.core.trace import Trace
from offcert.core.units import format_size, format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.files import problem_digest
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
from offcert.report.frontier import FrontierRow, frontier_rows
from offcert.report.memory_curve import fluid_memory_curve, memory_curve
from offcert.report.svg import clean
from offcert.report.text import offloaded_names
from offcert.report.training_figure import bars_of_course, courses_of, said_of_times, span_of
from offcert.verify.findings import Verification

_LOOKS = list(LOOKS)
# Letters of a name, and of a title. Arbitrary.
_NAME, _TITLE = 80, 120
_PARTS = ("uPlot.min.css", "page.css", "uPlot-LICENSE.txt", "uPlot.iife.min.js", "page.js")


@dataclass(frozen=True)
class PageDocument:
    """A document of a page.

    Attributes
    ----------
    name : str
        Of its file.
    document : Certificate or TrainingRecord
        The document on the page.
    verification : Verification or None
        The verification of a certificate; None if it was not asked for.
    notes : tuple of (str, str)
        Names and values that are to stand beside its numbers.
    """

    name: str
    document: Certificate | TrainingRecord
    verification: Verification[Certificate] | None = None
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def certificate(self) -> Certificate | None:
        """The certificate, if the document is one."""
        return self.document if isinstance(self.document, Certificate) else None


def require_page(path: str | Path) -> None:
    """Refuse a name for a page that no browser opens as one.

    Raises
    ------
    InputError
        If it ends neither in ``.html`` nor in ``.htm``.
    """
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{path} must end in .html: a report is a page for a browser")


def write_page(documents: Sequence[PageDocument], path: str | Path) -> None:
    """Write a page about certificates of schedules, and reports of training.

    Parameters
    ----------
    documents : sequence of PageDocument
        At least one. Certificates of one problem at several limits make a curve.
    path : str or Path
        Path of the HTML file.

    Raises
    ------
    InputError
        If the file cannot be written, or its name is not one of a page.
    """
    require_page(path)
    write_text(path, page(documents))


def page(documents: Sequence[PageDocument]) -> str:
    """Return the page as text; parameters as for `write_page`."""
    plans = [_view(shown) for shown in documents]
    looks = [
        {"name": look.name, "colour": look.colour, "text": look.text} for look in LOOKS.values()
    ]
    data = {"plans": plans, "groups": list(_groups(documents)), "looks": looks}
    # Whatever a name holds, it ends no script.
    written = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    web = files("offcert.report").joinpath("web")
    parts = {name: web.joinpath(name).read_text(encoding="utf-8") for name in _PARTS}
    parts["data"] = written
    whole = web.joinpath("page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{([\w.-]+)\}\}", lambda match: parts[match[1]], whole)


def _groups(documents: Sequence[PageDocument]) -> Iterable[dict[str, Any]]:
    """Yield the curves: certificates of one problem, by increasing memory."""
    found: dict[str, list[tuple[int, int, Certificate]]] = {}
    for number, shown in enumerate(documents):
        if shown.certificate is not None:
            problem = replace(shown.certificate.problem, name="")
            if problem.minimise is Minimise.TIME:
                same = found.setdefault(problem_digest(problem.with_memory(0)), [])
                same.append((problem.platform.memory, number, shown.certificate))
    for same in found.values():
        ordered = sorted(same, key=lambda each: each[0])
        rows = frontier_rows([certificate for *_, certificate in ordered])
        compute = max(1, ordered[0][2].problem.trace.compute_time)
        yield {
            "plans": [number for _, number, _ in ordered],
            "limits": [row.memory for row in rows],
            "best": [row.slowdown for row in rows],
            "least": [_least_of(row, compute) for row in rows],
        }


def _least_of(row: FrontierRow, compute: int) -> float | None:
    """Return the proved bound of a limit by the computing time; None without one."""
    known = not row.infeasible and row.evidence == "proved"
    return row.lower_bound / compute if known else None


def _view(shown: PageDocument) -> dict[str, Any]:
    document = shown.document
    if isinstance(document, TrainingRecord):
        view = _training_view(shown.name, document)
    else:
        view = _certificate_view(shown.name, document, shown.verification)
    view["facts"] += [(name, clean(text)) for name, text in shown.notes]
    return view


class _Names:
    """Texts, each once, by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self.numbers.setdefault(clean(cut(name, _NAME)), len(self.numbers))


def _certificate_view(
    name: str, certificate: Certificate, verification: Verification[Certificate] | None
) -> dict[str, Any]:
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
        "verdict": _verdict(certificate, verification),
        "known": _known(certificate),
        "facts": list(_facts(certificate)),
        "bounds": _bounds(certificate, verification),
        "bound": (result.proved_bound or None) if in_time else None,
        "limit": problem.platform.memory,
        "lines": [line] if schedule is not None else [],
        "inside": inside,
        **_drawn(problem, span, rows, bars, names),
    }


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


def _verdict(certificate: Certificate, verification: Verification[Certificate] | None) -> str:
    problem, result = certificate.problem, certificate.result
    text = result.summary(problem.units)
    if problem.minimise is Minimise.MEMORY:
        text += f", {problem.objective_summary}"
    if verification is None:
        return f"{text}. Not verified for this page."
    if verification.valid:
        return f"{text}. Verified for this page."
    return f"{text}. {str(verification.outcome).upper()}: {verification.reason}"


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
    trace = problem.trace
    yield "operations", f"{len(certificate.executed.trace)}"
    yield "memory limit", problem.memory_summary
    yield "peak without a plan", format_size(trace.peak_memory, units)
    yield "computing time", format_time(trace.compute_time, units)
    yield "link", f"{problem.platform.link}, {problem.rates}"
    yield "may be done", problem.means
    if result.infeasibility is not None:
        yield "no schedule", result.infeasibility.said(units)
    if result.schedule is not None:
        makespan = result.schedule.makespan
        slowdown = makespan / max(1, trace.compute_time)
        yield "step", f"{format_time(makespan, units)}, {slowdown:.4f} times the computing time"
        yield "leave the device", f"{len(offloaded_names(certificate))} tensors"
    reruns = reruns_of(certificate)
    if reruns is not None:
        yield "run again", reruns.said(units)
    yield "found by", f"{cut(certificate.method)}{_seconds(certificate)}"
    times = times_said(certificate.problem)
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
    found: list[tuple[Bound, str]] = []
    checked = [] if verification is None else verification.bounds
    for number, bound in enumerate(certificate.result.bounds):
        finding = checked[number].finding if number < len(checked) else "not checked for this page"
        found.append((bound, finding))
    ranks = list(Evidence)
    found.sort(key=lambda pair: (-pair[0].value, ranks.index(pair[0].evidence)))
    sound = verification is None or verification.valid
    return [
        {
            "value": format_objective(
                bound.value, certificate.problem, certificate.result.objective
            ),
            "proved": bound.evidence is Evidence.PROVED and sound,
            "said": _said(bound.evidence, verification),
            "method": clean(cut(bound.method)),
            "finding": clean(finding),
        }
        for bound, finding in found
    ]


def _said(evidence: Evidence, verification: Verification[Certificate] | None) -> str:
    if evidence is not Evidence.PROVED:
        by = "two solvers say so" if evidence is Evidence.CROSS_ATTESTED else "a solver says so"
        return f"{by} ({evidence}), not proved"
    if verification is None:
        return "proved, says the certificate"
    return "proved" if verification.valid else "not proved: the document is not valid"


def _training_view(name: str, record: TrainingRecord) -> dict[str, Any]:
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
    facts = [("limit", format_size(record.limit, record.units))]
    facts += [
        ("device", cut(record.device_name)),
        ("planned peak", _peak(record, record.predicted_peak)),
    ]
    measured = record.measured
    if measured is not None and measured.peak is not None:
        facts.append(("measured peak", _peak(record, measured.peak)))
    return {
        "choice": f"{name}: training",
        "title": clean(cut(record.name, _TITLE)),
        "verdict": said_of_times(record),
        "known": "",
        "facts": facts,
        "bounds": [],
        "bound": None,
        "limit": record.limit,
        "lines": lines,
        "inside": None,
        **_drawn(record, span_of(record), rows, bars, names),
    }


def _peak(record: TrainingRecord, size: int) -> str:
    return format_size(size, record.units)
