"""Exact joint bounds, and that nothing can be executed: verified, forged, beyond the scope."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from offcert.certification.ladder import certify
from offcert.certification.methods import solve
from offcert.core.chain import Chain
from offcert.core.computations import Computation, Value
from offcert.core.documents import canonical_digest
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.proofs.certificate import Certificate
from offcert.proofs.kinds.computed import Computed
from offcert.proofs.registry import proved
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers
from offcert.verification.document import verify
from offcert.verification.findings import VerificationOutcome, recheck
from offcert.verification.joint.verifier import nothing_fits
from offcert.verification.limits import UNLIMITED, Limits
from support.oracles.joint import least_time
from support.oracles.rematerialisation import RematerialisationOracle
from support.oracles.schedules import brute_force
from support.oracles.ticks import least_ticks
from support.problems.joint import (
    joint_problem,
    left_before_changes,
    made_twice_before_a_change,
    solvable,
)
from support.problems.least_memory import memory_problem
from support.problems.random_instances import away_between_neighbours, mixed_problem
from support.problems.random_networks import changed_network, random_network, recompute_problem
from support.seeds import by_seeds


def claim(value: int) -> Bound:
    return proved("joint-labels", value, Computed())


@pytest.mark.slow
def test_the_optimum_is_established_and_one_tick_more_is_not() -> None:
    problems = solvable(900)
    for _ in range(20):
        problem, best = next(problems)
        assert recheck(claim(best), problem) is None
        fault = recheck(claim(best + 1), problem)
        assert fault is not None
        assert f"an execution may take {best}" in fault


@pytest.mark.slow
@by_seeds(0, 50, 50)
def test_on_traces_with_several_gaps_the_optimum_is_established_and_no_more(seeds: range) -> None:
    waiting = 0
    for seed in seeds:
        problem = mixed_problem(7000 + seed, 5)
        best = brute_force(problem)
        assert best is not None
        assert recheck(claim(best), problem) is None
        fault = recheck(claim(best + 1), problem)
        assert fault is not None
        assert f"an execution may take {best}" in fault
        waiting += best > problem.trace.compute_time
    assert waiting >= 20


def test_nothing_is_away_between_two_uses_one_after_the_other() -> None:
    assert recheck(claim(19), away_between_neighbours()) is None
    fault = recheck(claim(20), away_between_neighbours())
    assert fault is not None
    assert "an execution may take 19" in fault


@pytest.mark.slow
@by_seeds(500, 620, 30)
def test_changes_in_place_where_nothing_leaves(seeds: range) -> None:
    more = 0
    for seed in seeds:
        rng = random.Random(seed)
        network = changed_network(rng)
        problem = replace(recompute_problem(rng, network), offload=False)
        found = RematerialisationOracle(network).least_time(problem.platform.memory)
        if found is None:
            assert nothing_fits(problem, problem.platform.memory, UNLIMITED.begin()) is None
            continue
        assert recheck(claim(found[0]), problem) is None
        assert recheck(claim(found[0] + 1), problem) is not None
        more += found[0] > network.compute_time
    assert more >= 1


@by_seeds(0, 40, 20)
def test_what_may_leave_is_changed_in_place(seeds: range) -> None:
    """Brute force knows some executions only, so it is no shorter than what there is."""
    moved = 0
    for seed in seeds:
        rng = random.Random(seed)
        problem = recompute_problem(rng, changed_network(rng), Fraction(1, 5))
        best = least_time(problem, most=1)
        if best is None:
            continue
        assert recheck(claim(best + 1), problem) is not None
        moved += best > problem.trace.compute_time
    assert moved >= 6


@pytest.mark.parametrize("changes", [1, 2])
def test_what_left_before_changes_in_place_need_not_leave_again(changes: int) -> None:
    problem, best = left_before_changes(changes)
    assert recheck(claim(best), problem) is None
    fault = recheck(claim(best + 1), problem)
    assert fault is not None
    assert f"an execution may take {best}" in fault


def test_two_copies_before_one_is_changed_in_place() -> None:
    problem, best = made_twice_before_a_change()
    assert recheck(claim(best), problem) is None
    assert recheck(claim(best + 1), problem) is not None


def test_what_is_back_sooner_is_not_given_up_for_what_is_back_later() -> None:
    """An execution of 24 ticks is checked run by run; a search blind to returns sees 25."""
    rng = random.Random(95)
    problem = recompute_problem(rng, random_network(rng, 4), Fraction(rng.randint(0, 4), 10))
    certificate = solve(problem, "joint-labels", time_limit=20)
    assert certificate.result.objective == 24
    assert verify(certificate.to_json()).valid
    assert recheck(claim(25), problem) is not None


def example(link: Link = Link.SIMPLEX, **network: Any) -> Problem:
    """Return the example of the documentation; x may stay and A run once."""
    computations = [
        Computation("A", 4, writes=(0,), repeatable=network.get("again", True)),
        Computation("B", 6, writes=(1,)),
        Computation("S", 5, workspace=14, repeatable=False),
        Computation("D", 17, reads=(0, 1), repeatable=False),
    ]
    values = [Value("x", 6, evictable=network.get("leaves", True)), Value("y", 8)]
    platform = Platform(14, Fraction(1), link)
    return Problem("both", Network(computations, values), platform, recompute=Recompute.ANY)


def impossible() -> Certificate:
    return solve(example(again=False, leaves=False), "joint-labels", time_limit=20)


def test_certify_closes_and_verify_agrees() -> None:
    for link in Link:
        certificate = certify(example(link), time_limit=20)
        assert certificate.result.status is SolveStatus.OPTIMAL
        assert certificate.result.evidence is Evidence.PROVED
        assert certificate.result.objective == 38
        assert verify(certificate.to_json()).valid


def test_on_chains_stored_copies_may_have_to_stay() -> None:
    """A bound for all executions is one for the persistent ones, which alone are offered."""
    chain = Chain([3, 4, 2], [5, 4, 6], [2, 6, 3, 4], [2, 1, 2, 1])
    least = Problem("chain", chain, Platform(100, Fraction(1, 3)), recompute=Recompute.ANY)
    for memory in range(least.least_memory, least.peak_memory):
        problem = least.with_memory(memory)
        free = solve(problem, "joint-labels", time_limit=20)
        stored = solve(replace(problem, recompute=Recompute.CHAIN), "joint-labels", time_limit=20)
        assert verify(stored.to_json()).valid
        assert stored.result.infeasibility == free.result.infeasibility
        assert stored.result.lower_bound == free.result.lower_bound
        if stored.result.objective is not None:
            assert stored.result.objective >= free.result.lower_bound


def test_that_nothing_can_be_executed_is_verified() -> None:
    certificate = impossible()
    result = certificate.result
    assert result.status is SolveStatus.INFEASIBLE
    assert result.bounds == ()
    assert result.infeasibility is not None
    assert (result.infeasibility.needed, result.infeasibility.lacking) == (20, 6)
    assert result.infeasibility.said(certificate.problem.units) == (
        "every execution takes 20 or more at some moment, 6 more than there is"
    )
    assert verify(certificate.to_json()).valid


@by_seeds(0, 40, 20)
def test_least_memory_is_established_and_one_byte_more_is_not(seeds: range) -> None:
    timed = 0
    for seed in seeds:
        problem, least = memory_problem(seed)
        bound = proved("joint-labels-memory", least, Computed())
        assert recheck(bound, problem) is None
        fault = recheck(replace(bound, value=least + 1), problem)
        assert fault is not None
        assert f"within {least} something can be executed" in fault
        timed += problem.deadline is not None
    assert timed >= 8


@pytest.mark.parametrize(
    ("seed", "spare"), [(14, None), (14, 2), (97, None), (164, None), (176, 2), (228, 2)]
)
def test_least_memory_with_transfers(seed: int, spare: int | None) -> None:
    """Within a byte less, brute force tick by tick finds nothing either, or nothing in time."""
    drawn = replace(joint_problem(seed), offload=True)
    deadline = None if spare is None else drawn.trace.compute_time + spare
    problem = replace(drawn, minimise=Minimise.MEMORY, deadline=deadline)
    certificate = solve(problem, "joint-labels", time_limit=20)
    result = certificate.result
    assert result.status is SolveStatus.OPTIMAL
    assert verify(certificate.to_json()).valid
    assert result.memory is not None
    # No single computation takes as much, and everything once takes more.
    assert drawn.least_memory < result.memory < drawn.trace.peak_memory
    assert result.schedule is not None
    assert deadline is None or result.schedule.makespan <= deadline
    within = 2**62 if deadline is None else deadline
    assert least_ticks(drawn.with_memory(result.memory - 1), within) is None


@by_seeds(0, 30, 30)
def test_least_memory_by_a_deadline_where_everything_runs_once(seeds: range) -> None:
    between = 0
    for seed in seeds:
        drawn = mixed_problem(7200 + seed, 4)
        deadline = drawn.trace.compute_time + seed % 3 * 12
        problem = replace(drawn, minimise=Minimise.MEMORY, deadline=deadline)
        certificate = solve(problem, "joint-labels", time_limit=20)
        result = certificate.result
        assert result.status is SolveStatus.OPTIMAL
        assert verify(certificate.to_json()).valid
        assert result.memory is not None
        assert brute_force(drawn.with_memory(result.memory)) <= deadline  # type: ignore[operator]
        if result.memory > drawn.trace.least_memory:
            late = brute_force(drawn.with_memory(result.memory - 1))
            assert late is None or late > deadline
            between += result.memory < drawn.trace.peak_memory
    assert between >= 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5, 7, 9, 14, 21, 27])
def test_what_is_impossible_is_found_by_certify_at_random(seed: int) -> None:
    problem = joint_problem(seed)
    assert least_time(problem) is None
    assert problem.platform.memory >= problem.least_memory
    certificate = certify(problem, time_limit=20)
    assert certificate.result.status is SolveStatus.INFEASIBLE
    assert verify(certificate.to_json()).valid


def forged(certificate: Certificate, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Return a certificate with something changed and a new digest."""
    document = certificate.to_json()
    change(document)
    del document["digest"]
    document["digest"] = canonical_digest(document)
    return document


