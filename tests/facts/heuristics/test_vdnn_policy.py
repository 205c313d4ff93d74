"""The original vDNN: its prefetches and its memory by hand, and that it never exceeds the limit."""

from fractions import Fraction

import pytest

from offcert.core.chain import Chain
from offcert.core.errors import MethodError, NoPlanError
from offcert.core.platform import Kind, Platform
from offcert.heuristics.evictions.dynprog import chain_view
from offcert.heuristics.evictions.vdnn import named_convolutions, prefetch_triggers, vdnn_policy
from offcert.questions.schedule.check import check
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from support.oracles.optimum import against_the_optimum
from support.problems.random_instances import mixed_problem, tiny_problems
from support.seeds import by_seeds

CHAIN = Chain([4, 1, 9, 2, 1], [5, 5, 5, 5, 5], [2, 4, 3, 1, 1, 1], [0] * 6)


def problem(memory: int) -> Problem:
    return Problem("p", CHAIN, Platform(memory, Fraction(1)))


def test_each_backward_layer_fetches_the_nearest_input_that_is_missing():
    # Operations 5 to 9 are B_4 to B_0.
    assert prefetch_triggers(5, [0, 1, 2, 3], range(5)) == {3: 5, 2: 6, 1: 7, 0: 8}
    # Past layers that are no convolutions, but not past the next convolution.
    assert prefetch_triggers(5, [0, 2], [0, 2]) == {2: 5, 0: 7}
    # Layer 3 is a convolution with nothing to fetch: B_4 looks no further.
    assert prefetch_triggers(5, [0, 2], [0, 2, 3]) == {2: 6, 0: 7}
    # Without convolutions in between, one layer's input a step, as early as possible.
    assert prefetch_triggers(5, [0, 1], [0]) == {1: 5, 0: 6}


def test_the_plan_by_hand():
    offload, prefetch = Kind.OFFLOAD, Kind.PREFETCH
    assert vdnn_policy(problem(9)) == Plan(
        [
            *(Move(offload, i, i + 1) for i in range(4)),
            Move(prefetch, 3, 6),
            Move(prefetch, 2, 7),
            Move(prefetch, 1, 8),
            Move(prefetch, 0, 9),
        ]
    )
    # x_0 and x_2 are away; x_1 and x_3 stay, and with x_4 and x_5 they are 7, 10 with x_2 on its
    # way back.
    assert vdnn_policy(problem(10), "conv", [0, 2]) == Plan(
        [
            Move(offload, 0, 1),
            Move(offload, 2, 3),
            Move(prefetch, 2, 6),
            Move(prefetch, 0, 8),
        ]
    )


def test_it_runs_out_of_memory_where_the_original_does():
    # B_1 needs x_1 and x_2, 7 bytes, and x_0 comes back meanwhile. Other plans need 7 bytes only.
    assert problem(7).trace.least_memory == 7
    with pytest.raises(NoPlanError, match="9 bytes on the device during operation B1"):
        vdnn_policy(problem(8))
    with pytest.raises(NoPlanError, match="10 bytes on the device during operation B4"):
        vdnn_policy(problem(9), "conv", [0, 2])
    assert check(problem(9), simulate(problem(9), vdnn_policy(problem(9)))) == []


@by_seeds(0, 700, 30)
def test_plans_are_valid_and_overlap_as_decided(seeds):
    moved = 0
    for seed in seeds:
        current = mixed_problem(seed, 8)
        stages = len(current.trace) // 2
        for policy in ("all", "conv"):
            convolutions = range(seed % 2, stages, 2)
            try:
                plan = vdnn_policy(current, policy, convolutions)
            except MethodError:
                continue
            schedule = simulate(current, plan)
            assert check(current, schedule) == []
            moved += bool(plan.moves)
            groups = chain_view(current).gap_groups
            leaving = {gap for i in convolutions for gap in groups[i]} if policy == "conv" else None
            for transfer in schedule.transfers:
                assert leaving is None or transfer.gap in leaving
                if transfer.kind is Kind.PREFETCH:
                    # In the backward phase, and never before the layer it was issued with.
                    move = next(
                        m for m in plan.moves if (m.kind, m.gap) == (transfer.kind, transfer.gap)
                    )
                    assert move.before > stages
                    assert transfer.start >= schedule.starts[move.before - 1]
    assert moved >= 2


def test_no_schedule_is_shorter_than_the_optimum():
    total, worse = against_the_optimum(tiny_problems(120, seed=4, largest=4), vdnn_policy)
    assert total > 40
    assert worse > 10


def test_names_say_what_is_a_convolution():
    names = [
        *("F:conv1", "F:bn1", "layer1.0", "features.transition1.conv", "features.transition1.pool"),
        *("F:Conv2d_1a_3x3.conv", "F:Conv2d_1a_3x3.bn", "denseblock4", "Mixed_5b", "fc", "0"),
    ]
    assert named_convolutions(names) == (0, 2, 3, 5, 7, 8)
    chain = Chain([1] * 4, [1] * 4, [4] * 5, [0] * 5, names=["conv1", "pool", "conv2", "fc"])
    named = Problem("p", chain, Platform(16, Fraction(4)))
    assert set(vdnn_policy(named, "conv").evicted) == {0, 2}


def test_nothing_leaves_if_the_peak_fits():
    assert vdnn_policy(problem(12)) == vdnn_policy(problem(12), "conv", [0]) == Plan()


def test_errors_say_what_is_wrong():
    with pytest.raises(MethodError, match='"all" or "conv", not \'dynamic\''):
        vdnn_policy(problem(9), "dynamic")
    with pytest.raises(MethodError, match="names stage 5, but the stages are 0 to 4"):
        vdnn_policy(problem(9), "conv", [5])
    with pytest.raises(MethodError, match="no name of a stage says so"):
        vdnn_policy(problem(9), "conv")
    with pytest.raises(MethodError, match="no plan exists below 7 bytes"):
        vdnn_policy(problem(6))
