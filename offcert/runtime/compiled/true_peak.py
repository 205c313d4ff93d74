"""The peak of a divided joint graph: what its tensors take while both graphs run, node by node."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import fx

from offcert.runtime.compiled.joint_graph import Key, bytes_of, key_of
from offcert.runtime.torch_private import OrderedSet, divided_by, has_storage, partitioners


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
    results = list(next(iter(forward.find_nodes(op="output"))).args[0])
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
    ends = list(next(iter(backward.find_nodes(op="output"))).args[0])
    kept = {key_of(node) for node in ends if isinstance(node, fx.Node)}
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
