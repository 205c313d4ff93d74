"""Searches for the worst problem: they repeat, they minimise, and what they claim is true."""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import islice, pairwise
from typing import Any

import pytest

from offcert.certification.search import UnsoundError
from offcert.core.errors import InputError, MethodError, NoPlanError
from offcert.core.result import Evidence, SolveStatus
from offcert.heuristics.evictions.rules import greedy
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.problem import Transfers
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import verify
from offcert_lab.hunts.adversarial import values
from offcert_lab.hunts.adversarial.chains import AdversarialChains, certified
from offcert_lab.hunts.adversarial.hunt import Hunt, minimise
from offcert_lab.hunts.adversarial.numbers import Box, Numbers, draw, moved, simplifications
from offcert_lab.hunts.adversarial.values import Contest
from support.clocks import counting_clock
from support.oracles.schedules import brute_force

BOX = Box(range(4, 7), 20, 1)
# One unit has to leave for B_3, x_1; GREEDY moves x_0, 15 units, at 3 ticks each and way.
WORST = Numbers(
    ((1,) * 4, (1,) * 4, (15, 1, 0, 0, 0), (0,) * 5, (0,) * 4, (0, 0, 0, 1)), 16, Fraction(1, 3)
)


def within(numbers: Numbers, box: Box) -> bool:
    times = numbers.rows[0] + numbers.rows[1]
    return (
        numbers.stages in box.stages
        and min(times) >= box.shortest
        and all(0 <= value <= box.largest for row in numbers.rows for value in row)
        and numbers.memory >= numbers.chain.trace().least_memory
    )


def test_what_is_drawn_and_moved_stays_in_its_box_and_feasible() -> None:
    rng = random.Random(1)
    stages = set()
    for _ in range(60):
        numbers = draw(rng, BOX)
        assert within(numbers, BOX)
        for _ in range(10):
            numbers = moved(rng, numbers, BOX)
            assert within(numbers, BOX)
            assert [len(row) - numbers.stages for row in numbers.rows] == [0, 0, 1, 1, 0, 0]
            stages.add(numbers.stages)
    assert stages == {4, 5, 6}


def test_simplifications_are_simpler_and_feasible_and_of_every_kind() -> None:
    rng = random.Random(2)
    for _ in range(10):
        numbers = replace(draw(rng, BOX), rate=Fraction(1, 3))
        simpler = list(simplifications(numbers, BOX))
        assert all(within(other, BOX) and other.cost < numbers.cost for other in simpler)
        kinds = {
            "stages": any(other.stages < numbers.stages for other in simpler),
            "memory": any(
                other.rows == numbers.rows and other.memory < numbers.memory for other in simpler
            ),
            "bandwidth": any(other.rate == 1 for other in simpler),
            "entry": any(other.rows != numbers.rows for other in simpler),
        }
        assert kinds["bandwidth"]
        assert kinds["entry"]
        assert kinds["stages"] == (numbers.stages > 4)
        assert kinds["memory"] == (numbers.memory > numbers.least_memory)


def test_minimising_ends_where_no_single_simplification_has_the_property() -> None:
    numbers = draw(random.Random(3), BOX)

    def holds(candidate: Numbers) -> bool:
        return sum(candidate.rows[2]) >= 11 and candidate.rows[0][1] >= 3

    numbers = numbers.with_row(2, (9,) * (numbers.stages + 1)).with_entry(0, 1, 17).feasible()
    found = minimise(numbers, holds, BOX)
    assert holds(found)
    assert not any(holds(simpler) for simpler in simplifications(found, BOX))
    assert found.stages == 4
    assert (sum(found.rows[2]), found.rows[0], found.rate) == (11, (1, 3, 1, 1), 1)
    assert found.memory == found.least_memory
    assert not any(value for row in found.rows[3:] for value in row)


