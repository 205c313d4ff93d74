"""Searches for chains on which checkpoints do badly: what they claim is so, and they repeat."""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import chain as joined
from itertools import combinations
from typing import Any

import pytest

from offcert.certification.search import UnsoundError
from offcert.core.errors import InputError, MethodError
from offcert.heuristics.checkpoint.live import live_bytes
from offcert.instances.library import default_library
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert_lab.hunts.adversarial.checkpoint_chains import (
    NAMES,
    USUAL,
    VALUES,
    AdversarialCheckpoints,
    ByteNumbers,
    CheckpointContest,
    CheckpointNumbers,
    MovingNumbers,
)
from offcert_lab.hunts.adversarial.numbers import Box, Numbers, draw, moved, simplifications

BOX = Box(range(3, 6), 9, 1, CheckpointNumbers)


def candidates(count: int, kind: type[CheckpointNumbers], seed: int = 0) -> list[Problem]:
    rng = random.Random(seed)
    return [draw(rng, replace(BOX, kind=kind)).problem() for _ in range(count)]


def test_numbers_are_those_of_the_chain_that_they_make() -> None:
    rng = random.Random(1)
    for _ in range(50):
        numbers = draw(rng, BOX)
        for _ in range(4):
            numbers = moved(rng, numbers, BOX)
        assert isinstance(numbers, CheckpointNumbers)
        chain, problem = numbers.checkpoint_chain, numbers.problem()
        assert (chain.forward, chain.output, chain.extra) == (
            numbers.rows[0],
            numbers.rows[2],
            numbers.rows[3],
        )
        assert problem.platform.memory >= problem.least_memory
        assert len(chain) == numbers.stages in BOX.stages
        assert (problem.recompute, problem.offload) == (Recompute.ANY, False)
        simpler = next(simplifications(numbers, BOX), numbers)
        assert type(simpler) is CheckpointNumbers
        assert simpler.cost <= numbers.cost
    assert draw(rng, replace(BOX, kind=MovingNumbers)).problem().offload
    assert draw(rng, replace(BOX, kind=ByteNumbers)).problem().minimise is Minimise.MEMORY
    assert draw(rng, Box(range(3, 6), 9, 1)).problem().chain is not None
    assert Box(range(1), 1, 1).kind is Numbers


def test_selections_take_at_least_the_least_live_bytes() -> None:
    """The least of all sets of checkpoints, by trying them all."""
    for problem in candidates(25, ByteNumbers):
        chain = problem.checkpoint_chain
        assert chain is not None
        inner = range(1, len(chain))
        sets = joined.from_iterable(combinations(inner, size) for size in range(len(chain)))
        least = min(live_bytes(chain, (0, *each, len(chain))) for each in sets)
        found = {name: VALUES[name].of(problem) for name in NAMES if _in_bytes(name)}
        assert found["live-selection"] == least
        nested = found.pop("persistent-memory")
        assert nested is not None
        assert nested <= least
        assert all(value is not None and value >= least for value in found.values())


def _in_bytes(name: str) -> bool:
    return VALUES[name].minimise is Minimise.MEMORY


def test_what_may_run_again_in_any_way_takes_least_time() -> None:
    compared = 0
    for problem in candidates(15, CheckpointNumbers, 3):
        stored = VALUES["persistent"].of(problem)
        # That nothing fits takes long to find out.
        least = None if stored is None else VALUES["rematerialisation"].of(problem)
        if least is not None and stored is not None:
            assert problem.trace.compute_time <= least <= stored
            compared += 1
    assert compared > 4


def test_plans_that_move_and_recompute_fit() -> None:
    found = 0
    for problem in candidates(12, MovingNumbers, 5):
        values = [VALUES[name].of(problem) for name in ("combined", "offload-alone")]
        for value in values:
            assert value is None or value >= problem.trace.compute_time
        found += None not in values
    assert found > 4


@pytest.mark.parametrize(("against", "steps"), [("sqrt", 120), ("persistent", 60)])
def test_a_hunt_finds_what_it_claims_and_repeats(against: str, steps: int) -> None:
    knobs: dict[str, Any] = {"against": against, "stages": 4, "steps": steps}
    problem = AdversarialCheckpoints(**knobs).problem(0)
    source = problem.source
    assert source is not None
    assert source["over"] > source["under"]
    assert VALUES[against].of(problem) == source["over"]
    usual = USUAL[VALUES[against].minimise]
    assert VALUES[usual].of(problem) == source["under"]
    if against == "persistent":
        return  # Its searches take seconds.
    assert problem_digest(AdversarialCheckpoints.again(source)) == problem_digest(problem)
    hunt, again = AdversarialCheckpoints(**knobs).hunt(0, steps=steps)
    assert again is not None
    assert problem_digest(again) == problem_digest(problem)
    # What is simpler may be worse, too; it gives up no more than the tolerance.
    kept = 1 + (hunt.ratio - 1) * (1 - hunt.terms.tolerance)
    assert Fraction(source["over"], source["under"]) >= kept


def test_minimised_means_that_nothing_simpler_is_as_bad() -> None:
    generator = AdversarialCheckpoints(against="sqrt", stages=4, steps=150)
    hunt, _ = generator.hunt(1, steps=150)
    assert hunt.minimised
    assert hunt.simplest is not None
    least = 1 + (hunt.ratio - 1) * (1 - hunt.terms.tolerance)
    for simpler in simplifications(hunt.simplest.numbers, hunt.terms.box):
        score = hunt.terms.contest.score(simpler.problem(), least)
        assert score is None or score.ratio <= 1


def test_what_is_below_the_least_is_an_error_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (problem,) = candidates(1, CheckpointNumbers, 3)
    monkeypatch.setitem(
        VALUES, "persistent", replace(VALUES["persistent"], of=lambda p: p.trace.compute_time)
    )
    monkeypatch.setitem(
        VALUES,
        "rematerialisation",
        replace(VALUES["rematerialisation"], of=lambda p: p.trace.compute_time + 1),
    )
    with pytest.raises(UnsoundError, match=r"where rematerialisation, .* is least"):
        CheckpointContest("persistent", "rematerialisation").score(problem)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"against": "greedy"}, "against must be one of"),
        ({"against": "sqrt", "by": "persistent"}, "one is of bytes, the other of ticks"),
        ({"tolerance": 100}, "tolerance must be below 100"),
        ({"shortest": 20}, "shortest must be below largest"),
        ({"most": 3}, "most must be 0 or at least stages"),
    ],
)
def test_searches_that_mean_nothing_are_refused(knobs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        AdversarialCheckpoints(**knobs)


def test_nothing_found_is_said() -> None:
    with pytest.raises(MethodError, match="found nothing on which live-selection and live-sel"):
        AdversarialCheckpoints(against="live-selection", steps=30).problem(0)


def test_what_the_library_holds_of_hunts_is_as_bad_as_it_says() -> None:
    found = list(default_library().families(group="adversarial-checkpoint"))
    assert len(found) >= 8
    for family in found:
        problem, source = family.problem, family.problem.source
        assert source is not None
        against, by = source["against"], source["by"]
        measure = USUAL[VALUES[against].minimise] if by == "usual" else by
        values = [VALUES[name].of(problem) for name in (against, measure)]
        assert values == [source["over"], source["under"]], family.name
        assert source["over"] > source["under"]
