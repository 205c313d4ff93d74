"""Forecasts of a plan where the host is as slow as measured, or times are the worst of a box."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from offcert.core.errors import PlanError
from offcert.core.result import relative_gap
from offcert.core.units import format_gap, format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.carried import launch_times
from offcert.questions.schedule.schedule import Schedule
from offcert.report.findings import checked_bounds
from offcert.report.svg import Axes, Element, element
from offcert.verification.findings import CheckedBound
from offcert.verification.replay import replay


@dataclass(frozen=True)
class BehindHost:
    """A plan's times on its device alone and behind its host, in ticks."""

    # The makespans.
    alone: int
    behind: int
    launches: int  # For how long the host hands operations over.

    @property
    def idle(self) -> int:
        """Ticks for which the device waits for its host."""
        return max(0, self.behind - self.alone)

    def to_json(self) -> dict[str, int]:
        """Return it as a JSON value."""
        return {"makespan": self.behind, "idle": self.idle, "launches": self.launches}


def behind_host(certificate: Certificate) -> BehindHost | None:
    """Return both forecasts of a certificate's plan; None if the problem knows no launch times."""
    result, schedule = certificate.result, certificate.result.schedule
    launches = launch_times(certificate.problem, result.execution)
    if launches is None or not isinstance(schedule, Schedule):
        return None
    runs = certificate.executed
    plan = schedule.plan(runs.trace)
    try:
        alone = replay(runs, plan).makespan
        behind = replay(runs, plan, tuple(accumulate(launches))).makespan
    except PlanError:
        # The schedule is none; whoever verifies it says why.
        return None
    return BehindHost(alone, behind, sum(launches))


def host_said(certificate: Certificate) -> str | None:
    """Return the time of a step with its host's part for people; None if that is not known."""
    found, units = behind_host(certificate), certificate.problem.units
    if found is None:
        return None
    behind = format_time(found.behind, units)
    if found.idle:
        return f"{behind}; host-bound: {format_time(found.idle, units)} of {behind} idle"
    return f"{behind}; it is never waited for"


def host_lines(certificate: Certificate) -> list[str]:
    """Return the time of a step with its host's part as a line, if it is known."""
    said = host_said(certificate)
    return [] if said is None else [f"  with host    {said}"]


def robust_summary(
    certificate: Certificate, checked: list[CheckedBound] | None = None
) -> dict[str, Any]:
    """Return objective and bounds for the whole box as JSON values in ticks, if there is one."""
    claim = certificate.robust
    if claim is None:
        return {}
    return {
        "robust": {
            "objective": claim.objective,
            "lower_bound": claim.lower_bound,
            "gap": claim.gap,
            **({} if checked is None else {"bounds": checked_bounds(checked)}),
        }
    }


def band_text(certificate: Certificate) -> str:
    """Return for people from what to what a step may take anywhere in the box."""
    claim, units = certificate.robust, certificate.problem.units
    assert claim is not None
    return f"{format_time(claim.lower_bound, units)} to {format_time(claim.objective, units)}"


def robust_lines(certificate: Certificate) -> list[str]:
    """Return lines about objective and gap in the whole box for people; none without a box."""
    claim = certificate.robust
    if claim is None:
        return []
    fast, slow = (
        certificate.problem.corner(fastest=fastest).trace.compute_time for fastest in (True, False)
    )
    return [
        f"  uncertain    {band_text(certificate)}, whatever the times in the box are",
        f"  robust gap   {format_gap(claim.gap)} (of computing alone: "
        f"{format_gap(relative_gap(slow, fast))})",
    ]


BAND = "#b07aa1"
# Pixels of the margin above. Arbitrary.
_TOP = 52


def latest_end(certificate: Certificate) -> int:
    """Return the ticks of the plan at the slowest corner of the box; 0 without a box."""
    return 0 if certificate.robust is None else certificate.robust.objective


def draw_band(root: Element, frame: Axes, certificate: Certificate) -> None:
    """Draw from where to where a step may end: behind everything, nothing without a box."""
    claim = certificate.robust
    if claim is None:
        return
    left, right = frame.x(claim.lower_bound), frame.x(claim.objective)
    band = element(
        root,
        "rect",
        class_="uncertain",
        x=left,
        y=_TOP,
        width=max(right - left, 1.0),
        height=frame.bottom - _TOP,
        fill=BAND,
        fill_opacity=0.16,
    )
    text = f"uncertain times: {band_text(certificate)}"
    element(band, "title", text)
    look = {"fill": BAND, "font_weight": "600", "stroke": "#ffffff", "stroke_width": 3}
    place = {"x": right - 4, "y": _TOP - 6, "text_anchor": "end", "paint_order": "stroke"}
    element(root, "text", text, **look, **place)
