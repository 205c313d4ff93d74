"""The six networks of the moDNN paper's evaluation, layer by layer.

Chen et al., *moDNN: Memory Optimal Deep Neural Network Training on Graphics Processing Units*, TPDS
2019, §7. The paper names networks and batches; layer tables of VGG-16, VGG-19, ResNet-34 and
ResNet-152 are in the papers that it cites. Where it leaves a table open, docs/theory/modnn.md says
what is taken and why: VGG-101 and the fully convolutional network.

A `Builder` adds layers one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from offcert.core.errors import InputError
from offcert.core.trace import require_integer


class LayerKind(StrEnum):
    """Kinds of layers."""

    INPUT = "input"
    CONVOLUTION = "convolution"
    DECONVOLUTION = "deconvolution"
    LINEAR = "linear"
    MAXIMUM = "max pooling"
    AVERAGE = "average pooling"
    SUM = "sum"
    NORM = "batch normalisation"
    RELU = "relu"


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer, for one image.

    Attributes
    ----------
    name : str
        Name for people.
    kind : LayerKind
        Kind of the layer.
    inputs : tuple of int
        The layers whose outputs it reads.
    channels, side : int
        Of its output, which is a square of `side` pixels.
    kernel, stride : int
        Of convolutions and poolings.
    relu, norm : bool
        Whether an activation or a batch normalisation is part of it. Then its output is what they
        make, and what they are given is kept nowhere.
    """

    name: str
    kind: LayerKind
    inputs: tuple[int, ...]
    channels: int
    side: int
    kernel: int = 1
    stride: int = 1
    relu: bool = False
    norm: bool = False

    @property
    def numbers(self) -> int:
        """Numbers in its output, for one image."""
        return self.channels * self.side**2


@dataclass(frozen=True)
class Layers:
    """A network, layer by layer; the first is its input, the last is given to a softmax.

    Attributes
    ----------
    name : str
        Name of the network.
    layers : tuple of Layer
        Each reads what stands before it.
    labels : int
        Numbers of the truth about one image.
    """

    name: str
    layers: tuple[Layer, ...]
    labels: int = 1

    def parameters(self, index: int) -> int:
        """Return the numbers of the weights of a layer, biases and normalisation among them."""
        layer = self.layers[index]
        if layer.kind is LayerKind.NORM:
            return 2 * layer.channels
        if layer.kind in (LayerKind.CONVOLUTION, LayerKind.DECONVOLUTION):
            read = self.layers[layer.inputs[0]].channels * layer.kernel**2
        elif layer.kind is LayerKind.LINEAR:
            read = self.layers[layer.inputs[0]].numbers
        else:
            return 0
        beside = 2 if layer.norm else 1
        return layer.channels * (read + beside)


