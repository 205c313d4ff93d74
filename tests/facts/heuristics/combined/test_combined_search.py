"""The combined paper's dynamic program: worked by hand, and attained exactly by schedules."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.chain import Chain
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Trace
from offcert.heuristics.combined.search import CombinedPlan, combined_plan
from offcert.heuristics.evictions.dynprog import algorithm_1
from offcert.questions.schedule.check import check
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.problem import Problem, Recompute, Transfers
from offcert.verification.execution import execution_faults, persistency_faults
from papers.combined.turned import CombinedMove, counted, fluid, turned_schedule
from support.problems.combined import combined_problem, combined_problems
from support.problems.random_instances import seeded
from support.seeds import by_seeds

# Four stages that take a tick each way and write a unit each; three units of memory for F and B.
FLAT = CheckpointChain([1] * 4, [1] * 4, [1] * 5, gradient=[0] * 5)


def flat(memory: int, bandwidth: Fraction = Fraction(1)) -> Problem:
    return Problem("flat", FLAT, Platform(memory, bandwidth), recompute=Recompute.CHAIN)


def names(plan: CombinedPlan) -> str:
    return " ".join(operation.name for operation in plan.execution.trace.operations)


def test_with_all_the_memory_everything_runs_once() -> None:
    plan = combined_plan(flat(5), None)
    assert names(plan) == "F0 F1 F2 F3 B3 B2 B1 B0"
    assert (plan.value, plan.gaps) == (8, ())


def test_what_leaves_in_passing_costs_nothing() -> None:
    """The output of F0 leaves during F1 and F2 and is back before B1: four units do for five."""
    plan = combined_plan(flat(4), None)
    assert names(plan) == "F0 F1 F2 F3 B3 B2 B1 B0"
    assert plan.value == 8
    assert [moved[1:] for moved in plan.inputs] == [(1, 6)]


def test_without_a_link_stages_run_again() -> None:
    """What the paper's operations drop is computed anew with the stage that reads it."""
    one = combined_plan(flat(4), None, offload=False)
    assert (one.value, one.execution.repeated) == (8 + 2, 2)
    two = combined_plan(flat(3), None, offload=False)
    assert (two.value, two.gaps) == (8 + 3 + 2, ())
    # Of the second stage the output is still there, if it may be without the input.
    one = combined_plan(flat(4), None, offload=False, bare=True)
    assert (one.value, one.execution.repeated) == (8 + 1, 1)
    two = combined_plan(flat(3), None, offload=False, bare=True)
    assert (two.value, two.execution.repeated) == (8 + 3 + 1, 4)


def test_no_slot_no_plan() -> None:
    with pytest.raises(NoPlanError, match="rounding sizes up"):
        combined_plan(flat(1), 2)
    with pytest.raises(MethodError, match="at least 1 slot, not 0"):
        combined_plan(flat(4), 0)
    with pytest.raises(MethodError, match="at most 32000"):
        combined_plan(flat(10**6), None)
    with pytest.raises(MethodError, match="allowed; use fewer slots"):
        combined_plan(flat(4), 5000)
    trace = Problem("trace", Trace([Operation("o", 1)], []), Platform(1, Fraction(1)))
    with pytest.raises(MethodError, match="needs a chain"):
        combined_plan(trace)


@pytest.mark.slow
@pytest.mark.parametrize("bare", [False, True])
def test_its_value_is_what_a_checked_schedule_takes(bare: bool) -> None:
    """As the paper counts memory exactly, and byte by byte in the trace no later."""
    found = moving = repeated = sooner = 0
    for problem in combined_problems(range(50), 7, two_rates=True):
        try:
            plan = combined_plan(problem, None, bare=bare)
        except NoPlanError:
            continue
        network = problem.computed
        assert network is not None
        assert not execution_faults(network, plan.execution)
        assert not persistency_faults(network, plan.execution)
        pausing = replace(problem.executed(plan.execution), transfers=Transfers.INTERRUPTIBLE)
        paper, own = counted(plan, problem), fluid(plan, problem)
        assert not check_fluid(pausing, paper)
        assert not check_fluid(pausing, own)
        assert paper.makespan == plan.value >= own.makespan
        atomic = plan.atomic(problem)
        assert not check(problem.executed(plan.execution), atomic)
        found += 1
        moving += bool(plan.gaps)
        repeated += plan.execution.repeated > 0
        sooner += own.makespan < paper.makespan
    assert found > 40
    assert min(moving, repeated) > 6
    assert sooner > 0


