"""The state of a search on several devices: the best schedule, the bounds, the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offcert.certify.running import Running, SearchProgress
from offcert.core.devices.check import check_devices
from offcert.core.devices.problem import DevicesProblem
from offcert.core.devices.schedule import DevicesSchedule
from offcert.core.result import Bound
from offcert.proofs.devices_bounds import DEVICE
from offcert.proofs.devices_certificate import DevicesCertificate


class DevicesSearch(Running[DevicesCertificate]):
    """Collects schedules and bounds; every schedule passes the checker before it counts.

    Parameters
    ----------
    problem : DevicesProblem
        What is being solved.
    time_limit : float
        Seconds.
    progress : callable, optional
        Told of every improvement and every step.
    keep : callable, optional
        Given the search before every step, and about every second when something new is known.

    Attributes
    ----------
    schedule : DevicesSchedule or None
        The shortest one.
    found_by : str
        What found it, in words.
    alone : Bound or None
        A proved bound for the step of one device with the link to itself.
    """

    def __init__(
        self,
        problem: DevicesProblem,
        time_limit: float,
        progress: Callable[[SearchProgress], None] | None = None,
        keep: Callable[[DevicesSearch], None] | None = None,
    ) -> None:
        super().__init__(time_limit, progress, None if keep is None else lambda: keep(self))
        self.problem = problem
        self.schedule: DevicesSchedule | None = None
        self.alone: Bound | None = None
        self.found_by = ""

    @property
    def objective(self) -> int | None:
        """Makespan of the best schedule, in ticks."""
        return None if self.schedule is None else self.schedule.makespan

    @property
    def done(self) -> bool:
        """Whether the schedule is as short as the best bound."""
        return self.objective is not None and self.objective <= self.lower_bound

    def add(self, bound: Bound) -> None:
        """Record a lower bound; one for a single device takes the place of the one before."""
        if bound.method == DEVICE:
            self.bounds = [each for each in self.bounds if each.method != DEVICE]
        super().add(bound)

    def offer(self, schedule: DevicesSchedule, found_by: str) -> bool:
        """Take a schedule if it is shorter.

        Raises
        ------
        UnsoundError
            If it is none of the problem, or shorter than a proved lower bound.
        """
        if not self._admits(schedule.makespan, lambda: check_devices(self.problem, schedule)):
            return False
        self.schedule, self.found_by = schedule, found_by
        return self._took()

    def _certificate(self, **origin: Any) -> DevicesCertificate:
        bounds = tuple(self.bounds)
        return DevicesCertificate(
            self.problem, self.schedule, bounds, self.alone, self.found_by, **origin
        )
