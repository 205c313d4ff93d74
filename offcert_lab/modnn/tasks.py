"""A training step at the granularity of tasks, as a trace with alternatives (moDNN paper, §3).

Every layer has a task that computes its output (``FP``), one for the derivative of the error with
respect to what it computes before its activation (``BP1``, Eq. 2), and, if it has weights, one for
their gradient (``BP2``, Eq. 3). Weight updates come after the step and are left out, as in the
paper's task graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from offcert.core.trace import Operation, Tensor, Trace, require_integer
from offcert.questions.split.menu import Alternative, Menu, undominated
from offcert.questions.split.problem import Round, Split
from offcert_lab.modnn.algorithms import (
    FLOAT,
    K40,
    Accelerator,
    Convolution,
    Pass,
    alternatives,
)
from offcert_lab.modnn.networks import Layer, LayerKind, Layers

# Bytes of a number of the truth, for example a class. Assumed.
_LABEL = 4
_CONVOLUTIONAL = frozenset({LayerKind.CONVOLUTION, LayerKind.DECONVOLUTION, LayerKind.LINEAR})
# How often a batch normalisation goes over its data: forward it reads for the statistics, reads and
# writes; backward it reads both its input and the gradient twice, and writes. Derived.
_NORM_FORWARD, _NORM_BACKWARD = 3, 5


@dataclass(frozen=True, slots=True)
class Task:
    """A task: what it reads and writes, by name, and in which ways it can be executed."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    ways: tuple[Alternative, ...]


def step_round(
    network: Layers,
    images: int,
    count: int = 1,
    accelerator: Accelerator = K40,
    *,
    weights_leave: bool = False,
) -> Round:
    """Return a round of a training step: `images` images forward and backward.

    Weights and their gradients stay on the device, as one tensor. The input and the labels come
    with an operation that takes no time; they can leave as everything else.

    Parameters
    ----------
    network : Layers
        Layer by layer.
    images : int
        In the sub-batch.
    count : int
        How often the round is repeated.
    accelerator : Accelerator
        The accelerator whose model says how long tasks take.
    weights_leave : bool
        Whether the weights of a layer are a tensor that may leave, and its gradient one that is
        given to the host. Then a round begins by writing the weights back to the host, one layer
        after the other, the last one first; that stands for what the gradients take of the link.
    """
    step = Tasks(network, require_integer(images, "images", 1), accelerator)
    if weights_leave:
        trace, menu = assemble(step.tasks_with_weights(), step.sizes)
    else:
        weights = Tensor("weights", step.weights, (-1, len(step.tasks) - 1), evictable=False)
        trace, menu = assemble(step.tasks, step.sizes, [weights])
    return Round(images, count, trace, menu)


def step_split(
    network: Layers,
    batch: int,
    size: int,
    accelerator: Accelerator = K40,
    *,
    weights_leave: bool = False,
) -> Split:
    """Return a batch in sub-batches of a size, the last one with what is left."""
    require_integer(batch, "batch", 1)
    whole, rest = divmod(batch, require_integer(size, "sub_batch", 1))
    rounds = [(size, whole)] if whole else []
    if rest:
        rounds.append((rest, 1))
    return Split(
        step_round(network, images, count, accelerator, weights_leave=weights_leave)
        for images, count in rounds
    )


def assemble(
    tasks: Iterable[Task], sizes: dict[str, int], further: Iterable[Tensor] = ()
) -> tuple[Trace, Menu]:
    """Return the trace of tasks in their order, each in its first way, and the menu of the rest."""
    operations, offers = [], {}
    uses: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        first = task.ways[0]
        operations.append(Operation(task.name, first.duration, first.workspace))
        if len(task.ways) > 1:
            offers[index] = task.ways
        for name in (*task.reads, *task.writes):
            row = uses.setdefault(name, [])
            if not row or row[-1] != index:
                row.append(index)
    tensors = [Tensor(name, sizes[name], tuple(row)) for name, row in uses.items()]
    return Trace(operations, [*further, *tensors]), Menu(offers)


