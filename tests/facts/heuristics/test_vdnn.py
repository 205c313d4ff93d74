"""VDNN: its sets by hand, and its schedules against everything else that schedules sets."""

from fractions import Fraction

import pytest

from offcert.core.chain import Chain
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.heuristics.evictions.dynprog import chain_view
from offcert.heuristics.evictions.rules import greedy
from offcert.heuristics.evictions.vdnn import vdnn, vdnn_sets
from offcert.heuristics.orders.ordered import ordered_makespan
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from support.oracles.optimum import against_the_optimum
from support.problems.random_instances import mixed_problem, tiny_problems
from support.seeds import by_seeds

# Ratios u_F / |x| of the activations that can leave: 2, 1/4, 3, 2. The peak is 12, during F_4.
CHAIN = Chain([4, 1, 9, 2, 1], [5, 5, 5, 5, 5], [2, 4, 3, 1, 1, 1], [0] * 6)


def problem(memory: int) -> Problem:
    return Problem("p", CHAIN, Platform(memory, Fraction(1)))


def test_the_sets_are_those_at_each_threshold_whole_and_halved():
    view = chain_view(problem(12))
    assert list(vdnn_sets(view)) == [(2,), (2,), (0, 2, 3), (0, 3), (0, 1, 2, 3), (0, 2)]
    assert list(vdnn_sets(view, ["half"])) == [(2,), (0, 3), (0, 2)]


def test_the_best_set_is_chosen_by_hand():
    # x_2 alone frees 3 bytes for F_3 and F_4, and its ways out and back are hidden.
    assert vdnn(problem(11)).evicted == (2,)
    # At 10 it can only come back between B_3 and B_2, in 3 ticks; the next sets cost no time.
    assert ordered_makespan(problem(10), [2]) == 17 + 25 + 3
    assert vdnn(problem(10)).evicted == (3, 2, 0)
    # At 9 it would have to leave before F_2, which reads it.
    assert ordered_makespan(problem(9), [2]) is None
    assert vdnn(problem(9)).evicted == (3, 2, 0)
    # x_0 and x_3 are just enough for B_4, so x_3 cannot be back when it ends; too few for 8 bytes.
    assert ordered_makespan(problem(9), [0, 3]) == 17 + 25 + 1
    assert vdnn(problem(9), ["half"]).evicted == (2, 0)
    assert ordered_makespan(problem(8), [0, 3]) is None
    assert vdnn(problem(8), ["half"]).evicted == (2, 0)
    for memory in (9, 10, 11):
        makespan = simulate(problem(memory), vdnn(problem(memory))).makespan
        assert makespan == problem(memory).trace.compute_time


def test_empty_activations_are_no_candidates():
    chain = Chain([1] * 4, [1] * 4, [3, 0, 3, 1, 1], [0] * 5)
    view = chain_view(Problem("p", chain, Platform(7, Fraction(1))))
    assert list(vdnn_sets(view, ["all"])) == [(0, 2)]


@by_seeds(0, 400, 67)
def test_plans_are_valid_and_as_long_as_the_best_ordered_schedule_of_the_sets(seeds):
    moved = refused = 0
    for seed in seeds:
        current = mixed_problem(seed, 7)
        try:
            plan = vdnn(current)
        except NoPlanError:
            view = chain_view(current)
            for activations in vdnn_sets(view):
                assert ordered_makespan(current, view.gaps_of(activations)) is None
            refused += 1
            continue
        except MethodError:
            continue
        schedule = simulate(current, plan)
        assert check(current, schedule) == []
        if not plan.moves:
            continue
        moved += 1
        view = chain_view(current)
        values = [ordered_makespan(current, view.gaps_of(item)) for item in vdnn_sets(view)]
        assert schedule.makespan <= min(value for value in values if value is not None)
        sets = [set(view.gaps_of(activations)) for activations in vdnn_sets(view)]
        assert set(plan.evicted) in sets
    assert moved >= 30
    assert refused >= 1


def test_no_schedule_is_shorter_than_the_optimum():
    total, worse = against_the_optimum(tiny_problems(80, seed=3, largest=4), vdnn)
    assert total > 40
    assert worse > 10


def test_greedy_outperforms_it_where_memory_is_scarce():
    # The offloading paper, §6.2: in all cases; here in most and on average.
    ratios = []
    for seed in range(10):
        for percent in (0, 5, 10):
            chain = cnn_chain(24, seed)
            chain = chain.with_memory(chain.memory_at(Fraction(percent, 100)))
            ours, other = (simulate(chain, run(chain)).makespan for run in (vdnn, greedy))
            ratios.append(ours / other)
    assert 1.01 < sum(ratios) / len(ratios) < 1.3
    assert sum(ratio < 1 for ratio in ratios) < len(ratios) / 3


def test_nothing_leaves_if_the_peak_fits():
    assert vdnn(problem(12)) == Plan()


def test_errors_say_what_is_wrong():
    with pytest.raises(MethodError, match='"all" and "half", not \'most\''):
        vdnn(problem(9), ["most"])
    with pytest.raises(MethodError, match="not none"):
        vdnn(problem(9), [])
    with pytest.raises(MethodError, match="no plan exists below 7 bytes"):
        vdnn(problem(6))
    with pytest.raises(NoPlanError, match="no threshold"):
        vdnn(problem(7), ["half"])
    trace = Trace([Operation(str(i), 1) for i in range(6)], [Tensor("x", 1, (0, 2, 5))])
    with pytest.raises(MethodError, match="VDNN needs a trace in which every tensor has at most"):
        vdnn(Problem("p", trace, Platform(0, Fraction(1))))
