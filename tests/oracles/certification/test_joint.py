"""Problems in which computations may run again: from `certify` to `verify`."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certification.ladder import certify
from offcert.certification.search import Search, UnsoundError
from offcert.core.computations import Computation, Value
from offcert.core.documents import canonical_digest
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.core.result import SolveStatus
from offcert.core.strategy import Strategy
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import verify
from support.problems.random_instances import seeded
from support.problems.random_networks import random_network, recompute_problem


@pytest.mark.parametrize("seed", range(4))
def test_certificates_hold_what_is_executed(seed: int) -> None:
    rng = seeded(seed)
    problem = recompute_problem(rng, random_network(rng, 4))
    certificate = certify(problem, time_limit=2)
    document = certificate.to_json()
    verification = verify(document)
    assert verification.valid, verification.faults
    if certificate.result.status is not SolveStatus.INFEASIBLE and certificate.result.schedule:
        assert certificate.result.execution is not None
        del document["execution"]
        del document["digest"]
        document["digest"] = canonical_digest(document)
        if certificate.result.execution.repeated:
            # The schedule is one of another trace then.
            with pytest.raises(InputError, match=r"schedule\.operations must have"):
                verify(document)
        else:
            assert "execution: it is missing" in str(verify(document).faults)


def test_bounds_of_offloading_alone_are_none_here() -> None:
    rng = seeded(3)
    problem = recompute_problem(rng, random_network(rng, 4))
    plain = certify(problem.plain(), time_limit=1)
    assert plain.result.bounds
    found = replace(plain, problem=problem, result=replace(plain.result, schedule=None))
    faults = str(verify(found.to_json()).faults)
    assert "where computations may run again" in faults


def test_what_is_too_large_is_infeasible() -> None:
    rng = seeded(5)
    problem = recompute_problem(rng, random_network(rng, 4)).with_memory(1)
    certificate = certify(problem, time_limit=1)
    assert certificate.result.status is SolveStatus.INFEASIBLE
    assert verify(certificate.to_json()).valid


def test_illegal_executions_are_no_results() -> None:
    rng = seeded(3)
    problem = recompute_problem(rng, random_network(rng, 4))
    network = problem.computed
    assert network is not None
    execution = Strategy.plain(network).expand(network)
    wrong = replace(execution, runs=execution.runs[::-1])
    large = problem.with_memory(problem.trace.peak_memory)
    schedule = simulate(large.executed(execution), Plan())
    search = Search(large, 1.0)
    with pytest.raises(UnsoundError, match="illegal execution"):
        search.offer_executed(wrong, schedule)
    assert search.offer_executed(execution, schedule)
    assert search.problem.recompute is Recompute.ANY
    assert search.objective == network.compute_time


@pytest.mark.parametrize("seed", range(4))
def test_least_memory_within_a_deadline(seed: int) -> None:
    """Also where everything runs once: limits are halved there, too."""
    rng = seeded(seed)
    network = random_network(rng, 4)
    again = Recompute.NONE if seed % 2 else Recompute.ANY
    deadline = network.compute_time * 6 // 5
    problem = replace(
        recompute_problem(rng, network),
        recompute=again,
        minimise=Minimise.MEMORY,
        deadline=deadline,
    )
    certificate = certify(problem, time_limit=1)
    verification = verify(certificate.to_json())
    assert verification.valid, verification.faults
    result = certificate.result
    assert result.schedule is not None
    assert result.schedule.makespan <= deadline
    assert result.objective is not None
    assert result.lower_bound <= result.objective <= problem.trace.peak_memory
    assert (result.execution is None) == (again is Recompute.NONE)


def test_inputs_that_nobody_reads_are_not_there() -> None:
    network = Network(
        [Computation("F", 1, reads=(1,), writes=(2,)), Computation("B", 1, reads=(2,))],
        [Value("unread", 100), Value("x", 2), Value("y", 3)],
    )
    platform = Platform(5, Fraction(1))
    problem = Problem("unread", network, platform, recompute=Recompute.ANY)
    certificate = certify(problem, time_limit=1)
    assert certificate.result.objective == 2
    assert verify(certificate.to_json()).valid
    small = certify(problem.with_memory(4), time_limit=1)
    assert small.result.infeasibility is not None
    assert small.result.infeasibility.needed == 5
    assert verify(small.to_json()).valid
