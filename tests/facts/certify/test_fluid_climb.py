"""What a search takes from the fluid relaxation, and when it asks for more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from offcert.certify.methods import solve
from offcert.certify.search import Search
from offcert.certify.search_steps import fluid as fluid_climb
from offcert.core.result import Evidence
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.fluid.milp import FluidBound, fluid_bound
from offcert.formulations.fluid.tree import prove
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.simulate import simulate
from offcert.verify.document import verify
from support.problems.random_instances import FAMILIES, problem_on, seeded


def middling(seed: int) -> Problem:
    """A problem of up to 14 stages whose tree has more than one node."""
    rng = seeded(seed)
    problem = problem_on(rng, FAMILIES[seed % 5](rng, rng.randint(6, 14)), f"middling-{seed}")
    return replace(problem, transfers=Transfers.INTERRUPTIBLE)


@pytest.mark.parametrize("kind", tuple(Transfers))
def test_methods_give_proved_bounds_that_verify(kind: Transfers) -> None:
    for seed in (3, 26, 55):
        problem = replace(middling(seed), transfers=kind)
        linear, whole = (solve(problem, method) for method in ("fluid-lp", "fluid-milp"))
        for certificate in (linear, whole):
            assert verify(certificate.to_json()).faults == []
            assert all(b.evidence is Evidence.PROVED for b in certificate.result.bounds)
        values = {bound.method: bound.value for bound in whole.result.bounds}
        if kind is Transfers.FRACTIONAL:
            assert "fluid-milp" not in values
            assert values["fluid-lp"] == linear.result.bounds[-1].value
        else:
            required = required_absent(problem, kind is Transfers.ATOMIC)
            assert values["fluid-milp"] == fluid_bound(problem, required=required).value


def test_where_a_tree_takes_too_long_the_solvers_word_remains(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_time(problem: Problem, **options: Any) -> Any:
        return prove(problem, **options | ({"time_limit": 0.0} if "target" in options else {}))

    monkeypatch.setattr(fluid_climb, "prove", without_time)
    problem = middling(55)
    certificate = solve(problem, "fluid-milp")
    claims = [bound for bound in certificate.result.bounds if bound.method == "fluid-milp"]
    assert claims[-1].evidence is Evidence.ATTESTED
    assert claims[-1].value == fluid_bound(problem).value == prove(problem).value
    assert verify(certificate.to_json()).faults == []


def test_without_time_left_no_solver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fluid_climb, "fluid_bound", lambda *_, **__: pytest.fail("it was asked"))
    certificate = solve(middling(55), "fluid-milp", time_limit=1e-6)
    assert certificate.result.bounds[-1].method == "fluid-milp"
    assert verify(certificate.to_json()).faults == []


def test_an_interrupt_leaves_what_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    problem = middling(55)
    root = prove(problem, branching=False).value
    monkeypatch.setattr(fluid_climb, "fluid_bound", interrupt)
    certificate = solve(problem, "fluid-milp")
    assert certificate.notes.interrupted
    assert certificate.result.bounds[-1].value == root > problem.trace.compute_time
    assert verify(certificate.to_json()).faults == []


def test_no_more_is_asked_than_the_target_gap_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, asked = middling(55), []
    nothing = FluidBound(0, True, None, 0.0, {})
    monkeypatch.setattr(fluid_climb, "fluid_bound", lambda *_, **__: asked.append(1) or nothing)
    root = prove(problem, branching=False).value
    for gap, questions in ((0.5, 0), (0.0, 1)):
        asked.clear()
        search = Search(problem, 60, target_gap=gap)
        search.offer(simulate(problem, sequential(problem)))
        assert search.objective is not None
        assert (search.objective * (1 - gap) <= root) == (questions == 0)
        fluid_climb.climb_milp(search, 60, lambda value, details: None)
        assert len(asked) == questions
        assert len(search.bounds) == 1
