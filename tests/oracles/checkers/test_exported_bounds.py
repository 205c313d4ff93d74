"""What exported bounds state holds of every schedule of tiny problems, and proves what it says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, islice

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.strategy import Strategy
from offcert.formulations.exported.integer_program import IntegerProgram
from offcert.proofs.kinds.multipliers import JointProof
from offcert.proofs.proof import Proof
from offcert.proofs.registry import PROOFS
from offcert.questions.schedule.problem import Problem
from offcert.verification.joint.model import JointModel
from offcert.verification.joint.room import Cuts, States, rooms
from offcert_lab.checkers.joint_rows import JointFacts, joint_argument
from offcert_lab.checkers.vipr import Argument, ViprCertificate
from support.networks.changing_networks import changing_network
from support.oracles.joint import executions, strategies
from support.oracles.joint_adversary import offered_facts
from support.oracles.schedules import Times, every_schedule
from support.oracles.shares import Shares
from support.oracles.vipr import proved_by
from support.problems.joint import joint_proofs
from support.problems.random_networks import recompute_problem
from support.seeds import by_seeds


def broken(program: IntegerProgram, values: list[Fraction]) -> list[str]:
    """Return the names of the rows and variables whose conditions some values do not meet."""
    found = [
        name
        for column, (name, value) in enumerate(zip(program.names, values, strict=True))
        if value < 0
        or (column not in program.endless and value > 1)
        or (column not in program.continuous and value.denominator != 1)
    ]
    for row, (terms, low, high) in enumerate(program.rows):
        total = sum(factor * values[column] for column, factor in terms)
        if (low is not None and total < low) or (high is not None and total > high):
            found.append(program.row_name(row))
    return found


def least(program: IntegerProgram) -> float:
    """Return the least objective, as HiGHS finds it."""
    matrix = np.zeros((len(program.rows), len(program.names)))
    for row, (terms, _, _) in enumerate(program.rows):
        for column, factor in terms:
            matrix[row, column] = factor
    low = np.array([row[1] for row in program.rows], dtype=float)
    high = np.array([np.inf if row[2] is None else row[2] for row in program.rows], dtype=float)
    columns = range(len(program.names))
    answer = milp(
        np.array(program.cost, dtype=float),
        integrality=np.array([column not in program.continuous for column in columns], dtype=int),
        bounds=Bounds(0, np.array([np.inf if c in program.endless else 1.0 for c in columns])),
        constraints=LinearConstraint(matrix, low, high),
    )
    assert answer.status == 0, answer.message
    return float(answer.fun)


def proved_in_vipr(argument: Argument) -> Fraction:
    """Return what the certificate of an argument proves, by a checker of its own."""
    return proved_by("\n".join(ViprCertificate(argument).text()))


def executed(problem: Problem, most: int) -> Iterator[tuple[Network, Strategy, Times]]:
    """Yield executions of a problem with their schedules, several of each."""
    network = problem.computed
    assert network is not None
    candidates = islice(strategies(network, most), 400)
    for _, strategy, execution in executions(problem, network, candidates):
        for times in islice(every_schedule(problem.executed(execution)), 6):
            yield network, strategy, times


def lasting(network: Network) -> Network:
    """Return the network with no computation that takes no time."""
    return Network(
        [replace(each, duration=max(each.duration, 1)) for each in network.computations],
        network.values,
    )


def drawn(seed: int) -> Problem:
    """Draw a tiny network, its memory often changed in place, on little memory."""
    rng = random.Random(seed)
    problem = recompute_problem(
        rng, lasting(changing_network(rng, 2 + seed % 2)), Fraction(seed % 4, 4)
    )
    return replace(problem, offload=seed % 3 > 0)


def joint_facts(problem: Problem, every_moment: bool, whole: bool = True) -> JointFacts:
    """Return all facts there are, cut everywhere or at some moments."""
    assert problem.computed is not None
    every = range(2 * len(problem.computed) - 1)
    moments = tuple(every) if every_moment else tuple(every[1::3])
    spans = tuple((i, j) for i, j in combinations(range(len(moments) + 2), 2) if j > i + 1)
    facts = JointFacts(problem, JointProof(moments=moments, spans=spans, whole=whole, proof=""))
    for family, place in list(facts.every_place()):
        facts.fact(family, place)
    return facts


@pytest.mark.slow
@by_seeds(0, 16, 16)
def test_every_joint_fact_holds_of_every_execution(seeds: range) -> None:
    looked_at = again = moved = 0
    for seed in seeds:
        problem = drawn(seed)
        facts = joint_facts(problem, every_moment=seed % 2 == 0)
        program = facts.building.program((), ("again",), ("length",))
        for network, strategy, times in islice(executed(problem, 1 + seed % 2), 60):
            execution = strategy.expand(network)
            shares = Shares(network, execution, times, facts.grid.moments, facts.grid.spans)
            values = [shares.of(share) for share in facts.building.columns]
            assert broken(program, values) == [], (seed, strategy, times)
            looked_at += 1
            again += execution.repeated > 0
            moved += bool(times.offloads)
    assert looked_at > 200
    assert again > 100
    assert moved > 50


@by_seeds(0, 20, 20)
def test_joint_facts_are_those_that_verification_takes(seeds: range) -> None:
    """Both state them on their own: the same places, and the same numbers in each."""
    for seed in seeds:
        problem = drawn(seed)
        network = problem.computed
        assert network is not None
        facts = joint_facts(problem, every_moment=seed % 5 == 0)
        moments, joined = facts.grid.moments, facts.grid.joined
        cuts, states = Cuts(moments, joined, len(network)), States(network, problem.offload)
        memory = problem.platform.memory
        model = JointModel(problem, states, cuts, rooms(states, cuts, memory, whole=True))
        offered = dict(offered_facts(model))
        stated = {
            (family, place): facts.fact(family, place) for family, place in facts.every_place()
        }
        assert set(stated) == set(offered)
        shares = list(facts.building.columns)

        def unleft(key: tuple[str, int, int], facts: JointFacts = facts) -> bool:
            """Return whether nothing of a state can have left, which verification knows later."""
            return key[0] == "left" and facts.left(key[1], key[2]) == 0

        for (family, place), row in stated.items():
            if family in ("link", "out", "in"):
                continue
            terms, low, _ = facts.building.rows[row]
            per = max(memory, 1) if family in ("memory", "outputs") else 1
            mine = {shares[c]: Fraction(-f, per) for c, f in terms}
            assert low is not None
            theirs = {
                ("left", key[2], key[1]) if key[0] == "left" else key: price
                for key, price in offered[family, place].items()
                if key is not None and price and not unleft(key)
            }
            assert mine.keys() == theirs.keys(), (family, place)
            assert all(float(mine[key]) == pytest.approx(theirs[key]) for key in mine)
            constant = offered[family, place].get(None, 0.0)
            assert float(Fraction(low, per)) == pytest.approx(constant), (family, place)


@pytest.mark.slow
def test_joint_bounds_are_proved_by_their_certificates() -> None:
    """Also by cases; what the program states is no more than the least time."""
    branched = 0
    for number, (problem, bound, best) in enumerate(joint_proofs("joint-lp")):
        proof = proof_of(bound.method, bound.details)
        for every in (False, True):
            argument = joint_argument(problem, bound.value, proof, every)
            assert proved_in_vipr(argument) == bound.value
            branched += len(argument.nodes) > 1
            with pytest.raises(InputError, match="its weights prove"):
                ViprCertificate(replace(argument, value=best + 1))
            if number % 3 == 0 or len(argument.nodes) > 1:
                assert bound.value - 1e-6 <= least(argument.program) <= best + 1e-6
    assert branched


def proof_of(method: str, details: object) -> JointProof:
    """Return the proof in a bound's details."""
    assert isinstance(details, dict)
    proof: Proof = PROOFS[method].proof.read(details)
    assert isinstance(proof, JointProof)
    return proof
