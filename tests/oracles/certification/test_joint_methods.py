"""Methods for problems in which computations may run again, against brute force."""

import random
from dataclasses import replace
from itertools import islice

import pytest

from offcert.certification.joint_methods import JOINT_METHODS
from offcert.certification.method import Method
from offcert.certification.methods import METHODS, solve
from offcert.core.errors import InputError, MethodError
from offcert.core.result import SolveStatus
from offcert.proofs.registry import PROOFS
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.verification.document import verify
from support.problems.joint import solvable
from support.problems.random_networks import checkpoint_chain, recompute_problem

TIMED = [name for name, method in JOINT_METHODS.items() if Minimise.TIME in method.minimise]
# Seconds; some use all of them whatever there is to find.
LIMIT = 0.3
SIZED = [name for name, method in JOINT_METHODS.items() if Minimise.MEMORY in method.minimise]


def fitting(problem: Problem, method: Method) -> Problem | None:
    """Return a problem as a method may take it, or None if it is not for its network."""
    if problem.recompute not in method.recompute:
        problem = replace(problem, recompute=min(method.recompute))
    if problem.offload not in method.offload:
        problem = replace(problem, offload=min(method.offload))
    return problem if method.misfit(problem) is None else None


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMED)
def test_every_method_respects_the_optimum(name: str) -> None:
    method, ran = METHODS[name], 0
    for drawn, least in islice(solvable(0), 12):
        problem = fitting(drawn, method)
        if problem is None:
            continue
        try:
            certificate = solve(problem, name, time_limit=LIMIT, workers=1)
        except MethodError:
            continue
        ran += 1
        result = certificate.result
        assert verify(certificate.to_json()).faults == []
        assert problem.trace.compute_time <= result.lower_bound
        # Restrictions and closed links make no execution shorter than brute force has found it.
        assert result.lower_bound <= least or problem != drawn
        if not problem.offload and result.objective is not None:
            # With offloads, brute force looks at few runs again only.
            assert result.objective >= least or drawn.offload
    assert ran >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZED)
def test_every_method_that_saves_memory_finds_what_its_schedule_takes(name: str) -> None:
    method, found = METHODS[name], 0
    for seed in range(2):
        rng = random.Random(seed)
        drawn = replace(recompute_problem(rng, checkpoint_chain(rng, 4)), minimise=Minimise.MEMORY)
        compute = drawn.trace.compute_time
        for deadline in (None, compute + compute // 3):
            problem = fitting(replace(drawn, deadline=deadline), method)
            if problem is None:
                continue
            certificate = solve(problem, name, time_limit=LIMIT, workers=1)
            assert verify(certificate.to_json()).faults == []
            result = certificate.result
            if result.objective is None:
                assert result.status is SolveStatus.UNKNOWN
                continue
            found += 1
            assert problem.least_memory <= result.objective <= problem.peak_memory
            assert result.schedule is not None
            assert deadline is None or result.schedule.makespan <= deadline
    assert found >= 4 or not method.heuristic


@pytest.mark.parametrize("name", JOINT_METHODS)
def test_what_a_method_says_it_is_for_is_what_its_bounds_are_for(name: str) -> None:
    method = JOINT_METHODS[name]
    assert METHODS[name] == replace(method, name=name)
    kinds = [PROOFS[bound] for bound in method.bounds if bound in PROOFS]
    assert not kinds or method.minimise == {kind.minimise for kind in kinds}
    for kind in kinds:
        assert kind.recompute or method.recompute == {Recompute.NONE}


def test_the_same_names_do_not_do_for_problems_of_another_kind() -> None:
    (drawn, _) = next(solvable(0))
    for name in METHODS:
        plain = replace(drawn, recompute=Recompute.NONE)
        problem = (
            replace(drawn, offload=False) if Recompute.NONE in METHODS[name].recompute else plain
        )
        if problem.recompute in METHODS[name].recompute:
            continue
        with pytest.raises(InputError, match=f"method {name} is for recompute"):
            solve(problem, name)
