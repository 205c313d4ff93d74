"""Random tiny networks in which memory is changed in place often, and by whom one likes."""

from __future__ import annotations

import random
from dataclasses import replace

from offcert.core.computations import Computation, Value
from offcert.core.network import Network


def changing_network(rng: random.Random, forward: int) -> Network:
    """Draw a few computations, mostly one that needs room, and one or two that read what there is.

    A run may change the memory of several values, or one memory twice; the input may be changed,
    and changed again; what is read after a change may or may not name the memory it lies in. Sizes
    and durations may be zero, and runs may take less if they discard what they make. Values are in
    any order, and the last run may be one that may run again.
    """
    values = [
        Value(f"in{index}", rng.choice((0, 1, 2, 3)), rng.random() < 0.6)
        for index in range(rng.randint(0, 2))
    ]
    computations: list[Computation] = []
    for step in range(forward):
        reads = {value for value in range(len(values)) if rng.random() < 0.5}
        roots = sorted({_memory(values, value) for value in reads})
        writes: list[int] = []
        if roots and rng.random() < 0.45:
            for root in rng.sample(roots, rng.randint(1, min(2, len(roots)))):
                for _ in range(1 + (rng.random() < 0.1)):
                    values.append(Value(f"c{step}", 0, rng.random() < 0.5, base=root))
                    writes.append(len(values) - 1)
                reads.add(root)
        if not writes or rng.random() < 0.3:
            values.append(Value(f"v{step}", rng.choice((0, 1, 2, 3)), rng.random() < 0.7))
            writes.append(len(values) - 1)
        if rng.random() < 0.8:
            reads |= {_memory(values, value) for value in reads}
        computations.append(
            Computation(
                f"F{step}",
                rng.choice((0, 1, 2, 4)),
                rng.choice((0, 0, 1, 2, 3)),
                tuple(sorted(reads)),
                tuple(writes),
                rng.random() < 0.7,
                lean=rng.choice((None, None, 0, 1, 3)),
            )
        )
    if rng.random() < 0.5:
        computations.append(Computation("S", 1, rng.choice((2, 4, 6)), repeatable=False))
    for step in range(rng.randint(1, 2)):
        reads = {value for value in range(len(values)) if rng.random() < 0.6}
        duration, workspace = rng.choice((0, 1, 2)), rng.choice((0, 0, 2))
        again = rng.random() < 0.1
        computations.append(
            Computation(f"B{step}", duration, workspace, tuple(sorted(reads)), (), again)
        )
    return _shuffled(rng, computations, values)


def _shuffled(rng: random.Random, computations: list[Computation], values: list[Value]) -> Network:
    """Return the network with its values in another order."""
    place = list(range(len(values)))
    rng.shuffle(place)
    moved = {
        place[old]: replace(each, base=None if each.base is None else place[each.base])
        for old, each in enumerate(values)
    }
    return Network(
        [
            replace(
                each,
                reads=tuple(sorted(place[value] for value in each.reads)),
                writes=tuple(sorted(place[value] for value in each.writes)),
            )
            for each in computations
        ],
        [moved[index] for index in range(len(values))],
    )


def _memory(values: list[Value], value: int) -> int:
    base = values[value].base
    return value if base is None else base
