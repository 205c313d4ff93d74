"""Planners of today's frameworks, each reduced to what decides: three ways to choose.

*PyTorch's knapsack* saves the results whose recomputation would take longest, within a part of
their bytes (`torch._functorch.config.activation_memory_budget`). *Two levels* is how torchtitan's
`auto_perf_maxing` decides: a linear program says what part of each layer stays, runs again or
leaves, and inside a layer results are ranked greedily, or chosen by an integer program. What goes
into a layer, and all outside of layers, stays. All see a result's bytes and the time of the
computation that makes it, and nothing of what that reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from offcert.certification.other_ways import Decision, layers_of, turn
from offcert.core.network import Network
from offcert.core.platform import Kind
from offcert.questions.schedule.problem import Problem
from offcert_lab.plans.patterns import forward_pass, saving, values_entering

STAYS, AGAIN, LEAVES = "stays", "runs again", "leaves"
# From bytes, ticks, and bytes that may stay and that may leave, to what becomes of each result.
Inner = Callable[[Sequence[int], Sequence[int], int, int], Sequence[str]]


@dataclass(frozen=True)
class Results:
    """The results of the forward pass that the backward pass reads.

    Attributes
    ----------
    size : dict of int to int
        Bytes, by the computation that makes them; what takes none is left out.
    """

    network: Network
    size: dict[int, int]

    @classmethod
    def of(cls, network: Network) -> Results:
        """Return those of a network."""
        size = dict.fromkeys(forward_pass(network), 0)
        late = (each for each in network.computations[turn(network) + 1 :] if not each.repeatable)
        for value in {value for each in late for value in each.reads}:
            if network.writer[value] in size:
                size[network.writer[value]] += network.values[value].size
        return cls(network, {index: bytes_ for index, bytes_ in size.items() if bytes_})

    def time(self, index: int) -> int:
        """Return the ticks of the computation that makes a result."""
        return self.network.computations[index].duration


def by_knapsack(results: Results, budget: float, solver: str = "dp") -> set[int]:
    """Return the computations that PyTorch's knapsack saves within a part of all bytes.

    Parameters
    ----------
    results : Results
        The items.
    budget : float
        The part, from 0 to 1.
    solver : str
        ``"dp"`` or ``"greedy"``, as PyTorch calls them.
    """
    from torch._functorch._activation_checkpointing import knapsack

    items, whole = list(results.size), sum(results.size.values())
    solve = {"dp": knapsack.dp_knapsack, "greedy": knapsack.greedy_knapsack}[solver]
    memory = [results.size[item] / whole for item in items]
    _, chosen, _ = solve(memory, [float(results.time(item)) for item in items], budget)
    return {items[number] for number in chosen}


class Layer(NamedTuple):
    """A layer: its results but for what goes on to other layers, and ticks of its forward pass."""

    results: list[int]
    size: int
    again: int
    forward: int


class Parts(NamedTuple):
    """The parts of a layer's bytes that stay and that leave; the rest runs again."""

    stays: float
    leaves: float


def layers_for(problem: Problem, results: Results) -> list[Layer]:
    """Return the layers of a network with what a planner may decide about."""
    network = results.network
    stack = layers_of(network)
    fixed = {network.writer[value] for value in values_entering(network, stack)}
    found = []
    for rows in stack:
        own = [index for index in rows if index in results.size and index not in fixed]
        again, forward = (sum(map(results.time, part)) for part in (own, rows))
        found.append(Layer(own, sum(results.size[each] for each in own), again, forward))
    return found


def outer(problem: Problem, layers: Sequence[Layer], budget: float) -> list[Parts] | None:
    """Return the parts of each layer by a linear program; None where nothing keeps to the budget.

    It is minimised what runs again, so that at the backward pass of each layer no more is there
    than the budget, a part of all bytes: what stays of it and of all layers before, and all of the
    layer itself. What leaves of the first layers has to leave while they run, and what returns to
    the last ones while later ones run backward, which takes twice as long as forward.
    """
    count = len(layers)
    size, again, forward = np.array([layer[1:] for layer in layers], float).T
    out, back = (size / float(problem.platform.rate(kind)) for kind in Kind)
    before, after = np.tri(count), np.tri(count).T
    none = np.zeros((count, count))
    limit = budget * size.sum()
    # Columns: what stays of each layer, what leaves.
    rows = np.block(
        [
            [np.tri(count, k=-1) * size, none],
            [none, before * out],
            [none, after * back],
            [np.eye(count), np.eye(count)],
        ]
    )
    most = [limit - size, before @ forward, 2 * (after - np.eye(count)) @ forward, np.ones(count)]
    cost = -np.concatenate([again, again * (1 - 1e-6)])
    found = linprog(cost, rows, np.concatenate(most), bounds=(0, 1), method="highs")
    if not found.success:
        return None
    return [Parts(*pair) for pair in found.x.reshape(2, count).T.tolist()]