def test_values_of_a_problem_by_hand() -> None:
    problem = WORST.problem()
    contest = Contest("greedy", "optimum", Transfers.ATOMIC)
    score = contest.score(problem)
    assert (score.over, score.under) == (92, 10)
    assert score.over == simulate(problem, greedy(problem)).makespan
    assert score.under == brute_force(problem)
    assert contest.score(problem, score.ratio) == score
    assert contest.score(problem, score.ratio + Fraction(1, 10**6)) is None
    for name in values.BOUNDS:
        bound = values.value(name, problem)
        assert bound is not None
        assert problem.trace.compute_time <= bound <= score.under


def test_optima_and_bounds_agree_with_brute_force_and_every_screen_is_right() -> None:
    """A contest may pass over a problem for speed only if its ratio is too small."""
    rng = random.Random(4)
    box = Box(range(2, 4), 8, 1)
    contests = [
        Contest(against, "optimum", Transfers.ATOMIC)
        for against in ("greedy", "sequential", "ordered", "prop3", "fractional", "atomic-heads")
    ]
    contests += [Contest("prop3", "fractional-subset-sum", Transfers.ATOMIC)]
    contests += [Contest("greedy", "prop3", Transfers.ATOMIC)]
    above = 0
    for _ in range(25):
        numbers = draw(rng, box)
        problem = numbers.problem()
        best, ordered = brute_force(problem), brute_force(problem, ordered=True)
        assert values.optimum(problem) == best
        assert values.ordered_optimum(problem) == ordered
        for contest in contests:
            try:
                score = contest.score(problem)
            except NoPlanError:
                continue
            if score is None:
                continue
            above += score.ratio > 1
            assert contest.score(problem, score.ratio) == score
            assert contest.score(problem, score.ratio + Fraction(1, 1000)) is None
            if contest.by == "optimum":
                assert best == (score.over if contest.is_bound else score.under)
    assert above > 10


def test_a_bound_above_the_optimum_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = WORST.problem()
    best = values.optimum(problem)
    assert best is not None
    monkeypatch.setitem(values.BOUNDS, "prop3", lambda problem: best + 1)
    with pytest.raises(UnsoundError, match=f"prop3 is {best + 1} where the optimum is {best}"):
        Contest("prop3", "optimum", Transfers.ATOMIC).score(problem)
    monkeypatch.setattr(values, "makespan", lambda *_: best - 1)
    with pytest.raises(UnsoundError, match=f"greedy is {best - 1} where"):
        Contest("greedy", "optimum", Transfers.ATOMIC).score(problem)


def test_greedy_is_three_times_the_optimum_within_a_few_hundred_problems() -> None:
    chains = AdversarialChains(against="greedy", steps=210)
    problem = chains.problem(1)
    assert problem.chain is not None
    assert len(problem.chain) >= 4
    assert min(problem.chain.forward + problem.chain.backward) >= 1
    best = brute_force(problem)
    assert best is not None
    value = simulate(problem, greedy(problem)).makespan
    assert value >= 3 * best
    source = dict(problem.source or {})
    assert (source["over"], source["under"]) == (value, best)
    assert problem_digest(AdversarialChains.again(source)) == problem_digest(problem)


def test_no_simplification_of_a_find_keeps_enough_of_the_ratio() -> None:
    chains = AdversarialChains(against="prop3", steps=300, tolerance=20)
    hunt = Hunt(chains.terms(), 5, steps=300)
    find = hunt.run()
    assert find is not None
    assert hunt.best is not None
    assert hunt.minimised
    least = 1 + (hunt.best.score.ratio - 1) * Fraction(4, 5)
    assert find.score.ratio >= least
    assert find.numbers.cost < hunt.best.numbers.cost
    contest = chains.terms().contest
    for simpler in simplifications(find.numbers, chains.terms().box):
        assert contest.score(simpler.problem(), least) is None


def test_improvements_grow_and_end_with_the_best() -> None:
    terms = AdversarialChains(against="greedy").terms()
    hunt = Hunt(terms, 1, steps=150)
    finds = list(hunt.improvements())
    ratios = [find.score.ratio for find in finds]
    assert all(before < after for before, after in pairwise(ratios))
    assert len(finds) > 2
    assert hunt.best is finds[-1]
    assert hunt.steps == 150
    assert finds[:2] == list(islice(Hunt(terms, 1).improvements(), 2))
    assert finds[:2] != list(islice(Hunt(terms, 2).improvements(), 2))


