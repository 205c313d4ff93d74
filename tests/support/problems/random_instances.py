"""Seeded random problems: chains like networks, chains with traps, traces that are no chains."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

from offcert.core.chain import Chain
from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.problem import Problem

Network = Chain | Trace
RATES = (Fraction(1, 3), Fraction(1, 2), Fraction(2, 3), Fraction(1), Fraction(7, 5))


def seeded(seed: int) -> random.Random:
    """Return a source of random numbers of its own."""
    return random.Random(seed)


def cnn_chain(rng: random.Random, stages: int) -> Chain:
    """Activations that shrink with depth and repeat, backward about twice as long as forward."""
    size = rng.randint(20, 60)
    activation = []
    for _ in range(stages + 1):
        activation.append(size)
        if rng.random() < 0.5:
            size = max(1, size * rng.choice((1, 2, 3)) // rng.choice((2, 3, 4)))
    forward = [rng.randint(1, 30) for _ in range(stages)]
    backward = [2 * time + rng.randint(0, 5) for time in forward]
    return Chain(forward, backward, activation, [size // 2 for size in activation])


def spiky_chain(rng: random.Random, stages: int) -> Chain:
    """Repeated and zero sizes, operations of no duration, workspace that towers over the rest."""

    def times() -> list[int]:
        return [rng.choice((0, 0, 1, 2, 5, 10, 20)) for _ in range(stages)]

    def spikes() -> list[int]:
        return [rng.choice((0, 0, 0, rng.randint(1, 40))) for _ in range(stages)]

    sizes = [rng.choice((0, 3, 3, 5, 8, 13, 20)) for _ in range(stages + 1)]
    gradients = [rng.choice((0, 0, 1, 4)) for _ in range(stages + 1)]
    return Chain(times(), times(), sizes, gradients, spikes(), spikes())


def trace_with_internals(rng: random.Random, stages: int) -> Trace:
    """Each stage saves its input and internals that exist only from its forward operation on."""
    last = 2 * stages - 1
    operations = [
        Operation(f"o{i}", rng.choice((0, 1, 3, 8, 15)), rng.choice((0, 0, 4)))
        for i in range(2 * stages)
    ]
    tensors = []
    for i in range(stages):
        uses = sorted({i - 1, i, last - i})
        tensors.append(Tensor(f"x{i}", rng.choice((2, 5, 5, 9)), tuple(uses)))
        tensors.append(Tensor(f"z{i}", rng.choice((0, 4, 5, 12)), (i, last - i)))
        tensors.append(Tensor(f"y{i}", rng.randint(0, 3), (last - i,), evictable=False))
    return Trace(operations, tensors)


def trace_with_skips(rng: random.Random, stages: int) -> Trace:
    """A chain whose later stages read outputs again: gaps that are several, or not nested."""
    last = 2 * stages - 1
    operations = [Operation(f"o{i}", rng.choice((0, 1, 4, 9, 14))) for i in range(2 * stages)]
    tensors = []
    for i in range(stages):
        uses = {i - 1, i, last - i}
        if rng.random() < 0.5:
            reader = rng.randint(i, stages - 1)
            uses |= {reader, last - reader}
        tensors.append(Tensor(f"x{i}", rng.choice((3, 6, 6, 10)), tuple(sorted(uses))))
    tensors.append(Tensor("w", rng.randint(0, 5), (-1, last), evictable=False))
    return Trace(operations, tensors)


def loose_trace(rng: random.Random, stages: int) -> Trace:
    """Tensors with arbitrary uses: several gaps each, nested or not."""
    count = 2 * stages
    operations = [
        Operation(f"o{i}", rng.choice((0, 1, 2, 6, 11)), rng.choice((0, 0, 0, 7)))
        for i in range(count)
    ]
    tensors = []
    for index in range(rng.randint(2, min(stages + 1, 5))):
        first = rng.randint(-1, count - 2)
        later = sorted(
            rng.sample(range(first + 1, count), rng.randint(1, min(3, count - first - 1)))
        )
        size = rng.choice((2, 4, 4, 7))
        tensors.append(Tensor(f"t{index}", size, (first, *later), rng.random() < 0.9))
    return Trace(operations, tensors)


FAMILIES: tuple[Callable[[random.Random, int], Network], ...] = (
    cnn_chain,
    spiky_chain,
    trace_with_internals,
    trace_with_skips,
    loose_trace,
)


def problem_on(rng: random.Random, network: Network, name: str) -> Problem:
    """Put a network on a random platform: memory from the least to the peak, either link."""
    trace = network.trace() if isinstance(network, Chain) else network
    least, peak = trace.least_memory, trace.peak_memory
    # Little memory is where decisions matter.
    memory = least + int((max(least, peak - 1) - least) * rng.random() ** 2)
    link = rng.choice((Link.SIMPLEX, Link.DUPLEX))
    return Problem(name, network, Platform(memory, rng.choice(RATES), link))


def random_problem(seed: int, largest: int = 5, smallest: int = 2) -> Problem:
    """Return one problem of `smallest` to `largest` stages; the same for the same arguments."""
    rng = random.Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    stages = rng.randint(smallest, largest)
    if family is trace_with_internals:
        # Two tensors a stage: the same number of gaps with half the stages.
        stages = max(2, (stages + 1) // 2 + 1)
    return problem_on(rng, family(rng, stages), f"{family.__name__}-{seed}")


def two_rates(problem: Problem) -> Problem:
    """Return the problem on a link that is faster or slower in one direction than in the other."""
    rng = random.Random(f"two rates {problem.name}")
    others = [rate for rate in RATES if rate != problem.platform.bandwidth]
    platform = replace(problem.platform, prefetch_bandwidth=rng.choice(others))
    return replace(problem, name=f"{problem.name}-two-rates", platform=platform)


def slowing(problem: Problem) -> Problem:
    """Return the problem on a duplex link whose directions slow each other down."""
    rng = random.Random(f"slowing {problem.name}")
    parts = (Fraction(1, 3), Fraction(1, 2), Fraction(3, 4), Fraction(6, 7), Fraction(1))
    out, back = rng.choice(parts[:-1]), rng.choice(parts)
    platform = replace(problem.platform, link=Link.DUPLEX)
    rates = [platform.bandwidth, platform.prefetch_bandwidth or platform.bandwidth]
    platform = replace(
        platform, busy_bandwidth=out * rates[0], busy_prefetch_bandwidth=back * rates[1]
    )
    return replace(problem, name=f"{problem.name}-slowing", platform=platform)


def mixed_problem(seed: int, largest: int = 5, smallest: int = 2) -> Problem:
    """Return `random_problem`, for odd seeds on a link with different rates per direction."""
    problem = random_problem(seed, largest, smallest)
    return two_rates(problem) if seed % 2 else problem


def some_two_rates(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield every other problem as it is, and the rest with different rates per direction."""
    for index, problem in enumerate(problems):
        yield two_rates(problem) if index % 2 else problem