def greedily(sizes: Sequence[int], times: Sequence[int], stays: int, leaves: int) -> Sequence[str]:
    """Return a choice for each result: ranked by ticks for a byte, the first ones stay."""
    chosen, left = [AGAIN] * len(sizes), {STAYS: stays, LEAVES: leaves}
    for item in sorted(range(len(sizes)), key=lambda item: (-times[item] / sizes[item], item)):
        for what in left:
            if sizes[item] <= left[what]:
                chosen[item] = what
                left[what] -= sizes[item]
                break
    return chosen


@cache
def _exactly(sizes: tuple[int, ...], times: tuple[int, ...], room: tuple[int, int]) -> list[str]:
    count = len(sizes)
    weights, none = np.array(sizes, float), np.zeros(count)
    rows = [[*weights, *none], [*none, *weights], *np.hstack([np.eye(count)] * 2)]
    limits = LinearConstraint(rows, -np.inf, [*room, *np.ones(count)])
    found = milp(
        -np.array([*times, *times], float),
        constraints=limits,
        integrality=np.ones(2 * count),
        bounds=Bounds(0, 1),
    )
    taken = np.round(found.x).astype(int).reshape(2, count)
    return [STAYS if a else LEAVES if b else AGAIN for a, b in taken.T.tolist()]


def exactly(sizes: Sequence[int], times: Sequence[int], stays: int, leaves: int) -> Sequence[str]:
    """Return a choice for each result so that least runs again, by an integer program."""
    return _exactly(tuple(sizes), tuple(times), (stays, leaves)) if sizes else []


def two_levels(problem: Problem, results: Results, budget: float, inner: Inner) -> Decision | None:
    """Return the decision of both levels; None where the linear program has no solution."""
    network = results.network
    layers = layers_for(problem, results)
    parts = outer(problem, layers, budget)
    if parts is None:
        return None
    saved, left = set(forward_pass(network)), set()
    inside = {index for rows in layers_of(network) for index in rows}
    fixed = {network.writer[value] for value in values_entering(network, layers_of(network))}
    saved = (saved - inside) | (fixed - {-1})
    for layer, part in zip(layers, parts, strict=True):
        sizes, times = [results.size[i] for i in layer.results], [*map(results.time, layer.results)]
        room = (round(part.stays * layer.size), round(part.leaves * layer.size))
        for index, what in zip(layer.results, inner(sizes, times, *room), strict=True):
            if what != AGAIN:
                saved.add(index)
            if what == LEAVES:
                left.add(index)
    return saving(network, saved, left, "")


def decisions(problem: Problem, planner: str, budgets: Sequence[float]) -> Iterator[Decision]:
    """Yield the decisions of a planner of `PLANNERS` at some budgets, where it makes any."""
    network = problem.computed
    assert network is not None
    results = Results.of(network)
    for budget in budgets:
        found = PLANNERS[planner](problem, results, budget)
        if found is not None:
            yield found


def _by_knapsack(solver: str) -> Callable[[Problem, Results, float], Decision]:
    def decide(problem: Problem, results: Results, budget: float) -> Decision:
        return saving(results.network, by_knapsack(results, budget, solver), set(), "")

    return decide


def _in_two_levels(inner: Inner) -> Callable[[Problem, Results, float], Decision | None]:
    return lambda problem, results, budget: two_levels(problem, results, budget, inner)


PLANNERS: dict[str, Callable[[Problem, Results, float], Decision | None]] = {
    "greedy": _in_two_levels(greedily),
    "ilp": _in_two_levels(exactly),
    "knapsack": _by_knapsack("dp"),
    "knapsack-greedy": _by_knapsack("greedy"),
}
