"""Layers in mixed precision: products in 16 bits, all else in 32, so that sizes are halves."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.core.units import Units
from offcert.instances.generator import Generator, knob
from offcert.questions.schedule.problem import Problem

# Bytes of a number in float32, and in bfloat16. By definition.
_WIDE, _HALF = 4, 2
# Numbers in a layer's stream are a multiple of the first, up to that many times it. Arbitrary.
_NUMBERS, _MOST_NUMBERS = 2**20, 64
# A layer's product widens the stream so many times. Arbitrary.
_WIDTHS = (1, 2, 4)
# Operations of a product for each number of the stream, by its width. Arbitrary.
_WORK = 8192
# Norms and activations read and write so many bytes for each of the stream's. Assumed.
_PASSES = 3
# Work of backward by forward operations: two products for each one. By definition.
_TWICE = 2
_STEPS = ("norm", "product", "activation")


@dataclass(frozen=True, kw_only=True)
class MixedPrecisionTraces(Generator):
    """Layers of a norm, a product and an activation, as autocast runs them.

    Norms and activations save their inputs in float32. A product runs and saves its input and its
    output in bfloat16, half the bytes and several times the rate; some layers are left in float32
    altogether, as those are that lose too much otherwise. So there are two sizes of everything, one
    twice the other: instead of a large tensor, two small ones may leave. A seed draws which layers
    are which, their widths, and the stream.
    """

    kind: ClassVar[str] = "mixed-precision"
    summary: ClassVar[str] = "layers with products in 16 bits and all else in 32"

    layers: int = knob(8, "number of layers", least=1, most=1000)
    half: int = knob(75, "per cent of layers whose product is in bfloat16", least=0, most=100)
    teraflops: int = knob(60, "10^12 operations per second that float32 products reach", least=1)
    gain: int = knob(4, "so many times that rate in bfloat16", least=1)
    memory_rate: int = knob(1500, "GB/s of the device's memory", least=1)
    link: Fraction = knob(Fraction(24), "GB/s of the link, one direction at a time")

    def draw(self, seed: int) -> Problem:
        """Return the trace of a seed, with no memory yet."""
        rng = random.Random(f"mixed-precision {seed}")
        stream = _NUMBERS * rng.randint(1, _MOST_NUMBERS)
        last = 2 * len(_STEPS) * self.layers
        forward, backward = [], []
        tensors, gradients = [], []
        for layer in range(self.layers):
            halved, width = rng.randrange(100) < self.half, rng.choice(_WIDTHS)
            size, begin = _HALF if halved else _WIDE, len(_STEPS) * layer
            # Operations per nanosecond.
            rate = 1000 * self.teraflops * (self.gain if halved else 1)
            product = -(-_WORK * width * stream // rate)
            # A norm reads the stream, an activation what the product has made of it.
            norm, activation = (
                -(-_PASSES * _WIDE * each * stream // self.memory_rate) for each in (1, width)
            )
            times = [norm, product, activation]
            forward += [Operation(f"F:{layer}.{n}", t) for n, t in zip(_STEPS, times, strict=True)]
            more = [norm, _TWICE * product, activation]
            backward += [Operation(f"B:{layer}.{n}", t) for n, t in zip(_STEPS, more, strict=True)]
            for name, place, number in (
                ("input", 0, _WIDE * stream),
                ("normed", 1, size * stream),
                ("output", 2, size * width * stream),
            ):
                # Written before the operation that reads it, and read again in its backward.
                at = begin + place
                tensors.append(Tensor(f"{layer}.{name}", number, (at - 1, at, last - at)))
                made = (last - at, last - at + 1) if at else (last,)
                said = f"{layer}.gradient of {name}"
                gradients.append(Tensor(said, number, made, evictable=False))
        loss = Operation("loss", 0)
        middle = last // 2
        result = Tensor("result", _WIDE * stream, (middle - 1, middle, middle + 1), evictable=False)
        trace = Trace([*forward, loss, *reversed(backward)], [*tensors, result, *gradients])
        name = f"mixed-precision-{self.layers}-{stream >> 20}M-{seed}"
        return Problem(name, trace, Platform(0, self.link), units=Units("ns", "B"))
