"""Covers of whole tensors, against all sums of subsets; and of a set that changes."""

import math
import random

import pytest

from offcert.verification import absence
from offcert.verification.absence import Covers, cheapest_cover


def least_sum(sizes: list[int], need: int) -> int:
    """Return the least sum of at least `need`, in units where there would be too many sums."""
    total = sum(sizes)
    unit, slack = 1, 0
    if total > absence.FINEST * math.gcd(*sizes):
        unit = -(-total // absence.FINEST)
        slack = len(sizes) * (unit - 1)
    sums = {0}
    for size in sizes:
        sums |= {known + size // unit for known in sums}
    return max(need, unit * min(known for known in sums if known * unit >= need - slack))


def some_sizes(rng: random.Random) -> list[int]:
    count, largest = rng.choice((2, 5, 12, 30, 60)), rng.choice((4, 30, 300, 3000))
    factor = rng.choice((1, 1, 6, 64))
    return [factor * rng.randint(1, min(largest, 6000 // count)) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("finest", [1 << 24, 700, 40])
def test_no_sum_of_whole_tensors_is_cheaper(finest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absence, "FINEST", finest)
    absence._cover.cache_clear()
    rng = random.Random(finest)
    raised = 0
    for _ in range(300):
        sizes = some_sizes(rng)
        need = rng.randint(1, sum(sizes))
        expected = least_sum(sizes, need)
        assert cheapest_cover(sizes, need) == expected, (sizes, need)
        raised += expected > need
    assert raised > 20
    absence._cover.cache_clear()


@pytest.mark.slow
def test_simple_ways_only_find_what_is_there() -> None:
    """A range that they say is reached holds a sum; they find most of those of many sizes."""
    rng = random.Random(5)
    found = many = 0
    for _ in range(300):
        sizes = some_sizes(rng)
        covers = Covers(sizes)
        least = rng.randint(0, sum(sizes))
        most = least + rng.choice((0, 0, 3))
        sums = {0}
        for size in sizes:
            sums |= {known + size for known in sums}
        there = not sums.isdisjoint(range(least, most + 1))
        reached = absence._reached(covers._sizes, least, most)
        assert there or not reached
        if len(sizes) >= 30 and there:
            many += 1
            found += reached
    assert many > 50
    assert found > 0.9 * many


def test_members_come_and_go() -> None:
    rng = random.Random(6)
    sizes = [rng.choice((3, 7, 7, 20, 64, 250)) for _ in range(40)]
    covers = Covers(sizes)
    members: set[int] = set()
    for _ in range(500):
        index = rng.randrange(len(sizes))
        members ^= {index}
        covers.present[covers.place[index]] = index in members
        if members:
            present = [sizes[index] for index in members]
            need = rng.randint(0, sum(present))
            assert covers.cheapest(need) == cheapest_cover(present, need)
