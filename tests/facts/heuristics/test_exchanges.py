"""Exchanges of tensors for others of nearly the same sum."""

import random
from itertools import combinations_with_replacement, product

import pytest

from offcert.heuristics.orders import order_changes as exchanges_module
from offcert.heuristics.orders.order_changes import FEW, MANY, Exchanges, exchanges


def as_changes(table: Exchanges, count: int) -> list[tuple[int, ...]]:
    rows = []
    for classes, changes in zip(table.classes.tolist(), table.changes.tolist(), strict=True):
        row = [0] * count
        for c, change in zip(classes, changes, strict=True):
            if c >= 0:
                row[c] += change
        rows.append(tuple(row))
    return rows


def test_lists_every_exchange_within_the_tolerance_and_no_other() -> None:
    sizes, amounts = [96, 50, 25, 13], [2, 3, 4, 1]
    table = exchanges(sizes, amounts)
    rows = as_changes(table, len(sizes))
    expected = set()
    for row in product(*(range(-min(FEW, n), min(MANY, n) + 1) for n in amounts)):
        out, back = -sum(x for x in row if x < 0), sum(x for x in row if x > 0)
        close = abs(sum(x * s for x, s in zip(row, sizes, strict=True))) <= max(sizes) // 8
        if any(row) and out <= FEW and back <= MANY and close:
            expected.add(row)
    assert set(rows) == expected
    assert len(rows) == len(expected)
    assert (-1, 2, 0, 0) in expected


def test_differences_are_those_of_the_sums_and_increase() -> None:
    sizes, amounts = [98_003, 49_001, 49_000, 24_500, 18_375], [3, 5, 2, 9, 1]
    table = exchanges(sizes, amounts)
    sums = [
        abs(sum(x * size for x, size in zip(row, sizes, strict=True)))
        for row in as_changes(table, len(sizes))
    ]
    assert table.differences.tolist() == sums == sorted(sums)
    # 49 000 is two times 24 500, and 98 003 nearly two times 49 001.
    assert sums[0] == 0
    assert 1 in sums


def test_sizes_too_small_to_matter_take_part_in_nothing() -> None:
    table = exchanges([10_000, 5_000, 3], [2, 4, 2])
    assert all(row[2] == 0 for row in as_changes(table, 3))
    assert len(table.differences) > 0


@pytest.mark.slow
def test_many_sizes_give_a_table_that_ends() -> None:
    sizes = [1_000_003 + 7_919 * i % 500_000 for i in range(60)]
    table = exchanges(sizes, [1] * len(sizes))
    assert 1_000 < len(table.differences) <= 100_000
    assert (table.differences[1:] >= table.differences[:-1]).all()


def test_one_size_has_nothing_to_exchange() -> None:
    assert len(exchanges([7], [4]).differences) == 0
    assert len(exchanges([], []).differences) == 0


@pytest.mark.parametrize("seed", range(20))
def test_combinations_are_counted_without_being_made(seed: int) -> None:
    rng = random.Random(seed)
    amounts = [rng.randint(1, 4) for _ in range(rng.randint(1, 8))]
    numbers = exchanges_module._numbers(amounts, 3)
    for count, number in enumerate(numbers):
        chosen = combinations_with_replacement(range(len(amounts)), count)
        assert number == sum(all(c.count(i) <= amounts[i] for i in c) for c in chosen)
