"""The papers' algorithms, the exact models and the certified bound, side by side on one problem."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from offcert.certification.ladder import certify
from offcert.certification.methods import METHODS, solve
from offcert.certification.search import SearchProgress, chooses_execution
from offcert.core.errors import InputError, MethodError
from offcert.core.messages import aligned
from offcert.core.result import Evidence
from offcert.core.units import format_gap
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, format_objective

CERTIFY = "certify"
# The offloading paper's algorithms, then models that are exact for some transfers.
ROWS = (
    "dynprog",
    "greedy",
    "pure-cpsat",
    "pure-milp",
    "time-indexed-cpsat",
    "time-indexed-milp",
    "interval-cpsat",
    "pivot",
    "fluid-exact",
    CERTIFY,
)


@dataclass(frozen=True)
class MethodRow:
    """The schedule and the bound that one method found."""

    method: str  # Its name; ``"certify"`` for the search that combines all others
    value: int | None  # Ticks of the schedule that it found; None if it found none
    bound: int | None  # Ticks of its own lower bound; None if it has none
    # ``"OPTIMAL"``, ``"FEASIBLE"``, ``"UNKNOWN"``, ``"INFEASIBLE"`` or ``"does not apply"``.
    status: str
    seconds: float  # How long it took
    note: str = ""  # Why it does not apply or found nothing; empty if it did


@dataclass(frozen=True)
class MethodComparison:
    """Methods side by side on one problem."""

    problem: Problem  # The problem
    rows: tuple[MethodRow, ...]  # One a method
    proved: int  # Ticks: the largest proved lower bound

    @property
    def best(self) -> int | None:
        """Ticks of the shortest schedule that any method found."""
        return min((row.value for row in self.rows if row.value is not None), default=None)

    def gap(self, row: MethodRow) -> Fraction | None:
        """Return how much longer than the proved bound a method's schedule is, as a share of it."""
        if row.value is None or not self.proved:
            return None
        return Fraction(row.value - self.proved, self.proved)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        rows = [asdict(row) | {"gap": _float(self.gap(row))} for row in self.rows]
        return {
            "problem": self.problem.name,
            "memory": self.problem.platform.memory,
            "transfers": str(self.problem.transfers),
            "best": self.best,
            "proved": self.proved,
            "rows": rows,
        }

    def text(self) -> str:
        """Return the comparison as a table for people."""
        lines = [["method", "step time", "own bound", "gap", "status", "seconds"]]
        for row in self.rows:
            gap = self.gap(row)
            lines.append(
                [
                    row.method,
                    self._time(row.value),
                    self._time(row.bound),
                    "-" if gap is None else format_gap(float(gap)),
                    row.status,
                    f"{row.seconds:.2f}",
                ]
            )
        notes = [f"{row.method}: {row.note}" for row in self.rows if row.note]
        return "\n".join([aligned(lines), "", self._gaps(), *notes])

    def _gaps(self) -> str:
        lacking = infeasibility(self.problem)
        if lacking is not None:
            return f"there is no schedule: {lacking.name} lacks {lacking.lacking} bytes"
        optimal = self.best is not None and self.best == self.proved
        said = "the optimum" if optimal else "the largest proved lower bound"
        return f"gaps are to {said}, {self._time(self.proved)}"

    def _time(self, ticks: int | None) -> str:
        return "-" if ticks is None else format_objective(ticks, self.problem)


def compare_exactly(
    problem: Problem,
    *,
    time_limit: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    progress: Callable[[SearchProgress], None] | None = None,
) -> MethodComparison:
    """Run the papers' algorithms, the exact models and `certify` on one problem.

    Nothing runs again in the problem, and time is least. Every method has `time_limit` seconds;
    after an interrupt, the result is of the methods so far.
    """
    if chooses_execution(problem):
        raise InputError(
            "exact compares methods for problems that only move tensors in the least time; "
            f"this one has recompute {problem.recompute} and minimises {problem.minimise}; "
            "--recompute none asks for them"
        )
    effort = {"time_limit": time_limit, "workers": workers, "seed": seed, "progress": progress}
    rows, proved = [], 0
    for name in ROWS:
        began = time.monotonic()
        try:
            certificate = _run(problem, name, effort)
        except (InputError, MethodError) as error:
            rows.append(MethodRow(name, None, None, "does not apply", 0.0, str(error)))
            continue
        rows.append(_row(name, certificate, time.monotonic() - began))
        bounds = certificate.result.bounds
        proved = max(proved, *(b.value for b in bounds if b.evidence is Evidence.PROVED), 0)
        if certificate.notes.interrupted:
            rows[-1] = replace(rows[-1], note="interrupted, and so were those that follow")
            break
    return MethodComparison(problem, tuple(rows), proved)


def _run(problem: Problem, name: str, effort: dict[str, Any]) -> Certificate:
    if name == CERTIFY:
        return certify(problem, **effort)
    misfit = METHODS[name].misfit(problem)
    if misfit is not None:
        raise MethodError(misfit)
    return solve(problem, name, **effort)


def _row(name: str, certificate: Certificate, seconds: float) -> MethodRow:
    result = certificate.result
    own = METHODS[name].bounds if name != CERTIFY else None
    bounds = [b.value for b in result.bounds if own is None or b.method in own]
    return MethodRow(
        name,
        result.objective,
        max(bounds, default=None),
        str(result.status),
        round(seconds, 3),
        certificate.notes.no_plan or "",
    )


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
