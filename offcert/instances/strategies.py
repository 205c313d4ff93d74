"""Executions in a record, as short as can be: which computation runs when, and what is discarded.

An execution repeats the names and sizes of everything that its network says already; a strategy is
a few numbers, of which `Strategy.expand` makes the same execution again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from offcert.core.computations import Run
from offcert.core.documents import show
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.strategy import Strategy
from offcert.core.trace import require_integer


def strategy_of(execution: Execution, network: Network) -> Strategy | None:
    """Return the strategy that makes an execution of a network; None if there is none.

    There is none where the execution holds what strategies do not know: states of random
    generators, or tensors that stay longer than somebody reads them.
    """
    born: dict[int, set[int]] = {}
    for tensor, value in zip(execution.trace.tensors, execution.values, strict=True):
        born.setdefault(tensor.uses[0], set()).add(value)
    runs = []
    for position, computation in enumerate(execution.runs):
        if not 0 <= computation < len(network):
            return None
        own = (
            v for v in network.computations[computation].writes if network.values[v].base is None
        )
        kept = born.get(position, set())
        runs.append(Run(computation, tuple(value for value in own if value not in kept)))
    strategy = Strategy(runs)
    try:
        made = strategy.expand(network)
    except InputError:
        return None
    return strategy if made == replace(execution, program=None) else None


def strategy_to_json(strategy: Strategy) -> list[Any]:
    """Return a strategy as a JSON value: an integer a run, or a list if something is discarded."""
    return [
        [run.computation, *run.discards] if run.discards else run.computation
        for run in strategy.runs
    ]


def strategy_from_json(value: list[Any], place: str) -> Strategy:
    """Return the strategy that a JSON value describes; whether it fits a network is not looked at.

    Raises
    ------
    InputError
        One sentence that names the run that is none.
    """
    runs = []
    for number, item in enumerate(value):
        here = f"{place}[{number}]"
        numbers = item if isinstance(item, list) else [item]
        if not numbers:
            raise InputError(
                f"{here} must be a computation, or a list that begins with one, not []"
            )
        for each in numbers:
            if not isinstance(each, int) or isinstance(each, bool):
                raise InputError(f"{here} must consist of integers, not {show(each)}")
            require_integer(each, here, 0)
        runs.append(Run(numbers[0], tuple(numbers[1:])))
    return Strategy(runs)
