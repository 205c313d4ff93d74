"""Bounds on pools above the load that `verify` establishes."""

import json
from dataclasses import replace

import pytest

import offcert
from offcert.certification.placing import place
from offcert.certification.search_steps import placement as placement_subset
from offcert.core.result import Evidence, SolveStatus
from offcert.proofs.placement_certificate import PLACEMENT_PROOFS
from offcert.verification.findings import recheck
from offcert.verification.limits import UNLIMITED
from support.problems.tight_placements import tight_problem

# Seeds of `tight_problem` whose least pool is one above their load.
ABOVE_LOAD = (1042, 1734, 3607)


@pytest.mark.parametrize("seed", ABOVE_LOAD)
def test_the_default_method_proves_what_is_above_the_load(seed: int) -> None:
    problem = tight_problem(seed)
    placed = place(problem, time_limit=20, workers=1)
    assert placed.result.status is SolveStatus.OPTIMAL
    assert placed.result.pool == problem.load + 1
    verification = offcert.verify(json.loads(json.dumps(placed.to_json())))
    assert verification.valid, verification.faults
    assert verification.evidence is Evidence.PROVED
    infeasible = place(problem, time_limit=20, workers=1, capacity=problem.load)
    assert infeasible.result.status is SolveStatus.INFEASIBLE
    assert offcert.verify(infeasible).evidence is Evidence.PROVED


def test_one_unit_more_is_refused() -> None:
    problem = tight_problem(ABOVE_LOAD[0])
    (bound,) = place(problem, "infeasible-subset", time_limit=20).result.bounds
    assert recheck(bound, problem, UNLIMITED.begin(), PLACEMENT_PROOFS) is None
    more = replace(bound, value=bound.value + 1)
    said = recheck(more, problem, UNLIMITED.begin(), PLACEMENT_PROOFS)
    assert said is not None
    assert "they fit into" in said


def test_what_verification_would_not_establish_is_not_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = tight_problem(ABOVE_LOAD[0])
    monkeypatch.setattr(placement_subset, "recheck", lambda *_: "too hard")
    assert place(problem, "infeasible-subset", time_limit=20).result.bounds == ()
