"""`JointGraph`: what PyTorch's partitioner may save or compute again of a joint graph, as numbers.

Tensors that share memory are one *storage*: a view costs nothing to make again, and whoever saves
it keeps all of the storage. Inputs of the step are there in any case, and count nowhere.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from offcert.runtime.compiled.divided import results_of
from offcert.runtime.compiled.nodes import Key, bytes_of, key_of, launches
from offcert.runtime.compiled.torch_compiler import divided_by, partitioners
from offcert.runtime.torch_private import OrderedSet, has_storage


@dataclass(eq=False)
class ForwardOperator:
    """An operator of the forward pass."""

    node: fx.Node  # The node of the operator
    # What it costs to run it again, in whole units; nothing if the results of the forward pass do
    # not depend on it, so that it only runs where it is read.
    time: int
    again: bool  # Whether it may run again
    # Storages, without those of inputs.
    makes: list[Key] = field(default_factory=list)
    reads: list[Key] = field(default_factory=list)


@dataclass(eq=False)
class ForwardStorage:
    """A storage that the forward pass makes."""

    key: Key  # Key of the storage
    maker: ForwardOperator  # The operator that makes it
    size: int  # Bytes
    # The first node whose result it is; None if it cannot be saved, as it is several at once.
    node: fx.Node | None


@dataclass(frozen=True)
class NodeDemand:
    """Bytes that are at least there while some node runs, in every division of the graph."""

    fixed: int  # Bytes that are there whatever is saved
    if_saved: dict[Key, int]  # Bytes by storage that are there if it is saved

    def at(self, saved: Collection[Key]) -> int:
        """Return the bytes that are there at least if these storages are saved."""
        return self.fixed + sum(size for key, size in self.if_saved.items() if key in saved)


class JointGraph:
    """The forward and the backward pass of a step, before a partitioner divides them.

    `backward` are the nodes that depend on gradients, the first `outputs` results are those of the
    forward pass. `time` gives the cost of running a node, in whole units, at least 0, and `again`
    whether a node of the forward pass may run again.
    """

    def __init__(
        self,
        graph: fx.Graph,
        backward: Collection[fx.Node],
        time: Callable[[fx.Node], int],
        again: Callable[[fx.Node], bool],
        outputs: int,
    ) -> None:
        self.graph, self.outputs = graph, outputs
        self.backward = {node for node in backward if node.op != "output"}
        self.place = {node: number for number, node in enumerate(graph.nodes)}
        self.works: dict[fx.Node, ForwardOperator] = {}
        self.made: dict[Key, ForwardStorage] = {}
        self._free: set[Key] = set()
        for node in graph.nodes:
            if node in self.backward or node.op == "output":
                continue
            if node.op != "call_function":
                self._free.add(key_of(node))
                continue
            if self._is_work(node):
                self.works[node] = ForwardOperator(node, time(node), again(node))
                self.works[node].reads = self._made(node.all_input_nodes)
            self._make(node)
        for node, work in self.works.items():
            if node not in self.first:
                # Only the backward pass reads it: whichever pass runs it does so once.
                work.time = 0

    @cached_property
    def needs(self) -> list[Key]:
        """Storages that the backward pass reads or returns."""
        read: list[fx.Node] = []
        for node in self.graph.nodes:
            if node in self.backward:
                read += [each for each in node.all_input_nodes if each not in self.backward]
        read += [each for each in self.results[self.outputs :] if isinstance(each, fx.Node)]
        return self._made(read)

    @cached_property
    def results(self) -> list[object]:
        """Results of the graph: those of the forward pass, then gradients."""
        output = next(iter(self.graph.find_nodes(op="output")))
        found: list[object] = []
        torch.fx.node.map_aggregate(output.args, lambda each: found.append(each))
        return found

    def again(self, saved: Collection[Key]) -> list[ForwardOperator]:
        """Return the operators that run again if these storages are saved, in the graph's order.

        A `KeyError` is raised if something is neither saved nor may run again.
        """
        wanted = [key for key in self.needs if key not in saved]
        found: dict[fx.Node, ForwardOperator] = {}
        while wanted:
            work = self.made[wanted.pop()].maker
            if work.node in found:
                continue
            if not work.again:
                raise KeyError(work.node.name)
            found[work.node] = work
            wanted += [key for key in work.reads if key not in saved]
        return sorted(found.values(), key=lambda work: self.place[work.node])

    def storages(self, nodes: Iterable[fx.Node]) -> set[Key]:
        """Return the storages of nodes that are saved, without those of inputs."""
        return {key_of(node) for node in nodes if key_of(node) in self.made}

    def moments(self) -> list[NodeDemand]:
        """Return the bytes that are there at least during each operator, forward, then backward.

        Operators of each pass run in the order of the graph; what runs again runs between them, and
        what both an earlier and a later one read is there in between, saved or not.
        """
        forward = [work.node for work in self.works.values()]
        backward = [n for n in self.graph.nodes if n in self.backward and n.op == "call_function"]
        held = self._made(n for n in self.results[: self.outputs] if isinstance(n, fx.Node))
        last = self._last_uses(held)
        moments = [self._forward(node, last) for node in forward if node in self.first]
        return [*moments, *self._backward(backward, set(held))]

    # Reading the graph.

    def _is_work(self, node: fx.Node) -> bool:
        return node.target is not operator.getitem and (
            isinstance(node.meta.get("val"), torch.Tensor | list | tuple) and launches(node)
        )

    def _make(self, node: fx.Node) -> None:
        """Take note of what a node makes, unless it is there already."""
        key = key_of(node)
        if key in self.made or key in self._free:
            return
        work = self.works.get(_maker(node))
        if work is None or not isinstance(node.meta.get("val"), torch.Tensor | list | tuple):
            # Sizes and the like are there in any case.
            self._free.add(key)
            return
        whole = isinstance(node.meta["val"], torch.Tensor)
        self.made[key] = ForwardStorage(key, work, bytes_of(node), node if whole else None)
        work.makes.append(key)

    def _made(self, nodes: Iterable[fx.Node]) -> list[Key]:
        keys = dict.fromkeys(key_of(node) for node in nodes)
        return [key for key in keys if key in self.made]

    @cached_property
    def first(self) -> set[fx.Node]:
        """Nodes that the forward pass runs in any case, since its results depend on them."""
        wanted = [n for n in self.results[: self.outputs] if isinstance(n, fx.Node)]
        found: set[fx.Node] = set()
        while wanted:
            node = wanted.pop()
            if node not in found:
                found.add(node)
                wanted += node.all_input_nodes
        return found

    def _last_uses(self, held: Iterable[Key]) -> dict[Key, int]:
        """Return until where what runs in the forward pass in any case reads each storage."""
        last: dict[Key, int] = {}
        for node in self.first:
            for key in self._made([node, *node.all_input_nodes]):
                last[key] = max(last.get(key, -1), self.place[node])
        last.update(dict.fromkeys(held, len(self.place)))
        return last

    def _forward(self, node: fx.Node, last: dict[Key, int]) -> NodeDemand:
        now, fixed, saved = self.place[node], 0, {}
        for key, each in self.made.items():
            if each.node is None or self.place[each.maker.node] > now:
                continue
            if each.maker.node in self.first and last.get(key, -1) >= now:
                fixed += each.size
            else:
                saved[key] = each.size
        return NodeDemand(fixed, saved)

    def _backward(self, nodes: list[fx.Node], held: set[Key]) -> list[NodeDemand]:
        ends = {key_of(n) for n in self.results[self.outputs :] if isinstance(n, fx.Node)}
        sizes, begin, end = self._gradients(ends)
        first: dict[Key, int] = {}
        last: dict[Key, int] = {}
        for node in nodes:
            for key in self._made(node.all_input_nodes):
                first.setdefault(key, self.place[node])
                last[key] = self.place[node]
        beside = sum(self.made[key].size for key in held)
        moments = []
        for node in nodes:
            if not self._is_work(node):
                continue
            now = self.place[node]
            fixed = beside + sum(sizes[k] for k in sizes if begin[k] <= now <= end[k])
            there = [key for key in last if last[key] >= now and key not in held]
            fixed += sum(self.made[key].size for key in there if first[key] <= now)
            saved = {key: self.made[key].size for key in there if first[key] > now}
            moments.append(NodeDemand(fixed, saved))
        return moments

    def _gradients(self, ends: set[Key]) -> tuple[dict[Key, int], dict[Key, int], dict[Key, int]]:
        """Return sizes of what the backward pass makes, and from where to where it is there."""
        sizes: dict[Key, int] = {}
        begin: dict[Key, int] = {}
        end: dict[Key, int] = {}
        for node in self.graph.nodes:
            if node not in self.backward or node.op == "output":
                continue
            key = key_of(node)
            several = isinstance(node.meta.get("val"), list | tuple)
            if several or key in self.made or key in self._free:
                continue
            sizes.setdefault(key, bytes_of(node))
            begin.setdefault(key, 0 if node.op == "placeholder" else self.place[_maker(node)])
            uses = [self.place[user] for user in node.users if user.op != "output"]
            end[key] = max([end.get(key, -1), begin[key], *uses])
            if key in ends:
                end[key] = len(self.place)
        return sizes, begin, end


def _maker(node: fx.Node) -> fx.Node:
    """Return the operator that makes a result, of which a node may be a part."""
    while node.target is operator.getitem:
        node = node.args[0]  # type: ignore[assignment]
    return node


def mark_choice(
    graph: JointGraph, saved: Collection[Key], again: Collection[ForwardOperator]
) -> None:
    """Tell PyTorch's partitioner what to save and what to run again, by its own marks."""
    for key in saved:
        each = graph.made[key]
        assert each.node is not None
        for node in (each.node, each.maker.node):
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    for work in again:
        work.node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE


