"""Rates of a link while both directions run: what a platform, a problem and a file say of them."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from offcert.core.errors import InputError
from offcert.core.platform import Kind, Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.devices.problem import Accumulation, AdditionPlace, DevicesProblem, Gradient
from offcert.questions.schedule.check import check
from offcert.questions.schedule.files import problem_digest, problem_from_json, problem_to_json
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate
from offcert.questions.schedule.slowing import slowed_ends

OUT, BACK = Kind.OFFLOAD, Kind.PREFETCH


def _platform(**changes: Any) -> Platform:
    rates: dict[str, Any] = {"bandwidth": Fraction(3), "prefetch_bandwidth": Fraction(2)}
    busy: dict[str, Any] = {"busy_bandwidth": Fraction(2), "busy_prefetch_bandwidth": Fraction(1)}
    return Platform(**{"memory": 100, "link": Link.DUPLEX, **rates, **busy, **changes})


def _problem(**changes: Any) -> Problem:
    """Return a problem in which 12 bytes leave while 4 return."""
    operations = [Operation(f"o{i}", 2) for i in range(6)]
    tensors = [Tensor("a", 4, (0, 4)), Tensor("b", 12, (2, 5))]
    return Problem("crossing", Trace(operations, tensors), _platform(**changes))


_PLAN = Plan([Move(OUT, 0, 1), Move(OUT, 1, 4), Move(BACK, 0, 3), Move(BACK, 1, 5)])


def test_a_copy_lasts_until_what_it_has_moved_tick_by_tick_is_all() -> None:
    jobs = [(OUT, 0, 12), (BACK, 2, 4)]
    # By tick 2 6 bytes have left, the others take 3 ticks; by 5 3 bytes are back, then one alone.
    assert slowed_ends(_platform(), jobs) == [5, 6]
    assert slowed_ends(_platform(), [(OUT, 0, 11), (BACK, 2, 4)]) == [5, 6]
    assert slowed_ends(_platform(), [(OUT, 0, 10), (BACK, 2, 4)]) == [4, 5]
    assert slowed_ends(_platform().alone, jobs) == [4, 4]
    assert slowed_ends(_platform().always_busy, jobs) == [6, 6]
    # What ends when another begins does not slow it down, nor does what is empty.
    assert slowed_ends(_platform(), [(OUT, 0, 12), (BACK, 4, 4), (BACK, 1, 0)]) == [4, 6, 1]


def test_a_shared_link_gives_each_device_its_part_of_all_rates() -> None:
    shared = _platform(sharing=2)
    assert [shared.rate(kind, busy=True) for kind in Kind] == [1, Fraction(1, 2)]
    assert [shared.always_busy.rate(kind) for kind in Kind] == [1, Fraction(1, 2)]


def test_a_plan_is_slowed_down_by_hand() -> None:
    problem = _problem()
    schedule = simulate(problem, _PLAN)
    # `a` leaves 2-4. `b` is written at 6; `a` returns from 4 (o2 has begun) to 6, undisturbed.
    assert [(t.kind, t.start, t.end) for t in schedule.transfers] == [
        (OUT, 2, 4),
        (BACK, 4, 6),
        (OUT, 6, 10),
        (BACK, 10, 16),
    ]
    late = Plan([*_PLAN.moves[:2], Move(BACK, 0, 4), Move(BACK, 1, 5)])
    schedule = simulate(problem, late)
    # Now `a` returns 6-10 beside `b`, 1 a tick; of `b` 8 bytes have left by 10, the rest in 2.
    assert [(t.kind, t.start, t.end) for t in schedule.transfers] == [
        (OUT, 2, 4),
        (BACK, 6, 10),
        (OUT, 6, 12),
        (BACK, 12, 18),
    ]
    assert schedule.starts == (0, 2, 4, 6, 10, 18)
    assert check(problem, schedule) == []
    alone = replace(problem, platform=problem.platform.alone)
    assert simulate(alone, late).makespan == 18
    [fault, *_] = check(alone, schedule)
    assert fault.endswith("lasts 4 ticks instead of 2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"busy_bandwidth": Fraction(4)}, "busy_bandwidth must be at most the rate alone, 3, not"),
        ({"busy_prefetch_bandwidth": Fraction(5, 2)}, "busy_prefetch_bandwidth must be at most"),
        ({"busy_bandwidth": Fraction(0)}, "busy_bandwidth must be more than 0, not 0"),
        ({"busy_bandwidth": 0.5}, "busy_bandwidth must be a rational, not 0.5"),
        ({"busy_bandwidth": None}, "busy_bandwidth is missing"),
        ({"busy_prefetch_bandwidth": None}, "busy_prefetch_bandwidth is missing"),
        ({"link": "simplex"}, "busy_bandwidth is for duplex links; this one is simplex"),
    ],
)
def test_rates_that_make_no_sense_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _platform(**changes)


def test_only_a_link_that_slows_down_has_these_fields_and_another_hash() -> None:
    same = {"busy_bandwidth": Fraction(3), "busy_prefetch_bandwidth": Fraction(2)}
    none = {"busy_bandwidth": None, "busy_prefetch_bandwidth": None}
    assert _platform(**same) == _platform(**none) == _platform().alone
    assert not _platform(**same).slows
    document = problem_to_json(_problem())
    assert (document["busy_bandwidth"], document["busy_prefetch_bandwidth"]) == ("2/1", "1/1")
    assert problem_from_json(document) == _problem()
    plain = problem_to_json(_problem(**none))
    assert set(document) - set(plain) == set(none)
    assert problem_digest(_problem(**same)) == problem_digest(_problem(**none))
    assert problem_digest(_problem()) != problem_digest(_problem(**none))
    assert "(2 units per tick out, 1 units per tick back at once)" in repr(_problem())


def test_what_does_not_go_with_such_links_is_refused() -> None:
    with pytest.raises(InputError, match="busy_bandwidth is for atomic transfers, not fractional"):
        replace(_problem(), transfers="fractional")
    with pytest.raises(InputError, match="step must have one rate a direction"):
        DevicesProblem(
            "two",
            _problem(),
            2,
            [Gradient("w", 1, 0, 0)],
            Accumulation(AdditionPlace.DEVICE, Fraction(1)),
        )
    slow = {"busy_bandwidth": Fraction(1, 10**30)}
    with pytest.raises(InputError, match="bandwidth 1/1000000000000000000000000000000 is so low"):
        _problem(**slow)
    # Who says rates says them for all times.
    assert not _problem().with_bandwidth(Fraction(2)).platform.slows


def test_directions_never_slow_each_other_down_at_the_fastest_corner() -> None:
    exact = _problem().with_uncertainty("link=3/2:4")
    fastest, slowest = (exact.corner(fastest=each).platform for each in (True, False))
    assert not fastest.slows
    assert [fastest.rate(kind) for kind in Kind] == [4, 2]
    # Half of the rate to the host alone, and the same part of the busy rate.
    assert [slowest.rate(kind) for kind in Kind] == [Fraction(3, 2), 2]
    assert [slowest.rate(kind, busy=True) for kind in Kind] == [1, 1]
