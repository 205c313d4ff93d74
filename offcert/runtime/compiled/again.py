"""Marks of nodes that run again in the backward pass, made before the joint graph is divided."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from offcert.runtime.compiled.graph_pair import (
    CallKey,
    NodeCalls,
    Stack,
    is_backward,
    is_known,
    launches,
    storage_of,
)
from offcert.runtime.compiled.report import RunsAgain
from offcert.runtime.segments.placed import Kept, PlacedProgram, PlacedSegment
from offcert.runtime.torch_private import OpOverload
from offcert.runtime.watch.events import ENTER


@dataclass(frozen=True)
class Marked:
    """A segment whose nodes are marked.

    Attributes
    ----------
    segment : str
        The segment that runs again, for people.
    nodes : tuple of str
        Nodes of the joint graph.
    why : tuple of str
        Reasons why it is not as planned.
    """

    segment: str
    nodes: tuple[str, ...]
    why: tuple[str, ...]

    def divided(self, backward: fx.GraphModule) -> RunsAgain:
        """Return the marked nodes of the segment that are left in the backward graph."""
        there = {node.name for node in backward.graph.nodes if node.op == "call_function"}
        # Operators that draw random numbers are wrapped, but not what is read of their results.
        nodes = tuple(name for name in self.nodes if name in there)
        return RunsAgain(self.segment, len(self.nodes), nodes, self.why)


def mark_segments(
    program: PlacedProgram, joint: fx.GraphModule, outputs: int, calls: NodeCalls
) -> list[Marked]:
    """Mark the nodes of a joint graph that segments run again, for PyTorch's partitioners.

    A segment runs again lazily: each of its nodes right before the backward pass first needs what
    it computes. What nodes outside of it save stays saved. Inputs that the step changes, such as
    the running statistics of a batch norm, are copied for what reads them again.

    Returns
    -------
    list of Marked
        One for every outermost segment.
    """
    nodes = [n for n in joint.graph.nodes if n.op == "call_function" and not is_backward(n)]
    within: dict[fx.Node, int] = {}
    rows: list[tuple[PlacedSegment, list[fx.Node], list[str]]] = []
    for number, segment in enumerate(program.segments):
        inside = _inside(segment)
        found = [node for node in nodes if node not in within and inside(calls.stack(node))]
        kept, lost = _kept(segment, found, calls)
        within.update((node, number) for node in found if node not in kept)
        why = [f"{each} keeps what no node of the graph computes" for each in lost]
        if segment.inner:
            inner = ", ".join(map(str, segment.inner))
            why.append(f"{inner} inside of it runs again with it, not once more by itself")
        rows.append((segment, found, why))
    saved = {
        node
        for node in within
        if _is_foreign(node) or _is_saved_outside(node, within, program, calls)
    }
    for node in within:
        policy = CheckpointPolicy.MUST_SAVE if node in saved else CheckpointPolicy.MUST_RECOMPUTE
        node.meta["recompute"] = policy
    rerun = {node for node in within if node not in saved}
    _copy_what_changes(joint, outputs, rerun)
    return [
        Marked(str(segment), tuple(n.name for n in found if n in rerun), tuple(why))
        for segment, found, why in rows
    ]


def _inside(segment: PlacedSegment) -> Callable[[Stack], bool]:
    """Return a predicate: whether the calls around a node are in a segment."""
    if segment.line:
        line = {CallKey(*each) for each in segment.line}
        return lambda stack: not line.isdisjoint(stack)
    whole = CallKey(segment.path, segment.call)
    if segment.children is None:
        if not segment.path:
            return lambda stack: True
        return lambda stack: whole in stack
    first, last = segment.children
    prefix = f"{segment.path}." if segment.path else ""

    def among(stack: Stack) -> bool:
        if segment.path and whole not in stack:
            return False
        for call in stack:
            name = call.path.removeprefix(prefix)
            if call.path.startswith(prefix) and "." not in name and name.isdigit():
                # Names of the children of a sequence are numbers, and they run in their order.
                return first.isdigit() and int(first) <= int(name) <= int(last)
            if name in (first, last):
                return True
        return False

    return among


def _kept(
    segment: PlacedSegment, nodes: list[fx.Node], calls: NodeCalls
) -> tuple[set[fx.Node], list[str]]:
    """Return the nodes whose results stay, and the names of what was not found."""
    kept: set[fx.Node] = set()
    lost = []
    for each in (kept for one in segment.nested() for kept in one.kept):
        found = _between(each, nodes, calls)
        chosen = [node for node in found if launches(node)]
        if each.operators is not None:
            chosen = [chosen[n] for n in each.operators if n < len(chosen)]
        # With parts of their results, and views of these; not with views of what others make.
        made = {part for node in chosen for part in (node, *node.users) if part in found}
        memory = {storage_of(node) for node in made} - {None}
        found = [node for node in found if node in made or storage_of(node) in memory]
        if not found:
            lost.append(each.path)
        kept.update(found)
    return kept, lost


def _between(kept: Kept, nodes: list[fx.Node], calls: NodeCalls) -> list[fx.Node]:
    """Return the nodes from an event at a module up to the next event."""
    call = CallKey(kept.path, kept.call)
    stacks = [calls.stack(node) for node in nodes]
    if kept.kind == ENTER:
        begin = next((n for n, stack in enumerate(stacks) if call in stack), None)
    else:
        ends = [n for n, stack in enumerate(stacks) if call in stack]
        begin = ends[-1] + 1 if ends else None
    if begin is None or begin == len(nodes):
        return []
    end = next((n for n in range(begin, len(nodes)) if stacks[n] != stacks[begin]), len(nodes))
    return nodes[begin:end]


def _is_foreign(node: fx.Node) -> bool:
    """Whether a node is an operator of others, which may keep state, or a part of its result."""
    maker: Any = node.args[0] if node.target is operator.getitem else node
    return isinstance(maker.target, OpOverload) and not is_known(maker.target)


def _is_saved_outside(
    node: fx.Node, within: dict[fx.Node, int], program: PlacedProgram, calls: NodeCalls
) -> bool:
    """Whether a node outside of its segment saves what a node computes, or runs again with it."""
    inside = _inside(program.segments[within[node]])
    for user in node.users:
        if user.op == "output":
            continue
        if is_backward(user):
            if not inside(calls.stack(user)):
                return True
        elif user in within and within[user] != within[node]:
            return True
    return False


def _copy_what_changes(joint: fx.GraphModule, outputs: int, rerun: set[fx.Node]) -> None:
    """Let nodes that run again read a copy of each input that the step changes afterwards."""
    output = joint.graph.find_nodes(op="output")[0]
    changed = _changed(joint, output, outputs)
    for node in changed:
        readers = [user for user in node.users if user in rerun]
        if not readers:
            continue
        with joint.graph.inserting_before(_first_call(joint)):
            copy = joint.graph.call_function(torch.ops.aten.clone.default, (node,))
        copy.meta["partitioner_tag"] = "is_forward"
        copy.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        value = node.meta["val"]
        with value.fake_mode:
            copy.meta["val"] = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=value.device
            )
        copy.meta["tensor_meta"] = node.meta.get("tensor_meta")
        for reader in readers:
            reader.replace_input_with(node, copy)


def _first_call(joint: fx.GraphModule) -> fx.Node:
    return next(node for node in joint.graph.nodes if node.op != "placeholder")


def _changed(joint: fx.GraphModule, output: fx.Node, outputs: int) -> list[fx.Node]:
    """Return the inputs that the step changes in place: their new values are results."""
    numbers = set()
    for result in output.meta.get("desc", ())[:outputs]:
        source = getattr(result, "mutated_input", None)
        if source is not None:
            numbers.add(source)
    inputs = joint.graph.find_nodes(op="placeholder")
    addresses = {storage_of(node) for node in inputs if node.meta.get("desc") in numbers}
    return [node for node in inputs if storage_of(node) in addresses - {None}]
