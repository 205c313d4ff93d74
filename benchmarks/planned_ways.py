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

from offcert.certification.other_ways import (
    CarriedOut,
    Decision,
    carried_out,
    layers,
    plain_execution,
)
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert_lab.plans.decisions import decision_of
from offcert_lab.plans.patterns import checkpointed, entering_leave, on_demand
from papers.field.planners import Results, by_knapsack

PRODUCTS = r"(conv\d*|fc\d*|c_fc|c_attn|c_proj|\w+_proj|lm_head|linear\d*|downsample\.0)$"
BUDGETS = (Fraction(3, 4), Fraction(1, 2), Fraction(1, 4))


@dataclass(frozen=True)
class Way:
    """A way to train, and what it amounts to.

    Attributes
    ----------
    decision : Decision
        What runs again and what leaves.
    done : CarriedOut
        Execution and schedule, as `offcert audit` has them of anybody's plan.
    """

    decision: Decision
    done: CarriedOut

    @property
    def name(self) -> str:
        """In the table."""
        return self.decision.name

    @property
    def execution(self) -> Execution:
        """Of the captured network."""
        return self.decision.execution

    @property
    def schedule(self) -> Schedule:
        """Of the execution."""
        return self.done.schedule

    @property
    def problem(self) -> Problem:
        """The problem that the way solves; the optimum at its peak is certified of it."""
        return self.done.problem


def budgeted(network: Network, budget: Fraction) -> set[int]:
    """Return the computations that PyTorch's knapsack saves within a part of the activations."""
    saved = by_knapsack(Results.of(network), float(budget))
    # What takes nothing is not asked about; changes in place come and go with what they change.
    return saved | {
        index
        for index, each in enumerate(network.computations)
        if all(network.values[v].base is not None for v in each.writes)
        and {network.writer[network.values[v].base or 0] for v in each.writes} <= {-1, *saved}
    }


def ways(problem: Problem, products: str = PRODUCTS) -> Iterator[Way | tuple[str, str]]:
    """Yield all ways, or names of those that cannot be had with the reason."""
    network = problem.computed
    if network is None:
        raise InputError(f"{problem.name} does not say what is computed from what")
    pattern = re.compile(products)

    def way(name: str, decision: Decision | Execution) -> Way:
        if isinstance(decision, Execution):
            decision = Decision("", decision)
        named = replace(decision, name=name)
        return Way(named, carried_out(problem, named))

    plain = plain_execution(network)
    yield way("plain", plain)
    yield way("save_on_cpu", decision_of(network, {"plan": "save_on_cpu"}))
    layered = layers(network)
    if not layered:
        yield "checkpointing", "no names of computations have layers, as in h.3 or layer1.0"
        return
    yield way("checkpoint all", checkpointed(network))
    yield way("checkpoint every 2nd", checkpointed(network, 2))
    kept = checkpointed(network, 1, lambda path: pattern.search(path) is not None)
    yield way("checkpoint, products kept", kept)
    # A checkpoint saves what goes into it, whether or not the layer does by itself. So it may leave
    # here, and in what is certified beside it.
    yield way("offloaded checkpoints", entering_leave(network, layered, layered))
    for budget in BUDGETS:
        saved = budgeted(network, budget)
        yield way(f"memory budget {float(budget):g}", on_demand(network, saved))


def measured(way: Way) -> dict[str, Any]:
    """Return time, peak and bytes of a way that the checkers find legal.

    Raises
    ------
    InputError
        If they do not: then the way is not what it says.
    """
    done = way.done
    if done.faults:
        raise InputError(f"{way.name} is not legal: {done.faults[0]}")
    return {
        "way": way.name,
        "step": way.schedule.makespan,
        "peak": done.peak,
        "host": done.host,
        "again": way.execution.repeated,
    }
