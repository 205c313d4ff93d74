"""No multipliers whatever prove more of a joint problem than brute force finds."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest

from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.verification.joint.model import JointModel
from offcert.verification.joint.room import Cuts, States, rooms
from support.oracles.joint import least_time
from support.oracles.joint_adversary import most_proved, offered_facts


def tiny(seed: int) -> Problem:
    """Draw two or three computations, mostly one that needs room, and one or two that read all.

    Some change in place what others made, some take less if they discard what they make.
    """
    rng = random.Random(seed)
    values: list[Value] = []
    computations: list[Computation] = []
    if rng.random() < 0.5:
        values.append(Value("in", rng.choice((1, 2)), rng.random() < 0.8))
    for index in range(rng.randint(2, 3)):
        reads = {value for value in range(len(values)) if rng.random() < 0.6}
        changed = {value.base for value in values}
        roots = [v for v in reads if values[v].base is None and v not in changed]
        if roots and rng.random() < 0.35:
            values.append(Value(f"c{index}", 0, False, base=rng.choice(sorted(roots))))
        else:
            values.append(Value(f"v{index}", rng.choice((1, 2, 3)), rng.random() < 0.85))
        made = len(values) - 1
        bases = {values[v].base for v in (*reads, made)} - {None}
        computations.append(
            Computation(
                f"F{index}",
                rng.choice((0, 1, 2, 4)),
                rng.choice((0, 0, 1, 2)),
                tuple(sorted(reads | {base for base in bases if base is not None})),
                (made,),
                rng.random() < 0.8,
                lean=rng.choice((None, None, 0, 1)),
            )
        )
    if rng.random() < 0.6:
        computations.append(Computation("S", 1, rng.choice((2, 4, 6)), repeatable=False))
    for index in range(rng.randint(1, 2)):
        reads = {value for value in range(len(values)) if rng.random() < 0.7}
        reads |= {base for v in reads if (base := values[v].base) is not None}
        changes = {v.base: i for i, v in enumerate(values) if v.base is not None}
        reads = {v for v in reads if v not in changes or changes[v] in reads}
        duration, workspace = rng.choice((0, 1, 2)), rng.choice((0, 0, 2))
        computations.append(
            Computation(f"B{index}", duration, workspace, tuple(sorted(reads)), (), False)
        )
    network = Network(computations, values)
    least, peak = max(network.own_memory), network.trace().peak_memory
    memory = least + max(0, peak - least) * rng.choice((0, 0, 1, 2, 3)) // 4
    bandwidth = rng.choice((Fraction(1, 2), Fraction(1), Fraction(3, 2)))
    platform = Platform(memory, bandwidth, rng.choice(tuple(Link)))
    offload = rng.random() < 0.7
    return Problem("tiny", network, platform, recompute=Recompute.ANY, offload=offload)


@pytest.mark.parametrize("seed", range(40))
def test_no_multipliers_prove_more_than_brute_force_finds(seed: int) -> None:
    problem = tiny(seed)
    best = least_time(problem)
    assert problem.computed is not None
    if best is None:
        return
    rng = random.Random(seed)
    every = range(2 * len(problem.computed) - 1)
    moments = list(every) if seed % 2 else sorted(rng.sample(every, rng.randint(0, len(every))))
    assert problem.computed.compute_time <= most_proved(problem, moments) <= best
    # Whether something runs again is decided, each case with multipliers of its own.
    assert problem.computed.compute_time <= most_proved(problem, moments, rng.randrange) <= best


@pytest.mark.parametrize("seed", [12, 15, 22, 70, 75, 89])
def test_that_only_what_has_left_returns_proves_no_more(seed: int) -> None:
    """The finder does not use it: with origin it says nothing new, as the theory page says."""
    problem = replace(tiny(seed), offload=True)
    assert problem.computed is not None
    moments = range(2 * len(problem.computed) - 1)
    found = most_proved(problem, moments)
    assert most_proved(problem, moments, without={"returned"}) == found
    assert most_proved(problem, moments, without={"returned", "origin"}) < found


@pytest.mark.parametrize("leaves", [1, 2, 3])
def test_every_fact_holds_of_a_value_that_leaves_and_returns(leaves: int) -> None:
    """A fact that is too strong may prove nothing more beside the others: each is looked at."""
    # Four computations, cut after the first one and at both ends of the next two.
    computations = [
        Computation("F", 1, 0, (), (0,), False),
        Computation("G", 1, 0, (), (), False),
        Computation("H", 1, 0, (), (), False),
        Computation("B", 1, 0, (0,), (), False),
    ]
    network = Network(computations, [Value("v", 2)])
    problem = Problem("leaves", network, Platform(4, Fraction(1)), recompute=Recompute.ANY)
    moments = (1, 2, 3, 4, 5)
    spans = [(i, j) for i, j in combinations(range(len(moments) + 2), 2) if j > i + 1]
    cuts = Cuts(moments, spans, len(network))
    states = States(network, True)
    model = JointModel(problem, states, cuts, rooms(states, cuts, 4, whole=True))
    facts = [fact for fact in offered_facts(model) if fact[0][0] not in ("link", "out", "in")]
    families = {family for (family, _), _ in facts}
    assert families == {"available", "origin", "kept", "left", "memory", "returned", "returns"}
    # It leaves in a window, is there at boundaries up to `last`, and returns in a later window.
    for last in range(leaves, 6):
        for returns in range(last, 6):
            share: dict[tuple[str, int, int] | None, int] = {None: 1}
            for boundary in range(cuts.windows + 1):
                present = boundary <= last or boundary > returns
                share["present", boundary, 0] = int(present)
                share["left", 0, boundary] = int(boundary > leaves)
            for span, (begin, end) in enumerate(cuts.spans):
                back = begin <= returns < end
                share["back", span, 0] = int(back)
                share["there", span, 0] = int(begin <= last or begin > returns or back)
            for fact, prices in facts:
                assert sum(price * share[key] for key, price in prices.items()) <= 0, fact
