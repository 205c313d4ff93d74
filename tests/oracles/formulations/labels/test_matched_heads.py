"""Heads and tails that move the same tensors, against brute force and the independent check."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.certification.search_steps.descents import descend_sequential
from offcert.certification.search_steps.labels import climb_matched
from offcert.core.errors import MethodError
from offcert.core.result import Evidence
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.labels.common import OutOfLabelsError
from offcert.formulations.labels.ends.heads import quick_ends
from offcert.formulations.labels.ends.matched import FINEST, MatchedSearch
from offcert.formulations.labels.ends.targets import MatchedHeadsSearch
from offcert.heuristics.orders.ordered import ordered_schedule
from offcert.proofs.any_certificate import Settings
from offcert.proofs.kinds.labels import Heads
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification.document import verify
from offcert.verification.ends.check import heads_fault
from support.oracles.schedules import brute_force
from support.problems.random_instances import mixed_problem, random_problem
from support.seeds import by_seeds

PLENTY = 10**6


def no_pause() -> None:
    """Never run out of time."""


def needs(problem: Problem) -> list[int]:
    return required_absent(problem, subset_sum=True)


def ends_at(problem: Problem, pivot: int) -> Heads:
    return quick_ends(problem, needs(problem), pivot, PLENTY)


def searches(
    seeds: range, stages: int, finest: int = FINEST
) -> Iterator[tuple[Problem, int, MatchedSearch]]:
    """Yield problems that need memory with their optima, cut at every pivot, with some movables."""
    for seed in seeds:
        rng = random.Random(seed)
        problem = mixed_problem(seed, stages)
        optimum = brute_force(problem)
        assert optimum is not None
        if optimum == problem.trace.compute_time:
            continue
        sizes = [problem.trace.gap_size(gap) for gap in range(len(problem.trace.gaps))]
        required = needs(problem)
        for pivot in (operation for operation, need in enumerate(required) if need > 0):
            least = rng.choice([0, 0, *sizes])
            ends = ends_at(problem, pivot)
            yield problem, optimum, MatchedSearch(problem, required, ends, least, finest)


def fault(problem: Problem, search: MatchedSearch, claim: int) -> str | None:
    return heads_fault(problem, claim, search.proof)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(1))
def test_no_target_makes_a_bound_exceed_the_optimum_and_what_is_proved_is_confirmed(
    block: int,
) -> None:
    rng = random.Random(block)
    higher = attained = several = 0
    for problem, optimum, search in searches(range(120 * block, 120 * block + 120), 5):
        apart = search.bound
        for target in sorted(rng.sample(range(apart, optimum + 20), 3)):
            if not search.exact:
                search.improve(max(target, search.bound + 1), PLENTY, no_pause)
        assert apart <= search.bound <= optimum
        assert not search.proof.levels or fault(problem, search, search.bound) is None
        several += len(search.proof.levels) > 1
        higher += search.bound > apart
        attained += search.bound == optimum > apart
    assert higher > 10
    assert attained > 5
    assert several > 2


@pytest.mark.slow
def test_coarse_units_prove_less_but_nothing_wrong() -> None:
    higher = confirmed = 0
    for problem, optimum, search in searches(range(500, 560), 5, finest=3):
        if search.exact:
            continue
        apart = search.bound
        search.improve(optimum + 10, PLENTY, no_pause)
        assert search.bound <= optimum
        higher += search.bound > apart
        confirmed += search.bound > apart and fault(problem, search, search.bound) is None
    assert higher > 5
    assert confirmed > 3


@pytest.mark.slow
def test_each_target_is_settled_or_everything_counts() -> None:
    settled = exact = 0
    for problem, optimum, search in searches(range(400, 450), 5):
        if search.exact:
            continue
        target = max(search.bound, optimum) + 3
        search.improve(target, PLENTY, no_pause)
        # No schedule is so long that it would not be below the target.
        assert search.exact
        exact += 1
        bound = search.bound
        again = MatchedSearch(problem, needs(problem), search.ends, search.proof.free_below)
        if bound > again.bound:
            again.improve(bound, PLENTY, no_pause)
            assert again.bound == bound
            assert not again.exact
            settled += 1
    assert exact > 10
    assert settled > 2


@pytest.mark.slow
def test_orders_of_the_best_combination_are_the_best_schedule_if_nothing_is_left_out() -> None:
    best = 0
    for problem, optimum, search in searches(range(300, 360), 5):
        if search.exact:
            continue
        search.improve(optimum + 10, PLENTY, no_pause)
        assert search.orders is not None
        assert search.orders.end <= search.bound
        assert sorted(search.orders.offloads) == sorted(search.orders.prefetches)
        try:
            schedule = ordered_schedule(problem, search.orders.offloads, search.orders.prefetches)
        except MethodError:
            continue
        assert schedule.makespan >= optimum
        best += schedule.makespan == optimum
    assert best > 20


def test_too_many_labels_are_said_and_what_was_proved_stays() -> None:
    problem = random_problem(5, 9, 9)
    ends = ends_at(problem, len(problem.trace) // 2)
    search = MatchedSearch(problem, needs(problem), ends, 0)
    with pytest.raises(OutOfLabelsError):
        search.improve(10 * search.bound, 2, lambda: None)
    assert search.bound == ends.head + ends.tail


def small_network() -> tuple[Problem, int]:
    """Return a problem whose best head and tail do not move the same, and its optimum."""
    problem = mixed_problem(535, 5)
    optimum = brute_force(problem)
    assert optimum == 262
    required = required_absent(problem, subset_sum=True)
    ends = ends_at(problem, required.index(max(required)))
    assert ends.head + ends.tail == 253
    return problem, optimum


def test_the_program_goes_on_where_it_stopped_and_ends_by_itself() -> None:
    problem, optimum = small_network()
    program = MatchedHeadsSearch(problem)
    nothing = program.improve(optimum + 10, -1.0)
    assert not nothing.finished
    assert not nothing.orders
    outcome = program.improve(optimum + 10, 60.0)
    assert nothing.lower_bound < outcome.lower_bound <= optimum
    assert outcome.finished
    assert outcome.orders
    # What is known by then is all that is asked for.
    assert program.improve(outcome.lower_bound, 60.0).lower_bound == outcome.lower_bound


def test_the_program_stops_when_told() -> None:
    problem, optimum = small_network()
    outcome = MatchedHeadsSearch(problem, stop=lambda: True).improve(optimum, 60.0)
    assert outcome.lower_bound == sum(outcome.proof.times)
    assert not outcome.proof.levels


def test_the_step_adds_a_bound_that_verifies() -> None:
    problem, optimum = small_network()
    search = Search(problem, 60.0)
    climb = Effort(60.0)
    descend_sequential(search, climb)
    climb_matched(search, climb)
    certificate = search.certificate("certify", Settings())
    found = {bound.method: bound for bound in certificate.result.bounds}
    assert found["matched-heads"].evidence is Evidence.PROVED
    assert found["matched-heads"].value <= optimum
    assert not verify(certificate.to_json()).faults
    # The orders it promises are a plan, too.
    assert certificate.result.objective == optimum


def test_other_problems_are_refused() -> None:
    problem, _ = small_network()
    with pytest.raises(MethodError, match="atomic"):
        MatchedHeadsSearch(replace(problem, transfers=Transfers.INTERRUPTIBLE))
    with pytest.raises(MethodError, match="nothing ever has to leave"):
        MatchedHeadsSearch(problem.with_memory(problem.trace.peak_memory))


@pytest.mark.slow
@by_seeds(0, 80, 27)
def test_with_fewer_labels_it_ends_without_a_better_bound_and_says_so(seeds: range) -> None:
    proved = []
    for seed in seeds:
        problem = random_problem(seed, 5)
        try:
            program = MatchedHeadsSearch(problem)
            limited = MatchedHeadsSearch(problem, max_labels=0)
        except MethodError:
            continue
        optimum = brute_force(problem)
        assert optimum is not None
        outcomes = [item.improve(optimum + 5, 5.0) for item in (program, limited)]
        for outcome in outcomes:
            assert outcome.lower_bound <= optimum
        assert outcomes[1].proof.levels == ()
        assert outcomes[1].lower_bound <= outcomes[0].lower_bound
        proved.append(outcomes[0].lower_bound > outcomes[1].lower_bound)
    assert any(proved)
