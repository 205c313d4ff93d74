"""Heads and tails with whole tensors against brute force, at every pivot, in whole or in part."""

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from benchmarks.chains import cnn_chain
from offcert.core.chain import Chain
from offcert.core.platform import Kind, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.combinatorial.relaxations import (
    fractional_bound,
    heads_and_tails,
    required_absent,
)
from offcert.formulations.labels.ends import alone as searching
from offcert.formulations.labels.ends.alone import SideSearch
from offcert.formulations.labels.ends.heads import HeadsOutcome, heads_bound
from offcert.formulations.labels.ends.side import HeadSide, Movable, back, front, link_rate
from offcert.questions.schedule.problem import Problem
from support.oracles.schedules import brute_force
from support.oracles.side_sequences import end_of, least_end, random_side
from support.problems.random_instances import mixed_problem, random_problem
from support.seeds import by_seeds

ANY = 2**60
PLENTY = 10**6


def no_pause() -> None:
    """Never run out of time."""


def pivots(problem: Problem) -> Iterator[int]:
    """Yield the operations that need memory."""
    return (o for o, need in enumerate(required_absent(problem, subset_sum=True)) if need > 0)


def sides(problem: Problem, pivot: int) -> tuple[HeadSide, HeadSide]:
    required = required_absent(problem, subset_sum=True)
    return front(problem, required, pivot), back(problem, required, pivot)


def searched(
    problem: Problem, side: HeadSide, limit: int = ANY, unit: int = 1, max_labels: int = PLENTY
) -> SideSearch:
    search = SideSearch(side)
    search.unit = unit
    search.improve(limit, max_labels, no_pause)
    return search


