"""Ways to train in less memory that others use, as plans for a captured network.

`benchmarks/runtime_ways.py` has some of them as what runs on a device. Here each is an execution
and a schedule, legal by the code that verifies certificates, so that times, peaks and bytes are
counted the same way for all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from offcert.certify.others.executions import (
    across_the_turn,
    checkpointed,
    host_bytes,
    layers,
    on_demand,
    stepwise,
    turn,
)
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.strategy import Strategy
from offcert.questions.schedule.check import check, peak
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.verify.execution import execution_faults

PRODUCTS = r"(conv\d*|fc\d*|c_fc|c_attn|c_proj|\w+_proj|lm_head|linear\d*|downsample\.0)$"
BUDGETS = (Fraction(3, 4), Fraction(1, 2), Fraction(1, 4))


@dataclass(frozen=True)
class Way:
    """A way to train, as what is executed and when.

    Attributes
    ----------
    name : str
        In the table.
    execution : Execution
        Of the captured network.
    schedule : Schedule
        Of the execution.
    problem : Problem
        What it is a way to solve, and what is certified at its peak.
    """

    name: str
    execution: Execution
    schedule: Schedule
    problem: Problem


def budgeted(network: Network, budget: Fraction) -> set[int]:
    """Return the computations that PyTorch's knapsack saves within a part of the activations."""
    from torch._functorch._activation_checkpointing.knapsack import dp_knapsack

    size = dict.fromkeys(range(len(network)), 0)
    late = (each for each in network.computations[turn(network) + 1 :] if not each.repeatable)
    read_later = {value for each in late for value in each.reads}
    for value in read_later:
        if network.writer[value] >= 0:
            size[network.writer[value]] += network.values[value].size
    items = [i for i, bytes_ in size.items() if network.computations[i].repeatable and bytes_]
    whole = sum(size[item] for item in items)
    memory = [size[item] / whole for item in items]
    runtime = [float(network.computations[item].duration) for item in items]
    _, chosen, _ = dp_knapsack(memory, runtime, float(budget))
    # What takes nothing is not asked about; changes in place come and go with what they change.
    free = {
        index
        for index, each in enumerate(network.computations)
        if all(network.values[v].base is not None for v in each.writes)
        and {network.writer[network.values[v].base or 0] for v in each.writes}
        <= {-1, *(items[index] for index in chosen)}
    }
    return {items[index] for index in chosen} | free


def ways(problem: Problem, products: str = PRODUCTS) -> Iterator[Way | tuple[str, str]]:
    """Yield all ways, or names of those that cannot be had with the reason."""
    network = problem.computed
    if network is None:
        raise InputError(f"{problem.name} does not say what is computed from what")
    plain = Strategy.plain(network).expand(network)
    pattern = re.compile(products)

    def timed(name: str, execution: Execution, away: set[int], *, wait: bool = False) -> Way:
        schedule = stepwise(problem.executed(execution), away, wait=wait)
        return Way(name, execution, schedule, problem)

    yield timed("plain", plain, set())
    yield timed("save_on_cpu", plain, set(across_the_turn(network, plain)), wait=True)
    layered = layers(network)
    if not layered:
        yield "checkpointing", "no names of computations have layers, as in h.3 or layer1.0"
        return
    yield timed("checkpoint all", checkpointed(network), set())
    yield timed("checkpoint every 2nd", checkpointed(network, 2), set())
    kept = checkpointed(network, 1, lambda path: pattern.search(path) is not None)
    yield timed("checkpoint, products kept", kept, set())
    yield offloaded_checkpoints(problem, network, layered)
    for budget in BUDGETS:
        name = f"memory budget {float(budget):g}"
        yield timed(name, on_demand(network, budgeted(network, budget)), set())


def offloaded_checkpoints(problem: Problem, network: Network, layered: list[range]) -> Way:
    """Return the way in which what goes into the layers leaves until these run again.

    A checkpoint saves it, whether or not the layer does by itself. So it may leave here, and in
    what is certified beside it.
    """
    entering = {
        value if network.values[value].base is None else network.values[value].base
        for rows in layered
        for computation in rows
        for value in network.computations[computation].reads
        if network.writer[value] not in rows
    }
    values = (
        replace(value, evictable=value.evictable or index in entering)
        for index, value in enumerate(network.values)
    )
    there = replace(problem, network=Network(network.computations, values))
    assert there.computed is not None
    execution = checkpointed(there.computed)
    away = {
        gap
        for gap in across_the_turn(network, execution)
        if execution.values[execution.trace.gaps[gap].tensor] in entering
    }
    schedule = stepwise(there.executed(execution), away, wait=False)
    return Way("offloaded checkpoints", execution, schedule, there)


def measured(way: Way) -> dict[str, Any]:
    """Return time, peak and bytes of a way that the checkers find legal.

    Raises
    ------
    InputError
        If they do not: then the way is not what it says.
    """
    network = way.problem.computed
    assert network is not None
    executed = way.problem.executed(way.execution)
    most = peak(executed, way.schedule)
    faults = execution_faults(network, way.execution)
    faults += check(executed.with_memory(most), way.schedule)
    if faults:
        raise InputError(f"{way.name} is not legal: {faults[0]}")
    return {
        "way": way.name,
        "step": way.schedule.makespan,
        "peak": most,
        "host": host_bytes(executed.trace, way.schedule),
        "again": way.execution.repeated,
    }
