"""Readings of moDNN's Eq. 8: which tasks count, what counts of their data, and which workspace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import accumulate

from offcert.core.trace import Tensor, Trace
from offcert.questions.split.problem import Round
from offcert_lab.modnn.algorithms import GIGABYTE, K40
from offcert_lab.modnn.networks import NETWORKS, Layers, modnn_network
from offcert_lab.modnn.tasks import step_round
from papers.sub_batch import ALPHA, held_memory, select_sub_batch

# What counts of the data of consecutive tasks.
ROOM = "room"
ONCE = "once"
EACH = "each"
DATA = {
    ROOM: "what is needed later; the room of the rest is used again",
    ONCE: "everything once",
    EACH: "everything each time, less once what one writes and another reads",
}
# Of which tasks alpha is a part.
UPDATES = "updates"
DRAWN = "drawn"
PAIRS = "pairs"
LAYERS = "layers"
COUNTS = {
    UPDATES: "FP, BP1, BP2 and BP3",
    DRAWN: "FP, BP1 and BP2, as drawn",
    PAIRS: "FP, and BP1 with BP2",
    LAYERS: "layers",
}


@dataclass(frozen=True)
class Reading:
    """How the paper is read, where it leaves room; the defaults are what the library does.

    Attributes
    ----------
    name : str
        For the table.
    data, count : str
        Keys of `DATA` and of `COUNTS`.
    alpha : Fraction
        Part of the tasks.
    up : bool
        Whether a part of a task is a task.
    workspace : bool
        Whether the largest workspace counts.
    kept : bool
        Whether a normalisation without an activation needs what it made for its gradient.
    chunk : int
        Images that are transformed at a time, which bounds workspaces.
    gigabyte : int
        Bytes of a GB.
    """

    name: str = "as here"
    data: str = ROOM
    count: str = UPDATES
    alpha: Fraction = ALPHA
    up: bool = True
    workspace: bool = True
    kept: bool = True
    chunk: int = K40.chunk
    gigabyte: int = GIGABYTE

    @property
    def model(self) -> tuple[bool, int]:
        """Whether data are kept, and the chunk: times and sizes depend on both."""
        return self.kept, self.chunk


@cache
def layers_of(network: str, image: int) -> Layers:
    """Return the layers of a network."""
    return modnn_network(network, image)


@cache
def profile(network: str, image: int, model: tuple[bool, int], images: int) -> Round:
    """Return the round of so many images, by a model of what is kept and of the workspaces."""
    layers, (kept, chunk) = layers_of(network, image), model
    found = step_round(layers, images, accelerator=replace(K40, chunk=chunk))
    return found if kept else replace(found, trace=_forgotten(layers, found.trace))


def _forgotten(layers: Layers, trace: Trace) -> Trace:
    """Return a trace in which normalisations without an activation need nothing of their own."""
    plain = {f"Y {each.name}" for each in layers.layers if each.norm and not each.relu}
    names = [operation.name for operation in trace.operations]

    def uses(tensor: Tensor) -> tuple[int, ...]:
        own = f"BP1 {tensor.name.removeprefix('Y ')}"
        return tuple(use for use in tensor.uses if use < 0 or names[use] != own)

    return Trace(
        trace.operations,
        [replace(t, uses=uses(t)) if t.name in plain else t for t in trace.tensors],
    )


def windows(trace: Trace, reading: Reading) -> list[range]:
    """Return the tasks of every window, one after the other."""
    names = [operation.name for operation in trace.operations]
    firsts = list(range(len(names)))
    updates = sum(name.startswith("BP2 ") for name in names)
    if reading.count == PAIRS:
        firsts = [first for first in firsts if not names[first].startswith("BP2 ")]
    total = {
        UPDATES: len(names) + updates,
        DRAWN: len(names),
        PAIRS: len(firsts),
        LAYERS: sum(name.startswith("FP ") for name in names),
    }[reading.count]
    part = reading.alpha * total
    width = min(len(firsts), max(1, math.ceil(part) if reading.up else math.floor(part)))
    ends = [*firsts[1:], len(names)]
    return [
        range(firsts[number], ends[number + width - 1]) for number in range(len(firsts) - width + 1)
    ]


def users(trace: Trace) -> list[list[Tensor]]:
    """Return, for each task, what it reads and writes of what may leave."""
    found: list[list[Tensor]] = [[] for _ in trace.operations]
    for tensor in trace.tensors:
        for use in tensor.uses if tensor.evictable else ():
            if use >= 0:
                found[use].append(tensor)
    return found


def data_memory(using: Sequence[Sequence[Tensor]], window: range, data: str) -> int:
    """Return the bytes that count of the data of a window's tasks."""
    change = [0] * (len(window) + 1)
    tensors = {tensor.name: tensor for task in window for tensor in using[task]}
    for tensor in tensors.values():
        inside = [use for use in tensor.uses if use in window]
        written = tensor.uses[0] == inside[0]
        if data == ROOM:
            first = inside[0] if written else window.start
            last = inside[-1] if tensor.uses[-1] == inside[-1] else window.stop - 1
            change[first - window.start] += tensor.size
            change[last + 1 - window.start] -= tensor.size
        elif data == ONCE:
            change[0] += tensor.size
        else:
            change[0] += tensor.size * (len(inside) - (written and len(inside) > 1))
    return max(accumulate(change))


class Selector:
    """Selects sub-batches in a reading, for one network.

    Data grow in proportion to the images, so that what windows ask for is computed once.
    """

    def __init__(self, network: str, image: int, reading: Reading) -> None:
        self.network, self.image, self.reading = network, image, reading
        one = self.profile(1).trace
        using = users(one)
        self.held = held_memory(one)[0]
        self.sizes = [
            (window, data_memory(using, window, reading.data)) for window in windows(one, reading)
        ]
        self.images: dict[int, int] = {}

    def profile(self, images: int) -> Round:
        """Return the round of so many images."""
        return profile(self.network, self.image, self.reading.model, images)

    def size(self, gigabytes: int, devices: int = 1) -> int:
        """Return the sub-batch for so many GB, of an equal part of the batch."""
        share = NETWORKS[self.network].batch // devices
        memory = gigabytes * self.reading.gigabyte
        return select_sub_batch(self._known, share, memory, needs=self._needs).size

    def asks(self, images: int, workspace: Sequence[int]) -> int:
        """Return the bytes that Eq. 8 asks for."""
        spaces = workspace if self.reading.workspace else [0] * len(workspace)
        return self.held + max(
            images * size + max(spaces[window.start : window.stop]) for window, size in self.sizes
        )

    def _known(self, images: int) -> Round:
        found = self.profile(images)
        self.images[id(found.trace)] = images
        return found

    def _needs(self, trace: Trace, workspace: Sequence[int], alpha: Fraction) -> int:
        return self.asks(self.images[id(trace)], workspace)


def variants(data: str, count: str, kept: bool) -> Iterator[Reading]:
    """Yield readings that differ in what matters less: rounding, workspaces, the unit."""
    for up in (True, False):
        for workspace, chunk in ((True, 32), (True, 128), (False, 32)):
            for gigabyte in (10**9, 2**30):
                yield Reading("", data, count, ALPHA, up, workspace, kept, chunk, gigabyte)
