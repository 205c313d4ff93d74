"""`place`: what it returns and refuses; every method of the registry against brute force."""

import json
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offcert
from offcert.certification import placing as shortening
from offcert.certification.method import Effort, Method
from offcert.certification.placement_methods import PLACEMENT_LADDER, PLACEMENT_METHODS
from offcert.certification.placing import place
from offcert.certification.rung import Rung
from offcert.certification.running import ContradictionError, SearchProgress, UnsoundError
from offcert.certification.search import PlacementSearch
from offcert.core.errors import InputError
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.proofs.certificate import certificate_from_json
from offcert.proofs.placement_certificate import PLACEMENT_CLAIMS, PLACEMENT_PROOFS
from offcert.questions.placement.problem import (
    Placement,
    PlacementProblem,
    Residence,
    placement_faults,
)
from offcert.questions.schedule.schedule import Schedule
from support.oracles.placement import least_placement, least_pool
from support.problems.placements import random_placement_problem, scheduled
from support.seeds import by_seeds

SQUARE = [Residence("a", 4, 0, 2), Residence("b", 3, 1, 3), Residence("c", 4, 2, 4)]


def every_pool(problem: PlacementProblem) -> int:
    """Return the least pool over every combination of addresses, which is hopeless beyond five."""
    most = sum(problem.sizes)
    unit = problem.alignment
    choices = [range(0, most - size + 1, unit) for size in problem.sizes]
    return min(
        placement.pool(problem)
        for placement in map(Placement, product(*choices))
        if not placement_faults(problem, placement)
    )


@pytest.mark.parametrize("seed", range(25))
def test_the_oracle_is_right_where_all_addresses_can_be_tried(seed: int) -> None:
    problem = random_placement_problem(seed, most=4, span=5)
    assert least_pool(problem) == every_pool(problem)
    assert placement_faults(problem, least_placement(problem)) == []


@pytest.mark.parametrize("name", PLACEMENT_METHODS)
def test_no_method_contradicts_brute_force(name: str) -> None:
    method = PLACEMENT_METHODS[name]
    for seed in range(12):
        problem = random_placement_problem(seed, most=7, span=8)
        least = least_pool(problem)
        placed = place(problem, name, time_limit=5, workers=1)
        result = placed.result
        assert not placed.notes.failed
        assert result.lower_bound <= least
        assert result.pool is None or result.pool >= least
        assert {bound.method for bound in result.bounds} <= set(method.bounds)
        for capacity in (least, least - 1):
            fitting = place(problem, name, time_limit=5, workers=1, capacity=max(capacity, 0))
            wrong = SolveStatus.INFEASIBLE if capacity >= least else SolveStatus.FEASIBLE
            assert least == 0 or fitting.result.status is not wrong
            assert offcert.verify(fitting).valid


@pytest.mark.slow
@by_seeds(0, 40, 20)
def test_the_ladder_is_never_wrong_and_always_finds_addresses(seeds: range) -> None:
    for seed in seeds:
        problem = random_placement_problem(seed, most=7, span=8)
        least = least_pool(problem)
        placed = place(problem, time_limit=5, workers=1)
        assert not placed.notes.failed
        assert placed.result.pool is not None
        assert placed.result.lower_bound <= least <= placed.result.pool
        assert (placed.result.status is SolveStatus.OPTIMAL) == (
            placed.result.pool == placed.result.lower_bound
        )
        assert offcert.verify(placed).valid


def test_every_method_of_the_ladder_exists_and_every_bound_has_its_method() -> None:
    assert all(PLACEMENT_METHODS[rung.name] is rung.method for rung in PLACEMENT_LADDER)
    assert all(0 < rung.share <= 1 for rung in PLACEMENT_LADDER)
    named = {name for method in PLACEMENT_METHODS.values() for name in method.bounds}
    assert named == set(PLACEMENT_PROOFS) | set(PLACEMENT_CLAIMS)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from((1, 2, 8)), st.none() | st.integers(0, 40))
def test_what_is_returned_is_valid_whatever_is_asked(
    seed: int, alignment: int, capacity: int | None
) -> None:
    problem = random_placement_problem(seed)
    placed = place(problem, "first-fit", time_limit=5, alignment=alignment, capacity=capacity)
    assert placed.problem == problem.with_alignment(alignment).with_capacity(capacity)
    assert offcert.verify(placed).valid


