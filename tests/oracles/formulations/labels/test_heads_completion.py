"""What is still to come from every amount that has left, against all continuations."""

import random
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from offcert.formulations.labels.ends import tables as arrays
from offcert.formulations.labels.ends.alone import SideSearch
from offcert.formulations.labels.ends.side import HeadSide
from offcert.formulations.labels.ends.tables import SideTables, bound_on_end, put
from offcert.verification.ends.prospects import Tables as CheckTables
from offcert.verification.ends.prospects import prospects
from support.oracles.side_sequences import least_end, random_side

NEVER = 2**62


def tables_of(side: HeadSide, unit: int = 1) -> SideTables:
    search = SideSearch(side)
    search.unit = unit
    return search.tables()


def least_continuation(side: HeadSide, *label: int) -> int:
    """Return the least end over all continuations in which any tensor may leave again."""
    last = len(side.prefix) - 1

    @cache
    def least(w: int, t: int, s: int, k: int) -> int:
        if k == last and w >= side.required[last]:
            return max(t, s + side.prefix[last])
        there = sum(item.size for item in side.items if item.ready < k)
        best = NEVER
        for item in side.items:
            if item.ready < k and w + item.size <= there:
                end = max(t, s + side.prefix[item.ready + 1]) + item.time
                on = k
                while on < last and side.required[on] <= w + item.size:
                    on += 1
                idle = max(s, end - side.prefix[k]) if on > k else s
                best = min(best, least(w + item.size, end, idle, on))
        return best

    return least(*label)


def run_at(side: HeadSide, w: int) -> int:
    last = len(side.prefix) - 1
    return next((j for j in range(last) if side.required[j] > w), last)


@pytest.mark.parametrize("bandwidth", [Fraction(1), Fraction(2, 3), Fraction(3)])
def test_the_pairs_are_exact_from_every_amount(bandwidth: Fraction) -> None:
    rng = random.Random(3)
    compared = waits = dead = 0
    for _ in range(40):
        side = random_side(rng, bandwidth)
        tables = tables_of(side)
        for w in range(min(12, max(side.required))):
            k = run_at(side, w)
            for t, s in ((0, 0), (0, 9), (9, 0), (30, 4)):
                least = least_continuation(side, w, t, s, k)
                assert bound_on_end(tables, w, t, s, k) == least
                compared += 1
                dead += least == NEVER
                waits += max(t, s + side.prefix[-1]) < least < NEVER
    assert compared > 600
    assert min(waits, dead) > 50


def test_coarser_levels_and_units_promise_no_less() -> None:
    rng = random.Random(5)
    lower = 0
    for _ in range(200):
        side = random_side(rng, Fraction(2, 3))
        end = least_end(side)
        exact = bound_on_end(tables_of(side), 0, 0, 0, run_at(side, 0))
        assert exact <= end
        for unit in (2, 5):
            k = run_at(side, 0)
            coarse = bound_on_end(tables_of(side, unit), 0, 0, 0, k)
            assert coarse <= exact
            lower += coarse < exact
    assert lower > 20


def test_grains_of_several_units_promise_no_less(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(6)
    lower = 0
    for _ in range(200):
        side = random_side(rng, Fraction(1))
        fine = tables_of(side)
        monkeypatch.setattr(arrays, "MOST_LEVELS", rng.choice((1, 3, 5)))
        coarse = tables_of(side)
        monkeypatch.undo()
        for w in range(max(side.required)):
            k = run_at(side, w)
            for t, s in ((0, 0), (7, 2)):
                one, two = (bound_on_end(tables, w, t, s, k) for tables in (coarse, fine))
                assert one <= two
                lower += one < two
    assert lower > 50


@pytest.mark.slow
def test_finder_and_checker_expect_the_same() -> None:
    rng = random.Random(4)
    pairs_seen = 0
    for _ in range(150):
        side = random_side(rng, Fraction(2, 3))
        tables = tables_of(side)
        levels = max(side.required)
        bounds, pairs = prospects(
            CheckTables(
                clock=tables.prefix,
                need=tables.required,
                floor=tables.floor,
                at_hand=tables.most,
                units=tables.size,
                times=tables.time,
                ready=tables.ready,
                amount=tables.amount,
                bases=tables.amount + 1,
                radix=np.zeros_like(tables.size),
                rate=tables.rate,
                unit=1,
            ),
            levels,
        )
        for level in range(levels + 1):
            end = tables.first[level - 1] if level else tables.link.size
            here = slice(tables.first[level], end)
            ours = {
                (int(x), int(y)) for x, y in zip(tables.link[here], tables.idle[here], strict=True)
            }
            theirs = {(int(x), int(y)) for x, y in pairs[slice(*bounds[level])]}
            assert ours == theirs
            pairs_seen += len(ours) > 1
    assert pairs_seen > 30


def test_too_many_pairs_are_merged_into_better_ones() -> None:
    rng = random.Random(8)
    link, idle = np.empty(65, np.int64), np.empty(65, np.int64)
    count, pairs = 0, []
    for _ in range(3000):
        x = rng.randint(0, 10**6)
        y = 10**6 - x + rng.randint(0, 500)
        count = put(link, idle, count, x, y)
        pairs.append((x, y))
    assert count == link.size - 1
    assert all(np.diff(link[:count]) > 0)
    assert all(np.diff(idle[:count]) < 0)
    for x, y in pairs:
        assert any((link[:count] <= x) & (idle[:count] <= y))
