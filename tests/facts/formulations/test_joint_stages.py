"""Moving and running again in stages, by HiGHS: never above the optimum, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certification.methods import solve as solve_by
from offcert.core.computations import Computation, Value
from offcert.core.errors import MethodError
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.core.result import Evidence
from offcert.formulations.joint.stages import solve
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.verification.document import verify
from support.problems.joint import solvable


@pytest.mark.slow
def test_it_is_never_above_the_least_time_and_often_meets_it() -> None:
    asked = met = 0
    for problem, least in solvable(400):
        assert problem.computed is not None
        if any(value.base is not None for value in problem.computed.values):
            continue
        if least == problem.computed.compute_time:
            continue
        claim = solve(problem, 20)
        assert claim.error is None
        assert claim.value is not None
        assert problem.computed.compute_time <= claim.value <= least
        asked, met = asked + 1, met + (claim.value == least)
        if asked == 8:
            break
    assert met >= 4


def parts() -> Problem:
    """Return a problem in which one of two values stays, or both leave in part.

    S leaves room for 4 of 8 bytes that D reads; what makes them takes long.
    """
    network = Network(
        [
            Computation("A", 2, writes=(0,)),
            Computation("S", 1, workspace=4, repeatable=False),
            Computation("T", 1, workspace=4, repeatable=False),
            Computation("D", 9, reads=(0,), repeatable=False),
        ],
        [Value("x", 8)],
    )
    return Problem("parts", network, Platform(8, Fraction(1)), recompute=Recompute.ANY)


def test_a_value_is_made_again_as_a_whole() -> None:
    problem = parts()
    certificate = solve_by(problem, "joint-stages", time_limit=20)
    assert verify(certificate.to_json()).valid
    (bound,) = [b for b in certificate.result.bounds if b.method == "joint-stages"]
    # A runs twice: 13 ticks and 2 more. To leave for 8 ticks and to return would take 16.
    assert (bound.value, bound.evidence) == (15, Evidence.ATTESTED)
    assert solve_by(problem, "joint-labels", time_limit=20).result.objective == 15


def test_other_problems_are_refused_by_name() -> None:
    with pytest.raises(MethodError, match="atomic transfers, not interruptible"):
        solve(replace(parts(), transfers="interruptible"), 5)
    changed = Network(
        [Computation("A", 2, writes=(0,)), Computation("B", 1, reads=(0,), writes=(1,))],
        [Value("x", 8), Value("x'", 0, False, base=0)],
    )
    with pytest.raises(MethodError, match="change nothing in place"):
        solve(replace(parts(), network=changed), 5)
