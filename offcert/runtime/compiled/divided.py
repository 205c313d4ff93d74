"""`DividedGraph`: a forward and a backward graph as stretches, and what passes between these.

A stretch is a product, a convolution or an attention alone, or all nodes between two of these,
which Inductor fuses. Views, and constants, belong to nobody: whoever reads one makes it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

from offcert.core.errors import InputError
from offcert.runtime.compiled.nodes import (
    Key,
    bytes_of,
    is_dense,
    is_known,
    key_of,
    launches,
    storages_of,
    tensor_of,
)
from offcert.runtime.torch_private import OpOverload

# Bytes below which a tensor made of nothing is made anew by whoever reads it. Arbitrary.
_CONSTANT = 2**16


@dataclass(eq=False)
class Stretch:
    """Nodes that run one after the other."""

    # In their order, with the parts of their results.
    nodes: list[fx.Node] = field(default_factory=list)
    products: bool = False  # Whether it is one product, convolution or attention
    # Whether it may run again: it draws no random numbers, changes nothing, and what it computes
    # for others does not depend on what the step changes.
    again: bool = True
    # Storages that other stretches make, or read; inputs of the step are not among them.
    reads: list[Key] = field(default_factory=list)
    writes: list[Key] = field(default_factory=list)


class DividedGraph:
    """A forward and a backward graph, as a partitioner has made them, cut into stretches.

    `outputs` results of the forward graph go to the caller, the others are saved. `owned` are the
    numbers of those results of the backward graph that are gradients of parameters, which nobody
    counts.
    """

    def __init__(
        self,
        forward: fx.GraphModule,
        backward: fx.GraphModule,
        outputs: int,
        owned: Collection[int],
        is_product: Callable[[fx.Node], bool],
    ) -> None:
        self.forward, self.backward, self.outputs = forward, backward, outputs
        named = {node.name: node for node in forward.graph.nodes}
        given = backward.graph.find_nodes(op="placeholder")
        self._origin = {each: named[each.name] for each in given if each.name in named}
        self._given = [each for each in given if each.name not in named]
        self._free: dict[fx.Node, bool] = {}
        # Those of the forward graph, and of the backward graph.
        self.sides = tuple(_cut(m.graph, self, is_product) for m in (forward, backward))
        self._connect(owned)
        changed = self._changed()
        for stretch in (each for side in self.sides for each in side):
            wanted = self.needed(stretch, [k for k in stretch.writes if k not in self._put_back])
            stretch.again = bool(wanted) and not any(self._once(n, changed) for n in wanted)

    def real(self, node: fx.Node) -> fx.Node:
        """Return the node of the forward graph whose result is saved as an input, or the node."""
        return self._origin.get(node, node)

    @property
    def results(self) -> list[Any]:
        """Results of the forward graph that go to the caller."""
        return results_of(self.forward.graph)[: self.outputs]

    def is_free(self, node: fx.Node) -> bool:
        """Whether a node is a view, a constant, or an attribute of the graph's module."""
        found = self._free.get(node)
        if found is None:
            found = self._free[node] = self._is_free(node)
        return found

    def _is_free(self, node: fx.Node) -> bool:
        if node.op == "get_attr":
            return True
        if node.op != "call_function" or changes(node):
            return False
        if node.target is operator.getitem:
            return self.is_free(node.args[0])  # type: ignore[arg-type]
        if node.all_input_nodes:
            return not launches(node)
        value = tensor_of(node)
        return value is not None and not _is_random(node) and bytes_of(node) < _CONSTANT

    def root(self, node: fx.Node) -> fx.Node | None:
        """Return the node of which a node is a view, or itself; None if it is a constant."""
        node = self.real(node)
        while self.is_free(node):
            base = [n for n in node.all_input_nodes if storages_of(n) & storages_of(node)]
            if not base:
                return None
            node = self.real(base[0])
        return node

    def key(self, node: fx.Node) -> Key | None:
        """Return the storage that a node's result lies in; None if it is given, or a constant."""
        root = self.root(node)
        if root is None or (root.op == "placeholder" and root not in self._given):
            return None
        return None if root.op == "placeholder" and tensor_of(root) is None else self.own_key(root)

    def own_key(self, node: fx.Node) -> Key:
        """Return the storage of a node's own result.

        What the backward graph makes anew is described by the same tensors as the first time.
        """
        key = key_of(node)
        if node.graph is self.forward.graph:
            return key
        return f"backward {key}"

    def needed(self, stretch: Stretch, keys: Collection[Key]) -> list[fx.Node]:
        """Return the nodes of a stretch of which some storages that it makes are computed."""
        inside, wanted = set(stretch.nodes), {self.made[key] for key in keys}
        for node in reversed(stretch.nodes):
            if node in wanted:
                wanted.update(self._sources(node, inside))
        return [node for node in stretch.nodes if node in wanted]

    def _sources(self, node: fx.Node, inside: Collection[fx.Node]) -> Iterator[fx.Node]:
        for each in node.all_input_nodes:
            if each in inside:
                yield each
            elif self.is_free(each):
                yield from self._sources(each, inside)

    def _connect(self, owned: Collection[int]) -> None:
        """Find out which storages pass between stretches."""
        maker: dict[Key, Stretch] = {}
        makes: dict[Key, fx.Node] = {}
        for stretch in (each for side in self.sides for each in side):
            for node in stretch.nodes:
                if tensor_of(node) is not None and not changes(node):
                    maker.setdefault(self.own_key(node), stretch)
                    makes.setdefault(self.own_key(node), node)
        tangents = {k: node for node in self._given if (k := self.key(node)) is not None}
        # Gradients that the backward graph is given.
        self.tangents = list(tangents)
        crossing: dict[Key, None] = {}
        self._put_back: set[Key] = set()
        others: set[Key] = set()
        for stretch in (each for side in self.sides for each in side):
            given = (self.key(n) for node in stretch.nodes for n in node.all_input_nodes)
            stretch.reads = [
                key
                for key in dict.fromkeys(given)
                if key is not None and (key in tangents or maker.get(key, stretch) is not stretch)
            ]
            crossing.update(dict.fromkeys(stretch.reads))
            (self._put_back if any(map(changes, stretch.nodes)) else others).update(stretch.reads)
        self._put_back -= others
        ends = results_of(self.backward.graph)
        held = [*self.results, *(each for n, each in enumerate(ends) if n not in owned)]
        gradients = {k for each in ends if isinstance(each, fx.Node) and (k := self.key(each))}
        # Storages among results: the caller holds them until the backward graph has ended.
        self.held = {k for each in held if isinstance(each, fx.Node) and (k := self.key(each))}
        crossing.update(dict.fromkeys(k for k in self.held if k in maker or k in tangents))
        self._put_back -= self.held
        # Gradients of parameters that no other stretch reads, which nobody counts.
        self.gradients = gradients - crossing.keys()
        # For each storage that passes between stretches, the node that makes it.
        self.made = {key: node for key, node in makes.items() if key in crossing}
        self.made |= {key: tangents[key] for key in self.tangents}
        for key in makes:
            if key in crossing:
                maker[key].writes.append(key)

    def _changed(self) -> set[fx.Node]:
        """Return the inputs of the forward graph that the step changes in place."""
        inputs = self.forward.graph.find_nodes(op="placeholder")
        output = self.forward.graph.find_nodes(op="output")[0]
        sources = {
            source
            for result in output.meta.get("desc", ())[: self.outputs]
            if (source := getattr(result, "mutated_input", None)) is not None
        }
        found = {node for node in inputs if node.meta.get("desc") in sources}
        nodes = [n for side in self.sides for each in side for n in each.nodes if changes(n)]
        found |= {self.real(n) for node in nodes for n in node.all_input_nodes[:1]}
        addresses = {s for node in found for s in storages_of(node)}
        return {node for node in inputs if storages_of(node) & addresses}

    def _once(self, node: fx.Node, changed: Collection[fx.Node]) -> bool:
        """Whether a node cannot run a second time."""
        if node.target is not operator.getitem and not is_known(node.target):
            return True
        if changes(node) or _is_random(node):
            return True
        return any(self._reads_changed(each, changed) for each in node.all_input_nodes)

    def _reads_changed(self, node: fx.Node, changed: Collection[fx.Node]) -> bool:
        node = self.real(node)
        if node in changed or node.op == "get_attr":
            return True
        return self.is_free(node) and any(
            self._reads_changed(each, changed) for each in node.all_input_nodes
        )

    def size(self, key: Key) -> int:
        """Return the bytes of a storage that passes between stretches."""
        return bytes_of(self.made[key])

    def moves(self, key: Key) -> bool:
        """Whether a storage may leave: the forward graph makes it, it is one whole tensor."""
        node = self.made[key]
        value = tensor_of(node)
        if value is None or key in self.held or node.graph is not self.forward.graph:
            return False
        return value.numel() * value.itemsize == bytes_of(node) and is_dense(value)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of both graphs: operators, constants, shapes, and what depends on what."""
        hashed = sha256()
        for module in (self.forward, self.backward):
            number: dict[fx.Node, int] = {}
            for node in module.graph.nodes:
                args = map_aggregate((node.args, node.kwargs), partial(_written, number=number))
                target = "" if node.op == "placeholder" else _name(node.target)
                hashed.update(f"{node.op} {target} {args} {_shape(node)}\n".encode())
                number[node] = len(number)
        return hashed.hexdigest()


def results_of(graph: fx.Graph) -> list[Any]:
    """Return the results of a graph; some are no nodes."""
    return list(graph.find_nodes(op="output")[0].args[0])


def changes(node: fx.Node) -> bool:
    """Whether a node changes what it is given, or does something that nobody reads."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    target = node.target
    return (isinstance(target, OpOverload) and target._schema.is_mutable) or node.is_impure(
        impure_random=False
    )


