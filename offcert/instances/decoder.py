"""Decoder layers of language models: the same few operations, once to 128 times in a row."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.core.units import Units
from offcert.instances.generator import Generator, knob
from offcert.questions.schedule.problem import Problem


class _Shape(NamedTuple):
    """Widths of a model: of the stream, of keys or values, and inside the feed-forward part."""

    hidden: int
    keys: int
    inner: int


# Llama 3.2 1B and 3B, Llama 3 8B and 70B, Llama 2 13B. Given by their published configurations.
_SHAPES = (
    _Shape(2048, 512, 8192),
    _Shape(3072, 1024, 8192),
    _Shape(4096, 1024, 14336),
    _Shape(8192, 1024, 28672),
    _Shape(5120, 5120, 13824),
)
# Bytes of a number: bfloat16. By definition.
_BYTES = 2
# The length of a sequence is a multiple of the first number, up to that many times it. Arbitrary.
_TOKENS, _MOST_TOKENS = 256, 32
# Work of backward by forward operations: two products for each one; of attention five for two, as
# it computes its scores again. By definition.
_TWICE, _AGAIN = Fraction(2), Fraction(5, 2)
_NAMES = ("attention-in", "attention", "attention-out", "feed-forward-in", "feed-forward-out")
# What is saved: by whom of these it is written (-1: before the layer) and read, forward; and by
# whom it is read backward. As PyTorch's layers save it. By definition.
_SAVED = {
    "input": ((-1, 0, 2), (0,)),
    "normed": ((0,), (0,)),
    "queries, keys, values": ((0, 1), (1,)),
    "attended": ((1, 2), (2, 1)),
    "middle": ((2, 3, 4), (3,)),
    "normed middle": ((3,), (3,)),
    "gates": ((3, 4), (4,)),
    "product": ((4,), (4,)),
}
# Of gradients the backward operations that write (5: those of the layer after) and read them. By
# definition.
_GRADIENTS = {
    "input": (5, 4, 3),
    "gates": (4, 3),
    "middle": (3, 2, 0),
    "attended": (2, 1),
    "queries, keys, values": (1, 0),
}


@dataclass(frozen=True, kw_only=True)
class DecoderTraces(Generator):
    """Layers of attention and feed-forward, all alike, with what PyTorch saves of each by name.

    A seed draws the widths of a published model and the length of a sequence. Times are those of
    the products of matrices alone, at one rate; the loss behind the last layer takes no time, and
    weights are no part of the memory.
    """

    kind: ClassVar[str] = "decoder"
    summary: ClassVar[str] = "layers of a language model, all alike, repeated 1 to 128 times"

    layers: int = knob(4, "number of layers", least=1, most=128)
    teraflops: int = knob(400, "10^12 operations per second that products reach", least=1)
    link: Fraction = knob(Fraction(24), "GB/s of the link, one direction at a time")

    def draw(self, seed: int) -> Problem:
        """Return the trace of a seed, with no memory yet."""
        rng = random.Random(f"decoder {seed}")
        shape, tokens = rng.choice(_SHAPES), _TOKENS * rng.randint(1, _MOST_TOKENS)
        last = 10 * self.layers
        forward, backward = self._times(shape, tokens)
        names = [f"{layer}.{name}" for layer in range(self.layers) for name in _NAMES]
        operations = [
            *map(Operation, (f"F:{name}" for name in names), forward * self.layers),
            Operation("loss", 0),
            *map(Operation, (f"B:{name}" for name in reversed(names)), backward * self.layers),
        ]
        sizes = _sizes(shape, tokens)
        saved, gradients = [], []
        for layer in range(self.layers):
            begin = 5 * layer
            for name, (ahead, behind) in _SAVED.items():
                uses = [begin + each for each in ahead] + [last - begin - each for each in behind]
                saved.append(Tensor(f"{layer}.{name}", sizes[name], tuple(sorted(uses))))
            for name, behind in _GRADIENTS.items():
                uses = [last - begin - each for each in behind]
                said = f"{layer}.gradient of {'output' if name == 'input' else name}"
                gradients.append(Tensor(said, sizes[name], tuple(sorted(uses)), evictable=False))
        output = Tensor("output", sizes["input"], (last // 2 - 1, last // 2), evictable=False)
        trace = Trace(operations, [*saved, output, *gradients])
        name = f"decoder-{self.layers}-{shape.hidden}x{tokens}-{seed}"
        return Problem(name, trace, Platform(0, self.link), units=Units("ns", "B"))

    def _times(self, shape: _Shape, tokens: int) -> tuple[list[int], list[int]]:
        """Return nanoseconds of a layer's operations forward and, in their own order, backward."""
        hidden, keys, inner = shape
        # A causal mask leaves half of the scores.
        work = [
            2 * tokens * hidden * (hidden + 2 * keys),
            2 * tokens * tokens * hidden,
            2 * tokens * hidden * hidden,
            2 * tokens * hidden * 2 * inner,
            2 * tokens * inner * hidden,
        ]
        more = [_TWICE, _AGAIN, _TWICE, _TWICE, _TWICE]
        # Operations per nanosecond.
        rate = 1000 * self.teraflops
        forward = [-(-each // rate) for each in work]
        backward = [-(-(each * factor) // rate) for each, factor in zip(work, more, strict=True)]
        return forward, backward[::-1]


def _sizes(shape: _Shape, tokens: int) -> dict[str, int]:
    """Return bytes of what is saved, by its name."""
    stream = shape.hidden
    widths = dict.fromkeys(_SAVED, stream) | {
        "queries, keys, values": stream + 2 * shape.keys,
        "gates": 2 * shape.inner,
        "product": shape.inner,
    }
    return {name: _BYTES * tokens * width for name, width in widths.items()}