@pytest.mark.slow
@by_seeds(0, 300, 150)
def test_no_head_and_tail_exceed_the_optimum(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seeds.start)
    tried = duplex = several = attained = partial = 0
    for seed in seeds:
        problem = mixed_problem(seed, 4)
        optimum = brute_force(problem)
        assert optimum is not None
        gaps = problem.trace.gaps
        for pivot in pivots(problem):
            duplex += problem.platform.duplex
            several += len({gap.tensor for gap in gaps}) < len(gaps)
            limit = rng.choice((optimum // 3, optimum // 2, optimum, ANY))
            unit = rng.choice((1, 1, 2, 3, 7, 50))
            few = rng.choice((1, 2, 5, PLENTY))
            monkeypatch.setattr(searching, "STRIDE", 1 if few < PLENTY else 10**4)
            found = [searched(problem, side, limit, unit, few) for side in sides(problem, pivot)]
            tried += 1
            complete = [searched(problem, side) for side in sides(problem, pivot)]
            total = sum(search.bound for search in complete)
            assert total <= optimum
            assert all(s.bound <= c.bound for s, c in zip(found, complete, strict=True))
            # A limit can only be overshot by the bounds that need no search.
            assert all(s.bound <= max(limit + 1, end_at_once(s)) for s in found)
            attained += total == optimum > problem.trace.compute_time
            partial += limit == ANY and not all(search.exact for search in found)
    assert tried > 200
    assert min(duplex, attained, partial) >= 20
    assert several >= 10


def end_at_once(search: SideSearch) -> int:
    """Return what the search says before it has moved anything."""
    missing = [
        -(-need * search.side.rate[1] // search.side.rate[0]) - begin + floor if need > 0 else 0
        for need, begin, floor in zip(
            search.side.required, search.side.prefix, search.side.floor, strict=True
        )
    ]
    return max(search.side.floor[0], *missing)


@by_seeds(1000, 1300, 150)
def test_the_search_lies_between_all_sequences_and_the_strict_ones(seeds: range) -> None:
    compared = several = between = strictly = 0
    for seed in seeds:
        problem = mixed_problem(seed, 4)
        for pivot in pivots(problem):
            for side in sides(problem, pivot):
                if len(side.items) > 5:
                    continue
                search = searched(problem, side)
                end = least_end(side)
                strict = least_end(side, strict=True)
                assert search.exact
                assert end <= search.bound <= strict
                compared += 1
                several += len(search.counted) > 0
                between += end < search.bound
                strictly += search.bound == strict
                assert search.way is not None
                items = {item.gap: item for item in side.items}
                order = tuple(items[gap] for gap in search.way)
                way = end_of(side, order)
                assert way is not None
                assert end <= way <= search.bound
    assert compared > 400
    assert several > 10
    # Bytes of a tensor in use stand in for others only now and then, and what cannot have left by
    # an operation is known even then.
    assert strictly > 0.9 * compared
    assert between < 0.1 * compared


@pytest.mark.parametrize("bandwidth", [Fraction(1), Fraction(2, 3), Fraction(3)])
def test_the_search_equals_all_sequences_where_tensors_are_not_used_meanwhile(
    bandwidth: Fraction,
) -> None:
    rng = random.Random(7)
    trace = Trace([Operation("o", 1)], [Tensor("a", 1, (0,))])
    problem = Problem("p", trace, Platform(1, bandwidth))
    waiting = 0
    for _ in range(150):
        side = random_side(rng, bandwidth)
        search = searched(problem, side)
        assert search.bound == least_end(side)
        assert search.exact
        assert search.way is not None
        items = {item.gap: item for item in side.items}
        assert end_of(side, tuple(items[gap] for gap in search.way)) == search.bound
        waiting += search.bound > side.prefix[-1]
        for unit in (2, 5):
            assert searched(problem, side, unit=unit).bound <= search.bound
    assert waiting > 60


def test_a_later_tensor_of_a_size_cannot_leave_as_early_as_the_first() -> None:
    side = HeadSide(
        prefix=[0, 1, 101],
        required=[0, 0, 10],
        items=[
            Movable(0, 5, 5, 0, (True, True)),
            Movable(1, 5, 5, 1, (True, True)),
        ],
        floor=[101, 101, 101],
        rate=(1, 1),
    )
    platform = Platform(10, Fraction(1))
    trace = Trace([Operation("o", 1)], [Tensor("a", 1, (0,))])
    search = searched(Problem("p", trace, platform), side)
    # The second is ready at 101; both seem to run at 1, because operations run eagerly.
    assert (search.bound, search.exact) == (106, True)


def test_each_round_only_raises_the_bound_and_a_limit_stops_it() -> None:
    problem = chain(24, 1)
    proof = heads_bound(problem, upper_bound=ANY, time_limit=30, max_labels=10_000).proof
    assert proof is not None
    for side in sides(problem, proof.pivot):
        best = searched(problem, side).bound
        for limit in (best - 40, best - 1, best, best + 40):
            search = searched(problem, side, limit)
            assert search.bound == min(best, limit + 1) or search.bound == side.floor[0]


def fluid_end(side: HeadSide, rate: Fraction) -> Fraction:
    """Return the least end if tensors left bit by bit and counted everywhere."""
    starts = [Fraction(0)] * len(side.prefix)
    for j, need in enumerate(side.required):
        if j:
            starts[j] = starts[j - 1] + side.prefix[j] - side.prefix[j - 1]
        free = Fraction(0)
        for item in side.items:
            if item.ready < j and need > 0:
                over = item.ready
                ready = starts[over] + side.prefix[over + 1] - side.prefix[over] if over >= 0 else 0
                part = min(need, item.size)
                free, need = max(free, ready) + part / rate, need - part
        starts[j] = max(starts[j], free)
    return starts[-1]


def same_rules(problem: Problem, side: HeadSide, operations: list[int]) -> bool:
    """Whether the fractional bound's head of the pivot is about the same tensors as the side.

    Tensors that cannot be absent during the pivot count for nothing here, and tensors in use count
    although they are not absent; the fractional bound knows neither. Where neither matters, a
    whole tensor is no better than its bits.
    """
    required = required_absent(problem, subset_sum=True)
    items = {item.gap for item in side.items}
    return all(
        items.issuperset(problem.trace.gaps_over[operation])
        and all(item.absent[j] for item in side.items if item.ready < j)
        for j, operation in enumerate(operations)
        if required[operation] > 0
    )


@by_seeds(2000, 2300, 50)
def test_whole_tensors_are_no_better_than_their_bits(seeds: range) -> None:
    compared = better = 0
    for seed in seeds:
        problem = random_problem(seed, 4)
        rate = problem.platform.bandwidth
        required = required_absent(problem, subset_sum=True)
        fluid = heads_and_tails(problem, required)
        last = len(problem.trace) - 1
        for pivot in pivots(problem):
            head, tail = sides(problem, pivot)
            for side, operations, value in (
                (head, list(range(pivot)), fluid.heads[pivot]),
                (tail, list(range(last, pivot - 1, -1)), fluid.tails[pivot]),
            ):
                bound = searched(problem, side).bound
                assert bound >= fluid_end(side, rate)
                if same_rules(problem, side, operations):
                    assert bound >= value
                    compared += 1
                    better += bound > value + 1
    assert compared >= 84
    assert better >= 3


def chain(stages: int, seed: int) -> Problem:
    problem = cnn_chain(stages, seed)
    return problem.with_memory(problem.memory_at(Fraction(0)))


@pytest.mark.parametrize("seed", [0, 1])
def test_chains_like_networks_need_more_than_the_fractional_bound_sees(seed: int) -> None:
    problem = chain(24, seed)
    outcome = heads_bound(problem, upper_bound=ANY, time_limit=30, max_labels=10_000)
    assert outcome.lower_bound > fractional_bound(problem, subset_sum=True).value
    assert outcome.proof is not None
    assert outcome.lower_bound == sum(outcome.proof.times)
    assert len(outcome.sets) == 2
    for gaps in outcome.sets:
        assert len(set(gaps)) == len(gaps)
        absent = sum(problem.trace.gap_size(gap) for gap in gaps)
        assert absent >= required_absent(problem, subset_sum=True)[outcome.proof.pivot]


def bounded(problem: Problem, upper: int) -> HeadsOutcome:
    return heads_bound(problem, upper_bound=upper, time_limit=30, max_labels=10_000)


@pytest.mark.slow
@by_seeds(3000, 3060, 30)
def test_the_race_respects_the_optimum_and_any_upper_bound(seeds: range) -> None:
    attained = 0
    for seed in seeds:
        problem = mixed_problem(seed, 4)
        optimum = brute_force(problem)
        assert optimum is not None
        compute = problem.trace.compute_time
        best = bounded(problem, ANY).lower_bound
        attained += best == optimum > compute
        assert compute <= best <= optimum
        for upper in (optimum // 4, optimum - 1, optimum, optimum + 5):
            outcome = bounded(problem, upper)
            if outcome.proof is not None:
                # Pivots whose head and tail already reach the upper bound end the race.
                assert outcome.lower_bound == min(best, upper) == sum(outcome.proof.times)
                assert min(outcome.proof.times) >= 0
    assert attained >= 12


def test_nothing_to_move_is_the_compute_time() -> None:
    problem = mixed_problem(1, 4)
    roomy = problem.with_memory(problem.trace.peak_memory)
    outcome = bounded(roomy, ANY)
    assert (outcome.lower_bound, outcome.proof) == (problem.trace.compute_time, None)


def scaled(problem: Problem, size: int, time: int = 1) -> Problem:
    trace, platform = problem.trace, problem.platform
    operations = [
        replace(o, workspace=size * o.workspace, duration=time * o.duration)
        for o in trace.operations
    ]
    tensors = [replace(tensor, size=size * tensor.size) for tensor in trace.tensors]
    out, into = (platform.rate(kind) * Fraction(size, time) for kind in Kind)
    platform = replace(
        platform, memory=size * platform.memory, bandwidth=out, prefetch_bandwidth=into
    )
    return replace(problem, network=Trace(operations, tensors), platform=platform)


@by_seeds(4000, 4040, 20)
def test_numbers_up_to_the_limits_change_nothing(seeds: range) -> None:
    compared = 0
    for seed in seeds:
        problem = mixed_problem(seed, 4)
        best = bounded(problem, ANY).lower_bound
        for factor in (2**20, 2**50):
            assert bounded(scaled(problem, factor), ANY).lower_bound == best
        # All transfers together may take nearly 2**61 ticks; rounding up happens once a transfer.
        long = bounded(scaled(problem, 1, 2**48), 2**63).lower_bound
        assert best * 2**48 - 2**48 * 2 * len(problem.trace.gaps) <= long
        optimum = brute_force(problem)
        assert optimum is not None
        assert long <= 2**48 * optimum
        compared += best > problem.trace.compute_time
    assert compared >= 12


@pytest.mark.parametrize(
    "bandwidth",
    [Fraction(10**30), Fraction(10**25, 3), Fraction(10**30 + 7, 10**30), Fraction(2**62 + 1)],
)
def test_bandwidths_beyond_64_bits(bandwidth: Fraction) -> None:
    chain = Chain((3, 5, 0, 6), (6, 9, 8, 0), (9, 7, 9, 5, 1), (1, 1, 1, 1, 1))
    problem = Problem("p", chain, Platform(chain.trace().least_memory, bandwidth))
    optimum = brute_force(problem)
    assert optimum is not None
    assert problem.trace.compute_time < bounded(problem, ANY).lower_bound <= optimum


def test_a_rate_that_fits_is_never_slower() -> None:
    rng = random.Random(0)
    for _ in range(300):
        bandwidth = Fraction(rng.randint(1, 10 ** rng.randint(1, 40)), rng.randint(1, 10**30))
        most = rng.randint(1, 2 ** rng.randint(1, 60))
        numerator, denominator = link_rate(bandwidth, most)
        assert numerator < 2**63
        assert most * denominator < 2**61
        for amount in (1, most // 2, most):
            assert -(-amount * denominator // numerator) <= -(-amount // bandwidth)
        if bandwidth.numerator < 2**62 and most * bandwidth.denominator < 2**61:
            assert Fraction(numerator, denominator) == bandwidth
