"""TFLMS: its moves by hand, and that no plan of it ever waits for memory."""

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.chain import Chain
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.evictions.rules import greedy, tflms, tflms_schedule
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Transfer
from offcert.questions.schedule.simulate import simulate
from support.oracles.optimum import against_the_optimum
from support.problems.random_instances import mixed_problem, tiny_problems
from support.seeds import by_seeds

CHAIN = Chain([4, 1, 9, 2, 1], [5, 5, 5, 5, 5], [2, 4, 3, 1, 1, 1], [0] * 6)


def problem(memory: int, rate: Fraction = Fraction(1)) -> Problem:
    return Problem("p", CHAIN, Platform(memory, rate))


def test_the_schedule_by_hand():
    # Operations start at 0 4 5 14 16 17 22 27 32 37. The last two, B_1 and B_0, read x_1 and x_0.
    offloads = [Transfer(Kind.OFFLOAD, 0, 0, 2), Transfer(Kind.OFFLOAD, 1, 4, 8)]
    two = tflms_schedule(problem(9), 2, 2)
    assert two.starts == (0, 4, 5, 14, 16, 17, 22, 27, 32, 37)
    # Two operations ahead of B_1 and B_0.
    prefetches = [Transfer(Kind.PREFETCH, 1, 22, 26), Transfer(Kind.PREFETCH, 0, 27, 29)]
    assert two.transfers == (*offloads, *prefetches)
    # Nothing returns before the backward phase, which begins at 17. What comes back first goes
    # first, and no operation waits for a transfer that only waits for the link.
    seven = tflms_schedule(problem(9, Fraction(1, 4)), 2, 7)
    assert seven.transfers == (
        *(Transfer(Kind.OFFLOAD, 0, 0, 8), Transfer(Kind.OFFLOAD, 1, 8, 24)),
        *(Transfer(Kind.PREFETCH, 1, 24, 40), Transfer(Kind.PREFETCH, 0, 40, 48)),
    )
    assert seven.starts == (0, 4, 5, 14, 16, 17, 22, 27, 40, 48)
    assert tflms_schedule(problem(9), 0, 1).transfers == ()
    assert tflms_schedule(problem(9), 99, 1) == tflms_schedule(problem(9), 4, 1)


def test_directions_share_a_simplex_link_only():
    def transfers(link: Link, small: int, large: int) -> dict[tuple[Kind, int], tuple[int, int]]:
        tensors = [Tensor("a", small, (0, 5)), Tensor("b", large, (1, 7))]
        trace = Trace([Operation(f"o{i}", 10) for i in range(8)], tensors)
        current = Problem("p", trace, Platform(10, Fraction(1), link))
        schedule = tflms_schedule(current, 2, 1)
        return {(t.kind, t.gap): (t.start, t.end) for t in schedule.transfers}

    out, back = Kind.OFFLOAD, Kind.PREFETCH
    # "a" is wanted back at 40, while "b" leaves until 60.
    assert transfers(Link.DUPLEX, 4, 40)[back, 0] == (40, 44)
    assert transfers(Link.SIMPLEX, 4, 40)[back, 0] == (60, 64)
    # It cannot come back before it has left.
    assert transfers(Link.DUPLEX, 50, 4)[out, 0] == (10, 60)
    assert transfers(Link.DUPLEX, 50, 4)[back, 0] == (60, 110)


def test_the_best_parameters_by_hand():
    # x_0 leaves during F_0 and suffices for 10 bytes. It comes back in 2 of B_1's 5 ticks.
    schedule = simulate(problem(10), tflms(problem(10)))
    assert schedule == tflms_schedule(problem(10), 1, 1)
    assert schedule.makespan == problem(10).trace.compute_time


def test_it_does_not_wait_for_tensors_to_leave():
    # x_0 needs 20 ticks to leave; F_4 could wait for it, and GREEDY's does.
    slow = problem(10, Fraction(1, 10))
    assert simulate(slow, greedy(slow)).makespan > slow.trace.compute_time
    with pytest.raises(NoPlanError, match="never waits for tensors to leave"):
        tflms(slow)


@pytest.mark.slow
@by_seeds(0, 350, 50)
def test_plans_are_valid_never_wait_and_are_the_best_that_the_checker_accepts(seeds):
    moved = refused = 0
    for seed in seeds:
        current = mixed_problem(seed, 6)
        trace = current.trace
        single = len({gap.tensor for gap in trace.gaps}) == len(trace.gaps)
        if not single or trace.peak_memory <= current.platform.memory:
            continue
        schedules = [
            tflms_schedule(current, n, lb)
            for n in range(1, len(trace.gaps) + 1)
            for lb in range(1, len(trace) // 2 + 1)
        ]
        fitting = [item for item in schedules if check(current, item) == []]
        try:
            plan = tflms(current)
        except NoPlanError:
            assert not fitting
            refused += 1
            continue
        schedule = simulate(current, plan)
        assert check(current, schedule) == []
        assert schedule == min(fitting, key=lambda item: item.makespan)
        back = {trace.gaps[t.gap].after: 0 for t in schedule.transfers}
        for transfer in schedule.transfers:
            if transfer.kind is Kind.PREFETCH:
                after = trace.gaps[transfer.gap].after
                back[after] = max(back[after], transfer.end)
        for o, start in enumerate(schedule.starts):
            assert start == max(schedule.ends[o - 1] if o else 0, back.get(o, 0))
        moved += 1
    assert moved >= 3
    assert refused >= 16


def test_no_schedule_is_shorter_than_the_optimum():
    faster = (
        replace(current, platform=replace(current.platform, bandwidth=Fraction(5)))
        for current in tiny_problems(250, seed=5, largest=4)
    )
    total, worse = against_the_optimum(faster, tflms)
    assert total > 60
    assert worse > 1


def test_it_is_optimal_at_much_memory_and_mostly_fails_at_little():
    # The offloading paper, §6.2.
    refused = 0
    for seed in range(3):
        chain = cnn_chain(24, seed)
        much = chain.with_memory(chain.memory_at(Fraction(80, 100)))
        assert simulate(much, tflms(much)).makespan == chain.trace.compute_time
        little = chain.with_memory(chain.memory_at(Fraction(10, 100)))
        assert check(little, simulate(little, greedy(little))) == []
        try:
            tflms(little)
        except NoPlanError:
            refused += 1
    assert refused >= 2


def test_nothing_leaves_if_the_peak_fits():
    assert tflms(problem(12)) == Plan()


def test_errors_say_what_is_wrong():
    with pytest.raises(MethodError, match="n_tensors of at least 0, not -1"):
        tflms(problem(9), n_tensors=-1)
    with pytest.raises(MethodError, match="lb of at least 1, not 0"):
        tflms(problem(9), lb=0)
    with pytest.raises(NoPlanError, match="every choice"):
        tflms(problem(9), n_tensors=0)
    with pytest.raises(MethodError, match="no plan exists below 7 bytes"):
        tflms(problem(6))
    trace = Trace([Operation(str(i), 1) for i in range(6)], [Tensor("x", 1, (0, 2, 5))])
    with pytest.raises(MethodError, match="TFLMS needs a trace in which every tensor has at most"):
        tflms(Problem("p", trace, Platform(0, Fraction(1))))