def set_needed(needed: int, lacking: int) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["infeasibility"].update(needed=needed, lacking=lacking)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (set_needed(21, 7), "infeasibility: within 20 something can be executed"),
        (set_needed(20, 5), "infeasibility: what needs 20 does not lack 5"),
        (set_needed(20, 7), "infeasibility: what needs 20 does not lack 7"),
        (lambda d: d["infeasibility"].update(name="S"), "every operation fits into 14 bytes"),
        (lambda d: d["infeasibility"].update(operation=2), "every operation fits into 14 bytes"),
        (lambda d: d.update(status="UNKNOWN"), "what it holds is INFEASIBLE"),
    ],
)
def test_forged_infeasibility(change: Callable[[dict[str, Any]], None], said: str) -> None:
    verification = verify(forged(impossible(), change))
    assert verification.outcome is VerificationOutcome.INVALID
    assert any(said in fault for fault in verification.faults), verification.faults


def test_less_than_what_is_needed_may_be_claimed() -> None:
    """What every execution takes, it takes also if that is not the least."""
    assert verify(forged(impossible(), set_needed(17, 3))).valid


def test_what_can_be_executed_is_not_infeasible() -> None:
    document = impossible().to_json()
    possible = Certificate(
        example(), replace(impossible().result, runtime=0.0), method="joint-labels"
    ).to_json()
    assert possible["infeasibility"] == document["infeasibility"]
    verification = verify(possible)
    assert verification.outcome is VerificationOutcome.INVALID
    assert "something can be executed" in verification.faults[0]


