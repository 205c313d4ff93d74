"""The 15 networks of the re-forwarding paper's Table 1 as graphs of tensors, by formulas.

A vertex is what one of these makes: a convolution (VGG and AlexNet: with its ReLU, in place), batch
normalisation with ReLU in place, the sum of a residual block with normalisation and ReLU in place,
a pooling, a concatenation, dropout, a linear layer with its ReLU. Dense layers concatenate all that
came before with what they made. Sizes are bytes of single-precision numbers. This is the
granularity at which the paper's authors parsed the networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offcert.core.errors import InputError
from offcert.core.trace import require_integer
from offcert.questions.selection.graph import CheckpointGraph

_FLOAT, _INDEX = 4, 8
_VGG = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_RESNET = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
_DENSENET = {
    121: (32, 64, (6, 12, 24, 16)),
    161: (48, 96, (6, 12, 36, 24)),
    169: (32, 64, (6, 12, 32, 32)),
    201: (32, 64, (6, 12, 48, 32)),
}


@dataclass(frozen=True)
class PublishedNetwork:
    """A row of Table 1.

    Attributes
    ----------
    name : str
        As in the zoo.
    batch, image : int
        Images in a batch, and pixels on a side.
    regular, chen, reforwarding : int or None
        Measured memory in MB: plain training, Chen's approach (on chains), re-forwarding.
    cut : int
        "Memory cut" in percent, as printed.
    """

    name: str
    batch: int
    image: int
    regular: int
    chen: int | None
    reforwarding: int
    cut: int


TABLE_1 = (
    PublishedNetwork("alexnet", 1024, 224, 3550, 3108, 2620, 26),
    PublishedNetwork("vgg11", 64, 224, 2976, 2292, 1802, 39),
    PublishedNetwork("vgg13", 64, 224, 4152, 2586, 2586, 38),
    PublishedNetwork("vgg16", 64, 224, 4470, 2894, 2586, 42),
    PublishedNetwork("vgg19", 64, 224, 4788, 2894, 2502, 48),
    PublishedNetwork("resnet18", 256, 224, 5402, None, 2898, 46),
    PublishedNetwork("resnet34", 128, 224, 3900, None, 1544, 60),
    PublishedNetwork("resnet50", 64, 224, 5206, None, 1798, 65),
    PublishedNetwork("resnet101", 32, 224, 3812, None, 970, 75),
    PublishedNetwork("resnet152", 16, 224, 2810, None, 564, 80),
    PublishedNetwork("densenet121", 32, 224, 3984, None, 776, 81),
    PublishedNetwork("densenet161", 16, 224, 3658, None, 616, 83),
    PublishedNetwork("densenet169", 32, 224, 4826, None, 848, 82),
    PublishedNetwork("densenet201", 16, 224, 3164, None, 582, 82),
    PublishedNetwork("inception_v3", 32, 300, 2976, None, 910, 69),
)


def reforwarding_network(
    name: str, batch: int = 1, image: int = 224, *, indices: bool = False
) -> CheckpointGraph:
    """Return the graph of a network of Table 1.

    Parameters
    ----------
    name : str
        One of those in `TABLE_1`.
    batch : int
        Images in a batch.
    image : int
        Pixels on a side.
    indices : bool
        Whether a max pooling also keeps where its maxima are, 8 bytes each, as PyTorch does for the
        backward pass. The paper counts what is handed on only.

    Raises
    ------
    InputError
        If there is no such network, a number is below 1, or the image is too small for it.
    """
    require_integer(batch, "batch", 1)
    require_integer(image, "image", 1)
    if name not in {row.name for row in TABLE_1}:
        known = ", ".join(row.name for row in TABLE_1)
        raise InputError(f"network must be one of {known}, not {name!r}")
    layers = _Layers(batch, image, indices)
    if name == "alexnet":
        _alexnet(layers)
    elif name == "inception_v3":
        _inception(layers)
    elif name.startswith("vgg"):
        _vgg(layers, _VGG[int(name[3:])])
    elif name.startswith("resnet"):
        depth = int(name[6:])
        _resnet(layers, _RESNET[depth], bottleneck=depth >= 50)
    else:
        _densenet(layers, *_DENSENET[int(name[8:])])
    return layers.graph()


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A vertex, its channels, and pixels up and across."""

    vertex: int
    channels: int
    side: int


