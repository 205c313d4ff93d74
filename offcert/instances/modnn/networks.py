"""The six networks of the moDNN paper's evaluation, layer by layer.

Chen et al., *moDNN: Memory Optimal Deep Neural Network Training on Graphics Processing Units*, TPDS
2019, §7. The paper names networks and batches; layer tables of VGG-16, VGG-19, ResNet-34 and
ResNet-152 are in the papers that it cites. Where it leaves a table open, docs/theory/modnn.md says
what is taken and why: VGG-101 and the fully convolutional network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from offcert.core.errors import InputError
from offcert.core.trace import require_integer
from offcert.instances.modnn.layers import Builder, Layers

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

    Raises
    ------
    InputError
        If there is no such network, or the image is too small for it.
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