@pytest.mark.slow
def test_more_is_never_worse() -> None:
    """More memory, a faster link, sweeps that keep everything, recomputation, offloading."""
    for problem in combined_problems(range(200, 225), 6):
        try:
            value = combined_plan(problem, None).value
        except NoPlanError:
            continue
        more = problem.with_memory(problem.platform.memory + 3)
        assert combined_plan(more, None).value <= value
        faster = problem.with_bandwidth(problem.platform.bandwidth * 2)
        assert combined_plan(faster, None).value <= value
        assert combined_plan(problem, None, bare=True).value <= value
        for limited in ({"recompute": False}, {"offload": False}):
            try:
                assert combined_plan(problem, None, **limited).value >= value
            except NoPlanError:
                continue


@by_seeds(0, 80, 27)
def test_with_recomputation_forbidden_it_is_ordered_offloading(seeds: range) -> None:
    """Never below Algorithm 1, whose turn may be anywhere, and equal to it on nearly all chains."""
    equal = above = 0
    for seed in seeds:
        rng = seeded(seed)
        times = [[rng.randint(0, 6) for _ in range(5)] for _ in range(2)]
        chain = Chain(*times, [rng.randint(1, 6) for _ in range(6)], [1] * 6)
        trace = chain.trace()
        memory = rng.randint(trace.least_memory, trace.peak_memory)
        problem = Problem("small", chain, Platform(memory, Fraction(1)), recompute=Recompute.CHAIN)
        try:
            value = combined_plan(problem, None, recompute=False).value
        except NoPlanError:
            continue
        least = algorithm_1(chain, memory, Fraction(1))[0]
        assert value >= least
        equal += value == least
        above += value > least
    assert equal > 3 * above > 0


@pytest.mark.slow
def test_coarse_slots_still_make_plans_that_fit() -> None:
    worse = 0
    for problem in combined_problems(range(300, 330), 6):
        memory = problem.platform.memory
        for slots in (7, 20):
            try:
                exact, coarse = combined_plan(problem, None), combined_plan(problem, slots)
            except NoPlanError:
                continue
            paper = counted(coarse, problem)
            pausing = replace(problem.executed(coarse.execution), transfers=Transfers.INTERRUPTIBLE)
            assert not check_fluid(pausing, paper), memory
            assert paper.makespan >= exact.value
            worse += paper.makespan > exact.value
    assert worse > 0


@pytest.mark.slow
def test_large_numbers_are_scaled() -> None:
    """Bytes and nanoseconds, a rate with long numerator and denominator."""
    size, time = 3 * 10**9 + 7, 10**9 + 9
    chain = CheckpointChain(
        [time * n for n in (1, 2, 3, 1)],
        [time * n for n in (2, 3, 4, 1)],
        [size * n for n in (4, 3, 2, 2, 1)],
        [size * n for n in (5, 4, 3, 1)],
    )
    platform = Platform(17 * size, Fraction(10**9 + 21, 10**9 + 33))
    problem = Problem("large", chain, platform, recompute=Recompute.CHAIN)
    plan = combined_plan(problem, 200)
    pausing = replace(problem.executed(plan.execution), transfers=Transfers.INTERRUPTIBLE)
    paper = counted(plan, problem)
    assert not check_fluid(pausing, paper)
    assert paper.makespan <= plan.value * 1.05


def test_either_link() -> None:
    problem = combined_problem(7, 6)
    duplex = replace(problem, platform=replace(problem.platform, link=Link.DUPLEX))
    plan = combined_plan(duplex, None)
    assert plan.value == combined_plan(problem, None).value
    assert not check(duplex.executed(plan.execution), plan.atomic(duplex))


def test_a_set_that_is_too_small_has_no_schedule() -> None:
    plan = combined_plan(flat(4), None)
    executed = replace(flat(3).executed(plan.execution), transfers=Transfers.INTERRUPTIBLE)
    with pytest.raises(NoPlanError, match="not enough"):
        turned_schedule(executed, [CombinedMove(0, 1, -1, 0, 7)], 3)
