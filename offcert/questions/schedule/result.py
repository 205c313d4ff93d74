"""`Result`: the schedule that a method found, and its bounds; and the options of every search."""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.messages import cut, short_repr
from offcert.core.notebook import Shown, html
from offcert.core.options import require_count, require_gap, require_seconds, require_seed
from offcert.core.result import Bound, Bounded, Infeasibility, SolveStatus
from offcert.core.units import Units, format_size, format_time
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.questions.schedule.schedule import FluidSchedule, Schedule


@dataclass(frozen=True)
class Result(Bounded):
    """The result of a method.

    Attributes
    ----------
    status : SolveStatus
        Whether the schedule is optimal, or none exists.
    schedule : Schedule, FluidSchedule or None
        The best schedule found; its transfers are in pieces only if the problem allows that.
    bounds : tuple of Bound
        Every lower bound established on the way.
    runtime : float
        Seconds.
    infeasibility : Infeasibility or None
        Set if the status is ``INFEASIBLE``.
    execution : Execution or None
        The execution that is scheduled, where the problem lets computations run again.
    memory : int or None
        Bytes within which the schedule stays: the objective where memory is minimised, else None.
    minimise : Minimise
        The objective that is bounded: time or memory.
    """

    status: SolveStatus
    schedule: Schedule | FluidSchedule | None
    bounds: tuple[Bound, ...] = ()
    runtime: float = 0.0
    infeasibility: Infeasibility | None = None
    execution: Execution | None = None
    memory: int | None = None
    minimise: Minimise = Minimise.TIME

    def __repr__(self) -> str:
        return f"<Result {self.summary()}>"

    def _repr_html_(self) -> str:
        rows = sorted(self.bounds, key=lambda bound: -bound.value)
        table = ((f"{bound.value}", bound.method, str(bound.evidence)) for bound in rows)
        return html(Shown(self.summary(), (), ("lower bound", "method", "evidence"), table))

    def summary(self, units: Units | None = None) -> str:
        """Return status, makespan, bound and gap in a line for people.

        Parameters
        ----------
        units : Units, optional
            The problem's; by default ticks and units.
        """
        units = units or Units()
        if self.infeasibility is not None:
            # The lacking amount has the unit of the limit.
            limited = format_size if self.minimise is Minimise.TIME else format_time
            lacking = limited(self.infeasibility.lacking, units)
            return f"{self.status}: {cut(self.infeasibility.name)} lacks {lacking}"
        form = format_time if self.minimise is Minimise.TIME else format_size
        least = form(self.lower_bound, units, self.objective)
        bound = f"lower bound {least} ({self.evidence or 'none'})"
        if self.objective is None:
            return f"{self.status}: no schedule, {bound}"
        value = form(self.objective, units, self.lower_bound)
        if self.status is SolveStatus.OPTIMAL:
            return f"{self.status}: {value} ({self.evidence or 'no bound'})"
        return f"{self.status}: {value}, {bound}, gap {100 * self.gap:.3g} %"

    @property
    def objective(self) -> int | None:
        """Makespan of the schedule in ticks, or its bytes where these are minimised; or None."""
        if self.schedule is None or self.minimise is Minimise.MEMORY:
            return self.memory
        return self.schedule.makespan


def require_problem(value: object) -> Problem:
    """Return a problem if it is one."""
    if not isinstance(value, Problem):
        raise InputError(
            f"problem must be a Problem, as read_problem and profile return, not "
            f"{short_repr(value)}"
        )
    return value


def require_search(
    problem: object, time_limit: object, workers: object, target_gap: object, seed: object
) -> tuple[float, int, float, int]:
    """Return the checked options of a search: time limit, workers, target gap and seed."""
    require_problem(problem)
    return (
        require_seconds(time_limit, "time_limit"),
        require_count(workers, "workers"),
        require_gap(target_gap, "target_gap"),
        require_seed(seed, "seed"),
    )
