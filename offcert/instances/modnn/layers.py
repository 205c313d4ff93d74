"""Layers of a network, and what adds one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from offcert.core.errors import InputError


class Kind(StrEnum):
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
    kind : Kind
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
    kind: Kind
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
        if layer.kind is Kind.NORM:
            return 2 * layer.channels
        if layer.kind in (Kind.CONVOLUTION, Kind.DECONVOLUTION):
            read = self.layers[layer.inputs[0]].channels * layer.kernel**2
        elif layer.kind is Kind.LINEAR:
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
        self.layers = [Layer("input", Kind.INPUT, (), 3, side)]

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
        for wanted, kind, name in ((norm, Kind.NORM, "norm"), (relu, Kind.RELU, "relu")):
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
        layer = Layer(name, Kind.CONVOLUTION, (x,), channels, side, kernel, stride)
        return self._finished(layer, relu, norm)

    def enlarge(self, name: str, x: int, factor: int) -> int:
        """Add a transposed convolution that makes a map larger by a factor."""
        before = self.layers[x]
        side = before.side * factor
        return self._add(
            Layer(name, Kind.DECONVOLUTION, (x,), before.channels, side, 2 * factor, factor)
        )

    def linear(self, name: str, x: int, outputs: int, *, relu: bool = True) -> int:
        """Add a fully connected layer."""
        return self._finished(Layer(name, Kind.LINEAR, (x,), outputs, 1), relu, False)

    def maximum(self, name: str, x: int, kernel: int = 2, padding: int = 0) -> int:
        """Add a max pooling with stride 2."""
        before = self.layers[x]
        side = (before.side + 2 * padding - kernel) // 2 + 1
        return self._add(Layer(name, Kind.MAXIMUM, (x,), before.channels, side, kernel, 2))

    def average(self, name: str, x: int) -> int:
        """Add an average pooling to a single pixel."""
        before = self.layers[x]
        return self._add(
            Layer(name, Kind.AVERAGE, (x,), before.channels, 1, before.side, before.side)
        )

    def sum(self, name: str, inputs: Iterable[int], *, relu: bool = False) -> int:
        """Add a sum of layers of the same shape."""
        terms = tuple(sorted(inputs))
        first = self.layers[terms[0]]
        layer = Layer(name, Kind.SUM, terms, first.channels, first.side)
        return self._finished(layer, relu, False)
