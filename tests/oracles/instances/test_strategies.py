"""Executions as strategies: short, and the same execution again."""

import random
from dataclasses import replace
from typing import Any

import pytest

from offcert.core.errors import InputError
from offcert.core.strategy import Strategy
from offcert.core.trace import Tensor, Trace
from offcert.instances.records import strategy_from_json, strategy_of, strategy_to_json
from support.problems.random_networks import checkpoint_chain, random_network, random_strategy


@pytest.mark.parametrize("seed", range(20))
def test_what_a_strategy_makes_is_made_again_from_its_numbers(seed: int) -> None:
    rng = random.Random(seed)
    network = random_network(rng, 5) if seed % 2 else checkpoint_chain(rng, 4).network()
    for strategy in (
        Strategy.plain(network),
        random_strategy(rng, network),
        random_strategy(rng, network).without_unread(network),
    ):
        execution = strategy.expand(network)
        found = strategy_of(execution, network)
        assert found is not None
        again = strategy_from_json(strategy_to_json(found), "strategy")
        assert again.expand(network) == execution
        # Which program it came from is not for the strategy to say.
        assert strategy_of(replace(execution, program={"segments": []}), network) == found


def test_what_no_strategy_makes_is_none() -> None:
    network = checkpoint_chain(random.Random(3), 3).network()
    execution = Strategy.plain(network).expand(network)
    trace = execution.trace
    kept = next(i for i, t in enumerate(trace.tensors) if t.uses[-1] < len(trace) - 1)
    tensors = list(trace.tensors)
    longer = tensors[kept]
    tensors[kept] = Tensor(longer.name, longer.size, (*longer.uses, len(trace) - 1))
    late = replace(execution, trace=Trace(trace.operations, tensors))
    noise = replace(
        execution,
        trace=Trace(trace.operations, [*trace.tensors, Tensor("rng", 1, (0, 5))]),
        values=(*execution.values, -1),
    )
    unknown = replace(execution, runs=(99, *execution.runs[1:]))
    early = replace(execution, runs=(3, *execution.runs[1:]))
    for wrong in (late, noise, unknown, early):
        assert strategy_of(wrong, network) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([0, "1"], r'strategy\[1\] must consist of integers, not "1"'),
        ([[]], r"strategy\[0\] must be a computation"),
        ([0, [1, True]], r"strategy\[1\] must consist of integers, not true"),
        ([-1], r"strategy\[0\] must be at least 0, not -1"),
        ([{}], r"strategy\[0\] must consist of integers"),
    ],
)
def test_numbers_that_are_no_strategy(value: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        strategy_from_json(value, "strategy")
