"""What the steps that search by themselves say of their bounds."""

from __future__ import annotations

from offcert.certification.methods import solve
from offcert.core.result import Evidence
from offcert.verification.document import verify
from support.problems.random_instances import random_problem


def test_matched_bounds_that_heads_and_tails_alone_reach_are_proved() -> None:
    """Then no level was searched, and verification needs none."""
    alone = 0
    for seed in (7, 10, 12, 17, 22):
        certificate = solve(random_problem(seed, 6, 3), "matched-heads", time_limit=60.0)
        found = [bound for bound in certificate.result.bounds if bound.method == "matched-heads"]
        assert all(bound.evidence is Evidence.PROVED for bound in found)
        assert verify(certificate.to_json()).valid
        alone += any(not bound.details["levels"] for bound in found)
    assert alone > 3
