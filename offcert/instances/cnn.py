"""Chains like convolutional networks, and chains whose numbers are drawn evenly from ranges.

Of the former activations shrink with depth, and nearly all sizes differ; of the latter all stages
are the same at a spread of 1.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import ClassVar

from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.instances.generator import MOST, Generator, knob, spread_around
from offcert.questions.schedule.problem import Problem

# The mean size of the first stage's input. Arbitrary: only ratios matter.
_FIRST_SIZE = 2000
# Digits of decimal arithmetic: far beyond the 17 of a double, so that no rounding can depend on the
# machine's library. Arbitrary.
_DIGITS = 40


@dataclass(frozen=True, kw_only=True)
class CnnChains(Generator):
    """Chains whose link is as slow as their device: the hard regime at the default ratio of 1.

    Sizes fall by the factor `shrink` from the first stage to the last, with noise of the factor
    `spread` either way; backward operations take about twice as long as forward ones; `ratio` is
    the time that all activations take to leave and return, by the time of all operations.
    """

    kind: ClassVar[str] = "cnn"
    summary: ClassVar[str] = "chains like convolutional networks"

    stages: int = knob(24, "number of stages", least=1, most=MOST)
    ratio: Fraction = knob(Fraction(1), "link time by compute time of moving everything")
    shrink: Fraction = knob(Fraction(20), "first size by last size", least=1)
    spread: Fraction = knob(Fraction(2), "noise on sizes: up to this factor either way", least=1)
    spikes: int = knob(1, "of 4 stages, how many have a workspace as large as its input", least=0)

    def draw(self, seed: int) -> Problem:
        """Return the chain of a seed, with no memory yet."""
        rng = random.Random(1000 * self.stages + seed)
        activation = self._sizes(rng)
        forward = [rng.randint(100, 1000) for _ in range(self.stages)]
        backward = [round(time * rng.uniform(1.6, 2.4)) for time in forward]
        calm = max(0, 4 - self.spikes)
        workspace = []
        for size in activation[:-1]:
            spike = rng.randint(0, size)
            workspace.append(rng.choice((0,) * calm + (spike,) * (4 - calm)))
        chain = Chain(forward, backward, activation, activation, workspace, workspace)
        time = self.ratio * sum(chain.forward + chain.backward)
        name = f"cnn-{self.stages}-{seed}"
        return Problem(name, chain, Platform(0, 2 * sum(activation) / time))

    def _sizes(self, rng: random.Random) -> list[int]:
        """Return one size a tensor; powers in decimals, which every machine rounds alike."""
        with localcontext() as context:
            context.prec = _DIGITS
            decay = _decimal(self.shrink) ** (Decimal(-1) / self.stages)
            spread = _decimal(self.spread)
            return [
                max(1, round(_FIRST_SIZE * decay**stage * spread ** Decimal(rng.uniform(-1, 1))))
                for stage in range(self.stages + 1)
            ]


def cnn_chain(stages: int, seed: int) -> Problem:
    """Return the chain of a seed at the least feasible memory, all other knobs at their defaults.

    There are L+1 stages.
    """
    return CnnChains(stages=stages).problem(seed)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / value.denominator


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
        activation = [spread_around(rng, self.size, self.spread) for _ in range(self.stages + 1)]
        forward = [spread_around(rng, self.time, self.spread) for _ in range(self.stages)]
        backward = [spread_around(rng, 2 * self.time, self.spread) for _ in range(self.stages)]
        workspace = [
            rng.randint(0, size) if rng.randrange(4) < self.spikes else 0
            for size in activation[:-1]
        ]
        chain = Chain(forward, backward, activation, activation, workspace, workspace)
        time = self.ratio * sum(forward + backward)
        name = f"uniform-{self.stages}-{seed}"
        return Problem(name, chain, Platform(0, 2 * sum(activation) / time))