def test_a_single_method_notes_only_what_it_reads() -> None:
    problem = PlacementProblem("p", SQUARE)
    assert place(problem, "load", seed=3).settings.seed is None
    assert place(problem, seed=3).settings.seed == 3
    assert place(problem).method == "place"
    assert place(problem, "load").result.status is SolveStatus.UNKNOWN


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda p: place(p, "first-fitt"), "method must be one of .*did you mean first-fit"),
        (lambda p: place(p, 3), "method must be one of"),
        (
            lambda p: place("x"),
            r"what is placed must be a PlacementProblem, a Certificate or a Split\w+, not",
        ),
        (lambda p: place(p, capacity=-1), "capacity must be at least 0, not -1"),
        (lambda p: place(p, alignment=0), "alignment must be at least 1, not 0"),
        (lambda p: place(p, time_limit=0), "time_limit must be a positive number"),
        (lambda p: place(p, seed=-1), "seed must be from 0"),
    ],
)
def test_wrong_arguments_are_refused(
    call: Callable[[PlacementProblem], object], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        call(PlacementProblem("p", SQUARE))


def only(monkeypatch: pytest.MonkeyPatch, *runs: Callable[[PlacementSearch, float], None]) -> None:
    """Let the ladder consist of these steps."""
    rungs = tuple(Rung(Method(run), 1.0, "a step") for run in runs)
    monkeypatch.setattr("offcert.certification.placement_methods.PLACEMENT_LADDER", rungs)


def interrupt(search: PlacementSearch, effort: Effort) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def offer(search: PlacementSearch, effort: Effort) -> None:
        search.begin("offer")
        search.offer(Placement([0, 4, 7]))

    only(monkeypatch, offer, interrupt)
    kept: list[object] = []
    told: list[SearchProgress] = []
    placed = place(PlacementProblem("p", SQUARE), progress=told.append, keep=kept.append)
    assert placed.notes.interrupted
    assert placed.result.pool == 11
    assert [news.objective for news in told] == [None, 11]
    assert kept
    assert offcert.verify(placed).valid


def test_what_fails_or_contradicts_itself_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = PlacementProblem("p", SQUARE)

    def fail(search: PlacementSearch, effort: Effort) -> None:
        search.begin("fail")
        raise ValueError("no solver here")

    def overlap(search: PlacementSearch, effort: Effort) -> None:
        search.begin("overlap")
        search.offer(Placement([0, 3, 0]))

    def claim(search: PlacementSearch, effort: Effort) -> None:
        search.offer(Placement([0, 4, 0]))
        search.add(Bound("somebody", 8, Evidence.ATTESTED))

    def prove(search: PlacementSearch, effort: Effort) -> None:
        search.offer(Placement([0, 4, 0]))
        search.add(Bound("load", 8, Evidence.PROVED))

    only(monkeypatch, fail)
    with pytest.warns(UserWarning, match="no solver here"):
        assert place(problem).notes.failed == {"fail": "ValueError: no solver here"}
    only(monkeypatch, claim)
    with pytest.warns(UserWarning, match="no pool is smaller than 8, but one has 7"):
        assert place(problem).notes.refuted == {"somebody": 8}
    only(monkeypatch, overlap)
    with pytest.warns(UserWarning, match="a .*overlaps b"):
        placed = place(problem)
    assert placed.notes.failed.keys() == {"overlap"}
    assert placed.result.placement is None
    only(monkeypatch, prove)
    with pytest.raises(ContradictionError, match="exceeds the pool of a valid"):
        place(problem)


def test_what_is_kept_of_a_certificate_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = next(scheduled(20, seed=5))
    kept: list[offcert.Certificate] = []
    place(certificate, keep=kept.append)
    assert kept[0].placement is not None
    assert kept[0].placement.notes.unfinished == "load"
    assert all(offcert.verify(json.loads(json.dumps(each.to_json()))).valid for each in kept)


def test_a_shortened_schedule_takes_the_place_of_the_given_one() -> None:
    given = next(each for each in scheduled(40, 5) if len(each.result.schedule.transfers) > 1)
    kept = place(given, time_limit=5)
    assert kept.result is given.result
    assert not kept.placement.notes.shortened
    placed = place(given, shorten=True, time_limit=5)
    assert placed.placement.notes.shortened
    assert placed.result.schedule != given.result.schedule
    assert placed.result.objective == given.result.objective
    assert placed.placement.settings.time_limit == 5
    assert offcert.verify(placed).valid
    again = certificate_from_json(json.loads(json.dumps(placed.to_json())))
    assert again.placement.notes.shortened
    # Nothing is left to be shortened.
    assert place(placed, shorten=True, time_limit=5).result.schedule == placed.result.schedule
    problem = random_placement_problem(0)
    with pytest.raises(InputError, match="only the schedule of a certificate can be shortened"):
        place(problem, shorten=True)


def test_an_interrupt_while_shortening_keeps_the_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shortening, "shortened", interrupted)
    given = next(iter(scheduled(40, 1)))
    placed = place(given, shorten=True)
    assert placed.result is given.result
    assert placed.placement.notes.interrupted
    assert not placed.placement.notes.shortened
    assert placed.placement.result.placement is None
    assert offcert.verify(placed).valid


def test_an_invalid_schedule_from_shortening_is_not_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = next(each for each in scheduled(40, 5) if len(each.result.schedule.transfers) > 1)
    schedule = given.result.schedule
    for shift in (-9, 9):
        starts, ends = (
            [tick + shift for tick in ticks] for ticks in (schedule.starts, schedule.ends)
        )
        wrong = Schedule(starts, ends, ())
        monkeypatch.setattr(shortening, "shortened", lambda *_, found=wrong, **__: found)
        with pytest.raises(UnsoundError, match="shortening returned an invalid schedule"):
            place(given, shorten=True)
