"""Random problems and plans for `benchmarks/fuzz_runtime.py`."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from offcert.core.carried.carry import carry
from offcert.core.errors import InputError, PlanError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.platform import Kind, Link, Platform
from offcert.core.program import Program, Segment
from offcert.core.trace import Trace
from offcert.core.units import Units
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime.capture import Capture
from offcert.runtime.plan.place import program_of, steady
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


def random_program(chance: random.Random, captured: Capture) -> Program:
    """Draw ranges of a captured step, ranges inside of them, and what is kept in those."""
    network = captured.network
    assert network is not None
    spans = [(each.first, each.last) for each in steady(network, captured.ranges)]

    def fill(low: int, high: int, depth: int) -> list[Segment]:
        segments, at = [], low
        while at <= high:
            here = [s for s in spans if at <= s[0] <= at + 3 and s[1] <= high and s != (low, high)]
            if not here or chance.random() < 0.3:
                at += 1
                continue
            first, last = chance.choice(here)
            deeper = depth < 2 and chance.random() < 0.5
            inner = fill(first, last, depth + 1) if deeper else []
            own = [n for n in range(first, last + 1) if not any(n in each for each in inner)]
            segments.append(Segment(first, last, _kept(chance, network, own), tuple(inner)))
            at = last + 1
        return segments

    return Program(fill(0, len(network) - 1, 0))


def _kept(chance: random.Random, network: Network, own: list[int]) -> tuple[int, ...]:
    """Draw computations of a segment, together with what has to be kept with them."""
    kept: set[int] = set()
    for each in own:
        together = _kept_with(network, own[0], own[-1], each)
        if chance.random() < 0.3 and together is not None and set(together) <= set(own):
            kept.update(together)
    return tuple(sorted(kept))


def _kept_with(network: Network, first: int, last: int, computation: int) -> tuple[int, ...] | None:
    """Return the computations that have to be kept with one of a segment, itself included, or None.

    What changes its results in place has to be kept as well; that is possible if it lies in the
    segment and nobody has read them in between who runs again.
    """
    together: set[int] = set()
    waiting = [computation]
    while waiting:
        each = waiting.pop()
        if each in together:
            continue
        together.add(each)
        for value in network.computations[each].writes:
            base = network.values[value].base
            waiting += _makers(network, value if base is None else base)
    if not all(first <= each <= last for each in together):
        return None
    for each in together:
        for value in network.computations[each].writes:
            base = network.values[value].base
            if base is not None and any(
                network.writer[base] < reader < each and reader not in together
                for reader in network.readers[base]
            ):
                return None
    return tuple(sorted(together))


def _makers(network: Network, value: int) -> list[int]:
    """Return the computations that write a value or change it in place in a forward pass."""
    changers = [
        network.writer[other]
        for other, each in enumerate(network.values)
        if each.base == value and network.computations[network.writer[other]].repeatable
    ]
    return [network.writer[value], *changers]


def joint_problem_of(
    chance: random.Random, captured: Capture, again: list[str]
) -> tuple[Problem, Execution | None]:
    """Return a problem in which something runs again, or one without, if nothing may.

    It is one or two blocks, or whatever can run again.
    """
    network = captured.network
    plain = problem_of(chance, captured)
    # By operators, nothing is known that could run again.
    if network is None or captured.record is None:
        return plain, None
    timed = Network(
        [replace(each, duration=chance.randint(0, 500)) for each in network.computations],
        network.values,
    )
    try:
        if chance.random() < 0.5:
            made = random_program(chance, captured)
        else:
            made = program_of(_blocks(chance, again), captured.ranges, captured.ticks)
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


def _blocks(chance: random.Random, again: list[str]) -> PlacedProgram:
    """Draw one or two of the modules at some paths."""
    paths = sorted(chance.sample(again, min(len(again), chance.choice((1, 1, 2)))))
    # What one layer of a block computes may be kept.
    kept = [(Kept("enter", f"{path}.layers.0"),) if chance.random() < 0.4 else () for path in paths]
    pairs = zip(paths, kept, strict=True)
    return PlacedProgram([PlacedSegment(path, 0, None, keeps, ()) for path, keeps in pairs])
