"""Problems of the moDNN paper: a round with its algorithms chosen, and a step with all choices."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from offcert.core.errors import InputError
from offcert.core.platform import Platform
from offcert.core.trace import Trace, require_integer
from offcert.core.units import Units
from offcert.instances.generator import Generator, knob
from offcert.instances.modnn.algorithms import K40, K40_MEMORY
from offcert.instances.modnn.networks import NETWORKS, modnn_network
from offcert.instances.modnn.tasks import step_round, step_split
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.split.problem import Round, SplitProblem

ALGORITHMS = ("fastest", "leanest")
UNITS = Units("ns", "B")
RATE = Fraction(K40.link_bandwidth, 10**9)
"""Bytes per nanosecond of the link."""


@dataclass(frozen=True, kw_only=True)
class ModnnSteps(Generator):
    """A round of a training step at the granularity of tasks, on a K40.

    Seed 0 has the times of the model; others have them as a measurement might give them, up to
    `noise` percent away.
    """

    kind: ClassVar[str] = "modnn"
    summary: ClassVar[str] = "training steps of the moDNN paper: tasks of its six networks on a K40"

    network: str = knob("resnet34", "one of the six networks", choices=tuple(NETWORKS))
    batch: int = knob(0, "images in the batch (0: as many as in the paper)", least=0)
    sub_batch: int = knob(0, "images that are processed at a time (0: the batch)", least=0)
    image: int = knob(224, "pixels on a side", least=1)
    algorithms: str = knob(
        "fastest",
        "which convolution algorithms run: those of least time or of least workspace",
        choices=ALGORITHMS,
    )
    apart: bool = knob(False, "activations and normalisations are layers of their own")
    weights_leave: bool = knob(False, "weights are tensors that may leave")
    noise: int = knob(
        5, "times differ by up to this percentage either way, but for seed 0", least=0
    )

    def draw(self, seed: int) -> Problem:
        """Return the round of a seed, with no memory yet."""
        layers = modnn_network(self.network, self.image, apart=self.apart)
        images = self.sub_batch or self.batch or NETWORKS[self.network].batch
        if images > (self.batch or NETWORKS[self.network].batch):
            raise InputError(f"sub_batch must be at most the batch, not {images}")
        found = step_round(layers, images, weights_leave=self.weights_leave)
        trace = chosen(found, self.algorithms)
        if seed:
            trace = _noisy(trace, random.Random(f"modnn {self.network} {seed}"), self.noise)
        name = f"modnn-{self.network}-{images}" + (f"-{seed}" if seed else "")
        return Problem(name, trace, Platform(0, RATE), units=UNITS)


def chosen(found: Round, algorithms: str) -> Trace:
    """Return the trace of a round with the fastest or the leanest alternatives."""
    menu = found.menu
    return found.chosen(menu.fastest() if algorithms == "fastest" else menu.leanest())


def modnn_step(
    network: str,
    batch: int | None = None,
    sub_batches: Iterable[int] | None = None,
    memory: int = K40_MEMORY,
    image: int = 224,
    *,
    apart: bool = False,
    weights_leave: bool = False,
) -> SplitProblem:
    """Return a step with its choices: the sub-batch, and the algorithm of every convolution.

    Parameters
    ----------
    network : str
        One of the six.
    batch : int, optional
        Images in the batch; by default as many as in the paper.
    sub_batches : iterable of int, optional
        The sizes offered; by default the whole batch, multiples of 64 and powers of two.
    memory : int
        Bytes on the device.
    image : int
        Pixels on a side.
    apart : bool
        Whether activations and normalisations are layers of their own.
    weights_leave : bool
        Whether weights are tensors that may leave.
    """
    layers = modnn_network(network, image, apart=apart)
    whole = NETWORKS[network].batch if batch is None else require_integer(batch, "batch", 1)
    sizes = regular_sizes(whole) if sub_batches is None else sorted(set(sub_batches), reverse=True)
    for size in sizes:
        if require_integer(size, "sub_batches", 1) > whole:
            raise InputError(f"sub_batches must be at most the batch, {whole}, not {size}")
    splits = (step_split(layers, whole, size, weights_leave=weights_leave) for size in sizes)
    source = {"network": network, "batch": whole, "image": image, "apart": apart}
    return SplitProblem(
        f"modnn-{network}",
        tuple(splits),
        Platform(memory, RATE),
        Transfers.ATOMIC,
        UNITS,
        source | {"weights_leave": weights_leave},
    )


def regular_sizes(batch: int) -> list[int]:
    """Return the sub-batches that the paper's regularisation can give, the largest first."""
    multiples = range(64, batch, 64)
    powers = (1 << power for power in range(min(batch, 64).bit_length()))
    return sorted({batch, *multiples, *(size for size in powers if size <= batch)}, reverse=True)


def _noisy(trace: Trace, rng: random.Random, noise: int) -> Trace:
    def near(time: int) -> int:
        slack = time * min(noise, 100) // 100
        return rng.randint(time - slack, time + slack)

    operations = [replace(each, duration=near(each.duration)) for each in trace.operations]
    return Trace(operations, trace.tensors)
