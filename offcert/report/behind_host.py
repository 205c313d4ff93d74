"""The forecast of a plan if its host takes as long to hand operations over as was measured.

A certificate is about the device: its bounds hold whatever the host does, and its schedule is what
happens if the host is ahead. Where the problem knows launch times, both forecasts are said.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from offcert.core.errors import PlanError
from offcert.core.units import format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.launches import launch_times
from offcert.questions.schedule.schedule import Schedule
from offcert.verify.replay import replay


@dataclass(frozen=True)
class BehindHost:
    """A plan's times on its device alone and behind its host, in ticks.

    Attributes
    ----------
    alone, behind : int
        The makespans.
    launches : int
        For how long the host hands operations over.
    """

    alone: int
    behind: int
    launches: int

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
    """Return a line that says so, if it is known."""
    said = host_said(certificate)
    return [] if said is None else [f"  with host    {said}"]
