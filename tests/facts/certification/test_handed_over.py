"""A step that never ends by itself has handed over what it found when it is interrupted."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from offcert.certification import interrupts
from offcert.certification.clock import Starved
from offcert.certification.interrupts import watched
from offcert.certification.method import Effort
from offcert.certification.registry import STEPS
from offcert.certification.rung import Rung
from offcert.certification.running import Workings
from offcert.certification.search import Search
from offcert.certification.search_steps.deadlines import halve_limits
from offcert.certification.search_steps.joint import descend_plain, descend_whole
from offcert.certification.search_steps.rematerialisation import descend_rematerialisation
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.questions.schedule.simulate import simulate
from support.problems.random_instances import random_problem
from support.problems.random_networks import random_network, recompute_problem

FOREVER = 1e6
pytestmark = pytest.mark.filterwarnings("ignore:.*the search goes on without it")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of a second instead of five; steps hand over every twentieth."""
    monkeypatch.setattr(interrupts, "TICK", 0.05)
    monkeypatch.setattr("offcert.heuristics.joint.search.TAKING", 0.05)


def interrupted(search: Search, step: Callable[[Search, Effort], None], **options: Any) -> None:
    """Run a step that has all the time in the world under a watchdog that has not."""
    with watched(search, 0.3, lambda: pytest.fail("not needed"), 0.1):
        step(search, Effort(FOREVER, 1, **options))
    assert len(search.notes.failed) == 1


def tight(minimise: Minimise = Minimise.TIME) -> Problem:
    """Return a problem of a network of which no bound is met."""
    rng = random.Random(3)
    problem = recompute_problem(rng, random_network(rng, 24), Fraction(2, 3))
    slack = int(1.3 * problem.trace.compute_time)
    deadline = slack if minimise is Minimise.MEMORY else None
    return replace(problem, minimise=minimise, deadline=deadline, offload=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["joint-search", "rematerialisation"])
def test_searches_for_what_runs_again(name: str) -> None:
    search = Search(tight(), FOREVER)
    interrupted(search, STEPS[name].step)
    assert search.objective is not None


@pytest.mark.slow
def test_the_search_under_a_sinking_limit() -> None:
    search = Search(tight(Minimise.MEMORY), FOREVER)
    interrupted(search, STEPS["sinking-search"].step)
    assert search.objective is not None
    assert search.objective < search.problem.trace.peak_memory


@pytest.mark.slow
def test_annealing_over_transfers() -> None:
    problem = random_problem(7, 12, 12)
    search = Search(problem, FOREVER)
    search.offer(simulate(problem, sequential(problem)))
    first = search.objective
    interrupted(search, STEPS["local-search"].step, options={"patience": 10**9})
    assert search.objective is not None
    assert first is not None
    assert search.objective < first


def stuck_after(found: Callable[[Search], object]) -> Callable[[Search, int, int], None]:
    """Return a ladder that finds something and then waits for what never comes."""

    def climb(search: Search, workers: int, seed: int) -> None:
        found(search)
        threading.Event().wait()

    return climb


def test_what_a_search_within_a_step_has_found() -> None:
    search = Search(replace(tight(), offload=True), FOREVER)

    def offer(inner: Search) -> None:
        inner.offer(simulate(inner.problem, sequential(inner.problem)))

    interrupted(search, descend_plain, climb=stuck_after(offer))
    assert search.objective is not None


def test_what_a_search_at_a_limit_has_found() -> None:
    search = Search(tight(Minimise.MEMORY), FOREVER)
    descend_whole(search, Effort(1.0))
    plain = search.objective
    assert plain is not None

    def offer(inner: Search) -> None:
        descend_rematerialisation(inner, Effort(0.2, 1))

    interrupted(search, halve_limits, climb=stuck_after(offer))
    assert search.objective is not None
    assert search.objective <= plain


def test_only_the_searches_of_the_interrupted_step_are_forgotten() -> None:
    workings = Workings()
    kept = workings.search("outward", list)
    workings.used.clear()
    workings.search("pivot", list)
    workings.drop_used()
    assert workings.searches == {"outward": kept}


def starving(monkeypatch: pytest.MonkeyPatch, part: float, threads: int = 1) -> None:
    """Let the system say that threads wait for one of two processors for some part of all time."""
    begun = time.perf_counter_ns()

    def told() -> dict[str, tuple[int, int]]:
        passed = time.perf_counter_ns() - begun
        waited = int(part * passed)
        return {str(each): (passed - waited, waited) for each in range(threads)}

    monkeypatch.setattr("offcert.certification.clock.ran_and_waited", told)
    monkeypatch.setattr("offcert.certification.clock.cores", lambda: 2)


def test_time_that_others_have_the_processors_is_not_the_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starving(monkeypatch, 0.99)
    search = Search(tight(), FOREVER)
    with watched(search, 0.1, lambda: pytest.fail("not needed"), 0.1):
        time.sleep(0.6)
    assert not search.notes.failed


@pytest.mark.parametrize(
    ("threads", "part", "slowness"), [(8, 0.75, 1), (8, 0.875, 2), (2, 0.5, 2)]
)
def test_threads_that_wait_for_each_other_are_not_starved(
    monkeypatch: pytest.MonkeyPatch, threads: int, part: float, slowness: float
) -> None:
    # Eight threads on two processors wait for three quarters of the time, whoever else is there.
    starving(monkeypatch, part, threads)
    starved = Starved()
    time.sleep(0.05)
    assert starved.slowness() == pytest.approx(slowness, rel=0.1)


def test_a_step_has_as_much_longer_as_everything_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    starving(monkeypatch, 0.75)
    starved = Starved()
    time.sleep(0.05)
    assert starved.slowness() == pytest.approx(4, rel=0.1)
    rung = Rung(STEPS["local-search"], 0.5, "", at_most=2.0, at_least=1.0)
    assert [rung.seconds(left, 4.0) for left in (100.0, 10.0, 1.0)] == [8.0, 5.0, 1.0]
    assert [rung.seconds(left) for left in (100.0, 3.0, 1.0)] == [2.0, 1.5, 1.0]
