"""Boxes of uncertain times: their corners by hand, in whole ticks, and what is refused."""

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.chain import Chain
from offcert.core.errors import InputError
from offcert.core.platform import Link, Platform
from offcert.core.uncertainty import Spread, Uncertainty
from offcert.questions.schedule.files import problem_digest, problem_from_json, problem_to_json
from offcert.questions.schedule.problem import Problem
from support.problems.random_networks import checkpoint_chain, random_network


def problem(platform: Platform | None = None) -> Problem:
    chain = Chain([10, 15, 7], [3, 20, 11], [4, 4, 4, 1], [1, 1, 1, 1])
    return Problem("three", chain, platform or Platform(20, Fraction(2)))


def corners(found: Problem) -> tuple[list[int], list[int]]:
    low, high = (list(found.corner(fastest=each).trace.durations) for each in (True, False))
    return low, high


def test_corners_are_rounded_outwards_and_classes_by_their_first_pattern() -> None:
    # F0 F1 F2 B2 B1 B0 last 10 15 7 11 20 3.
    assert corners(problem().with_uncertainty("10%")) == (
        [9, 13, 6, 9, 18, 2],
        [11, 17, 8, 13, 22, 4],
    )
    assert corners(problem().with_uncertainty("10%,B1=50%,B*=0%")) == (
        [9, 13, 6, 11, 10, 3],
        [11, 17, 8, 11, 30, 3],
    )
    assert corners(problem().with_uncertainty("B1=50%")) == (
        [10, 15, 7, 11, 10, 3],
        [10, 15, 7, 11, 30, 3],
    )
    assert corners(problem()) == ([10, 15, 7, 11, 20, 3],) * 2


def test_rates_and_memory_have_corners_of_their_own() -> None:
    boxed = replace(
        problem(), uncertainty=Uncertainty(bandwidth=(Fraction(1, 2), Fraction(3)), memory=30)
    )
    fastest, slowest = (boxed.corner(fastest=each).platform for each in (True, False))
    assert (fastest.bandwidth, fastest.memory) == (3, 30)
    assert (slowest.bandwidth, slowest.memory) == (Fraction(1, 2), 20)
    two = problem(Platform(20, Fraction(2), Link.DUPLEX, Fraction(4)))
    both = two.with_uncertainty("25%").corner(fastest=True).platform
    assert (both.bandwidth, both.prefetch_bandwidth) == (Fraction(5, 2), 5)
    one = two.with_uncertainty("25%,prefetch=2:4,link=0%").corner(fastest=False).platform
    assert (one.bandwidth, one.prefetch_bandwidth) == (2, None)


def test_every_kind_of_network_has_corners_and_the_same_documents() -> None:
    rng = random.Random(3)
    drawn = (random_network(rng, 4), checkpoint_chain(rng, 3))
    for network in (problem().network, problem().trace, *drawn):
        exact = Problem("any", network, Platform(10**6, Fraction(1)))
        durations = exact.trace.durations
        boxed = exact.with_uncertainty("50%")
        assert corners(boxed) == ([d // 2 for d in durations], [-(-3 * d // 2) for d in durations])
        measured = replace(
            exact, uncertainty=Uncertainty(ticks=tuple((d // 3, d + 1) for d in durations))
        )
        assert corners(measured) == ([d // 3 for d in durations], [d + 1 for d in durations])
        for each in (boxed, measured):
            assert problem_from_json(problem_to_json(each)) == each
            assert problem_digest(each) != problem_digest(exact)
            assert each.plain().uncertainty is None
        assert problem_digest(boxed.with_uncertainty("none")) == problem_digest(exact)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ten", 'uncertainty must look like "20%", not "ten"'),
        ("100%", 'uncertainty must be less than 100%, not "100%"'),
        ("conv*=x", 'uncertainty of conv* must look like "20%", not "x"'),
        ("=5%", 'uncertainty "=5%" names nothing before its "="'),
        ("prefetch=5%", "uncertainty prefetch is for links with two rates; this has one"),
        ("link=3:4", "uncertainty.bandwidth must be around the problem's, 2, and more than 0, not"),
        ("memory=7", "uncertainty memory"),
    ],
)
def test_what_describes_no_box_is_refused_by_its_part(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        problem().with_uncertainty(text)
    assert str(caught.value).startswith(said)


def test_a_box_must_be_around_the_problem() -> None:
    for box, said in (
        (Uncertainty(ticks=((1, 2),)), "uncertainty.ticks must have 6 entries"),
        (
            Uncertainty(ticks=((11, 12),) * 6),
            "uncertainty.ticks[0] must be around 10, the",
        ),
        (
            Uncertainty((Spread(Fraction(0), Fraction(0)),), ((0, 99),) * 6),
            "uncertainty has either durations or ticks",
        ),
        (Uncertainty(memory=19), "uncertainty.memory must be at least the problem's, 20"),
        (
            Uncertainty(prefetch_bandwidth=(Fraction(1), Fraction(2))),
            "uncertainty.prefetch_bandwidth is for links with two rates",
        ),
    ):
        with pytest.raises(InputError) as caught:
            replace(problem(), uncertainty=box)
        assert str(caught.value).startswith(said)
    with pytest.raises(InputError, match="less must be at most 1"):
        Spread(Fraction(2), Fraction(0))
    document = problem_to_json(problem().with_uncertainty("10%"))
    document["uncertainty"]["bandwidth"].append("3/1")
    with pytest.raises(InputError, match="bandwidth must have 2 entries, not 3"):
        problem_from_json(document)