def _is_random(node: fx.Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags


def _cut(
    graph: fx.Graph, divided: DividedGraph, is_product: Callable[[fx.Node], bool]
) -> list[Stretch]:
    """Return the stretches of a graph; parts of a result belong to what makes it."""
    found: list[Stretch] = []
    owner: dict[fx.Node, Stretch] = {}
    effects = False
    for node in graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise InputError(
                f"{node.name} of the compiled graph is a dynamic size: compile with dynamic=False"
            )
        if node.op != "call_function" or divided.is_free(node):
            continue
        if node.target is operator.getitem:
            owner[node] = owner[node.args[0]]
        else:
            product = is_product(node)
            if not found or product or found[-1].products or changes(node) is not effects:
                found.append(Stretch(products=product))
            owner[node], effects = found[-1], changes(node)
        owner[node].nodes.append(node)
    return found


def _written(value: Any, number: dict[fx.Node, int]) -> Any:
    if isinstance(value, fx.Node):
        return f"%{number[value]}"
    return value if isinstance(value, int | float | bool | str | type(None)) else repr(value)


def _name(target: Any) -> str:
    if isinstance(target, OpOverload):
        return str(target)
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', target)}"


def _shape(node: fx.Node) -> Any:
    value = node.meta.get("val")
    rows = value if isinstance(value, list | tuple) else [value]
    return [
        (str(v.dtype), tuple(v.shape), tuple(v.stride())) if isinstance(v, torch.Tensor) else v
        for v in rows
    ]
