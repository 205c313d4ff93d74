"""The least cost of binary programs, beside all of their solutions."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from offcert.core.errors import InputError
from offcert.formulations.common.binary_tree import minimum
from offcert.formulations.common.linear_model import LinearModel

COLUMNS = 8


def _random_model(seed: int) -> LinearModel:
    source = random.Random(seed)
    model = LinearModel()
    for _ in range(COLUMNS):
        model.column(0, 1, cost=source.randint(0, 1_000_000), integer=True)
    for _ in range(6):
        model.row([(column, 1) for column in source.sample(range(COLUMNS), 3)], 1)
    sizes = [source.randint(1, 10**9) for _ in range(COLUMNS)]
    model.row(list(enumerate(sizes)), -math.inf, sum(sizes) // source.randint(2, 6))
    return model


def _least(model: LinearModel) -> float | None:
    found = []
    for values in itertools.product((0, 1), repeat=COLUMNS):
        sums = (sum(value * values[c] for c, value in terms) for terms, _, _ in model.rows)
        if all(low <= s <= high for s, (_, low, high) in zip(sums, model.rows, strict=True)):
            found.append(sum(c * v for c, v in zip(model.cost, values, strict=True)))
    return min(found, default=None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_the_minimum_is_found_and_proved(seed: int) -> None:
    model = _random_model(seed)
    found, least = minimum(model, 10.0), _least(model)
    assert found.cost == least
    if least is None:
        assert found.values is None
    else:
        assert least == found.bound


def test_a_bound_holds_without_any_time() -> None:
    model = _random_model(0)
    found = minimum(model, 0.0)
    assert found.bound is not None
    assert found.bound <= _least(model)


def test_numbers_that_are_not_whole_are_refused() -> None:
    model = LinearModel()
    model.column(0, 1, cost=0.5, integer=True)
    with pytest.raises(InputError, match="whole numbers"):
        minimum(model, 1.0)
