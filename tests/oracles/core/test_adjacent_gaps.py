"""Between two adjacent uses: on a duplex link a tensor may well leave there, on a simplex never.

The model knows no gap between uses by one operation and the next. An operation of no duration put
between any two makes one of each such pair, and changes nothing else.
"""

import random
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest

from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.fluid.exact import solve_fluid
from offcert.questions.schedule.problem import Problem, Transfers
from support.oracles.schedules import brute_force


@dataclass(frozen=True)
class Stay:
    """A tensor's stay on the host between two uses: its offload's start and its prefetch's."""

    tensor: int
    before: int
    after: int
    leaves: int
    returns: int


def problem(
    durations: list[int],
    workspace: list[int],
    tensors: list[tuple[int, tuple[int, ...]]],
    memory: int,
    rate: Fraction,
    link: Link,
) -> Problem:
    trace = Trace(
        [Operation(f"o{o}", *row) for o, row in enumerate(zip(durations, workspace, strict=True))],
        [Tensor(f"t{number}", size, uses) for number, (size, uses) in enumerate(tensors)],
    )
    return Problem("witness", trace, Platform(memory, rate, link))


def stretched(given: Problem) -> Problem:
    """Return the problem with an operation of no duration between any two."""
    trace = given.trace
    operations = [Operation("start", 0)]
    for operation in trace.operations:
        operations += [operation, Operation("between", 0)]
    tensors = [
        Tensor(tensor.name, tensor.size, tuple(2 * use + 1 for use in tensor.uses))
        for tensor in trace.tensors
    ]
    return Problem("stretched", Trace(operations, tensors), given.platform)


