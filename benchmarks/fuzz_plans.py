"""Random problems and plans for `benchmarks/fuzz_runtime.py`."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from offcert.core.carried.carry import carry
from offcert.core.errors import InputError, PlanError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.plan import Kind, Move, Plan
from offcert.core.platform import Link, Platform
from offcert.core.problem import Problem, Recompute, Units
from offcert.core.trace import Trace
from offcert.runtime.capture import Capture
from offcert.runtime.segments.place import program_of
from offcert.runtime.segments.placed import Kept, PlacedProgram, PlacedSegment

RATES = (Fraction(1, 7), Fraction(2, 3), Fraction(1), Fraction(5, 2), Fraction(40))


def random_plan(chance: random.Random, trace: Trace) -> Plan:
    """Evict some gaps, each for a random stretch, in a random order or in that of the gaps."""
    share = chance.choice((0.2, 0.5, 0.8, 1.0))
    eager = chance.random() < 0.3
    moves: list[Move] = []
    offloaded = set()
    for number, gap in enumerate(trace.gaps):
        if chance.random() > share:
            continue
        release, back = gap.before + 1, gap.after
        if gap.tensor not in offloaded:
            offloaded.add(gap.tensor)
            release = release if eager else chance.randint(release, gap.after)
            moves.append(Move(Kind.OFFLOAD, number, release))
        back = back if eager else chance.randint(release, gap.after)
        moves.append(Move(Kind.PREFETCH, number, back))
    if chance.random() < 0.3:
        chance.shuffle(moves)
    return Plan(moves)


def problem_of(chance: random.Random, captured: Capture) -> Problem:
    """Return a problem with random durations and rates, and what runs if something runs again."""
    link = chance.choice((Link.SIMPLEX, Link.DUPLEX))
    platform = Platform(
        captured.trace.peak_memory, chance.choice(RATES), link, chance.choice(RATES)
    )
    longest = chance.choice((0, 100, 2000))
    operations = [
        replace(each, duration=chance.randint(0, longest)) for each in captured.trace.operations
    ]
    return Problem(
        "fuzz",
        Trace(operations, captured.trace.tensors),
        platform,
        units=Units("ns", "B"),
        source={"clock": captured.clock, "capture": captured.to_json()},
    )


def joint_problem_of(
    chance: random.Random, captured: Capture, again: list[str]
) -> tuple[Problem, Execution | None]:
    """Return a problem in which one or two blocks run again, or one without, if none may."""
    network = captured.network
    plain = problem_of(chance, captured)
    # By operators, nothing is known that could run again.
    if network is None or captured.record is None:
        return plain, None
    timed = Network(
        [replace(each, duration=chance.randint(0, 500)) for each in network.computations],
        network.values,
    )
    paths = sorted(chance.sample(again, min(len(again), chance.choice((1, 1, 2)))))
    # What one layer of a block computes may be kept.
    kept = [(Kept("enter", f"{path}.layers.0"),) if chance.random() < 0.4 else () for path in paths]
    pairs = zip(paths, kept, strict=True)
    placed = PlacedProgram([PlacedSegment(path, 0, None, keeps, ()) for path, keeps in pairs])
    try:
        made = program_of(placed, captured.ranges, captured.ticks)
        carried = carry(timed, made, captured.ranges, captured.record, captured.ticks)
    except (InputError, PlanError):
        # What is changed in place may not run again.
        return plain, None
    problem = Problem(
        "fuzz",
        timed,
        plain.platform,
        units=plain.units,
        source=plain.source,
        recompute=Recompute.ANY,
    )
    return problem, carried.execution
