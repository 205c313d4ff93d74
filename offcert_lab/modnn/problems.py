"""Problems of the moDNN paper: a round with its algorithms chosen, and a step with all choices.

The paper's six networks are also put on several K40s that share a PCI Express link (§6, §7.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from offcert.core.errors import InputError
from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace, require_integer
from offcert.core.units import Units
from offcert.questions.devices.problem import Accumulation, AdditionPlace, DevicesProblem, Gradient
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.split.problem import Round, Split, SplitProblem
from offcert_lab.modnn.algorithms import FLOAT, K40, K40_MEMORY
from offcert_lab.modnn.networks import NETWORKS, Layers, modnn_network
from offcert_lab.modnn.tasks import step_split

UNITS = Units("ns", "B")
RATE = Fraction(K40.link_bandwidth, 10**9)
"""Bytes per nanosecond of the link."""


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


def joined(rounds: Sequence[Trace]) -> Trace:
    """Return rounds of a step as one trace, in their order.

    Gradients of all rounds but the last are added up on the device, so only the last one's are
    sent (moDNN, §6.2). Between rounds nothing is on the device but what stays all the time.

    Parameters
    ----------
    rounds : sequence of Trace
        At least one. A tensor that is there at a round's start must stay until its end, and be
        there, with the same name and size, in every round.
    """
    if not rounds:
        raise InputError("there must be at least one round")
    stay = [_staying(trace) for trace in rounds]
    if any(each != stay[0] for each in stay):
        raise InputError("what stays on the device must be the same in every round")
    operations: list[Operation] = []
    tensors: list[Tensor] = []
    for number, trace in enumerate(rounds):
        offset = len(operations)
        operations += [
            Operation(f"{number}: {each.name}", each.duration, each.workspace)
            for each in trace.operations
        ]
        tensors += [
            Tensor(
                f"{number}: {tensor.name}",
                tensor.size,
                tuple(offset + use for use in tensor.uses),
                tensor.evictable,
            )
            for tensor in trace.tensors
            if tensor.uses[0] >= 0
        ]
    last = len(operations) - 1
    staying = [Tensor(name, size, (-1, last), evictable=False) for name, size in stay[0]]
    return Trace(operations, [*staying, *tensors])


def _staying(trace: Trace) -> list[tuple[str, int]]:
    found = [tensor for tensor in trace.tensors if tensor.uses[0] == -1]
    for tensor in found:
        if tensor.evictable or tensor.uses[-1] != len(trace) - 1:
            raise InputError(
                f"{tensor.name} is there at the start of a round, so it must stay until its end"
            )
    return [(tensor.name, tensor.size) for tensor in found]


# An addition reads two numbers and writes one. The paper states no rates: one core of its Xeon
# E5-2630 v4 is taken to move 12 GB/s, and all 20 cores to add 2.5 times as fast (the paper: "up to
# 2-3 times").
CORE = Accumulation(AdditionPlace.HOST, Fraction(4))
"""One core of the host: bytes of gradients per nanosecond."""

CORES = Accumulation(AdditionPlace.HOST, Fraction(10))
"""All cores of the host together, at one gradient after the other."""

NAIVE = Accumulation(AdditionPlace.DEVICE, Fraction(K40.memory_bandwidth, 3 * 10**9))
"""The first device, after the step."""


def modnn_devices(
    network: str,
    devices: int,
    *,
    memory: int = K40_MEMORY,
    batch: int | None = None,
    sub_batch: int | None = None,
    image: int = 224,
    algorithms: str = "fastest",
    accumulation: Accumulation = CORE,
    link: Link = Link.SIMPLEX,
) -> DevicesProblem:
    """Return a training step of one of the six networks on several devices.

    Parameters
    ----------
    network : str
        One of the six.
    devices : int
        Each gets an equal part of the batch.
    memory : int
        Bytes on each device.
    batch : int, optional
        Images in the whole batch; by default as many as in the paper.
    sub_batch : int, optional
        Images that a device processes at a time; by default its part of the batch.
    image : int
        Pixels on a side.
    algorithms : str
        ``"fastest"`` or ``"leanest"``.
    accumulation : Accumulation
        Who adds gradients up.
    link : Link
        Shared by all devices.
    """
    layers = modnn_network(network, image)
    whole = NETWORKS[network].batch if batch is None else require_integer(batch, "batch", 1)
    share, rest = divmod(whole, require_integer(devices, "devices", 1))
    if rest or not share:
        raise InputError(f"{whole} images cannot be divided equally among {devices} devices")
    size = share if sub_batch is None else min(sub_batch, share)
    trace = _unrolled(step_split(layers, share, size), algorithms)
    name = f"modnn-{network}, {share} images on each of {devices} devices, {size} at a time"
    step = Problem(name, trace, Platform(memory, RATE, link), units=UNITS)
    return DevicesProblem(name, step, devices, gradients_of(layers, trace), accumulation)


def _unrolled(split: Split, algorithms: str) -> Trace:
    rounds = [chosen(each, algorithms) for each in split.rounds for _ in range(each.count)]
    return rounds[0] if len(rounds) == 1 else joined(rounds)


def gradients_of(layers: Layers, trace: Trace) -> list[Gradient]:
    """Return the gradients of a network whose step is a trace of tasks, in the order they come.

    The gradient of a layer is complete after its task ``BP2``; its weights are last used by
    ``BP1`` of the layers that it reads.
    """
    # Of several rounds, the last one; the algorithm of a task stands behind its name.
    names = (each.name.rpartition(": ")[2].partition(" [")[0] for each in trace.operations)
    place = {name: index for index, name in enumerate(names)}
    found = []
    for index, layer in enumerate(layers.layers):
        size = FLOAT * layers.parameters(index)
        if size:
            ready = place[f"BP2 {layer.name}"]
            readers = [place.get(f"BP1 {layers.layers[read].name}", -1) for read in layer.inputs]
            found.append(Gradient(layer.name, size, ready, max(ready, *readers)))
    return sorted(found, key=lambda gradient: gradient.ready)
