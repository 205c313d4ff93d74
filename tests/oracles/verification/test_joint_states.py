"""What the verifier of joint bounds derives from a network, and what it leaves room for.

Finder and verifier derive it each for themselves: both have to say the same of any network. Where
one of them says too much, it is mostly hidden by what else is known: so some are forged by hand.
"""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.formulations.joint import room as finder_room
from offcert.formulations.joint.room import Grid, contents
from offcert.proofs.joint_document import pack
from offcert.proofs.kinds.multipliers import JointProof
from offcert.proofs.registry import proved
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.verification.findings import recheck
from offcert.verification.joint import room as verifier_room
from offcert.verification.joint.room import Cuts, States, largest_sum, rooms
from support.networks.changing_networks import changing_network
from support.oracles.joint import least_time
from support.seeds import by_seeds


@by_seeds(0, 150, 30)
def test_finder_and_verifier_derive_the_same_states(seeds: range) -> None:
    changed_twice = 0
    for seed in seeds:
        network = changing_network(random.Random(seed), 2 + seed % 4)
        offload = seed % 3 > 0
        known, states = contents(network, offload), States(network, offload)
        assert (known.maker, known.stored) == (tuple(states.made_by), tuple(states.memory_of))
        assert known.size == tuple(states.size)
        assert known.reads == tuple(tuple(sorted(found)) for found in states.found)
        assert known.makes == tuple(tuple(sorted(makes)) for makes in states.makes)
        assert known.last_reader == tuple(states.last_reader)
        assert known.latest == tuple(states.last_use)
        assert known.repeatable == tuple(map(states.repeatable, states.made_by))
        # What takes no memory may leave or not, as it takes no time of the link.
        assert known.movable == tuple(
            may and size > 0 for may, size in zip(states.can_leave, states.size, strict=True)
        )
        for value in range(len(network.values)):
            assert states.begun_by[value] == known.maker[known.stored[value]]
            up_to = known.up_to(value)
            changed_twice += len(up_to) > 2
            for moment in range(-1, 2 * len(network)):
                of_use = [
                    state
                    for state in sorted(up_to)
                    if 2 * known.maker[state] < moment
                    and (state == value or moment <= 2 * known.latest[state])
                ]
                assert sorted(states.before(value, moment)) == of_use
    assert changed_twice >= 8


@by_seeds(0, 200, 100)
def test_finder_and_verifier_leave_the_same_room(seeds: range) -> None:
    seen = set()
    for seed in seeds:
        rng = random.Random(seed)
        network = changing_network(rng, 2 + seed % 4)
        every = range(2 * len(network) - 1)
        moments = sorted(rng.sample(every, rng.randint(1, len(every))))
        known, states = contents(network, seed % 3 > 0), States(network, seed % 3 > 0)
        grid, cuts = Grid(network, tuple(moments), ()), Cuts(moments, (), len(network))
        # From less than anything fits into to more than all takes.
        memory = rng.randint(0, sum(value.size for value in network.values) + 6)
        for whole in (False, True):
            pairs = list(
                zip(
                    finder_room.rooms(known, grid, memory, whole),
                    rooms(states, cuts, memory, whole),
                    strict=True,
                )
            )
            for one, two in pairs:
                assert (one.most, one.too_large, one.kept) == (two.most, two.absent, two.kept)
                seen.add((whole, bool(two.absent), two.kept is None, two.most < 0))
    assert len(seen) >= 10


def test_sums_are_told_apart_up_to_a_number_of_units(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verifier_room.MOST_UNITS == finder_room.MOST_UNITS
    monkeypatch.setattr("offcert.verification.joint.room.MOST_UNITS", 4)
    assert [largest_sum([3, 2], most) for most in (3, 4, 5)] == [3, 3, 5]
    assert [largest_sum([9, 9], most) for most in (8, 9, 44, 45)] == [0, 9, 18, 45]


def claim(problem: Problem, value: int, whole: bool = True, **rows: list[list[int]]) -> str | None:
    """Return what is wrong with a bound cut at the start of computation 2, in ticks and bytes.

    Multipliers of ``memory`` and ``outputs`` are for as many bytes as the limit has.
    """
    proof = JointProof(moments=(4,), spans=(), whole=whole, proof=pack({"over": 1} | rows))
    return recheck(proved("joint-lp", value, proof), problem)


def spiked(limit: int, values: list[Value], transfers: str = "atomic", **choices) -> Problem:
    """Return x and y, made in 4 and 6 ticks; then a run that takes 4 bytes; then one that reads."""
    network = Network(
        [
            Computation("A", 4, writes=(0,)),
            Computation("B", 6, writes=(1,)),
            Computation("S", 5, 4, repeatable=False),
            Computation("D", 3, reads=(0, 1), repeatable=False),
        ],
        values,
    )
    return Problem(
        "spiked", network, Platform(limit, Fraction(1)), transfers, recompute="any", **choices
    )


def test_only_whole_values_leave_room_that_is_rounded_down() -> None:
    """3 bytes are left to x and y of 2 bytes each: in parts 1/4 of them is absent, whole one is."""
    values = [Value("x", 2), Value("y", 2)]
    rows = {"available": [[1, 0, 4], [1, 1, 4]], "memory": [[1, 14]]}
    problem = spiked(7, values, offload=False)
    assert least_time(problem) == 22
    assert claim(problem, 22, **rows) is None
    assert claim(problem, 21, whole=False, **rows) == "the document says 21, but its proof gives 20"
    parts = spiked(7, values, "fractional")
    assert "details.whole must be false with fractional" in str(claim(parts, 20, **rows))
    # Where they may leave, they may come back instead.
    assert claim(parts, 18, whole=False, **rows) == "the document says 18, but its proof gives 12"
    assert claim(parts, 12, whole=False, **rows) is None


def test_a_value_made_once_is_there_only_if_it_is_read() -> None:
    """x is read by B alone, which may run again for y: either x or y is there while S runs."""
    network = Network(
        [
            Computation("A", 1, writes=(0,), repeatable=False),
            Computation("B", 1, reads=(0,), writes=(1,)),
            Computation("S", 1, 2, repeatable=False),
            Computation("D", 1, reads=(1,), repeatable=False),
        ],
        [Value("x", 2, evictable=False), Value("y", 2)],
    )
    problem = Problem(
        "either", network, Platform(4, Fraction(1)), recompute=Recompute.ANY, offload=False
    )
    assert least_time(problem) == 4
    rows = {"available": [[1, 1, 1]], "memory": [[1, 2]]}
    assert claim(problem, 5, **rows) == "the document says 5, but its proof gives 4"
