"""Placement problems without slack: most of the time is filled up to one load."""

import random

from offcert.questions.placement.problem import PlacementProblem, Residence


def tight_problem(seed: int) -> PlacementProblem:
    """Return residences that fill nearly all of a rectangle, as far as loads say."""
    rng = random.Random(f"tight {seed}")
    sections, most, height = rng.randint(4, 9), rng.randint(12, 40), rng.randint(3, 9)
    loads = [0] * sections
    rows: list[Residence] = []
    for _ in range(400):
        start = rng.randrange(sections)
        end = min(sections, start + rng.randint(1, 5))
        size = rng.randint(1, min(6, height))
        if all(loads[each] + size <= height for each in range(start, end)):
            for each in range(start, end):
                loads[each] += size
            rows.append(Residence(f"r{len(rows)}", size, start, end))
        if len(rows) == most:
            break
    return PlacementProblem(f"tight-{seed}", rows)


def crowded_problem(seed: int) -> PlacementProblem:
    """Return more and longer residences, with a little slack here and there."""
    rng = random.Random(f"crowded {seed}")
    sections, height = 12, rng.randint(12, 20)
    loads = [0] * sections
    rows: list[Residence] = []
    for _ in range(600):
        start = rng.randrange(sections)
        end = min(sections, start + rng.randint(1, 7))
        size = rng.randint(2, 9)
        if all(loads[each] + size <= height - rng.randint(0, 1) for each in range(start, end)):
            for each in range(start, end):
                loads[each] += size
            rows.append(Residence("", size, start, end))
    return PlacementProblem(f"crowded-{seed}", rows)
