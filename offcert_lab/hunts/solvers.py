"""A hunt for solvers that are wrong: random small problems, solved by others and proved by us."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from offcert.certification.interrupts import mind_interrupt
from offcert.certification.ladder import certify
from offcert.core.documents import write_json
from offcert.core.platform import Link
from offcert.formulations.common.linear_solvers import CPSAT, DEFAULT, SCIPY, solve_linear
from offcert.formulations.exported.cells import Cells, Keeps
from offcert.formulations.exported.integer_program import CellModel, lp, mps
from offcert.instances.cnn import UniformChains
from offcert.questions.schedule.files import write_problem
from offcert.questions.schedule.problem import Problem

# Stages, and per cent of memory above the least, of what is drawn. Arbitrary.
_STAGES = (1, 2, 3)
_PERCENT = 60
# Seconds that each solver gets, and that proving gets. Arbitrary.
_SECONDS = 10.0

SOLVERS = {"HiGHS": SCIPY, "CBC": DEFAULT, "CP-SAT": CPSAT}
# A bound that is so little above an integer means it: tolerances of linear solvers. Assumed.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Claim:
    """The word of a solver on the start of the last operation, in cells."""

    solver: str  # A key of `SOLVERS`.
    least: int | None  # No start is earlier; None if it says nothing, or that there is no solution.
    found: int | None  # The start in its best solution.
    infeasible: bool  # Whether it says that there is no solution.
    statistics: dict[str, Any]  # Its own words; JSON values.


def claim_of(model: CellModel, solver: str, seconds: float) -> Claim:
    """Return a solver's claim about a program within a time limit, in seconds."""
    linear = model.model
    answer = solve_linear(linear, SOLVERS[solver], time_limit=seconds)
    constant = model.data.operations[-1].last
    known = not answer.infeasible and answer.bound > float("-inf")
    least = -int(-(answer.bound + constant - _TOLERANCE) // 1) if known else None
    found = None
    if answer.values is not None:
        pairs = zip(linear.cost, answer.values, strict=True)
        found = round(constant + sum(cost * value for cost, value in pairs))
    return Claim(solver, least, found, answer.infeasible, answer.statistics)


@dataclass(frozen=True)
class Contradiction:
    """Claims about one problem that cannot all be true."""

    problem: Problem
    faults: tuple[str, ...]  # The contradictions, in sentences.
    claims: tuple[Claim, ...]  # Of all solvers.
    # Ticks: the bound that is proved, and a schedule that the checker has passed.
    proved: int
    attained: int | None

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return {
            "problem": self.problem.name,
            "faults": list(self.faults),
            "proved_bound": self.proved,
            "attained": self.attained,
            "claims": [vars(claim) for claim in self.claims],
        }


@dataclass(frozen=True)
class SolverHunt:
    """The findings of a hunt."""

    problems: int  # How many were solved, the first with the seed of the hunt.
    closed: dict[str, int]  # By solver, how many it says that it has solved to the end.
    contradictions: tuple[Contradiction, ...]
    seconds: float  # How long it took.


def drawn(seed: int) -> Problem:
    """Return a random small problem: short durations, small sizes, either link."""
    rng = random.Random(f"solvers {seed}")
    chains = UniformChains(stages=rng.choice(_STAGES), size=5, time=4)
    problem = chains.problem(seed)
    memory = f"{rng.randrange(_PERCENT)}%"
    platform = replace(problem.platform, link=rng.choice(tuple(Link)))
    return replace(problem, name=f"solvers-{seed}", platform=platform).with_memory(memory)


def examined(
    problem: Problem,
    solvers: Sequence[str] = tuple(SOLVERS),
    claimed: Callable[[CellModel, str, float], Claim] = claim_of,
) -> tuple[tuple[Claim, ...], Contradiction | None]:
    """Return solvers' claims about a problem, and a contradiction among them and our proofs.

    All get the very same program, which is exact: cells of one tick.
    """
    certificate = certify(problem, time_limit=_SECONDS)
    mind_interrupt(certificate)
    result = certificate.result
    proved, attained = result.proved_bound, result.objective
    horizon = attained if attained is not None else problem.trace.compute_time
    model = CellModel(problem, Cells(1, Keeps.BOUND, horizon))
    last = problem.trace.durations[-1]
    claims = tuple(claimed(model, solver, _SECONDS) for solver in solvers)
    faults = []
    for claim in claims:
        if claim.infeasible and attained is not None:
            faults.append(f"{claim.solver} says that there is no schedule; one takes {attained}")
        if claim.least is not None and attained is not None and claim.least + last > attained:
            faults.append(
                f"{claim.solver} says that none is shorter than {claim.least + last}; one takes "
                f"{attained}"
            )
        if claim.found is not None and claim.found + last < proved:
            faults.append(
                f"{claim.solver} has a solution of {claim.found + last}; none is shorter than "
                f"{proved}, which is proved"
            )
    found = Contradiction(problem, tuple(faults), claims, proved, attained) if faults else None
    return claims, found


def hunt_solvers(
    *,
    seed: int = 0,
    problems: int | None = None,
    seconds: float | None = None,
    folder: str | Path | None = None,
    progress: Callable[[SolverHunt], None] | None = None,
) -> SolverHunt:
    """Solve random small problems with others' solvers, until a number or a time is reached.

    Parameters
    ----------
    seed : int
        Seed of the first problem; those that follow have the numbers that follow.
    problems : int, optional
        How many; by default as the time allows.
    seconds : float, optional
        How long; by default as the number says. An interrupt ends the hunt, too.
    folder : str or Path, optional
        Where contradictions are kept: the problem, the program as LP and MPS, and the claims with
        what each solver said.
    progress : callable, optional
        Told after every problem.
    """
    began = time.monotonic()
    closed = dict.fromkeys(SOLVERS, 0)
    found: list[Contradiction] = []
    done = 0

    def known() -> SolverHunt:
        return SolverHunt(done, dict(closed), tuple(found), time.monotonic() - began)

    try:
        while (problems is None or done < problems) and (
            seconds is None or time.monotonic() - began < seconds
        ):
            claims, wrong = examined(drawn(seed + done))
            done += 1
            for claim in claims:
                closed[claim.solver] += claim.least is not None and claim.least == claim.found
            if wrong is not None:
                found.append(wrong)
                if folder is not None:
                    keep(wrong, Path(folder))
            if progress is not None:
                progress(known())
    except KeyboardInterrupt:
        pass
    return known()


def keep(found: Contradiction, folder: Path) -> None:
    """Write a contradiction with all that it takes to see it again."""
    folder.mkdir(parents=True, exist_ok=True)
    problem = found.problem
    stem = folder / problem.name
    write_problem(stem.with_suffix(".json"), problem)
    write_json(folder / f"{problem.name}-claims.json", found.to_json())
    horizon = found.attained or problem.trace.compute_time
    program = CellModel(problem, Cells(1, Keeps.BOUND, horizon)).program()
    for form, lines in ((".lp", lp), (".mps", mps)):
        stem.with_suffix(form).write_text("\n".join(lines(program)) + "\n", encoding="utf-8")