class _Layers:
    """Adds one layer after the other."""

    def __init__(self, batch: int, image: int, indices: bool) -> None:
        self._batch = batch
        self._indices = indices
        self._sizes: list[int] = []
        self._names: list[str] = []
        self._edges: list[tuple[int, int]] = []
        self.input = self._add("input", 3, image)

    def graph(self) -> CheckpointGraph:
        return CheckpointGraph(self._sizes, self._edges, self._names)

    def _add(self, name: str, channels: int, side: int, *inputs: _Tensor) -> _Tensor:
        vertex = len(self._sizes)
        if side < 1:
            raise InputError(f"the image is too small: nothing is left of it at {name} {vertex}")
        self._sizes.append(self._batch * channels * side * side * _FLOAT)
        self._names.append(f"{name}{vertex}")
        self._edges += [(tensor.vertex, vertex) for tensor in inputs]
        return _Tensor(vertex, channels, side)

    def conv(
        self, x: _Tensor, channels: int, kernel: int, stride: int = 1, padding: int | None = None
    ) -> _Tensor:
        """A convolution; its padding keeps the side by default."""
        pad = kernel // 2 if padding is None else padding
        return self._add("conv", channels, (x.side + 2 * pad - kernel) // stride + 1, x)

    def pool(self, x: _Tensor, kernel: int, stride: int, padding: int = 0) -> _Tensor:
        """A max pooling."""
        side = (x.side + 2 * padding - kernel) // stride + 1
        made = self._add("pool", x.channels, side, x)
        if self._indices:
            self._sizes[made.vertex] += self._sizes[made.vertex] // _FLOAT * _INDEX
        return made

    def same(self, name: str, *inputs: _Tensor) -> _Tensor:
        """Add a tensor with the shape of its inputs."""
        return self._add(name, inputs[0].channels, inputs[0].side, *inputs)

    def cat(self, *inputs: _Tensor) -> _Tensor:
        return self._add("cat", sum(x.channels for x in inputs), inputs[0].side, *inputs)

    def squeeze(self, x: _Tensor, side: int = 1) -> _Tensor:
        """An average pooling to a side."""
        return self._add("average", x.channels, side, x)

    def linear(self, x: _Tensor, outputs: int) -> _Tensor:
        return self._add("linear", outputs, 1, x)

    def conv_norm(
        self, x: _Tensor, channels: int, kernel: int, stride: int = 1, padding: int | None = None
    ) -> _Tensor:
        return self.same("norm", self.conv(x, channels, kernel, stride, padding))


def _alexnet(net: _Layers) -> None:
    x = net.pool(net.conv(net.input, 64, 11, 4, 2), 3, 2)
    x = net.pool(net.conv(x, 192, 5), 3, 2)
    x = net.conv(net.conv(net.conv(x, 384, 3), 256, 3), 256, 3)
    x = net.squeeze(net.pool(x, 3, 2), 6)
    x = net.linear(net.same("dropout", x), 4096)
    net.linear(net.linear(net.same("dropout", x), 4096), 1000)


def _vgg(net: _Layers, groups: Sequence[int]) -> None:
    x = net.input
    for convolutions, width in zip(groups, (64, 128, 256, 512, 512), strict=True):
        for _ in range(convolutions):
            x = net.conv(x, width, 3)
        x = net.pool(x, 2, 2)
    net.linear(net.linear(net.linear(x, 4096), 4096), 1000)


def _resnet(net: _Layers, groups: Sequence[int], bottleneck: bool) -> None:
    x = net.pool(net.conv_norm(net.input, 64, 7, 2), 3, 2, 1)
    for index, (blocks, width) in enumerate(zip(groups, (64, 128, 256, 512), strict=True)):
        for block in range(blocks):
            stride = 2 if index and not block else 1
            x = _residual(net, x, width, stride, bottleneck)
    net.linear(net.squeeze(x), 1000)


def _residual(net: _Layers, x: _Tensor, width: int, stride: int, bottleneck: bool) -> _Tensor:
    outputs = 4 * width if bottleneck else width
    if bottleneck:
        inner = net.conv_norm(net.conv_norm(x, width, 1), width, 3, stride)
        last = net.conv(inner, outputs, 1)
    else:
        last = net.conv(net.conv_norm(x, width, 3, stride), outputs, 3)
    change = stride > 1 or x.channels != outputs
    return net.same("sum", last, net.conv(x, outputs, 1, stride) if change else x)


def _densenet(net: _Layers, growth: int, channels: int, groups: Sequence[int]) -> None:
    x = net.pool(net.conv_norm(net.input, channels, 7, 2), 3, 2, 1)
    for index, layers in enumerate(groups):
        for _ in range(layers):
            wide = net.conv(net.same("norm", x), 4 * growth, 1)
            x = net.cat(x, net.conv(net.same("norm", wide), growth, 3))
        if index < len(groups) - 1:
            x = net.conv(net.same("norm", x), x.channels // 2, 1)
            x = net.squeeze(x, x.side // 2)
    net.linear(net.squeeze(net.same("norm", x)), 1000)


def _inception(net: _Layers) -> None:
    x = net.conv_norm(net.input, 32, 3, 2, 0)
    x = net.conv_norm(net.conv_norm(x, 32, 3, 1, 0), 64, 3)
    x = net.conv_norm(net.conv_norm(net.pool(x, 3, 2), 80, 1), 192, 3, 1, 0)
    x = net.pool(x, 3, 2)
    for pooled in (32, 64, 64):
        five = net.conv_norm(net.conv_norm(x, 48, 1), 64, 5)
        double = net.conv_norm(net.conv_norm(net.conv_norm(x, 64, 1), 96, 3), 96, 3)
        last = net.conv_norm(net.squeeze(x, x.side), pooled, 1)
        x = net.cat(net.conv_norm(x, 64, 1), five, double, last)
    double = net.conv_norm(net.conv_norm(net.conv_norm(x, 64, 1), 96, 3), 96, 3, 2, 0)
    x = net.cat(net.conv_norm(x, 384, 3, 2, 0), double, net.pool(x, 3, 2))
    for width in (128, 160, 160, 192):
        x = _inception_7(net, x, width)
    three = net.conv_norm(net.conv_norm(x, 192, 1), 320, 3, 2, 0)
    seven = net.conv_norm(x, 192, 1)
    for _ in range(2):
        seven = net.conv_norm(seven, 192, 1)
    x = net.cat(three, net.conv_norm(seven, 192, 3, 2, 0), net.pool(x, 3, 2))
    for _ in range(2):
        x = _inception_wide(net, x)
    net.linear(net.same("dropout", net.squeeze(x)), 1000)


def _inception_7(net: _Layers, x: _Tensor, width: int) -> _Tensor:
    """Factorised 7x7 convolutions: the pairs of 1x7 and 7x1 keep the side, as 1x1 here."""
    single = net.conv_norm(net.conv_norm(net.conv_norm(x, width, 1), width, 1), 192, 1)
    double = net.conv_norm(x, width, 1)
    for channels in (width, width, width, 192):
        double = net.conv_norm(double, channels, 1)
    last = net.conv_norm(net.squeeze(x, x.side), 192, 1)
    return net.cat(net.conv_norm(x, 192, 1), single, double, last)


def _inception_wide(net: _Layers, x: _Tensor) -> _Tensor:
    """Branches that end in a 1x3 and a 3x1 convolution side by side, which keep the side."""
    three = net.conv_norm(x, 384, 1)
    double = net.conv_norm(net.conv_norm(x, 448, 1), 384, 3)
    pairs = [
        net.cat(net.conv_norm(branch, 384, 1), net.conv_norm(branch, 384, 1))
        for branch in (three, double)
    ]
    last = net.conv_norm(net.squeeze(x, x.side), 192, 1)
    return net.cat(net.conv_norm(x, 320, 1), *pairs, last)
