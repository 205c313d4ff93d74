"""Placement problems drawn at random, and certificates of schedules drawn at random."""

from __future__ import annotations

import random
from collections.abc import Iterator

from offcert.core.result import SolveStatus
from offcert.proofs.certificate import Certificate
from offcert.questions.placement.problem import PlacementProblem, Residence
from offcert.questions.schedule.check import check
from offcert.questions.schedule.result import Result
from support.problems.schedules import cases


def random_placement_problem(
    seed: int, most: int = 12, span: int = 12, capacity: int | None = None
) -> PlacementProblem:
    """Return residences that begin and end anywhere; the same for the same arguments."""
    rng = random.Random(f"placement {seed}")
    rows = []
    for index in range(rng.randint(1, most)):
        start = rng.randrange(span)
        end = start + rng.randint(1, max(1, span // 2))
        rows.append(Residence(f"r{index}", rng.choice((0, 1, 2, 3, 5, 8)), start, end))
    alignment = rng.choice((1, 1, 1, 2, 4))
    return PlacementProblem(f"random-{seed}", rows, capacity, alignment)


def scheduled(count: int, seed: int = 0, largest: int = 6) -> Iterator[Certificate]:
    """Yield certificates of valid schedules, without bounds."""
    for problem, schedule in cases(count, seed, largest):
        roomy = problem.with_memory(problem.trace.peak_memory)
        if not check(roomy, schedule) and schedule.makespan > 0:
            yield Certificate(roomy, Result(SolveStatus.FEASIBLE, schedule), method="test")
