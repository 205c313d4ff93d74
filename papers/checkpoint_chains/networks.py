"""The networks of the selection paper, layer by layer as it counts them.

Ding-Yong Hong et al., *GPU Memory Usage Optimization for Backward Propagation in Deep Network
Training*, §5. A convolution is one layer with its ReLU, and so is a fully connected one; pooling is
a layer of its own. VGG-19 goes without average pooling, flattening and dropout, AlexNet has them
(§5.1.3). In the *plain* AlexNet, max-pooling is part of the convolution before it (§5.6.1).

Sizes follow from shapes: four bytes a number, on images of 224 × 224. They are those of
torchvision's networks, whose AlexNet has 64 · 55 · 55 numbers behind its first convolution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError
from offcert.core.trace import require_integer

FLOAT, INDEX = 4, 8
"""Bytes of a number, and of the place of a maximum."""

IMAGE = 3, 224
"""Channels and side of an image."""

# Backward, a layer computes the gradients of its weights and those of its input.
_BACKWARD = 2


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer, for one image.

    Attributes
    ----------
    name : str
        Name for people.
    outputs : int
        Numbers that it makes.
    kept : int
        Bytes that PyTorch keeps for its backward operation beside input and output: the places of
        the maxima, the mask of a dropout.
    operations : int
        Multiplications, or comparisons.
    """

    name: str
    outputs: int
    kept: int
    operations: int


class _Shapes:
    """Goes through the layers and keeps the shape."""

    def __init__(self) -> None:
        self.channels, self.side = IMAGE
        self.count = 0

    @property
    def numbers(self) -> int:
        return self.channels * self.side**2

    def convolution(self, channels: int, kernel: int = 3, stride: int = 1, pad: int = 1) -> Layer:
        weights = self.channels * kernel**2
        self.channels = channels
        self.side = (self.side + 2 * pad - kernel) // stride + 1
        self.count += 1
        return Layer(f"conv{self.count}", self.numbers, 0, weights * self.numbers)

    def pooling(self, kernel: int) -> Layer:
        """Return max-pooling with stride 2."""
        self.side = (self.side - kernel) // 2 + 1
        outputs = self.numbers
        return Layer(f"pool{self.count}", outputs, INDEX * outputs, kernel**2 * outputs)

    def same(self, name: str, kept: int = 0) -> Layer:
        """Return a layer that makes as much as it is given."""
        return Layer(name, self.numbers, kept, self.numbers)

    def connected(self, outputs: int) -> Layer:
        inputs = self.numbers
        self.channels, self.side = outputs, 1
        return Layer(f"fc{outputs}", outputs, 0, inputs * outputs)


def _vgg19() -> Iterator[Layer]:
    shapes = _Shapes()
    for channels, convolutions in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(convolutions):
            yield shapes.convolution(channels)
        yield shapes.pooling(2)
    for outputs in (4096, 4096, 1000):
        yield shapes.connected(outputs)


def _alexnet() -> Iterator[Layer]:
    shapes = _Shapes()
    yield shapes.convolution(64, 11, 4, 2)
    yield shapes.pooling(3)
    yield shapes.convolution(192, 5, 1, 2)
    yield shapes.pooling(3)
    for channels in (384, 256, 256):
        yield shapes.convolution(channels)
    yield shapes.pooling(3)
    # The average over 6 × 6 places of as many; what flattening makes counts as data, too.
    yield shapes.same("average")
    yield shapes.same("flatten")
    for outputs in (4096, 4096):
        yield shapes.same("dropout", kept=shapes.numbers)
        yield shapes.connected(outputs)
    yield shapes.connected(1000)


def _plain_alexnet() -> Iterator[Layer]:
    """Merge every max-pooling into the convolution before it, whose output it hides."""
    convolution: Layer | None = None
    for layer in _alexnet():
        if convolution is not None and layer.name.startswith("pool"):
            hidden = FLOAT * convolution.outputs + layer.kept
            work = convolution.operations + layer.operations
            yield Layer(f"{convolution.name}+pool", layer.outputs, hidden, work)
            convolution = None
            continue
        if convolution is not None:
            yield convolution
        convolution = layer
    assert convolution is not None
    yield convolution


SELECTION_NETWORKS: dict[str, Callable[[], Iterable[Layer]]] = {
    "vgg19": _vgg19,
    "alexnet": _alexnet,
    "plain-alexnet": _plain_alexnet,
}


def selection_network(name: str, batch: int = 128, *, pytorch: bool = False) -> CheckpointChain:
    """Return a network of the selection paper as a chain.

    Parameters
    ----------
    name : str
        A name in `SELECTION_NETWORKS`.
    batch : int
        Images.
    pytorch : bool
        Whether to count what PyTorch does beside the paper's models: layers keep more than their
        outputs (`Layer.kept`), and the input has no gradient.

    Returns
    -------
    CheckpointChain
        Layer `i` of the paper is stage ``i - 1``; ``output`` has ``d_0 … d_n`` in bytes. A tick is
        a million multiplications, rounded up; backward takes twice as many.

    Raises
    ------
    InputError
        If there is no such network, or the batch is no integer of at least 1.
    """
    if name not in SELECTION_NETWORKS:
        known = ", ".join(SELECTION_NETWORKS)
        raise InputError(f"network must be one of {known}, not {name!r}")
    require_integer(batch, "batch", 1)
    layers = list(SELECTION_NETWORKS[name]())
    forward = [-(-batch * layer.operations // 10**6) for layer in layers]
    channels, side = IMAGE
    output = [FLOAT * batch * channels * side**2]
    output += [FLOAT * batch * layer.outputs for layer in layers]
    beside = [batch * layer.kept if pytorch else 0 for layer in layers]
    return CheckpointChain(
        forward,
        [_BACKWARD * ticks for ticks in forward],
        output,
        [size + more for size, more in zip(output[1:], beside, strict=True)],
        [0, *output[1:]] if pytorch else output,
        names=[layer.name for layer in layers],
    )
