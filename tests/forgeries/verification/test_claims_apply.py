"""A solver's claim counts only for problems that what it solved is about."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.platform import Platform
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.proofs.certificate import Certificate
from offcert.proofs.registry import CLAIMS
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers
from offcert.questions.schedule.result import Result
from offcert.verification.document import verify

CHAIN = CheckpointChain([2, 1, 3], [2, 2, 3], [4, 6, 5, 2])
ONCE = Problem("once", CHAIN.network().trace(), Platform(40, Fraction(1)))
AGAIN = Problem("again", CHAIN, Platform(40, Fraction(1)), recompute=Recompute.ANY)
# Problems, and which methods' claims are bounds for them.
FLUID = {"fluid-milp", "fluid-exact"}
ATOMIC = FLUID | {"stage-milp", "time-indexed-cpsat", "time-indexed-milp"}
ATOMIC |= {"interval-cpsat"}
PURE = {"pure-cpsat", "pure-milp"}
ALONE = {"retention-cpsat", "recompute-stages"}
CASES = {
    "once": (ONCE, ATOMIC | PURE),
    "once, in pieces": (replace(ONCE, transfers=Transfers.INTERRUPTIBLE), FLUID | PURE),
    "in parts": (replace(ONCE, transfers=Transfers.FRACTIONAL), {"fluid-exact"}),
    "both": (AGAIN, {"joint-stages"}),
    "alone": (replace(AGAIN, offload=False), ALONE | {"joint-stages"}),
    "bytes alone": (
        replace(AGAIN, offload=False, minimise=Minimise.MEMORY),
        {f"{name}-memory" for name in ALONE},
    ),
    "bytes of both": (replace(AGAIN, minimise=Minimise.MEMORY), set()),
}


def faults_of(problem: Problem, method: str, evidence: Evidence = Evidence.ATTESTED) -> list[str]:
    """Return what is wrong with a certificate that holds a claim alone."""
    families = CLAIMS[method].families
    bounds = [Bound(method, 1, evidence, {"solver": families[0]})]
    result = Result(SolveStatus.UNKNOWN, None, tuple(bounds))
    return verify(Certificate(problem, result, method="test").to_json()).faults


def test_the_cases_name_every_claim_once_at_least() -> None:
    assert set().union(*(methods for _, methods in CASES.values())) == set(CLAIMS)


@pytest.mark.parametrize("method", CLAIMS)
@pytest.mark.parametrize("case", CASES)
def test_a_claim_is_refused_where_it_is_no_bound(case: str, method: str) -> None:
    problem, methods = CASES[case]
    faults = faults_of(problem, method)
    if method in methods:
        assert faults == []
    else:
        (fault,) = faults
        assert fault.startswith(f"bounds[0] ({method}): ")
        assert "is no bound" in fault or "the problem minimises" in fault


def test_two_solvers_do_not_make_it_one() -> None:
    bounds = [
        Bound("retention-cpsat", 1, Evidence.CROSS_ATTESTED, {"solver": "CP-SAT"}),
        Bound("recompute-stages", 1, Evidence.CROSS_ATTESTED, {"solver": "HiGHS"}),
    ]
    for problem, count in ((AGAIN, 2), (replace(AGAIN, offload=False), 0)):
        result = Result(SolveStatus.UNKNOWN, None, tuple(bounds))
        assert len(verify(Certificate(problem, result, method="test").to_json()).faults) == count


def test_a_proof_that_took_too_long_is_no_bound_elsewhere_either() -> None:
    """Solvers may claim what is otherwise proved, for the same problems."""
    claim = Bound("fluid-milp", 1, Evidence.ATTESTED, {"solver": "HiGHS"})
    for problem, wrong in ((ONCE, 0), (AGAIN, 1)):
        result = Result(SolveStatus.UNKNOWN, None, (claim,))
        assert len(verify(Certificate(problem, result, method="test").to_json()).faults) == wrong
