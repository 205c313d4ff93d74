"""Networks of layers: decoders, layers in mixed precision, transformers and U-Nets.

Decoder layers of language models are the same few operations, once to 128 times; in mixed precision
products are in 16 bits and all else is in 32, so that sizes are halves. Transformers and U-Nets are
rows of stages, each an operation forward and one backward.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.core.units import Units
from offcert.instances.generator import MOST, Generator, knob, near
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
_DOUBLE, _AGAIN = Fraction(2), Fraction(5, 2)
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
        more = [_DOUBLE, _AGAIN, _DOUBLE, _DOUBLE, _DOUBLE]
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


class _LayerStage(NamedTuple):
    """One stage: its name, the ticks of ``F_i`` and ``B_i``, and sizes.

    `output` is that of ``x_{i+1}`` and of its gradient, `internals` what ``F_i`` saves for ``B_i``
    besides its input; a workspace is taken only while ``F_i`` or ``B_i`` runs.
    """

    name: str
    forward: int
    backward: int
    output: int
    internals: int
    forward_workspace: int
    backward_workspace: int


def _step(
    image: int, stages: Sequence[_LayerStage], target: Mapping[int, int], *, hold: bool = True
) -> Trace:
    """Return the trace of one training step.

    ``x_i`` is written by ``F_{i-1}`` and read by ``F_i``, ``B_i`` and what skips lead to; the
    internals of stage ``i`` live from ``F_i`` to ``B_i``; the gradient of ``x_i`` from the first
    backward operation that adds to it to ``B_{i-1}``.

    The image is the size of ``x_0``, resident at the start, which gets no gradient; `target` says,
    for stages whose output a skip feeds to another stage, too, the number of that. With `hold`,
    what a skip carries stays on the device from its writer to its last forward reader and again
    from its first backward reader on. It then has one gap, and all gaps are nested around the turn
    from forward to backward; otherwise it has up to three.
    """
    count = len(stages)
    last = 2 * count - 1
    operations = [Operation(f"F:{s.name}", s.forward, s.forward_workspace) for s in stages]
    operations += [
        Operation(f"B:{s.name}", s.backward, s.backward_workspace) for s in reversed(stages)
    ]
    tensors = []
    gradients = []
    sizes = [image, *(stage.output for stage in stages)]
    for i, size in enumerate(sizes):
        readers = [i] if i < count else []
        readers += [target[i - 1]] if i - 1 in target else []
        uses = {i - 1, *readers, *(last - reader for reader in readers)}
        if hold and len(readers) > 1:
            uses |= set(range(i - 1, readers[-1])) | set(range(last - readers[-1], last - i))
        if i == count:
            # The loss is taken as part of the last stage, which starts the backward pass.
            uses = {count - 1, count}
        tensors.append(Tensor(f"x{i}", size, tuple(sorted(uses)), evictable=i < count))
        if i < count:
            internals = (i, last - i)
            tensors.append(Tensor(f"internals{i}", stages[i].internals, internals))
        if i > 0:
            first = last - max(readers) if readers else count
            gradients.append(
                Tensor(f"y{i}", size, tuple(sorted({first, last - (i - 1)})), evictable=False)
            )
    return Trace(operations, [*tensors, *reversed(gradients)])


# Per stage: forward and backward time, internals and workspaces forward and backward; sizes by that
# of the stream between stages. From a profile of GPT-2 small, 8 x 1024 tokens, V100 roofline.
# Measured with the package's own roofline; no record.
_ATTENTION = (970, 1431, 54, 1, 15)
_FEED_FORWARD = (607, 1179, 10, 1, 3)


@dataclass(frozen=True, kw_only=True)
class TransformerTraces(Generator):
    """Blocks that are all alike in size; times differ by up to `jitter` percent either way.

    Attention saves many times more than a feed-forward stage; `attention` sets how much. `ratio` is
    the time that everything evictable takes to leave and return, by the time of all operations.
    """

    kind: ClassVar[str] = "transformer"
    summary: ClassVar[str] = "uniform blocks of attention and feed-forward stages with internals"

    blocks: int = knob(12, "number of blocks, of two stages each", least=1, most=MOST)
    ratio: Fraction = knob(Fraction(1), "link time by compute time of moving everything")
    width: int = knob(10, "size of what passes between stages", least=1)
    attention: int = knob(_ATTENTION[2], "what attention saves, by the width", least=0)
    jitter: int = knob(10, "times differ by up to this percentage either way", least=0)

    def draw(self, seed: int) -> Problem:
        """Return the trace of a seed, with no memory yet."""
        rng = random.Random(f"transformer {self.blocks} {seed}")
        stages = []
        for block in range(self.blocks):
            for name, numbers in (("attention", _ATTENTION), ("feed-forward", _FEED_FORWARD)):
                forward, backward, internals, ahead, behind = numbers
                saved = self.attention if name == "attention" else internals
                stages.append(
                    _LayerStage(
                        f"{block}.{name}",
                        near(rng, forward, self.jitter),
                        near(rng, backward, self.jitter),
                        self.width,
                        saved * self.width,
                        ahead * self.width,
                        behind * self.width,
                    )
                )
        trace = _step(self.width, stages, {})
        moved = sum(trace.gap_size(gap) for gap in range(len(trace.gaps)))
        bandwidth = 2 * moved / (self.ratio * trace.compute_time)
        return Problem(f"transformer-{self.blocks}-{seed}", trace, Platform(0, bandwidth))


@dataclass(frozen=True, kw_only=True)
class UnetTraces(Generator):
    """`depth` levels down, a bottom stage, the same levels up; each level halves the sizes.

    The image shrinks to a quarter from level to level while channels double. What a level of the
    encoder puts out is read by the next level and by its counterpart in the decoder, forward and
    backward. Sizes and times have noise of up to `noise` percent either way.
    """

    kind: ClassVar[str] = "unet"
    summary: ClassVar[str] = "an encoder and a decoder with skip connections: traces, not chains"

    depth: int = knob(4, "number of levels above the bottom", least=1, most=30)
    ratio: Fraction = knob(Fraction(1), "link time by compute time of moving everything")
    size: int = knob(1024, "size of the first level's output", least=1)
    noise: int = knob(20, "sizes and times differ by up to this percentage either way", least=0)
    hold: bool = knob(
        True, "skips stay on the device until their last forward reader: one gap each, nested"
    )

    def draw(self, seed: int) -> Problem:
        """Return the trace of a seed, with no memory yet."""
        rng = random.Random(f"unet {self.depth} {seed}")
        levels = [*range(self.depth + 1), *reversed(range(self.depth))]
        stages = []
        for number, level in enumerate(levels):
            up = number > self.depth
            output = near(rng, max(1, self.size >> level), self.noise, 1)
            # A decoder's stage joins two inputs, so it computes and saves about twice as much.
            forward = near(rng, 400 if up else 200, self.noise, 1)
            stages.append(
                _LayerStage(
                    f"{'up' if up else 'down'}{level}",
                    forward,
                    2 * forward,
                    output,
                    internals=near(
                        rng, (2 if up else 1) * max(1, self.size >> level), self.noise, 1
                    ),
                    forward_workspace=rng.randint(0, output),
                    backward_workspace=rng.randint(0, output),
                )
            )
        skips = {level: len(levels) - 1 - level for level in range(self.depth)}
        trace = _step(max(1, self.size // 16), stages, skips, hold=self.hold)
        sizes = {gap.tensor: trace.tensors[gap.tensor].size for gap in trace.gaps}
        bandwidth = 2 * sum(sizes.values()) / (self.ratio * trace.compute_time)
        name = f"unet-{self.depth}-{seed}" + ("" if self.hold else "-free")
        return Problem(name, trace, Platform(0, bandwidth))