class Builder:
    """Adds one layer after the other.

    Parameters
    ----------
    side : int
        Pixels on a side of the image, which has three channels.
    apart : bool
        Whether activations and normalisations are layers of their own.
    """

    def __init__(self, side: int, apart: bool) -> None:
        self.apart = apart
        self.layers = [Layer("input", LayerKind.INPUT, (), 3, side)]

    def made(self, name: str, labels: int = 1) -> Layers:
        """Return the layers that have been built."""
        return Layers(name, tuple(self.layers), labels)

    def _add(self, layer: Layer) -> int:
        if layer.side < 1:
            raise InputError(f"the image is too small: nothing is left of it at {layer.name}")
        self.layers.append(layer)
        return len(self.layers) - 1

    def _finished(self, layer: Layer, relu: bool, norm: bool) -> int:
        """Add a layer with what comes after it: within it, or apart."""
        if not self.apart:
            parts = (layer.name, layer.kind, layer.inputs, layer.channels, layer.side)
            return self._add(Layer(*parts, layer.kernel, layer.stride, relu, norm))
        x = self._add(layer)
        for wanted, kind, name in ((norm, LayerKind.NORM, "norm"), (relu, LayerKind.RELU, "relu")):
            if wanted:
                made = Layer(f"{layer.name}.{name}", kind, (x,), layer.channels, layer.side)
                x = self._add(made)
        return x

    def convolution(
        self,
        name: str,
        x: int,
        channels: int,
        kernel: int,
        stride: int = 1,
        *,
        relu: bool = True,
        norm: bool = False,
    ) -> int:
        """Add a convolution whose padding keeps the side at stride 1."""
        side = (self.layers[x].side + 2 * (kernel // 2) - kernel) // stride + 1
        layer = Layer(name, LayerKind.CONVOLUTION, (x,), channels, side, kernel, stride)
        return self._finished(layer, relu, norm)

    def enlarge(self, name: str, x: int, factor: int) -> int:
        """Add a transposed convolution that makes a map larger by a factor."""
        before = self.layers[x]
        side = before.side * factor
        return self._add(
            Layer(name, LayerKind.DECONVOLUTION, (x,), before.channels, side, 2 * factor, factor)
        )

    def linear(self, name: str, x: int, outputs: int, *, relu: bool = True) -> int:
        """Add a fully connected layer."""
        return self._finished(Layer(name, LayerKind.LINEAR, (x,), outputs, 1), relu, False)

    def maximum(self, name: str, x: int, kernel: int = 2, padding: int = 0) -> int:
        """Add a max pooling with stride 2."""
        before = self.layers[x]
        side = (before.side + 2 * padding - kernel) // 2 + 1
        return self._add(Layer(name, LayerKind.MAXIMUM, (x,), before.channels, side, kernel, 2))

    def average(self, name: str, x: int) -> int:
        """Add an average pooling to a single pixel."""
        before = self.layers[x]
        return self._add(
            Layer(name, LayerKind.AVERAGE, (x,), before.channels, 1, before.side, before.side)
        )

    def sum(self, name: str, inputs: Iterable[int], *, relu: bool = False) -> int:
        """Add a sum of layers of the same shape."""
        terms = tuple(sorted(inputs))
        first = self.layers[terms[0]]
        layer = Layer(name, LayerKind.SUM, terms, first.channels, first.side)
        return self._finished(layer, relu, False)


# Classes of ImageNet. Given by the data set.
_CLASSES = 1000
# Classes of PASCAL VOC, the background among them, and channels of VGG's groups. Given by the data
# set and the network.
_PIXEL_CLASSES = 21
_WIDTHS = (64, 128, 256, 512, 512)


@dataclass(frozen=True)
class ModnnNetwork:
    """A network of the evaluation.

    Attributes
    ----------
    name : str
        Its name here.
    batch : int
        Images in a batch (§7).
    build : callable
        Adds its layers; returns how many numbers are the truth about an image.
    """

    name: str
    batch: int
    build: Callable[[Builder], int]


def modnn_network(name: str, image: int = 224, *, apart: bool = False) -> Layers:
    """Return the layers of a network of the evaluation.

    Parameters
    ----------
    name : str
        A key of `NETWORKS`.
    image : int
        Pixels on a side.
    apart : bool
        Whether activations and batch normalisations are layers of their own, as libraries execute
        them, or part of the layers before them, as the paper counts.
    """
    if name not in NETWORKS:
        raise InputError(f"network must be one of {', '.join(NETWORKS)}, not {name!r}")
    builder = Builder(require_integer(image, "image", 1), apart)
    labels = NETWORKS[name].build(builder)
    return builder.made(name, labels)


def _features(net: Builder, groups: Sequence[int]) -> list[int]:
    """Add the convolutions of a VGG network; return what its poolings make."""
    x, pooled = 0, []
    for group, (count, width) in enumerate(zip(groups, _WIDTHS, strict=True), 1):
        for number in range(1, count + 1):
            x = net.convolution(f"conv{group}_{number}", x, width, 3)
        x = net.maximum(f"pool{group}", x)
        pooled.append(x)
    return pooled


def _vgg(groups: Sequence[int]) -> Callable[[Builder], int]:
    def build(net: Builder) -> int:
        x = _features(net, groups)[-1]
        for number in (6, 7):
            x = net.linear(f"fc{number}", x, 4096)
        net.linear("fc8", x, _CLASSES, relu=False)
        return 1

    return build


def _resnet(groups: Sequence[int], bottleneck: bool) -> Callable[[Builder], int]:
    def build(net: Builder) -> int:
        x = net.convolution("conv1", 0, 64, 7, 2, norm=True)
        x = net.maximum("pool1", x, 3, 1)
        for group, (blocks, width) in enumerate(zip(groups, (64, 128, 256, 512), strict=True), 2):
            for block in range(1, blocks + 1):
                stride = 2 if group > 2 and block == 1 else 1
                x = _residual(net, f"conv{group}_{block}", x, width, stride, bottleneck)
        net.linear("fc", net.average("average", x), _CLASSES, relu=False)
        return 1

    return build


def _residual(net: Builder, name: str, x: int, width: int, stride: int, bottleneck: bool) -> int:
    outputs = 4 * width if bottleneck else width
    skip = x
    if stride > 1 or net.layers[x].channels != outputs:
        skip = net.convolution(f"{name}.skip", x, outputs, 1, stride, relu=False, norm=True)
    if bottleneck:
        y = net.convolution(f"{name}.a", x, width, 1, norm=True)
        y = net.convolution(f"{name}.b", y, width, 3, stride, norm=True)
        y = net.convolution(f"{name}.c", y, outputs, 1, relu=False, norm=True)
    else:
        y = net.convolution(f"{name}.a", x, width, 3, stride, norm=True)
        y = net.convolution(f"{name}.b", y, outputs, 3, relu=False, norm=True)
    return net.sum(f"{name}.sum", (skip, y), relu=True)


def _fcn(net: Builder) -> int:
    """Add FCN-8s on VGG-16, with padding that keeps the sides instead of a margin cut off later."""
    *_, third, fourth, fifth = _features(net, (2, 2, 3, 3, 3))
    x = net.convolution("fc6", fifth, 4096, 7)
    x = net.convolution("fc7", x, 4096, 1)
    x = net.convolution("score", x, _PIXEL_CLASSES, 1, relu=False)
    for name, pooled in (("score4", fourth), ("score3", third)):
        x = net.enlarge(f"{name}.up", x, 2)
        skip = net.convolution(name, pooled, _PIXEL_CLASSES, 1, relu=False)
        x = net.sum(f"{name}.sum", (x, skip))
    x = net.enlarge("up", x, 8)
    return net.layers[x].side ** 2


NETWORKS: dict[str, ModnnNetwork] = {
    each.name: each
    for each in (
        ModnnNetwork("vgg16", 256, _vgg((2, 2, 3, 3, 3))),
        ModnnNetwork("vgg19", 256, _vgg((2, 2, 4, 4, 4))),
        ModnnNetwork("vgg101", 128, _vgg((2, 22, 66, 4, 4))),
        ModnnNetwork("resnet34", 256, _resnet((3, 4, 6, 3), bottleneck=False)),
        ModnnNetwork("resnet152", 256, _resnet((3, 8, 36, 3), bottleneck=True)),
        ModnnNetwork("fcn", 128, _fcn),
    )
}
