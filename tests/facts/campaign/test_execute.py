"""One cell: what its row says, and what must have been verified before it says it."""

from fractions import Fraction
from typing import Any

import pytest

from offcert.campaign import run as module
from offcert.campaign.cells import Cell, CellSettings, Point
from offcert.campaign.run import execute, warm_up
from offcert.core.result import Bound, Evidence
from offcert.instances.cnn import cnn_chain
from offcert.instances.library import load
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import verify


def cell(method: str, problem: Problem | None = None, **settings: Any) -> Cell:
    if problem is None:
        base = cnn_chain(8, 2)
        problem = base.with_memory(base.memory_at(Fraction(1, 5)))
    return Cell(Point("p", problem, "d"), method, CellSettings(**({"time_limit": 5.0} | settings)))


def test_certify_has_bounds_and_a_certificate_that_holds() -> None:
    facts, document = execute(cell("certify"))
    assert document is not None
    assert verify(document).valid
    assert facts["status"] == "OPTIMAL"
    assert facts["makespan"] == facts["lower_bound"] == facts["proved_bound"]
    assert facts["evidence"] == "proved"
    assert document["settings"]["workers"] == 1


def test_a_heuristic_claims_no_bound() -> None:
    facts, document = execute(cell("greedy"))
    assert document is None
    assert facts.keys() == {"status", "makespan", "seconds"}
    best, _ = execute(cell("certify"))
    assert facts["makespan"] >= best["lower_bound"]


def test_an_exact_method_has_a_bound_but_no_certificate() -> None:
    facts, document = execute(cell("pivot"))
    assert document is None
    assert facts["lower_bound"] == facts["makespan"]
    assert "proved_bound" not in facts
    bound, _ = execute(cell("bounds"))
    assert bound["makespan"] is None
    assert bound["status"] == "UNKNOWN"
    assert 0 < bound["lower_bound"] <= facts["makespan"]


def test_an_infeasible_limit_is_a_result() -> None:
    problem = cnn_chain(8, 2)
    lacking = problem.with_memory(problem.trace.least_memory - 1)
    for method in ("certify", "greedy", "pivot"):
        facts, document = execute(cell(method, lacking))
        assert facts["status"] == "INFEASIBLE"
        assert facts["makespan"] is None
        assert "lower_bound" not in facts
        assert (document is not None) == (method == "certify")


def test_no_plan_has_its_reason() -> None:
    problem = cnn_chain(8, 0)
    facts, _ = execute(cell("dynprog", problem.with_memory(problem.trace.least_memory)))
    assert facts["status"] == "NO_PLAN"
    assert facts["reason"].startswith("DYNPROG found no plan")
    assert facts["makespan"] is None


@pytest.mark.parametrize(
    ("method", "name", "reason"),
    [
        ("vdnn-conv", "cnn-8-0-m0", "no name of a stage says so"),
        ("pivot", "two-partition-8-yes-interruptible", "needs atomic transfers"),
        ("fluid-ordered", "cnn-8-0-m0", "needs interruptible or fractional transfers"),
    ],
)
def test_a_method_that_does_not_apply_finds_no_plan(method: str, name: str, reason: str) -> None:
    facts, _ = execute(cell(method, load(name)))
    assert facts["status"] == "NO_PLAN"
    assert reason in facts["reason"]


@pytest.mark.parametrize("method", ["certify", "pivot"])
def test_a_bound_that_does_not_verify_fails(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Certificate.to_json

    def lie(self: Certificate) -> dict[str, Any]:
        for bound in self.result.bounds:
            object.__setattr__(bound, "value", bound.value + 1)
        return honest(self)

    target = cell(method)
    execute(target)
    monkeypatch.setattr(Certificate, "to_json", lie)
    facts, document = execute(target)
    assert facts["status"] == "FAILED"
    assert facts["reason"].startswith("the certificate does not verify: ")
    assert "lower_bound" not in facts
    assert document is None


def test_the_evidence_is_what_verification_says(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = module.certify

    def claiming(problem: Problem, **settings: Any) -> Certificate:
        certificate = honest(problem, **settings)
        claim = Bound("stage-milp", certificate.result.bounds[0].value, Evidence.ATTESTED)
        weaker = [b for b in certificate.result.bounds if b.value < certificate.result.lower_bound]
        best = Bound(claim.method, certificate.result.lower_bound, Evidence.ATTESTED)
        object.__setattr__(certificate.result, "bounds", (*weaker, best))
        return certificate

    monkeypatch.setattr(module, "certify", claiming)
    base = cnn_chain(8, 2)
    facts, _ = execute(cell("certify", base.with_memory(base.memory_at(Fraction(1, 5)))))
    assert facts["evidence"] == "attested"
    assert facts["proved_bound"] < facts["lower_bound"]


def test_what_is_compiled_first_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    monkeypatch.setattr(module, "warm_up", lambda method: order.append(f"warm {method}"))

    def noting(problem: Problem, method: str, **settings: Any) -> Certificate:
        order.append(method)
        return module.certify(problem, **settings)

    monkeypatch.setattr(module, "solve", noting)
    execute(cell("greedy"))
    assert order == ["warm greedy", "greedy"]


def test_warming_up_moves_something(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []

    def noting(problem: Problem, plan: Plan) -> Schedule:
        plans.append(plan)
        return simulate(problem, plan)

    monkeypatch.setattr("offcert.certification.plan_methods.simulate", noting)
    warm_up.__wrapped__("greedy")
    assert plans[0].moves
