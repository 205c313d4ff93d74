"""`GraphChoice`: what PyTorch's partitioner saves of a joint graph, within a budget or a peak."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy
from torch.utils.flop_counter import flop_registry

from offcert.certification.saving import SavedChoice, choose
from offcert.core.errors import InputError
from offcert.proofs.saving import Name, Saving
from offcert.runtime.compiled.joint_graph import (
    JointGraph,
    NodeDemand,
    divided,
    mark_choice,
    peak_of,
)
from offcert.runtime.compiled.nodes import Key
from offcert.runtime.compiled.torch_compiler import GradAOTOutput, aot_config, partitioners
from offcert.runtime.torch_private import OpOverload, OrderedSet, tree_map

# Whole units of the dearest operator, where times are no whole numbers. Arbitrary.
_STEPS = 10**9
# Parts of the range of what may be saved that are tried for a peak. Arbitrary.
_PARTS = 10
# Part of the time for a peak that is kept for other choices than those of least cost. Arbitrary.
_REFUTING = 0.5
# Moments for which rows are added at once. Arbitrary.
_MOMENTS = 6


@dataclass(frozen=True)
class GraphOutcome:
    """A choice as PyTorch carries it out: what is saved, its bytes, and the peak of both passes.

    `cost` is that of the operators that run `again`; `computed` are these, and those that only the
    backward pass runs.
    """

    saved: frozenset[Key]
    cost: int
    bytes: int
    peak: int
    again: tuple[fx.Node, ...]
    computed: frozenset[fx.Node]


class GraphChoice:
    """The choice for one graph: tensors that are saved, and nodes that run again.

    It is given what PyTorch gives a solver, and bytes that may be saved (`budget`) or the limit on
    the `peak`.
    """

    def __init__(
        self,
        graph: fx.Graph,
        info: Any,
        candidates: Sequence[fx.Node],
        memory: list[float],
        budget: int | None,
        peak: int | None,
    ) -> None:
        self.graph, self.info, self.candidates = graph, info, candidates
        self.memory, self.budget, self.peak = memory, budget, peak
        # Rows that exclude choices whose division exceeds the peak.
        self._refuted: list[tuple[Mapping[Name, int], int]] = []
        options = partitioners.MinCutOptions(
            ban_if_used_far_apart=False,
            ban_if_long_fusible_chains=False,
            ban_if_materialized_backward=False,
            ban_if_not_in_allowlist=False,
            ban_if_reduction=aot_config.ban_recompute_reductions,
        )
        self.options = options
        _, banned = partitioners.solve_min_cut(graph, info, options)
        self._may = set(candidates) | {n for n in graph.nodes if n not in banned}
        self._times = operator_times(n for n in graph.nodes if n.op == "call_function")
        self.joint = JointGraph(
            graph,
            info.tangents_closure,
            lambda node: self._times[node],
            lambda node: node in self._may and not _must_not(node),
            self._outputs,
        )

    @cached_property
    def _outputs(self) -> int:
        """How many results of the graph are those of the forward pass."""
        output = next(iter(self.graph.find_nodes(op="output")))
        found: list[Any] = []
        fx.node.map_aggregate(output.meta.get("desc", ()), found.append)
        if not found:
            raise InputError("the graph does not say which of its results are gradients")
        first = [number for number, each in enumerate(found) if isinstance(each, GradAOTOutput)]
        return first[0] if first else len(found)

    def made(self, time_limit: float) -> tuple[GraphOutcome, int | None]:
        """Return the decision, and a bound on its cost; nodes are marked if need be.

        Within a peak no bound is known that says much: how long what runs again is there depends on
        all that does.
        """
        self._deadline = time.monotonic() + time_limit
        if self.peak is not None:
            return self._carried_out(self._within(self.peak)), None
        found = self._chosen(budget=self.budget)
        best = self._least() if found.names is None else self.outcome(found.names)
        return self._carried_out(best), found.bound or 0

    def _within(self, peak: int) -> GraphOutcome:
        """Return a choice that keeps to a peak, if one is found."""
        moments, rows = self.joint.moments(), list[NodeDemand]()
        relaxed, whole = self._least(), self._left
        least = best = relaxed
        while (found := self._chosen(rows, proved=False)).names is not None:
            over = [(each.at(found.names), n) for n, each in enumerate(moments) if each not in rows]
            over = [each for each in over if each[0] > peak]
            if over and self._left > 0:
                rows += [moments[n] for _, n in sorted(over, reverse=True)[:_MOMENTS]]
                continue
            relaxed = self.outcome(found.names)
            best = self._better(best, relaxed)
            if relaxed.peak <= peak:
                # The cheapest of all, unless the solver had too little time.
                return self._filled(best)
            if self._left < _REFUTING * whole:
                break
            self._refuted.append(self._excluded(found.names))
        low, high = least.bytes, max(least.bytes, relaxed.bytes)
        # What runs again takes room, too: the less is saved, the less there is beside it, and the
        # more it costs. That is so by and large, and parts are halved as if it were so always.
        begin, end, tried = 0, _PARTS, set[int]()
        while self._left > 0:
            part = (begin + end) // 2
            if part in tried or end - begin < 2:
                part = next((p for p in range(_PARTS - 1, 0, -1) if p not in tried), 0)
                if not part:
                    break
            tried.add(part)
            found_there = [
                *self._tried(rows, low + (high - low) * part // _PARTS),
                *self._pytorch(part / _PARTS),
            ]
            best = self._better(best, *found_there)
            if any(each.peak <= peak for each in found_there):
                begin = max(begin, part)
            else:
                end = min(end, part)
        return self._filled(best)

    def _excluded(self, saved: frozenset[Key]) -> tuple[Mapping[Name, int], int]:
        """Return a row that excludes the choices that divide the graph as this one does.

        Those that save as much and nothing that runs again: what else they save is not read.
        """
        made = [key for work in self.joint.again(saved) for key in work.makes]
        row: dict[Name, int] = {key: -1 for key in made if key not in saved}
        return row | dict.fromkeys(saved, 1), len(saved) - 1

    def _tried(self, rows: Sequence[NodeDemand], budget: int) -> Iterator[GraphOutcome]:
        """Yield the cheapest that save only so much, with rows for moments and without."""
        for given in (rows, ()):
            found = self._chosen(given, budget, proved=False) if self._left > 0 else None
            if found is not None and found.names is not None:
                yield self.outcome(found.names)

    def _pytorch(self, budget: float) -> Iterator[GraphOutcome]:
        """Yield the choices of PyTorch's solvers."""
        times = [float(self._times[node]) for node in self.candidates]
        for solver in (partitioners.dp_knapsack, partitioners.greedy_knapsack):
            if self._left > 0:
                freed = solver(self.memory, times, budget)[2]
                found = self._cut({self.candidates[number] for number in freed})
                if found is not None:
                    yield found

    def _filled(self, best: GraphOutcome) -> GraphOutcome:
        """Return a choice that saves more, one storage after the other, as long as it pays."""
        others = [
            key
            for key in self.saving.sizes
            if key not in best.saved and self.joint.made[key].maker.node in best.again
        ]
        for key in sorted(others, key=lambda each: -self.joint.made[each].maker.time):
            if self._left <= 0:
                break
            best = self._better(best, self.outcome(self.read(best.saved | {key})))
        return best

    @property
    def _left(self) -> float:
        """Seconds that are left."""
        return self._deadline - time.monotonic()

    # The program.

    def _chosen(
        self,
        rows: Sequence[NodeDemand] = (),
        budget: int | None = None,
        *,
        least: bool = False,
        proved: bool = True,
    ) -> SavedChoice:
        """Return the least cost with rows for some moments and a budget, or the least bytes."""
        limits: list[tuple[Mapping[Name, int], int]] = []
        if budget is not None:
            limits.append((self.saving.sizes, budget))
        if self.peak is not None:
            limits += [(row.if_saved, self.peak - row.fixed) for row in rows]
            limits += self._refuted
        # In search of a peak many programs are solved.
        seconds = self._left if self.peak is None else max(0.5, self._left / 4)
        found = choose(self.saving, limits, seconds, least_bytes=least, proved=proved)
        return found if found.names is None else replace(found, names=self.read(found.names))

    @cached_property
    def saving(self) -> Saving:
        """The choice without its graph: sizes, times and who reads what."""
        joint = self.joint
        again = {work.node.name: work for work in joint.works.values() if work.again}
        return Saving(
            {
                key: each.size
                for key, each in joint.made.items()
                if each.node is not None and not partitioners.must_recompute(each.maker.node)
            },
            {key: each.maker.node.name for key, each in joint.made.items()},
            {name: work.time for name, work in again.items()},
            {name: work.reads for name, work in again.items()},
            joint.needs,
        )

    def _least(self) -> GraphOutcome:
        """Return the choice that saves fewest bytes, or all that is read if the time has ended."""
        found = self._chosen(least=True, proved=False) if self._left > 0 else None
        if found is None or (found.names is None and found.bound is not None):
            return self.outcome(self.read(self.saving.sizes))
        if found.names is None:
            raise InputError("what the graph saves can neither be saved nor computed again")
        return self.outcome(found.names)

    def read(self, saved: Collection[Key]) -> frozenset[Key]:
        """Return those of the saved storages that the backward pass reads; others are not saved."""
        read = set(self.joint.needs)
        for work in self.joint.again(saved):
            read.update(work.reads)
        return frozenset(read.intersection(saved))

    # Outcomes of choices as PyTorch divides the graph.

    def outcome(
        self, saved: Collection[Key], nodes: Sequence[fx.Node] | None = None
    ) -> GraphOutcome:
        """Return a choice as PyTorch divides the graph; `nodes` are those that are saved."""
        again = self.joint.again(saved)
        if nodes is None:
            chosen = [self.joint.made[key].node for key in saved]
            nodes = [n for n in self.info.inputs if n.op == "placeholder"]
            nodes = [*nodes, *sorted(filter(None, chosen), key=self.joint.place.__getitem__)]
        module = self.graph.owning_module
        assert module is not None
        pair = divided(module, nodes, self._outputs, self.info.static_lifetime_input_nodes)
        return GraphOutcome(
            frozenset(saved),
            sum(work.time for work in again),
            sum(self.joint.made[key].size for key in saved),
            peak_of(pair[0].graph, pair[1].graph, self._outputs),
            tuple(work.node for work in again if work.node in self.joint.first),
            frozenset(work.node for work in again),
        )

    def _better(self, *outcomes: GraphOutcome) -> GraphOutcome:
        """Return the outcome that exceeds the peak least; of several, the one of least cost."""
        limit = self.peak or 0
        return min(outcomes, key=lambda each: (max(0, each.peak - limit), each.cost, each.peak))

    def _carried_out(self, wanted: GraphOutcome) -> GraphOutcome:
        """Return a choice as PyTorch's cut makes it, marked where the cut would differ."""
        again = wanted.computed
        found = self._cut(again)
        if found is not None and found.saved == wanted.saved:
            return found
        for key in wanted.saved:
            # A mark counts for what the forward pass needs, which is said here.
            for node in (self.joint.made[key].node, self.joint.made[key].maker.node):
                self.info._required_fw_nodes.add(node)
                self.info.fw_order.setdefault(node, len(self.info.fw_order))
        mark_choice(self.joint, wanted.saved, [self.joint.works[node] for node in again])
        found = self._cut(again)
        assert found is not None
        return found

    def _cut(self, again: Collection[fx.Node]) -> GraphOutcome | None:
        """Return the choice of PyTorch's cut; None if a node ran again that must not."""
        free = OrderedSet([node for node in self.candidates if node in again])
        nodes, _ = partitioners.solve_min_cut(self.graph, self.info, self.options, free)
        with suppress(KeyError):
            return self.outcome(self.joint.storages(nodes), nodes)
        return None