# The joint graph divided, and its peak: what tensors take while both graphs run, node by node.


def divided(
    joint: fx.GraphModule, saved: Sequence[fx.Node], outputs: int, owned: Collection[fx.Node]
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Return the graphs that PyTorch's partitioner makes if these nodes are saved."""
    sizes = [node for node in saved if partitioners.is_sym_node(node)]
    opaque = [node for node in saved if partitioners.is_opaque_node(node)]
    tensors = [node for node in saved if node not in sizes and node not in opaque]
    forward, backward = divided_by(
        joint,
        tensors,
        saved_sym_nodes=sizes,
        saved_opaque_nodes=opaque,
        num_fwd_outputs=outputs,
        static_lifetime_input_nodes=OrderedSet(owned),
    )
    backward = partitioners.reordering_to_mimic_autograd_engine(backward)
    return partitioners.raise_getitems(forward), partitioners.raise_getitems(backward)


def peak_of(forward: fx.Graph, backward: fx.Graph, outputs: int) -> int:
    """Return the most bytes that tensors of both graphs take, beside the inputs of the step.

    Nodes run one after the other, and what no later node reads is freed. Results of the forward
    pass are there until the backward pass ends. Scratch memory inside of a kernel is not known.
    """
    inputs = {key_of(node) for node in forward.find_nodes(op="placeholder")}
    results = results_of(forward)
    nodes = [node for node in results if isinstance(node, fx.Node)]
    caller = [node for node in results[:outputs] if isinstance(node, fx.Node)]
    peak = _walk(forward, {}, inputs, {key_of(node) for node in nodes})
    held = {key_of(node): bytes_of(node) for node in caller if key_of(node) not in inputs}
    saved = {node.name: node for node in nodes if key_of(node) not in inputs}
    entered: dict[Key, int] = {}
    for node in backward.find_nodes(op="placeholder"):
        known = saved.get(node.name)
        if known is None and "tangents" not in str(node.target):
            # An input of the step, or a size.
            inputs.add(key_of(node))
        elif key_of(node) not in held:
            entered[key_of(node)] = bytes_of(node)
    kept = {key_of(node) for node in results_of(backward) if isinstance(node, fx.Node)}
    return max(peak, sum(held.values()) + _walk(backward, entered, inputs | set(held), kept))


def _made(node: fx.Node) -> dict[Key, int]:
    """Return the bytes of the storages that hold a node's result, or its results."""
    value = node.meta.get("val")
    if not isinstance(value, list | tuple):
        return {key_of(node): bytes_of(node)}
    found: dict[Key, int] = {}
    for each in value:
        if isinstance(each, torch.Tensor) and has_storage(each):
            storage = each.untyped_storage()
            size = storage.nbytes()
            found[int(storage._cdata)] = size if isinstance(size, int) else 0
    return found


def _walk(graph: fx.Graph, live: dict[Key, int], beside: set[Key], kept: set[Key]) -> int:
    """Return the most bytes that are live, without those beside, while a graph runs."""
    made = {node: _made(node) for node in graph.nodes if node.op != "output"}
    last: dict[Key, int] = {}
    for number, node in enumerate(graph.nodes):
        for each in (node, *node.all_input_nodes) if node.op != "output" else ():
            last.update(dict.fromkeys(made[each], number))
    dying: dict[int, list[Key]] = {}
    for key, number in last.items():
        if key not in kept:
            dying.setdefault(number, []).append(key)
    live = dict(live)
    total = peak = sum(live.values())
    for number, node in enumerate(graph.nodes):
        if node.op == "call_function":
            for key, size in made[node].items():
                if key not in live and key not in beside:
                    live[key] = size
                    total += size
        peak = max(peak, total)
        for each in dying.get(number, ()):
            total -= live.pop(each, 0)
    return peak