def test_a_search_ended_by_the_clock_is_found_again_by_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chains = AdversarialChains(against="prop3")
    hunt, problem = chains.hunt(3, steps=80, time_limit=60)
    assert problem is not None
    assert problem.source is not None
    assert problem.source["steps"] == hunt.steps == 80
    assert problem_digest(AdversarialChains.again(problem.source)) == problem_digest(problem)
    monkeypatch.setattr("offcert_lab.hunts.adversarial.hunt.time", counting_clock(1 / 1000))
    ended, _ = chains.hunt(3, time_limit=0.3)
    assert 50 < ended.steps < 300
    assert 0.29 < ended.seconds < 0.32


@pytest.mark.parametrize("phase", ["search", "minimise"])
def test_an_interrupt_keeps_the_best_so_far(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def interrupt(progress: Any) -> None:
        if progress.phase == phase and progress.find is not None:
            told.append(progress.find)
            if len(told) == 10:
                raise KeyboardInterrupt

    monkeypatch.setattr("offcert_lab.hunts.adversarial.hunt.SECONDS_BETWEEN_REPORTS", 0)
    chains = AdversarialChains(against="greedy")
    hunt, problem = chains.hunt(1, steps=60, progress=interrupt)
    assert hunt.interrupted
    assert not hunt.minimised
    assert (hunt.steps < 60) == (phase == "search")
    assert (hunt.simplest is None) == (phase == "search")
    assert problem is not None
    assert problem.source is not None
    assert hunt.best is not None
    assert problem.network == told[-1].numbers.chain
    assert problem.source["over"] > problem.source["under"]


def test_no_plan_is_counted_and_minimised_but_is_no_ratio() -> None:
    hunt = Hunt(AdversarialChains(against="dynprog").terms(), 0, steps=300)
    hunt.run()
    assert hunt.no_plans > 0
    assert hunt.no_plan is not None
    contest = hunt.terms.contest
    with pytest.raises(NoPlanError):
        contest.score(hunt.no_plan.problem())
    assert brute_force(hunt.no_plan.problem()) is not None
    for simpler in simplifications(hunt.no_plan, hunt.terms.box):
        contest.score(simpler.problem())


def test_what_is_found_is_certified() -> None:
    source = {"against": "greedy", "by": "optimum", "over": 92, "under": 10}
    problem = replace(WORST.problem(), source=source)
    certificate = certified(problem)
    assert certificate.result.status is SolveStatus.OPTIMAL
    assert certificate.result.objective == 10
    verification = verify(certificate.to_json())
    assert verification.valid
    assert verification.evidence is Evidence.PROVED
    for wrong in (9, 11):
        forged = replace(problem, source=source | {"under": wrong})
        with pytest.raises(UnsoundError, match=f"took {wrong} for the optimum"):
            certified(forged)


def test_nothing_is_found_where_nothing_can_be() -> None:
    """CP-SAT confirms the pivot program, and rounding up never lowers a bound."""
    for against, by in (("pivot", "optimum"), ("fractional-subset-sum", "fractional")):
        with pytest.raises(MethodError, match="found nothing on which"):
            AdversarialChains(against=against, by=by, steps=60).problem(0)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"against": "magic"}, 'against must be one of "'),
        ({"by": "magic"}, 'by must be one of "optimum"'),
        ({"against": "pivot", "transfers": "interruptible"}, "against pivot needs atomic"),
        ({"by": "stage-milp", "transfers": "fractional"}, "by stage-milp needs atomic"),
        ({"transfers": "quick"}, "transfers must be one of"),
        ({"stages": 0}, "stages must be at least 1, not 0"),
        ({"most": 3}, "most must be 0 or at least stages, 4, not 3"),
        ({"largest": 1}, "shortest must be below largest, 1, not 1"),
        ({"tolerance": 100}, "tolerance must be below 100, not 100"),
    ],
)
def test_bad_knobs_get_one_sentence(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        AdversarialChains(**knobs)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
