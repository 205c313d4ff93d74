"""Generated problems in which computations may run again: knobs, shapes, and a known optimum."""

import random
from fractions import Fraction
from itertools import combinations

import pytest

from offcert.core.errors import InputError
from offcert.core.strategy import Strategy
from offcert.heuristics.evictions.rules import sequential
from offcert.instances.checkpoint_instances import CheckpointChains, RecomputeNetworks
from offcert.instances.kinds import from_source, reduced
from offcert.instances.two_partition import (
    RecomputePartition,
    part_of,
    recompute_partition,
    strategy_of_part,
)
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Recompute
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import verify
from offcert.verification.execution import execution_faults
from support.oracles.joint import least_time
from support.problems.joint_certificates import certificate_of


def test_chains_save_what_their_knob_says_and_move_it_in_that_time() -> None:
    for ratio in (Fraction(1, 2), Fraction(3)):
        problem = CheckpointChains(stages=40, saved=Fraction(5), ratio=ratio).problem(1)
        chain = problem.checkpoint_chain
        assert chain is not None
        factor = Fraction(sum(chain.saved), sum(chain.output[1:]))
        assert Fraction(7, 2) < factor < Fraction(13, 2)
        moved = chain.output[0] + sum(chain.saved)
        assert 2 * moved / problem.platform.bandwidth == ratio * problem.trace.compute_time
    lean = CheckpointChains(saved=Fraction(1)).problem(2).checkpoint_chain
    assert lean is not None
    assert not any(lean.extra)
    plain = CheckpointChains(recompute="none", offload=False).problem(2)
    assert (plain.recompute, plain.offload) == (Recompute.NONE, False)


def test_chains_shrink_from_the_first_output_to_the_last() -> None:
    chain = CheckpointChains(spread=Fraction(1), shrink=Fraction(6)).problem(0).checkpoint_chain
    assert chain is not None
    assert list(chain.output) == sorted(chain.output, reverse=True)
    assert (chain.output[0], chain.output[-1]) == (600, 100)


def test_networks_have_dear_and_cheap_operations_and_sums() -> None:
    problem = RecomputeNetworks(blocks=4, skip=2, dear=1000, cheap=10).problem(5)
    network = problem.computed
    assert network is not None
    forward = [each for each in network.computations if each.repeatable]
    assert len(forward) == 4 * 3 + 2
    assert len(network) == 2 * len(forward)
    dear = [each for each in forward if each.name.endswith("conv")]
    assert all(750 <= each.duration <= 1250 for each in dear)
    assert all(each.duration <= 12 for each in forward if each not in dear)
    sums = [each for each in forward if each.name.endswith("add")]
    assert all(len(each.reads) == 2 for each in sums)
    backward = network.computations[len(forward) :]
    for each in backward:
        (of,) = each.of
        saved = {value for value in each.reads if network.values[value].evictable}
        kept = set() if network.computations[of].name.endswith("add") else {*forward[of].reads}
        assert saved == kept
    # Two thirds of what is saved is computed again in a small part of the time.
    cheap = sum(each.duration for each in forward if each not in dear)
    assert 20 * cheap < network.compute_time
    assert len(RecomputeNetworks(skip=0).problem(0).computed or ()) == 6 * 6


@pytest.mark.parametrize("seed", range(6))
def test_running_everything_once_is_legal_and_fits_at_the_peak(seed: int) -> None:
    for generator in (CheckpointChains(stages=5), RecomputeNetworks(blocks=3)):
        problem = generator.problem(seed)
        network = problem.computed
        assert network is not None
        execution = Strategy.plain(network).expand(network)
        assert not execution_faults(network, execution)
        limited = problem.executed(execution).with_memory(problem.peak_memory)
        assert simulate(limited, sequential(limited)).makespan == network.compute_time


def closest_sum(values: list[int]) -> int:
    """Return the largest sum of a subset that is at most half of everything, by trying all."""
    sums = {sum(part) for size in range(len(values) + 1) for part in combinations(values, size)}
    return max(each for each in sums if 2 * each <= sum(values))


def drawn(seed: int) -> list[int]:
    rng = random.Random(seed)
    while True:
        values = [rng.randint(1, 12) for _ in range(rng.randint(2, 6))]
        if sum(values) % 2 == 0:
            return values


@pytest.mark.parametrize("seed", range(25))
def test_the_optimum_of_the_reduction_is_attained_by_the_closest_sum(seed: int) -> None:
    values = drawn(seed)
    problem = recompute_partition(values)
    assert problem.source is not None
    solution, half = problem.source["solution"], sum(values) // 2
    closest = closest_sum(values)
    assert solution["optimum"] == 2 * half + sum(values) - closest
    assert (solution["answer"] == "yes") == (closest == half)
    network = problem.computed
    assert network is not None
    best = None
    for size in range(len(values) + 1):
        for part in combinations(range(len(values)), size):
            if sum(values[index] for index in part) > half:
                with pytest.raises(InputError, match="is more than a half"):
                    strategy_of_part(values, part)
                continue
            execution = strategy_of_part(values, part).expand(network)
            assert not execution_faults(network, execution)
            executed = problem.executed(execution)
            schedule = simulate(executed, sequential(executed))
            assert not check(executed, schedule)
            best = schedule.makespan if best is None else min(best, schedule.makespan)
    assert best == solution["optimum"]


@pytest.mark.parametrize("values", [[1, 3], [2, 2, 2], [3, 2, 1], [5, 1, 2, 2], [4, 1, 3]])
def test_no_execution_of_any_kind_is_shorter_than_the_optimum(values: list[int]) -> None:
    problem = recompute_partition(values)
    assert problem.source is not None
    assert least_time(problem) == problem.source["solution"]["optimum"]


def test_keeping_more_than_half_does_not_fit() -> None:
    problem = recompute_partition([3, 5, 4, 2])
    network = problem.computed
    assert network is not None
    execution = Strategy.plain(network).expand(network)
    assert problem.executed(execution).trace.least_memory > problem.platform.memory


def test_a_schedule_of_that_length_is_a_half_again() -> None:
    problem = RecomputePartition(count=8, largest=20, answer="yes").problem(2)
    assert problem.source is not None
    values, part = problem.source["values"], problem.source["solution"]["partition"]
    certificate = certificate_of(problem, strategy_of_part(values, part))
    assert verify(certificate).valid
    schedule = certificate.result.schedule
    assert schedule is not None
    found = part_of(problem, certificate.result.execution, schedule.makespan)
    assert sum(values[index] for index in found) * 2 == sum(values)
    with pytest.raises(InputError, match="only a schedule of length"):
        part_of(problem, certificate.result.execution, schedule.makespan + 1)
    with pytest.raises(InputError, match="is not the problem that its values reduce to"):
        part_of(problem, None, schedule.makespan)
    with pytest.raises(InputError, match="is no reduction from recompute partition"):
        part_of(CheckpointChains().problem(0), certificate.result.execution, schedule.makespan)


def test_given_values_are_reduced_and_their_source_makes_them_again() -> None:
    problem = reduced("recompute-partition", [3, 5, 4, 2])
    assert problem.source is not None
    assert from_source(problem.source) == problem
    with pytest.raises(InputError, match="values must have an even sum, not 7"):
        reduced("recompute-partition", [3, 4])
