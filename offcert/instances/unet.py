"""Traces like U-Nets: an encoder, a decoder, and skip connections between equal levels."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from offcert.core.platform import Platform
from offcert.core.problem import Problem
from offcert.instances.generator import Generator, knob
from offcert.instances.stages import Skip, Stage, stage_trace


@dataclass(frozen=True, kw_only=True)
class UnetTraces(Generator):
    """`depth` levels down, a bottom stage, the same levels up; each level halves the sizes.

    The image shrinks to a quarter from level to level while channels double. What a level of the
    encoder puts out is read by the next level and by its counterpart in the decoder, forward and
    backward. Sizes and times have noise of up to `noise` percent either way.
    """

    kind: ClassVar[str] = "unet"
    summary: ClassVar[str] = "an encoder and a decoder with skip connections: traces, not chains"

    depth: int = knob(4, "number of levels above the bottom", least=1)
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
            output = self._near(rng, max(1, self.size >> level))
            # A decoder's stage joins two inputs, so it computes and saves about twice as much.
            forward = self._near(rng, 400 if up else 200)
            stages.append(
                Stage(
                    f"{'up' if up else 'down'}{level}",
                    forward,
                    2 * forward,
                    output,
                    internals=self._near(rng, (2 if up else 1) * max(1, self.size >> level)),
                    forward_workspace=rng.randint(0, output),
                    backward_workspace=rng.randint(0, output),
                )
            )
        skips = [Skip(level, len(levels) - 1 - level) for level in range(self.depth)]
        trace = stage_trace(max(1, self.size // 16), stages, skips, hold=self.hold)
        sizes = {gap.tensor: trace.tensors[gap.tensor].size for gap in trace.gaps}
        bandwidth = 2 * sum(sizes.values()) / (self.ratio * trace.compute_time)
        name = f"unet-{self.depth}-{seed}" + ("" if self.hold else "-free")
        return Problem(name, trace, Platform(0, bandwidth))

    def _near(self, rng: random.Random, middle: int) -> int:
        slack = middle * min(self.noise, 100) // 100
        return max(1, rng.randint(middle - slack, middle + slack))
