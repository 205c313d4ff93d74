"""One side of a cut searched, the other asked: sound at every pivot, and mostly exact."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from offcert.certify.method import Effort
from offcert.certify.search import Search
from offcert.certify.search_steps.descents import descend_sequential
from offcert.certify.search_steps.labels import climb_pivot_outward
from offcert.core.errors import MethodError, PlanError
from offcert.core.platform import Link
from offcert.core.result import Evidence
from offcert.formulations.labels.pivot.model import nested
from offcert.formulations.labels.pivot_outward import PivotOutwardOutcome, PivotOutwardSearch
from offcert.formulations.labels.pivot_outward import cut as cuts
from offcert.formulations.labels.pivot_outward.answers import Demands
from offcert.proofs.settings import Settings
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.verify.document import verify
from offcert.verify.pivot_outward import confirm_pivot_outward
from support.oracles.schedules import brute_force
from support.problems.nested import nested_problems, with_small_tensors
from support.problems.random_instances import counterexample


class Offers:
    """Takes schedules, simulates them, and knows the shortest."""

    def __init__(self, problem: Problem, best: int) -> None:
        self.problem, self.best, self.offered = problem, best, 0

    def __call__(self, schedule: Schedule) -> int:
        self.offered += 1
        with suppress(PlanError):
            plan = schedule.plan(self.problem.trace)
            self.best = min(self.best, simulate(self.problem, plan).makespan)
        return self.best


class Pause:
    """Must not be called once it is over."""

    over = False

    def __call__(self) -> None:
        assert not self.over


def searched(
    problem: Problem, upper: int, pivots: list[int] | None = None, workers: int = 1
) -> tuple[PivotOutwardOutcome, Offers]:
    offers = Offers(problem, upper)
    program = PivotOutwardSearch(problem, max_labels=10**6, pivots=pivots, workers=workers)
    return program.improve(upper, 60.0, offers), offers


def is_confirmed(problem: Problem, outcome: PivotOutwardOutcome) -> bool:
    assert outcome.ends is not None
    return confirm_pivot_outward(
        problem,
        outcome.pivot,
        outcome.side,
        outcome.limit,
        outcome.lower_bound,
        free_below=outcome.free_below,
        ends=(outcome.ends.head, outcome.ends.tail),
    )


def needing(problem: Problem) -> Iterator[int]:
    """Yield the operations for which something has to be absent."""
    for operation, demand in enumerate(problem.trace.demand):
        if demand > problem.platform.memory:
            yield operation


@pytest.mark.slow
def test_every_pivot_and_every_upper_bound_prove_no_more_than_the_optimum() -> None:
    asked = exact = attained = 0
    sides = set()
    for problem in nested_problems(60, 0, 4):
        optimum = brute_force(problem)
        assert optimum is not None
        for pivot in needing(problem):
            for upper in (optimum - 1, optimum, optimum + 1, optimum + 7, 50 * optimum + 50):
                outcome, offers = searched(problem, upper, [pivot])
                assert outcome.lower_bound <= min(optimum, upper)
                assert offers.best >= min(optimum, upper)
                assert is_confirmed(problem, outcome)
                asked += 1
                exact += outcome.lower_bound == min(optimum, upper)
                attained += offers.best == min(optimum, upper)
                sides.add(outcome.side)
    assert sides == {0, 1}
    assert asked > 400
    assert exact > 0.8 * asked
    assert attained > 0.95 * asked


@pytest.mark.slow
@pytest.mark.parametrize("side", [0, 1])
def test_either_side_alone_proves_no_more_than_the_optimum(
    side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(
        one: cuts.OneSidedCut, target: int, upper: int, pause: Callable[[], None], most: int
    ) -> int:
        one._cut.search(side, target, upper, one.minimum[1 - side], pause, most)
        return side

    monkeypatch.setattr(cuts.OneSidedCut, "one_side_searched", search)
    asked = exact = 0
    for problem in nested_problems(150, 500, 4):
        optimum = brute_force(problem)
        assert optimum is not None
        if optimum == problem.trace.compute_time:
            continue
        for pivot in needing(problem):
            outcome, offers = searched(problem, optimum + 40, [pivot])
            assert outcome.lower_bound <= optimum <= offers.best
            assert is_confirmed(problem, outcome)
            asked += 1
            exact += outcome.lower_bound == optimum
    assert asked > 90
    assert exact > 0.8 * asked


@pytest.mark.slow
def test_default_pivots_prove_most_optima_of_larger_problems() -> None:
    asked = exact = attained = 0
    for problem in nested_problems(60, 7000, 6):
        optimum = brute_force(problem)
        assert optimum is not None
        outcome, offers = searched(problem, 3 * optimum + 1)
        if outcome.ends is None:
            continue
        assert outcome.lower_bound <= optimum <= offers.best
        assert is_confirmed(problem, outcome)
        asked += 1
        exact += outcome.lower_bound == optimum
        attained += offers.best == optimum
    assert asked > 30
    assert exact > 0.9 * asked
    assert attained > 0.9 * asked


@pytest.mark.slow
def test_small_tensors_are_counted_where_their_time_matters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    levels = []
    refute = cuts.Other.refute

    def noted(other: cuts.Other, demands: Demands, *more: object) -> list[tuple[int, int]]:
        levels.append((other.pivot.free_below, len(demands.which)))
        return refute(other, demands, *more)

    monkeypatch.setattr(cuts.Other, "refute", noted)
    both = exact = asked = 0
    for seed, problem in enumerate(nested_problems(150, 300, 4)):
        small = with_small_tensors(problem, seed)
        optimum = brute_force(small)
        assert optimum is not None
        for pivot in needing(small):
            levels.clear()
            outcome, _ = searched(small, optimum + 3, [pivot])
            if outcome.ends is None:
                continue
            assert outcome.lower_bound <= optimum
            assert is_confirmed(small, outcome)
            asked += 1
            exact += outcome.lower_bound == optimum
            both += len(outcome.free_below) == 2 and any(free == 1 for free, _ in levels)
    assert both > 8
    assert exact > 0.85 * asked


def test_interleaving_is_found_where_it_pays() -> None:
    # All offloads before all prefetches needs 254 (notes on the papers, §1.2).
    problem = counterexample()
    found = set()
    for pivot in needing(problem):
        outcome, offers = searched(problem, 10_000, [pivot])
        found.add((outcome.lower_bound, offers.best))
    assert (219, 219) in found


def test_threads_change_nothing() -> None:
    for problem in nested_problems(12, 2000, 6):
        upper = 2 * problem.trace.compute_time + 1000
        alone, offers = searched(problem, upper)
        together, others = searched(problem, upper, workers=2)
        assert alone == together
        assert offers.offered == others.offered


def test_it_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    # Little at a time, so that it is interrupted in the middle of everything.
    monkeypatch.setattr(cuts, "TURN", 1)
    interrupted = 0
    for problem in nested_problems(20, 7000, 9):
        upper = 3 * problem.trace.compute_time + 1000
        once, _ = searched(problem, upper)
        asked = 0

        def stop() -> bool:
            nonlocal asked
            asked += 1
            return asked % 7 == 0

        program = PivotOutwardSearch(problem, max_labels=10**6, stop=stop)
        offers = Offers(problem, upper)
        bounds = []
        for _ in range(100):
            outcome = program.improve(offers.best, 60.0, offers)
            bounds.append(outcome.lower_bound)
            if outcome.ends is not None:
                assert is_confirmed(problem, outcome)
            if outcome.finished:
                break
        assert bounds == sorted(bounds)
        assert bounds[-1] >= once.lower_bound
        interrupted += len(bounds) > 1
    assert interrupted > 6


def test_every_round_pauses_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = []
    half = cuts.Other.half

    def noted(*parts: Any) -> Any:
        followed.append(parts)
        return half(*parts)

    monkeypatch.setattr(cuts.Other, "half", noted)
    twice = 0
    for problem in nested_problems(20, 500, 4):
        optimum = brute_force(problem)
        assert optimum is not None
        upper = optimum + 40
        for pivot in needing(problem):
            cut, pause = cuts.OneSidedCut(nested(problem), pivot), Pause()
            followed.clear()
            while not cut.stuck and cut.proven < upper:
                # Nothing is found, so what is open stays so.
                cut.round(upper, lambda schedule: 10**9, pause, 10**6)
            pause.over, first = True, len(followed)
            cut.round(upper, lambda schedule: 10**9, lambda: None, 10**6)
            twice += 0 < first < len(followed)
    assert twice > 10


def test_other_problems_are_refused() -> None:
    problem = counterexample()
    with pytest.raises(MethodError, match="atomic"):
        PivotOutwardSearch(replace(problem, transfers=Transfers.INTERRUPTIBLE), max_labels=9)
    duplex = replace(problem, platform=replace(problem.platform, link=Link.DUPLEX))
    with pytest.raises(MethodError, match="simplex"):
        PivotOutwardSearch(duplex, max_labels=9)


def test_where_nothing_has_to_leave_there_is_nothing_to_prove() -> None:
    problem = counterexample()
    problem = problem.with_memory(problem.trace.peak_memory)
    outcome, offers = searched(problem, 10_000)
    assert outcome == PivotOutwardOutcome(0, -1, 0, -1, None, (), 0, True)
    assert offers.offered == 0


def test_where_heads_and_tails_say_little_nothing_is_searched() -> None:
    problem = counterexample()
    program = PivotOutwardSearch(problem, max_labels=10**6, most_open=0.5)
    offers = Offers(problem, 1000)
    outcome = program.improve(1000, 60.0, offers)
    assert offers.offered == 0
    assert not outcome.finished
    # Once there is a better schedule, it is.
    assert program.improve(250, 60.0, offers).lower_bound == 219
    assert offers.best == 219


def test_the_step_adds_a_bound_and_schedules_that_verify() -> None:
    search = Search(counterexample(), 60.0)
    descend_sequential(search, Effort(60.0))
    assert search.objective is not None
    assert search.objective > 219
    climb_pivot_outward(search, Effort(60.0), most_open=1.0)
    certificate = search.certificate("certify", Settings())
    found = {bound.method: bound for bound in certificate.result.bounds}
    assert found["pivot-outward"].evidence is Evidence.PROVED
    assert found["pivot-outward"].value == certificate.result.objective == 219
    assert verify(certificate.to_json()).valid
