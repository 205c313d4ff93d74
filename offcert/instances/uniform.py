"""Chains whose numbers are drawn evenly from ranges; at a spread of 1 all stages are the same."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.instances.generator import MOST, Generator, knob
from offcert.questions.schedule.problem import Problem


@dataclass(frozen=True, kw_only=True)
class UniformChains(Generator):
    """Sizes from ``size/spread`` to ``size·spread``, times likewise, no structure otherwise.

    Backward operations take twice as long as forward ones before the spread is applied; gradients
    are as large as activations. At ``spread`` 1 every stage is alike, as in a transformer.
    """

    kind: ClassVar[str] = "uniform"
    summary: ClassVar[str] = "chains whose numbers are drawn evenly from ranges"

    stages: int = knob(24, "number of stages", least=1, most=MOST)
    ratio: Fraction = knob(Fraction(1), "link time by compute time of moving everything")
    size: int = knob(100, "middle of the sizes", least=1)
    time: int = knob(100, "middle of the forward times", least=1)
    spread: Fraction = knob(Fraction(2), "sizes and times: up to this factor either way", least=1)
    spikes: int = knob(0, "of 4 stages, how many have a workspace as large as its input", least=0)

    def draw(self, seed: int) -> Problem:
        """Return the chain of a seed, with no memory yet."""
        rng = random.Random(f"uniform {self.stages} {seed}")
        activation = [self._near(rng, self.size) for _ in range(self.stages + 1)]
        forward = [self._near(rng, self.time) for _ in range(self.stages)]
        backward = [self._near(rng, 2 * self.time) for _ in range(self.stages)]
        workspace = [
            rng.randint(0, size) if rng.randrange(4) < self.spikes else 0
            for size in activation[:-1]
        ]
        chain = Chain(forward, backward, activation, activation, workspace, workspace)
        time = self.ratio * sum(forward + backward)
        name = f"uniform-{self.stages}-{seed}"
        return Problem(name, chain, Platform(0, 2 * sum(activation) / time))

    def _near(self, rng: random.Random, middle: int) -> int:
        low = -(-middle // self.spread)
        return rng.randint(max(1, low), max(1, int(middle * self.spread)))
