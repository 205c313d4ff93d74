"""Networks of stages: transformers and U-Nets."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple

from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.instances.generator import MOST, Generator, knob, near
from offcert.questions.schedule.problem import Problem


class _Stage(NamedTuple):
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
    image: int, stages: Sequence[_Stage], target: Mapping[int, int], *, hold: bool = True
) -> Trace:
    """Return the trace of one training step.

    ``x_i`` is written by ``F_{i-1}`` and read by ``F_i``, ``B_i`` and what skips lead to; the
    internals of stage ``i`` live from ``F_i`` to ``B_i``; the gradient of ``x_i`` from the first
    backward operation that adds to it to ``B_{i-1}``.

    Parameters
    ----------
    image : int
        Size of ``x_0``, resident at the start; it gets no gradient.
    stages : sequence of _Stage
        In the order of the forward pass.
    target : mapping of int to int
        For stages whose output a skip feeds to another stage, too, the number of that.
    hold : bool
        Whether what a skip carries stays on the device from its writer to its last forward reader
        and again from its first backward reader on. It then has one gap, and all gaps are nested
        around the turn from forward to backward; otherwise it has up to three.
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
                    _Stage(
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
                _Stage(
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
