"""Proofs by counting: what a sum of rows says of small programs, checked, and never too much."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import pytest

import offcert
from offcert_lab.checkers.counting import export_counted
from support.oracles.pbp import ProofError, proved_of
from support.oracles.schedules import brute_force
from support.problems.random_instances import mixed_problem
from support.problems.running_example import EXAMPLE


def test_sums_of_rows_prove_no_more_than_brute_force_finds() -> None:
    """Of cells that round nothing, and of those that round down; some are the optimum."""
    reached = above = 0
    for seed in range(9000, 9012):
        problem = mixed_problem(seed, largest=3)
        best = brute_force(problem)
        assert best is not None
        for grid in (1, 3):
            made = export_counted(problem, grid=grid)
            cells = proved_of(made.files[".opb"], made.files[".pbp"])
            assert made.least == cells * grid + problem.trace.durations[-1] <= best
            reached += grid == 1 and made.least == best
            above += made.least > problem.trace.compute_time
    assert reached > 5
    assert above > 5


FORGERIES = {
    "a larger bound": (r"BOUNDS (\d+)", lambda m: f"BOUNDS {int(m[1]) + 1}", "does not say"),
    "a factor": (r"pol (\d+) (\d+)", lambda m: f"pol {m[1]} {int(m[2]) + 9}", "does not say"),
    "a row": (r"pol (\d+) (\d+)", lambda m: f"pol 99999 {m[2]}", "no constraint 99999"),
    "another number of rows": (r"f (\d+)", lambda m: f"f {int(m[1]) + 1}", "constraints, not"),
    "an operand": (r" \+ (\d+ d)", lambda m: f" + + {m[1]}", "lacks an operand"),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_what_was_changed_is_refused(what: str) -> None:
    made = export_counted(EXAMPLE, grid=1)
    opb, proof = made.files[".opb"], made.files[".pbp"]
    assert proved_of(opb, proof) + 1 == made.least
    pattern, change, message = FORGERIES[what]
    changed = re.sub(pattern, change, proof, count=1)
    assert changed != proof
    with pytest.raises(ProofError, match=message):
        proved_of(opb, changed)


def test_what_counting_cannot_say() -> None:
    faster = replace(EXAMPLE, platform=offcert.Platform(6, Fraction(3)))
    made = export_counted(faster, grid=1)
    assert made.least <= offcert.certify(faster, time_limit=5).result.lower_bound
