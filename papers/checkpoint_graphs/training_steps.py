"""A training step on a graph of tensors: forward and backward pass with gradients, as a network."""

from __future__ import annotations

from collections.abc import Collection

from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.questions.selection.graph import CheckpointGraph, bits


def training_step(graph: CheckpointGraph, unread: Collection[int] = ()) -> Network:
    """Return a network whose forward pass is a graph, each backward operation with its gradients.

    The source is there at the start and needs no gradient. The backward operation of a vertex reads
    it, what it was made from, and its gradient; it makes the gradients of what it was made from, or
    adds to those that are there, for which it takes as much memory again. Nothing takes time:
    durations are one tick.

    Parameters
    ----------
    graph : CheckpointGraph
        Sizes of tensors; a gradient is as large as its tensor.
    unread : collection of int
        Vertices that their own backward operations do not read: convolutions need their inputs,
        concatenations nothing, in-place ReLUs what they wrote.
    """
    return _Step(graph, frozenset(unread)).network()


class _Step:
    def __init__(self, graph: CheckpointGraph, unread: frozenset[int]) -> None:
        self.graph = graph
        self.unread = unread
        self.values = [
            Value(name, size) for name, size in zip(graph.names, graph.sizes, strict=True)
        ]
        # For each vertex, its gradient and what additions have made of it.
        self.gradients: dict[int, list[int]] = {}

    def network(self) -> Network:
        count = len(self.graph)
        forward = [
            Computation(
                self.graph.names[v], 1, 0, tuple(bits(self.graph.predecessors[v])), writes=(v,)
            )
            for v in range(1, count)
        ]
        loss = count - 1
        self._add(loss)
        first = Computation("loss", 1, 0, (loss,), (self.gradients[loss][0],), repeatable=False)
        backward = [self._backward(v) for v in reversed(range(1, count))]
        return Network([*forward, first, *backward], self.values)

    def _add(self, vertex: int) -> int:
        """Make the gradient of a vertex, or what an addition makes of it."""
        known = self.gradients.setdefault(vertex, [])
        name = f"gradient of {self.graph.names[vertex]}"
        if known:
            self.values.append(Value(f"{name}'", 0, False, base=known[0]))
        else:
            self.values.append(Value(name, self.graph.sizes[vertex], False))
        known.append(len(self.values) - 1)
        return known[-1]

    def _backward(self, vertex: int) -> Computation:
        inputs = list(bits(self.graph.predecessors[vertex]))
        reads = {*inputs, *self.gradients[vertex]} | ({vertex} - self.unread)
        writes, workspace = [], 0
        for tensor in inputs:
            if tensor == 0:
                continue
            if tensor in self.gradients:
                reads |= set(self.gradients[tensor])
                workspace += self.graph.sizes[tensor]
            writes.append(self._add(tensor))
        name = f"backward of {self.graph.names[vertex]}"
        sorted_reads = tuple(sorted(reads))
        return Computation(name, 1, workspace, sorted_reads, tuple(sorted(writes)), False)