def test_bounds_beside_infeasibility_are_a_fault() -> None:
    certificate = impossible()
    result = replace(certificate.result, bounds=(claim(38),))
    verification = verify(replace(certificate, result=result).to_json())
    assert any("holds no bounds" in fault for fault in verification.faults)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"minimise": "memory"}, "it bounds time, and the problem minimises memory"),
        ({"transfers": "interruptible"}, "atomic transfers, not interruptible ones"),
        ({"transfers": "fractional"}, "atomic transfers, not fractional ones"),
    ],
)
def test_other_problems_are_refused_by_name(wrong: dict[str, str], said: str) -> None:
    fault = recheck(claim(32), replace(example(), **wrong))  # type: ignore[arg-type]
    assert fault is not None
    assert said in fault


def test_how_transfers_go_is_no_matter_where_nothing_leaves() -> None:
    problem = replace(example(), offload=False, transfers=Transfers.INTERRUPTIBLE)
    assert recheck(claim(42), problem) is None
    assert recheck(claim(43), problem) is not None


def test_beyond_the_limits_is_neither_valid_nor_invalid() -> None:
    limited = verify(impossible().to_json(), Limits(memory=1000))
    assert limited.outcome is VerificationOutcome.BEYOND_LIMITS
    assert "not verified within the limits" in limited.unverified[0]
