"""Certificates of problems in which computations may run again, made without a long search."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from offcert.certification.search import Search
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.core.program import Program, Segment
from offcert.core.strategy import Strategy
from offcert.heuristics.evictions.rules import sequential
from offcert.proofs.any_certificate import Settings
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.simulate import simulate
from support.problems.random_networks import checkpoint_chain, random_network, random_strategy


def chain() -> CheckpointChain:
    """Return a chain of four stages that keep much beside their outputs."""
    return CheckpointChain(
        [3, 2, 2, 1], [4, 3, 3, 2], [8, 6, 6, 4, 1], [12, 9, 7, 2], [1, 2, 2, 2, 1]
    )


def network_problem(seed: int = 1, forward: int = 5) -> Problem:
    """Return a problem of a random network, with as much memory as it takes at most."""
    network = random_network(random.Random(seed), forward)
    problem = Problem(f"net-{seed}", network, Platform(0, Fraction(1)), recompute=Recompute.ANY)
    return problem.with_memory(problem.peak_memory)


def chain_problem(memory: int | None = None) -> Problem:
    """Return the problem of `chain`; by default with its peak."""
    problem = Problem("four", chain(), Platform(0, Fraction(2)), recompute=Recompute.ANY)
    return problem.with_memory(problem.peak_memory if memory is None else memory)


def certificate_of(problem: Problem, strategy: Strategy, memory: int | None = None) -> Certificate:
    """Return the certificate of a strategy, with offloads where it does not fit otherwise."""
    network = problem.computed
    assert isinstance(network, Network)
    execution = strategy.expand(network)
    limit = problem.platform.memory if memory is None else memory
    executed = problem.executed(execution).with_memory(limit)
    search = Search(problem, 10.0)
    assert search.offer_executed(execution, simulate(executed, sequential(executed)), memory)
    return search.certificate("certify", Settings(time_limit=10.0, seed=0))


def checkpointed(problem: Problem | None = None) -> Certificate:
    """Return a certificate of `chain_problem` whose first three stages run again."""
    problem = chain_problem() if problem is None else problem
    network = problem.computed
    assert network is not None
    strategy = Program([Segment(0, 2)]).strategy(network).without_unread(network)
    least = problem.executed(strategy.expand(network)).trace.least_memory
    return certificate_of(problem.with_memory(least), strategy)


def least_memory_certificate(deadline: int | None = None) -> Certificate:
    """Return a certificate of the same chain whose objective is its bytes."""
    problem = replace(chain_problem(), minimise=Minimise.MEMORY, deadline=deadline)
    network = problem.computed
    assert network is not None
    strategy = Program([Segment(0, 2)]).strategy(network).without_unread(network)
    least = problem.executed(strategy.expand(network)).trace.least_memory
    return certificate_of(problem, strategy, least)


def random_certificate(seed: int) -> Certificate:
    """Return a certificate of a random network or chain in which something runs again."""
    rng = random.Random(seed)
    network = random_network(rng, 5) if seed % 2 else checkpoint_chain(rng, 4).network()
    problem = Problem(f"random-{seed}", network, Platform(0, Fraction(1)), recompute=Recompute.ANY)
    strategy = random_strategy(rng, network)
    peak = problem.executed(strategy.expand(network)).trace.peak_memory
    return certificate_of(problem.with_memory(max(peak, problem.peak_memory)), strategy)
