"""What has to be kept within some bytes: finder and verifier by themselves, and brute force."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.computations import Computation, Value
from offcert.core.network import Network, sources
from offcert.core.platform import Link, Platform
from offcert.formulations.rematerialisation.least_memory import (
    CutFinder,
    StayingFacts,
    single_run_bound,
)
from offcert.proofs.kinds.computed import Computed, LeastMemoryCut
from offcert.proofs.registry import proved
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.verification.execution import at_start, needs_of
from offcert.verification.findings import recheck
from offcert.verification.least_memory import FlowNetwork, KeptValues, cut_bytes
from offcert.verification.limits import UNLIMITED, Allowance, BeyondLimitsError, Limits
from support.networks.changing_networks import changing_network
from support.oracles.joint import least_time
from support.oracles.rematerialisation import RematerialisationOracle
from support.problems.random_networks import checkpoint_chain, random_network
from support.seeds import by_seeds


def bytes_problem(rng: random.Random, network: Network) -> Problem:
    """Return the problem of least memory of a network, with or without deadline and transfers."""
    platform = Platform(
        1, rng.choice((Fraction(1, 2), Fraction(1), Fraction(3))), rng.choice(tuple(Link))
    )
    spare = rng.choice((None, 0, 2, 5, 9))
    return Problem(
        "bytes",
        network,
        platform,
        recompute=rng.choice((Recompute.NONE, Recompute.ANY, Recompute.ANY, Recompute.ANY)),
        offload=rng.random() < 0.5,
        minimise=Minimise.MEMORY,
        deadline=None if spare is None else network.compute_time + spare,
    )


def networks(seed: int) -> Network:
    rng = random.Random(seed)
    if seed % 3 == 0:
        return changing_network(rng, 2 + seed % 5)
    if seed % 3 == 1:
        return checkpoint_chain(rng, rng.randint(3, 7)).network()
    return random_network(rng, rng.randint(3, 8))


@pytest.mark.slow
@by_seeds(0, 60, 60)
def test_finder_and_verifier_conclude_the_same_at_every_limit(seeds: range) -> None:
    kinds = set()
    for seed in seeds:
        rng, network = random.Random(seed), networks(seed)
        problem = bytes_problem(rng, network)
        needs, facts = needs_of(problem, network), StayingFacts(problem, network)
        assert needs.own == list(network.own_memory)
        assert at_start(needs) == network.size_of(sources(network))
        limits = range(-1, network.trace().peak_memory + 1)
        for memory in rng.sample(limits, min(len(limits), 9)):
            found = facts.follow(memory)
            known = KeptValues(network, needs, memory, UNLIMITED.begin())
            assert (found.refuted, found.last_again.tolist()) == (known.refuted, known.last_again)
            kinds.add((found.refuted, memory < max(needs.own), max(known.last_again) >= 0))
            turn = rng.randrange(len(network))
            proof = LeastMemoryCut(
                computation=turn,
                unit=rng.randint(1, 3),
                computing_price=rng.randint(0, 4),
                moving_price=rng.randint(0, 4),
            )
            if problem.deadline is None:
                proof = replace(proof, computing_price=0, moving_price=0)
            finder = CutFinder(problem, network, turn, known.last_again)
            cut = cut_bytes(problem, network, needs, known.last_again, proof)
            assert finder.bytes_at(proof) == cut
            # One byte more than the limit is what follows from either.
            for method, said, holds in (
                ("least-memory-kept", Computed(), found.refuted),
                ("least-memory-cut", proof, found.refuted or cut > memory),
            ):
                claim = proved(method, memory + 1, said)
                assert (recheck(claim, problem) is None) is holds
    assert len(kinds) == 6


def accepted(problem: Problem, method: str, proof: Computed | LeastMemoryCut, most: int) -> int:
    """Return the most bytes that the verifier takes a proof for."""
    return max(v for v in range(most + 1) if recheck(proved(method, v, proof), problem) is None)


@by_seeds(0, 60, 30)
def test_the_most_that_is_ever_accepted_is_at_most_brute_force(seeds: range) -> None:
    """For any cut at any prices, and for what is kept, one byte less is enough for nobody."""
    more = 0
    for seed in seeds:
        rng = random.Random(seed)
        network = changing_network(rng, 2 + seed % 2)
        problem = replace(bytes_problem(rng, network), recompute=Recompute.ANY)
        peak = network.trace().peak_memory
        most = accepted(problem, "least-memory-kept", Computed(), peak + 2)
        for _ in range(3):
            proof = LeastMemoryCut(
                computation=rng.randrange(len(network)),
                unit=rng.randint(1, 3),
                computing_price=rng.randint(0, 4),
                moving_price=rng.randint(0, 3),
            )
            most = max(most, accepted(problem, "least-memory-cut", proof, peak + 2))
        more += most > single_run_bound(problem).value
        timed = replace(problem, minimise=Minimise.TIME, deadline=None).with_memory(
            max(most - 1, 0)
        )
        if problem.offload:
            best = least_time(timed, 1)
        else:
            found = RematerialisationOracle(network).least_time(most - 1)
            best = None if found is None else found[0]
        late = problem.deadline is not None and best is not None and best > problem.deadline
        assert most == 0 or best is None or late, seed
    assert more >= 3


def hand(computations: list[Computation], values: list[Value]) -> Problem:
    return Problem(
        "hand", Network(computations, values), Platform(1, Fraction(1)), recompute=Recompute.ANY,
        offload=False, minimise=Minimise.MEMORY,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("problem", "least"),
    [
        # A does not fit beside k. So a is there from S on at the latest, also during S.
        (
            hand(
                [
                    Computation("A", 1, 5, (), (0,)),
                    Computation("X", 1, 0, repeatable=False),
                    Computation("S", 1, 3, (), (1,), False),
                    Computation("D", 1, 0, (0, 1), (), False),
                ],
                [Value("a", 2), Value("k", 3)],
            ),
            8,
        ),
        # The input is there during the first run of all, which does not read it.
        (hand([Computation("A", 1, 6), Computation("B", 1, 0, (0,))], [Value("x", 3)]), 9),
    ],
)
def test_what_is_kept_is_there_from_the_first_run_on_that_it_outlasts(
    problem: Problem, least: int
) -> None:
    network = problem.computed
    assert network is not None
    assert RematerialisationOracle(network).least_memory() == least
    assert accepted(problem, "least-memory-kept", Computed(), least + 3) == least


def test_what_is_there_at_the_start_is_what_somebody_reads() -> None:
    values = [Value("x", 4), Value("nobody's", 3), Value("y", 5), Value("a", 0)]
    problem = hand([Computation("A", 1, 0, (0,), (3,)), Computation("B", 1, 0, (2,))], values)
    assert problem.computed is not None
    assert RematerialisationOracle(problem.computed).least_memory() == 9
    faults = [recheck(proved("least-memory-run", v, Computed()), problem) for v in (8, 9, 10)]
    assert [fault is None for fault in faults] == [False, True, False]


def test_what_takes_too_much_to_conclude_is_not_concluded() -> None:
    network = networks(2)
    needs = needs_of(bytes_problem(random.Random(2), network), network)
    entries = 2 * len(network) * len(network.values)
    KeptValues(network, needs, 5, Limits(memory=entries).begin())
    with pytest.raises(BeyondLimitsError, match="take too much memory"):
        KeptValues(network, needs, 5, Limits(memory=entries - 1).begin())
    with pytest.raises(BeyondLimitsError, match="3 seconds are over"):
        KeptValues(network, needs, 5, Allowance(Limits(3), deadline=0))


def test_a_cut_is_one_of_a_network_at_one_of_its_computations() -> None:
    problem = hand([Computation("A", 1, 6), Computation("B", 1, 0, (0,))], [Value("x", 3)])
    proof = LeastMemoryCut(computation=2, unit=1, computing_price=0, moving_price=0)
    said = str(recheck(proved("least-memory-cut", 3, proof), problem))
    assert said.startswith("details.computation must be below the number of computations, 2, not 2")
    traced = replace(problem, network=problem.trace, recompute=Recompute.NONE)
    assert "holds a trace" in str(recheck(proved("least-memory-cut", 3, proof), traced))


@pytest.mark.parametrize(
    ("least", "arcs"),
    [
        # Only if what was pushed goes back, by ways that end nowhere, and in part.
        (2, "021 038 241 357 467 472 566 611 714 765"),
        (8, "024 038 236 247 258 347 463 478 569 617 711"),
        (4, "021 038 244 259 346 473 569 619 719"),
        (2, "021 231 311 041 451 531 261 671 711"),
    ],
)
def test_a_cut_is_the_least_where_what_was_pushed_has_to_go_back(least: int, arcs: str) -> None:
    """The arcs are given by their ends and capacities."""
    flow = FlowNetwork(8)
    for tail, head, capacity in (map(int, arc) for arc in arcs.split()):
        flow.arc(tail, head, capacity)
    assert flow.least_cut() == least
