"""Seeded random networks and strategies: what can run again, and when it does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.computations import Computation, Run, Value
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.core.strategy import Strategy
from offcert.questions.schedule.problem import Problem, Recompute


def checkpoint_chain(rng: random.Random, stages: int) -> CheckpointChain:
    """Draw a chain; some stages keep more than their output, some sizes and durations are zero."""
    output = [rng.choice((0, 1, 2, 3, 5, 8)) for _ in range(stages + 1)]
    return CheckpointChain(
        [rng.choice((0, 1, 2, 4, 7)) for _ in range(stages)],
        [rng.choice((0, 1, 3, 6, 9)) for _ in range(stages)],
        output,
        [size + rng.choice((0, 0, 1, 4)) for size in output[1:]],
        [rng.choice((0, 1, 2)) for _ in range(stages + 1)],
        [rng.choice((0, 0, 2)) for _ in range(stages)],
        [rng.choice((0, 0, 3)) for _ in range(stages)],
    )


def random_network(rng: random.Random, forward: int, in_place: bool = True) -> Network:
    """Draw a training step: `forward` computations on a graph, then as many backward ones.

    Every forward computation reads one or two values computed before, or the input; some keep
    something beside their output, and some change their input in place. The backward computation
    of each reads part of what it read and wrote, and the gradients of its readers.
    """
    values = [Value("x", rng.choice((1, 2, 4)), rng.random() < 0.8)]
    computations: list[Computation] = []
    reads_of: list[tuple[int, ...]] = []
    writes_of: list[tuple[int, ...]] = []
    current = [0]
    for step in range(forward):
        reads = set(rng.sample(current, min(len(current), rng.choice((1, 1, 2)))))
        reads.add(current[-1])
        source = max(reads)
        if in_place and step and rng.random() < 0.2 and values[source].base is None:
            values.append(Value(f"v{step}'", 0, False, base=source))
            writes = [len(values) - 1]
            current = [value for value in current if value != source]
        else:
            values.append(Value(f"v{step}", rng.choice((0, 1, 2, 3, 5)), rng.random() < 0.9))
            writes = [len(values) - 1]
        current.append(writes[0])
        if rng.random() < 0.4:
            values.append(Value(f"s{step}", rng.choice((1, 2, 4))))
            writes.append(len(values) - 1)
        # What is changed in place lies in the memory of its base, which has to be there.
        bases = {values[value].base for value in reads} - {None}
        reads |= {base for base in bases if base is not None}
        reads_of.append(tuple(sorted(reads)))
        writes_of.append(tuple(sorted(writes)))
        lean = rng.choice((None, None, 0, 1))
        computations.append(
            Computation(
                f"F{step}",
                rng.choice((0, 1, 2, 3, 6)),
                rng.choice((0, 0, 1, 2)),
                reads_of[-1],
                writes_of[-1],
                lean=lean,
            )
        )
    gradient = None
    for step in reversed(range(forward)):
        reads = {value for value in writes_of[step] if rng.random() < 0.8}
        reads |= {value for value in reads_of[step] if rng.random() < 0.5}
        reads |= {b for v in reads if (b := values[v].base) is not None}
        # Its own output must be what it was: nothing reads a value that was changed since.
        changed = {v.base for v in values if v.base is not None}
        reads -= {v for v in reads if v in changed and not _final(values, reads, v)}
        if gradient is not None:
            reads.add(gradient)
        values.append(Value(f"g{step}", rng.choice((0, 1, 2)), evictable=False))
        gradient = len(values) - 1
        duration = rng.choice((0, 1, 2, 5))
        computations.append(
            Computation(
                f"B{step}",
                duration,
                rng.choice((0, 0, 2)),
                tuple(sorted(reads)),
                (gradient,),
                False,
            )
        )
    return Network(computations, values)


def _final(values: Sequence[Value], reads: set[int], base: int) -> bool:
    """Whether what was made of a value in place is read as well."""
    return any(value.base == base and index in reads for index, value in enumerate(values))


def random_strategy(rng: random.Random, network: Network, most: int = 6) -> Strategy:
    """Draw a legal strategy: up to `most` runs again, each wherever what it reads is there."""
    changing = {
        index
        for index, each in enumerate(network.computations)
        if any(network.values[value].base is not None for value in each.writes)
        or any(network.values[v].base is not None for v in each.reads)
    }
    changed = {value.base for value in network.values if value.base is not None}
    safe = [
        index
        for index, each in enumerate(network.computations)
        if each.repeatable and index not in changing and not changed & {*each.reads, *each.writes}
    ]
    runs: list[Run] = []
    left = most
    for computation in range(len(network)):
        runs.append(Run(computation))
        while left and rng.random() < 0.3:
            again = [index for index in safe if index <= computation]
            if not again:
                break
            runs.append(Run(rng.choice(again)))
            left -= 1
    return Strategy(runs)


def recompute_problem(
    rng: random.Random, network: Network | CheckpointChain, part: Fraction | None = None
) -> Problem:
    """Return a problem of a network: any memory between the least of a run and the peak."""
    computed = network.network() if isinstance(network, CheckpointChain) else network
    least, peak = max(computed.own_memory), computed.trace().peak_memory
    part = Fraction(rng.randint(0, 10), 10) if part is None else part
    bandwidth = rng.choice((Fraction(1, 2), Fraction(1), Fraction(3, 2)))
    link = rng.choice(tuple(Link))
    memory = least + (max(peak, least) - least) * part.numerator // part.denominator
    platform = Platform(memory, bandwidth, link)
    return Problem("random", network, platform, recompute=Recompute.ANY)


def changed_network(rng: random.Random) -> Network:
    """Draw a network of up to six computations, some of which change the same value in place."""
    values = [Value("x", rng.choice((0, 2, 3)), rng.random() < 0.8)]
    computations: list[Computation] = []
    last = 0
    for step in range(rng.choice((3, 4))):
        root = last if values[last].base is None else values[last].base
        assert root is not None
        reads = {last, root} | ({0} if rng.random() < 0.3 and root else set())
        if step and rng.random() < 0.5:
            values.append(Value(f"v{step}'", 0, False, base=root))
        else:
            values.append(Value(f"v{step}", rng.choice((0, 1, 2, 4)), rng.random() < 0.9))
        last = len(values) - 1
        writes = [last]
        if rng.random() < 0.4:
            values.append(Value(f"s{step}", rng.choice((1, 3))))
            writes.append(len(values) - 1)
        lean = rng.choice((None, None, 0))
        again = rng.random() < 0.95
        computations.append(
            Computation(
                f"F{step}",
                rng.choice((0, 1, 2, 5)),
                rng.choice((0, 1)),
                tuple(sorted(reads)),
                tuple(writes),
                again,
                lean=lean,
            )
        )
    for step in range(2):
        reads = set(rng.sample(range(len(values)), 2))
        reads |= {base for value in reads if (base := values[value].base) is not None}
        computations.append(
            Computation(f"B{step}", 1, rng.choice((0, 2)), tuple(sorted(reads)), (), False)
        )
    return Network(computations, values)
