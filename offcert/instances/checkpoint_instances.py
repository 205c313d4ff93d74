"""Problems in which computations may run again: chains that can be checkpointed, and networks."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.instances.generator import MOST, Generator, knob, near, spread_around
from offcert.questions.schedule.problem import Problem, Recompute

_RECOMPUTE = tuple(map(str, Recompute))


def _both_ways(size: int, ratio: Fraction, compute: int) -> Fraction:
    """Return the bandwidth at which moving so many bytes out and back takes `ratio` of a step."""
    return max(Fraction(2 * size) / (ratio * max(compute, 1)), Fraction(1, 2**30))


@dataclass(frozen=True, kw_only=True)
class CheckpointChains(Generator):
    """Chains whose stages keep several times their output for the backward pass.

    What a checkpoint saves is that: the output alone has to stay. Outputs shrink by the factor
    `shrink` from the first stage to the last, with noise of the factor `spread` either way;
    backward operations take about twice as long as forward ones. `ratio` is the time that all
    that is saved takes to leave and return, by the time of a step in which nothing runs again.
    """

    kind: ClassVar[str] = "checkpoint-chain"
    summary: ClassVar[str] = "chains whose stages may run again"

    stages: int = knob(12, "number of stages", least=1, most=MOST)
    saved: Fraction = knob(Fraction(4), "what a stage saves by its output, on the average", least=1)
    ratio: Fraction = knob(Fraction(2), "link time by compute time of moving everything")
    shrink: Fraction = knob(Fraction(8), "first output by last output", least=1)
    spread: Fraction = knob(Fraction(2), "noise on sizes and times: up to this factor", least=1)
    recompute: str = knob("any", "what may run again", choices=_RECOMPUTE)
    offload: bool = knob(True, "tensors may leave the device")

    def draw(self, seed: int) -> Problem:
        """Return the chain of a seed, with no memory yet."""
        rng = random.Random(f"checkpoint-chain {self.stages} {seed}")
        output = [
            spread_around(rng, self._output(index), self.spread) for index in range(self.stages + 1)
        ]
        forward = [spread_around(rng, 300, self.spread) for _ in range(self.stages)]
        backward = [spread_around(rng, 2 * time, self.spread) for time in forward]
        more = 2 * (self.saved - 1)
        saved = [size + rng.randint(0, int(size * more)) for size in output[1:]]
        workspace = [rng.choice((0, 0, 0, size)) for size in output[1:]]
        chain = CheckpointChain(
            forward, backward, output, saved, None, [0] * self.stages, workspace
        )
        size, compute = output[0] + sum(saved), sum(forward) + sum(backward)
        return Problem(
            f"{self.kind}-{self.stages}-{seed}",
            chain,
            Platform(0, _both_ways(size, self.ratio, compute)),
            recompute=Recompute(self.recompute),
            offload=self.offload,
        )

    def _output(self, index: int) -> int:
        """Return how large an output is before the noise; a straight fall keeps to integers."""
        first, last = 600, Fraction(600) / self.shrink
        return max(1, int(first - (first - last) * index / self.stages))


@dataclass(frozen=True, kw_only=True)
class RecomputeNetworks(Generator):
    """Networks of blocks, each a dear operation and two cheap ones, with residual connections.

    Like a convolution with a normalisation and an activation behind it: all three save what they
    read, so two thirds of what is saved can be computed again for a tenth of the time. `skip`
    blocks are jumped over by a sum that reads what they began with.
    """

    kind: ClassVar[str] = "recompute-network"
    summary: ClassVar[str] = "networks of dear and cheap operations that may run again"

    blocks: int = knob(6, "number of blocks, of three operations each", least=1, most=MOST)
    skip: int = knob(2, "blocks between what is added and the sum; 0: no sums", least=0)
    dear: int = knob(400, "ticks of a dear operation, about", least=1)
    cheap: int = knob(20, "ticks of a cheap operation, about", least=0)
    ratio: Fraction = knob(Fraction(2), "link time by compute time of moving everything")
    recompute: str = knob("any", "what may run again", choices=("none", "any"))
    offload: bool = knob(True, "tensors may leave the device")

    def draw(self, seed: int) -> Problem:
        """Return the network of a seed, with no memory yet."""
        drawn = _Drawing(self, random.Random(f"{self.kind} {self.blocks} {seed}"))
        network = drawn.network()
        size = sum(value.size for value in network.values if value.evictable)
        return Problem(
            f"{self.kind}-{self.blocks}-{seed}",
            network,
            Platform(0, _both_ways(size, self.ratio, network.compute_time)),
            recompute=Recompute(self.recompute),
            offload=self.offload,
        )


class _Drawing:
    """Draws a forward pass, then its backward pass, operation by operation."""

    def __init__(self, knobs: RecomputeNetworks, rng: random.Random) -> None:
        self.knobs = knobs
        self.rng = rng
        self.values = [Value("x", self._size())]
        self.computations: list[Computation] = []

    def network(self) -> Network:
        """Return the network."""
        knobs, current, begun = self.knobs, 0, [0]
        for block in range(knobs.blocks):
            current = self._forward(f"{block}.conv", (current,), knobs.dear)
            current = self._forward(f"{block}.norm", (current,), knobs.cheap)
            current = self._forward(f"{block}.act", (current,), knobs.cheap)
            if knobs.skip and (block + 1) % knobs.skip == 0:
                joined = tuple(sorted({begun[block + 1 - knobs.skip], current}))
                current = self._forward(f"{block}.add", joined, knobs.cheap)
            begun.append(current)
        for forward in reversed(range(len(self.computations))):
            self._backward(forward)
        return Network(self.computations, self.values)

    def _size(self) -> int:
        return self.rng.randint(20, 60)

    def _forward(self, name: str, reads: tuple[int, ...], ticks: int) -> int:
        # A sum and what follows it are as large as what comes in; a dear operation may change that.
        size = self._size() if name.endswith("conv") else self.values[reads[-1]].size
        self.values.append(Value(name, size))
        made = len(self.values) - 1
        workspace = size // 2 if name.endswith("conv") and self.rng.random() < 0.3 else 0
        computation = Computation(f"F:{name}", near(self.rng, ticks, 25), workspace, reads, (made,))
        self.computations.append(computation)
        return made

    def _backward(self, forward: int) -> None:
        """Add the computation of the gradient of an operation's inputs; sums save nothing."""
        computation = self.computations[forward]
        name = computation.name.removeprefix("F:")
        saved = () if name.endswith("add") else computation.reads
        gradient = self._gradient()
        made = len(self.values)
        self.values.append(Value(f"d {name}", self.values[computation.reads[0]].size, False))
        reads = (*saved, *(() if gradient is None else (gradient,)))
        self.computations.append(
            Computation(
                f"B:{name}",
                2 * computation.duration,
                computation.workspace,
                tuple(sorted(reads)),
                (made,),
                repeatable=False,
                of=(forward,),
            )
        )

    def _gradient(self) -> int | None:
        """Return the newest gradient, from which the next one is computed; None before any."""
        newest = len(self.values) - 1
        return None if self.values[newest].evictable else newest
