"""The two rates of a link: which one is whose, and that nobody can leave the question open."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from offcert.core.chain import Chain
from offcert.core.errors import InputError
from offcert.core.platform import Kind, Link, Platform
from offcert.questions.schedule.files import problem_digest, problem_from_json, problem_to_json
from offcert.questions.schedule.problem import Problem


def test_each_direction_is_rounded_up_at_its_own_rate() -> None:
    platform = Platform(9, Fraction(3, 2), prefetch_bandwidth=Fraction(4, 5))
    assert platform.rate(Kind.OFFLOAD) == Fraction(3, 2)
    assert platform.rate(Kind.PREFETCH) == Fraction(4, 5)
    # 7 / 1.5 = 4.67 and 7 / 0.8 = 8.75; 12 / 1.5 and 12 / 0.8 are whole.
    assert [platform.transfer_time(7, kind) for kind in Kind] == [5, 9]
    assert [platform.transfer_time(12, kind) for kind in Kind] == [8, 15]


def test_without_a_second_rate_both_directions_have_the_first() -> None:
    platform = Platform(9, Fraction(3, 2), Link.DUPLEX)
    assert {platform.rate(kind) for kind in Kind} == {Fraction(3, 2)}
    assert {platform.transfer_time(7, kind) for kind in Kind} == {5}


def test_the_direction_must_be_said() -> None:
    ask: Any = Platform(9, Fraction(1)).transfer_time
    with pytest.raises(TypeError, match="kind"):
        ask(7)


def test_equal_platforms_compare_equal_however_they_were_given() -> None:
    once = Platform(9, Fraction(3, 2))
    twice = Platform(9, Fraction(3, 2), prefetch_bandwidth=Fraction(6, 4))
    assert once == twice
    assert hash(once) == hash(twice)
    assert once != Platform(9, Fraction(3, 2), prefetch_bandwidth=Fraction(3))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Fraction(0), "prefetch_bandwidth must be more than 0, not 0"),
        (Fraction(-1, 2), "prefetch_bandwidth must be more than 0, not -1/2"),
        (0.5, "prefetch_bandwidth must be a rational, not 0.5"),
        (True, "prefetch_bandwidth must be a rational, not True"),
    ],
)
def test_a_bad_second_rate_is_named(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Platform(9, Fraction(1), prefetch_bandwidth=value)


def test_a_new_bandwidth_is_that_of_both_directions_unless_told() -> None:
    chain = Chain([1] * 3, [1] * 3, [4] * 4, [0] * 4)
    problem = Problem("p", chain, Platform(20, Fraction(1), prefetch_bandwidth=Fraction(2)))
    faster = problem.with_bandwidth(Fraction(3)).platform
    assert [faster.rate(kind) for kind in Kind] == [3, 3]
    apart = problem.with_bandwidth(Fraction(3), Fraction(5)).platform
    assert [apart.rate(kind) for kind in Kind] == [3, 5]


@pytest.mark.parametrize("direction", ["bandwidth", "prefetch_bandwidth"])
def test_the_direction_that_is_too_slow_is_named(direction: str) -> None:
    chain = Chain([1] * 3, [1] * 3, [4] * 4, [0] * 4)
    rates = {"bandwidth": Fraction(1), "prefetch_bandwidth": Fraction(2)}
    rates[direction] = Fraction(1, 2**61)
    with pytest.raises(InputError, match=f"^{direction} 1/{2**61} is so low"):
        Problem("p", chain, Platform(20, **rates))


def test_devices_that_share_a_link_have_a_part_of_it_each() -> None:
    whole = Platform(9, Fraction(3, 2), prefetch_bandwidth=Fraction(4, 5))
    shared = replace(whole, sharing=2)
    assert shared.rate(Kind.OFFLOAD) == Fraction(3, 4)
    assert shared.rate(Kind.PREFETCH) == Fraction(2, 5)
    # 7 / 0.75 = 9.33 and 7 / 0.4 = 17.5, rounded up once: not twice the time of the whole link.
    assert [shared.transfer_time(7, kind) for kind in Kind] == [10, 18]
    with pytest.raises(InputError, match="sharing must be at least 1, not 0"):
        replace(whole, sharing=0)


def test_a_shared_link_is_written_and_one_of_ones_own_is_not() -> None:
    chain = Chain([1, 1], [1, 1], [2, 2, 2], [1, 1, 1])
    alone = Problem("alone", chain, Platform(9, Fraction(1)))
    shared = replace(alone, platform=replace(alone.platform, sharing=3))
    assert "sharing" not in problem_to_json(alone)
    assert problem_to_json(shared)["sharing"] == 3
    assert problem_from_json(problem_to_json(shared)) == shared
    assert problem_digest(shared) != problem_digest(alone)
