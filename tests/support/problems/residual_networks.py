"""Training steps as captured ones look: residual blocks, in-place changes, who saved what."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.questions.schedule.problem import Problem, Recompute


@dataclass
class _Builder:
    values: list[Value] = field(default_factory=list)
    forward: list[Computation] = field(default_factory=list)
    # Of each forward computation: name, what its backward one reads, ticks, size of the gradient.
    backward: list[tuple[str, tuple[int, ...], int, int]] = field(default_factory=list)

    def value(self, size: int, base: int | None = None) -> int:
        self.values.append(Value(f"v{len(self.values)}", size, base is None, base))
        return len(self.values) - 1

    def add(
        self, name: str, ticks: int, reads: set[int], writes: list[int], saves: set[int]
    ) -> None:
        number = len(self.forward)
        assert number == len(self.backward)
        self.forward.append(
            Computation(f"F:{name}", ticks, 0, tuple(sorted(reads)), tuple(sorted(writes)))
        )
        size = max(self.values[value].size for value in writes)
        self.backward.append((f"B:{name}", tuple(sorted(saves)), 2 * ticks, size))

    def convolution(self, name: str, ticks: int, given: tuple[int, ...], size: int) -> int:
        made = self.value(size)
        self.add(name, ticks, set(given), [made], set(given))
        return made

    def norm_relu(self, name: str, ticks: int, given: int, size: int) -> tuple[int, int]:
        """A batch norm that saves its input, and an activation that changes its output in place."""
        made, few = self.value(size), self.value(1)
        self.add(f"{name}.bn", ticks, {given}, [made, few], {given, few})
        changed = self.value(0, made)
        self.add(f"{name}.relu", ticks, {made}, [changed], {made, changed})
        return made, changed

    def network(self) -> Network:
        computations = list(self.forward)
        gradient: int | None = None
        for number in reversed(range(len(self.forward))):
            name, saves, ticks, size = self.backward[number]
            reads = {*saves} if gradient is None else {*saves, gradient}
            self.values.append(Value(f"d{number}", size, evictable=False))
            gradient = len(self.values) - 1
            computations.append(
                Computation(name, ticks, 0, tuple(sorted(reads)), (gradient,), False, of=(number,))
            )
        return Network(computations, self.values)


def residual_network(blocks: int, size: int = 24, dear: int = 9, cheap: int = 2) -> Network:
    """Return a step of residual blocks: dear convolutions, cheap norms and activations.

    Sizes halve and durations of the cheap ones with them every second block.
    """
    build = _Builder()
    given: tuple[int, ...] = (build.convolution("stem", dear, (), size),)
    for block in range(blocks):
        if block and block % 2 == 0:
            size, cheap = max(2, size // 2), max(1, cheap // 2)
        inside = given
        for place in "ab":
            made = build.convolution(f"{block}.{place}", dear, inside, size)
            inside = build.norm_relu(f"{block}.{place}", cheap, made, size)
        # What the block adds to it is changed in place, and read by the next block as it is then.
        made = inside[0]
        total = build.value(size)
        build.add(f"{block}.add", cheap, {*given, *inside, made}, [total], set())
        given = (total,)
    return build.network()


def residual_problem(
    blocks: int,
    part: Fraction,
    bandwidth: Fraction = Fraction(1, 4),
    link: Link = Link.SIMPLEX,
    offload: bool = True,
) -> Problem:
    """Return a problem of `residual_network` with a part of its peak."""
    network = residual_network(blocks)
    memory = int(network.trace().peak_memory * part)
    platform = Platform(memory, bandwidth, link)
    return Problem("residual", network, platform, recompute=Recompute.ANY, offload=offload)