def _must_not(node: fx.Node) -> bool:
    """Whether an operator must not run again: it draws random numbers, or is marked so."""
    if node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE:
        return True
    target = node.target
    if not isinstance(target, OpOverload):
        return False
    collective = target.namespace in ("_c10d_functional", "c10d_functional")
    return collective or torch.Tag.nondeterministic_seeded in target.tags


def operator_times(nodes: Iterable[fx.Node]) -> dict[fx.Node, int]:
    """Return the cost of nodes by PyTorch's estimator, in whole units."""
    flops = aot_config.activation_memory_budget_runtime_estimator == "flops"
    found = {}
    for node in nodes:
        if "val" in node.meta:
            found[node] = _flops(node) if flops else partitioners.estimate_runtime(node)
        else:
            found[node] = 0
    if all(value == int(value) for value in found.values()):
        return {node: int(value) for node, value in found.items()}
    unit = max(found.values()) / _STEPS
    return {node: round(value / unit) for node, value in found.items()}


def _flops(node: fx.Node) -> int:
    """Return floating-point operations of a node, at least 1, as PyTorch counts them."""
    formula = flop_registry.get(getattr(node.target, "_overloadpacket", None))
    if formula is None:
        return 1

    def shape(value: Any) -> Any:
        value = value.meta.get("val") if isinstance(value, fx.Node) else value
        if not isinstance(value, torch.Tensor):
            return value
        return tuple(partitioners.optimization_hint(size, fallback=4096) for size in value.shape)

    args, kwargs = tree_map(shape, (node.args, node.kwargs))
    out = tree_map(shape, node.meta["val"])
    return max(1, int(formula(*args, **kwargs, out_val=out)))