def faults(given: Problem, starts: list[int], stays: list[Stay]) -> list[str]:
    """Go through a schedule tick by tick, by the definition; stays may lie between any two uses."""
    trace, platform = given.trace, given.platform
    ends = [start + o.duration for start, o in zip(starts, trace.operations, strict=True)]
    found = [f"o{o + 1} is early" for o in range(len(ends) - 1) if starts[o + 1] < ends[o]]

    def end(operation: int) -> int:
        return 0 if operation < 0 else ends[operation]

    busy: dict[tuple[str, int], int] = {}
    away: set[tuple[int, int]] = set()
    for stay in stays:
        tensor = trace.tensors[stay.tensor]
        ticks = -(-Fraction(tensor.size) / platform.bandwidth // 1)
        place = tensor.uses.index(stay.before)
        if tensor.uses[place + 1] != stay.after:
            found.append(f"{tensor.name}: no consecutive uses")
        if stay.leaves < end(tensor.uses[0]) or stay.returns + ticks > starts[stay.after]:
            found.append(f"{tensor.name} is moved too early or too late")
        released = max(stay.leaves + ticks, end(stay.before))
        if stay.returns < released:
            found.append(f"{tensor.name} returns before it has left")
        for way, begin in (("out", stay.leaves), ("back", stay.returns)):
            for tick in range(begin, begin + int(ticks)):
                wire = way if platform.duplex else "both"
                busy[wire, tick] = busy.get((wire, tick), 0) + 1
        away |= {(stay.tensor, tick) for tick in range(released, stay.returns)}
    found += [f"the link does two things at {tick}" for (_, tick), n in busy.items() if n > 1]
    for tick in range(ends[-1]):
        held = sum(
            tensor.size
            for number, tensor in enumerate(trace.tensors)
            if (tensor.uses[0] < 0 or starts[tensor.uses[0]] <= tick)
            and tick < ends[tensor.uses[-1]]
            and (number, tick) not in away
        )
        held += sum(
            operation.workspace
            for o, operation in enumerate(trace.operations)
            if starts[o] <= tick < ends[o]
        )
        if held > platform.memory:
            found.append(f"{held} bytes at {tick}")
    return found


SMALL = problem(
    [1, 3, 3], [0, 0, 0], [(3, (0, 2)), (3, (-1, 1)), (1, (0, 1))], 6, Fraction(1), Link.DUPLEX
)
# While t0 is on its way out, t1 returns to where t2 was, which is needed again only afterwards.
SMALL_STARTS = [3, 9, 15]
SMALL_STAYS = [Stay(1, -1, 1, 0, 5), Stay(2, 0, 1, 4, 8), Stay(0, 0, 2, 5, 12)]

LARGE = problem(
    [4, 4, 4, 3],
    [1, 0, 0, 0],
    [(4, (0, 1, 2, 3)), (10, (0, 2, 3)), (3, (0, 1, 2, 3)), (5, (-1, 1, 2)), (1, (0, 1))],
    22,
    Fraction(3, 2),
    Link.DUPLEX,
)
LARGE_STARTS = [4, 17, 28, 32]
LARGE_STAYS = [Stay(3, -1, 1, 0, 9), Stay(4, 0, 1, 8, 16), Stay(1, 0, 2, 9, 21)]


@pytest.mark.parametrize(
    ("given", "starts", "stays", "without"),
    [(SMALL, SMALL_STARTS, SMALL_STAYS, 19), (LARGE, LARGE_STARTS, LARGE_STAYS, 37)],
    ids=["small", "large"],
)
def test_duplex_link_where_leaving_between_adjacent_uses_pays(
    given: Problem, starts: list[int], stays: list[Stay], without: int
) -> None:
    assert any(stay.after == stay.before + 1 for stay in stays)
    assert faults(given, starts, stays) == []
    makespan = starts[-1] + given.trace.operations[-1].duration
    assert makespan < without == brute_force(given)
    assert makespan == brute_force(stretched(given))
    # Nor would it do to leave that transfer out, or to begin anything but the last a tick sooner.
    assert faults(given, starts, [stay for stay in stays if stay.after > stay.before + 1])
    for o in range(len(starts)):
        assert faults(given, [*starts[:o], *(start - 1 for start in starts[o:])], stays)


def test_what_the_tick_by_tick_check_refuses() -> None:
    def changed(number: int, leaves: int, returns: int) -> list[str]:
        stay = SMALL_STAYS[number]
        other = Stay(stay.tensor, stay.before, stay.after, leaves, returns)
        return faults(
            SMALL, SMALL_STARTS, [*SMALL_STAYS[:number], other, *SMALL_STAYS[number + 1 :]]
        )

    assert "7 bytes at 4" in changed(0, 0, 4)
    assert "t2 returns before it has left" in changed(1, 4, 4)
    assert "t2 is moved too early or too late" in changed(1, 3, 8)
    assert "t0 is moved too early or too late" in changed(2, 5, 13)
    assert "the link does two things at 4" in changed(2, 4, 12)


@pytest.mark.parametrize("seed", range(60))
def test_simplex_link_where_it_never_pays(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([3, 4])
    tensors = []
    for _ in range(rng.choice([3, 4])):
        uses = tuple(sorted(rng.sample(range(-1, count), rng.choice([2, 2, 3]))))
        tensors.append((rng.randint(1, 4), uses))
    durations = [rng.randint(0, 3) for _ in range(count)]
    workspace = [rng.choice([0, 0, 1, 3]) for _ in range(count)]
    given = problem(durations, workspace, tensors, 0, Fraction(1), Link.SIMPLEX)
    trace = given.trace
    for memory in {trace.least_memory, (trace.least_memory + trace.peak_memory) // 2}:
        limited = given.with_memory(memory)
        assert brute_force(limited) == brute_force(stretched(limited))


@pytest.mark.parametrize("given", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("transfers", [Transfers.INTERRUPTIBLE, Transfers.FRACTIONAL])
def test_transfers_that_may_pause_gain_nothing_there(given: Problem, transfers: Transfers) -> None:
    plain, longer = (
        solve_fluid(replace(problem, transfers=transfers)) for problem in (given, stretched(given))
    )
    for outcome in (plain, longer):
        assert outcome.schedule is not None
        assert outcome.schedule.makespan == outcome.bound
    assert plain.bound == longer.bound
