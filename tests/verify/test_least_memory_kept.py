"""What has to be kept within some bytes: finder and verifier by themselves, and brute force."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.core.problem import Minimise, Problem, Recompute
from offcert.formulations.rematerialisation.least_memory import StayingFacts, single_run_bound
from offcert.formulations.rematerialisation.memory_cut import CutFinder, Prices
from offcert.proofs.claims import proved
from offcert.proofs.kinds import Computed, LeastMemoryCut
from offcert.verify.least_memory.cut import cut_bytes
from offcert.verify.least_memory.flow import Flow
from offcert.verify.least_memory.kept import Kept
from offcert.verify.least_memory.needs import needs_of
from offcert.verify.limits import UNLIMITED, BeyondLimitsError, Limits
from offcert.verify.recheck import recheck
from tests.changing_networks import changing_network
from tests.joint_oracle import least_time
from tests.random_networks import checkpoint_chain, random_network
from tests.rematerialisation_oracle import RematerialisationOracle


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


def test_finder_and_verifier_conclude_the_same_at_every_limit() -> None:
    kinds = set()
    for seed in range(60):
        rng, network = random.Random(seed), networks(seed)
        problem = bytes_problem(rng, network)
        needs, facts = needs_of(problem, network), StayingFacts(problem, network)
        assert needs.own == list(network.own_memory)
        limits = range(-1, network.trace().peak_memory + 1)
        for memory in rng.sample(limits, min(len(limits), 9)):
            found = facts.follow(memory)
            known = Kept(network, needs, memory, UNLIMITED.begin())
            assert (found.refuted, found.last_again.tolist()) == (known.refuted, known.last_again)
            kinds.add((found.refuted, memory < max(needs.own), max(known.last_again) >= 0))
            turn = rng.randrange(len(network))
            prices = Prices(rng.randint(1, 3), rng.randint(0, 4), rng.randint(0, 4))
            if problem.deadline is None:
                prices = Prices(prices.unit, 0, 0)
            finder = CutFinder(problem, network, turn, known.last_again)
            proof = prices.proof(turn)
            cut = cut_bytes(problem, network, needs, known.last_again, proof)
            assert finder.bytes_at(prices) == cut
    assert len(kinds) == 6


def accepted(problem: Problem, method: str, proof: Computed | LeastMemoryCut, most: int) -> int:
    """Return the most bytes that the verifier takes a proof for."""
    return max(v for v in range(most + 1) if recheck(proved(method, v, proof), problem) is None)


def test_the_most_that_is_ever_accepted_is_at_most_brute_force() -> None:
    """For any cut at any prices, and for what is kept, one byte less is enough for nobody."""
    more = 0
    for seed in range(60):
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
    assert more >= 5


def test_what_takes_too_much_to_conclude_is_not_concluded() -> None:
    network = networks(2)
    needs = needs_of(bytes_problem(random.Random(2), network), network)
    entries = 2 * len(network) * len(network.values)
    Kept(network, needs, 5, Limits(memory=entries).begin())
    with pytest.raises(BeyondLimitsError, match="take too much memory"):
        Kept(network, needs, 5, Limits(memory=entries - 1).begin())


def test_a_cut_is_the_least_where_what_was_pushed_has_to_go_back() -> None:
    """The shortest way takes the arc in the middle; the most goes around it, on both sides."""
    flow = Flow(8)
    for tail, head in ((0, 2), (2, 3), (3, 1), (0, 4), (4, 5), (5, 3), (2, 6), (6, 7), (7, 1)):
        flow.arc(tail, head, 1)
    assert flow.least_cut() == 2