class Tasks:
    """The tasks of a step, in the order forward, then backward with both tasks of a layer together.

    Attributes
    ----------
    tasks : list of Task
        In order; the first one brings the input.
    sizes : dict
        Bytes of what they read and write, by name.
    weights : int
        Bytes of the weights and their gradients together.
    """

    def __init__(self, network: Layers, images: int, accelerator: Accelerator) -> None:
        self.network = network
        self.images = images
        self.accelerator = accelerator
        self.readers: list[list[int]] = [[] for _ in network.layers]
        for index, layer in enumerate(network.layers):
            for read in layer.inputs:
                self.readers[read].append(index)
        self.weights = 2 * FLOAT * sum(map(network.parameters, range(len(network.layers))))
        self.sizes = {"X": self._bytes(0), "labels": images * network.labels * _LABEL}
        for index, layer in enumerate(network.layers[1:], 1):
            self.sizes[f"Y {layer.name}"] = self.sizes[f"delta {layer.name}"] = self._bytes(index)
        self.tasks = list(self._all())

    def _all(self) -> Iterator[Task]:
        yield Task("input", (), ("X", "labels"), (Alternative("load", 0),))
        for index in range(1, len(self.network.layers)):
            yield self._forward(index)
        for index in reversed(range(1, len(self.network.layers))):
            yield self._gradient(index)
            if self.network.parameters(index):
                yield self._increment(index)

    def tasks_with_weights(self) -> Iterator[Task]:
        """Yield the tasks, with the weights that they read and the gradients that they make."""
        names = {layer.name: index for index, layer in enumerate(self.network.layers)}
        size = {index: self.network.parameters(index) * FLOAT for index in names.values()}
        for index in sorted(names.values(), reverse=True):
            if size[index]:
                name = f"W {self.network.layers[index].name}"
                self.sizes[name] = self.sizes[f"d{name}"] = size[index]
                yield Task(f"write back {name}", (), (name,), (Alternative("load", 0),))
        for task in self.tasks:
            kind, _, name = task.name.partition(" ")
            reads, writes = list(task.reads), list(task.writes)
            if kind == "FP" and size[names[name]]:
                reads.append(f"W {name}")
            elif kind == "BP1":
                through = self.readers[names[name]]
                reads += [f"W {self.network.layers[each].name}" for each in through if size[each]]
            elif kind == "BP2":
                writes.append(f"dW {name}")
            yield Task(task.name, tuple(reads), tuple(writes), task.ways)

    def _bytes(self, index: int) -> int:
        return self.network.layers[index].numbers * FLOAT * self.images

    def _output(self, index: int) -> str:
        return f"Y {self.network.layers[index].name}" if index else "X"

    def _forward(self, index: int) -> Task:
        layer = self.network.layers[index]
        reads = tuple(map(self._output, layer.inputs))
        own = self._bytes(index)
        if layer.kind in _CONVOLUTIONAL:
            ways = self._convolution(index, Pass.FORWARD, 0)
            if layer.norm:
                ways = self._later(ways, _NORM_FORWARD * own)
        elif layer.kind is LayerKind.NORM:
            ways = self._moving(_NORM_FORWARD * own)
        else:
            ways = self._moving(own + sum(map(self._bytes, layer.inputs)))
        return Task(f"FP {layer.name}", reads, (self._output(index),), ways)

    def _gradient(self, index: int) -> Task:
        """Eq. 2: what every reader's gradient says of this layer, by its own activation."""
        layer = self.network.layers[index]
        own = self._bytes(index)
        # A normalisation keeps what it made instead of what it was given, as an activation does.
        reads = {self._output(index)} if layer.relu or layer.norm else set()
        if not self.readers[index]:
            reads |= {self._output(index), "labels"}
            ways = self._moving(2 * own + self.sizes["labels"])
        else:
            parts = []
            for number, reader in enumerate(self.readers[index]):
                # What comes later is added to what is there.
                beside = own * (bool(number) + (layer.relu and not number))
                reads |= set(self._read_backward(index, reader))
                parts.append(self._backward_through(index, reader, beside))
            ways = _together(parts)
        if layer.norm:
            ways = self._later(ways, _NORM_BACKWARD * own)
        return Task(f"BP1 {layer.name}", tuple(sorted(reads)), (f"delta {layer.name}",), ways)

    def _read_backward(self, index: int, reader: int) -> Iterator[str]:
        layer = self.network.layers[reader]
        yield f"delta {layer.name}"
        if layer.kind in (LayerKind.MAXIMUM, LayerKind.NORM):
            yield self._output(index)
        if layer.kind in (LayerKind.MAXIMUM, LayerKind.RELU):
            yield self._output(reader)

    def _backward_through(self, index: int, reader: int, beside: int) -> tuple[Alternative, ...]:
        """Return the ways to compute the gradient of a layer's output from that of its reader."""
        kind = self.network.layers[reader].kind
        if kind in _CONVOLUTIONAL:
            return self._convolution(reader, Pass.DATA, beside)
        read, made = self._bytes(index), self._bytes(reader)
        moved = {
            LayerKind.MAXIMUM: 2 * read + 2 * made,
            LayerKind.NORM: _NORM_BACKWARD * read,
            LayerKind.RELU: 3 * read,
        }.get(kind, read + made)
        return self._moving(moved + beside)

    def _increment(self, index: int) -> Task:
        layer = self.network.layers[index]
        reads = (*map(self._output, layer.inputs), f"delta {layer.name}")
        if layer.kind is LayerKind.NORM:
            ways = self._moving(2 * self._bytes(index))
        else:
            ways = self._convolution(index, Pass.FILTER, 0)
        return Task(f"BP2 {layer.name}", reads, (), ways)

    def _convolution(self, index: int, way: Pass, beside: int) -> tuple[Alternative, ...]:
        layer = self.network.layers[index]
        shape = _shape(layer, self.network.layers[layer.inputs[0]])
        if layer.kind is LayerKind.DECONVOLUTION:
            way = {Pass.FORWARD: Pass.DATA, Pass.DATA: Pass.FORWARD}.get(way, way)
        return alternatives(self.accelerator, shape, way, self.images, beside)

    def _moving(self, size: int) -> tuple[Alternative, ...]:
        """Return the only way of a task that does little but move so many bytes."""
        time = self.accelerator.traffic_time(size) + self.accelerator.overhead
        return (Alternative("plain", time),)

    def _later(self, ways: tuple[Alternative, ...], size: int) -> tuple[Alternative, ...]:
        """Return ways followed by something that moves so many bytes."""
        (more,) = self._moving(size)
        return tuple(
            Alternative(way.name, way.duration + more.duration, way.workspace) for way in ways
        )


def _shape(layer: Layer, read: Layer) -> Convolution:
    if layer.kind is LayerKind.LINEAR:
        return Convolution(read.numbers, layer.channels, 1, 1, 1, 1)
    here = (layer.kernel, layer.stride)
    if layer.kind is LayerKind.DECONVOLUTION:
        return Convolution(layer.channels, read.channels, *here, layer.side, read.side)
    return Convolution(read.channels, layer.channels, *here, read.side, layer.side)


def _together(parts: list[tuple[Alternative, ...]]) -> tuple[Alternative, ...]:
    """Return the ways to execute several parts one after the other."""
    if len(parts) == 1:
        return parts[0]
    return undominated(
        Alternative(
            "+".join(dict.fromkeys(way.name for way in row if way.name != "plain")) or "plain",
            sum(way.duration for way in row),
            max(way.workspace for way in row),
        )
        for row in product(*parts)
    )