def tiny_problems(count: int, seed: int = 0, largest: int = 5) -> Iterator[Problem]:
    """Yield `count` problems that `oracle.brute_force` can solve."""
    for index in range(count):
        yield random_problem(seed * 100_000 + index, largest)


def counterexample() -> Problem:
    """Return the chain on which offloading everything before prefetching anything is not optimal.

    The notes on the papers, §1.2: a workspace spike early in the forward phase makes it right to
    bring ``x_0`` back before ``x_3`` leaves. The optimum is 219; 254 if ordered.
    """
    chain = Chain(
        forward=(40, 10, 40, 60, 1, 1, 1),
        backward=(1, 1, 1, 1, 60, 1, 1),
        activation=(40, 0, 0, 60, 0, 0, 60, 0),
        gradient=(0,) * 8,
        forward_workspace=(0, 100, 0, 0, 0, 0, 0),
    )
    return Problem("counterexample", chain, Platform(100, Fraction(1)))


def duplex_with_returns() -> Problem:
    """Return a problem whose tensors have several gaps, on a link that goes both ways at once."""
    durations, workspace = (7, 5, 7, 2, 6, 2, 7), (0, 0, 0, 0, 5, 5, 4)
    rows = enumerate(zip(durations, workspace, strict=True))
    trace = Trace(
        [Operation(f"o{index}", *row) for index, row in rows],
        [Tensor("a", 4, (1, 5)), Tensor("b", 4, (2, 3, 4, 6)), Tensor("c", 4, (2, 3, 4, 6))],
    )
    return Problem("returns", trace, Platform(16, Fraction(3), Link.DUPLEX))


def away_between_neighbours() -> Problem:
    """Return a problem of 19 ticks; 18 if what two neighbours use might leave between them.

    See the documentation of the problem, "Between adjacent uses".
    """
    trace = Trace(
        [Operation("o0", 1), Operation("o1", 3), Operation("o2", 3)],
        [Tensor("t0", 3, (0, 2)), Tensor("t1", 3, (-1, 1)), Tensor("t2", 1, (0, 1))],
    )
    return Problem("neighbours", trace, Platform(6, Fraction(1), Link.DUPLEX))
