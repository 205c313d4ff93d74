"""Traces like transformers: uniform blocks of attention and feed-forward stages with internals."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from offcert.core.platform import Platform
from offcert.core.problem import Problem
from offcert.instances.generator import Generator, knob
from offcert.instances.stages import Stage, stage_trace

# Per stage: forward and backward time, internals and workspaces forward and backward; sizes by that
# of the stream between stages. From a profile of GPT-2 small, 8 x 1024 tokens, V100 roofline.
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

    blocks: int = knob(12, "number of blocks, of two stages each", least=1)
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
                    Stage(
                        f"{block}.{name}",
                        self._near(rng, forward),
                        self._near(rng, backward),
                        self.width,
                        saved * self.width,
                        ahead * self.width,
                        behind * self.width,
                    )
                )
        trace = stage_trace(self.width, stages)
        moved = sum(trace.gap_size(gap) for gap in range(len(trace.gaps)))
        bandwidth = 2 * moved / (self.ratio * trace.compute_time)
        return Problem(f"transformer-{self.blocks}-{seed}", trace, Platform(0, bandwidth))

    def _near(self, rng: random.Random, time: int) -> int:
        slack = time * min(self.jitter, 100) // 100
        return rng.randint(time - slack, time + slack)
