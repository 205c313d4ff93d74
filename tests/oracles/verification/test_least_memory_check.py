"""Bounds on bytes: never above brute force, established again, and refused one byte higher."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import networkx
import pytest

from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Link, Platform
from offcert.formulations.rematerialisation.least_memory import (
    cut_bound,
    kept_bound,
    single_run_bound,
)
from offcert.proofs.kinds.computed import Computed, LeastMemoryCut
from offcert.proofs.registry import proved
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.verification.findings import recheck
from offcert.verification.least_memory import FlowNetwork
from support.oracles.joint import least_time
from support.problems.least_memory import by_time, memory_bounds, memory_problem
from support.problems.random_networks import checkpoint_chain
from support.seeds import by_seeds


@pytest.mark.slow
@by_seeds(0, 60, 30)
def test_bounds_are_at_most_brute_force_and_often_equal(seeds: range) -> None:
    exact = 0
    for seed in seeds:
        problem, best = memory_problem(seed)
        bounds = memory_bounds(problem)
        for bound in bounds:
            assert bound.value <= best, (seed, bound)
            assert recheck(bound, problem) is None, (seed, bound)
            assert recheck(replace(bound, value=best + 1), problem) is not None
        exact += max(bound.value for bound in bounds) == best
    assert exact >= 20


@pytest.mark.slow
def test_bounds_hold_where_tensors_may_leave() -> None:
    """Brute force over executions, transfers included, finds none within less."""
    tried = 0
    for seed in range(8):
        rng = random.Random(seed)
        chain = checkpoint_chain(rng, 2)
        platform = Platform(5, rng.choice((Fraction(1), Fraction(3))))
        deadline = chain.network().compute_time + rng.choice((0, 2, 6))
        problem = Problem(
            "m", chain, platform, recompute=Recompute.ANY, minimise=Minimise.MEMORY,
            deadline=deadline,
        )  # fmt: skip
        bounds = memory_bounds(problem)
        assert [recheck(bound, problem) for bound in bounds] == [None] * len(bounds)
        # What does not fit into a byte less than the largest fits into less for none of them.
        most = max(bound.value for bound in bounds)
        timed = replace(problem, minimise=Minimise.TIME, deadline=None)
        if most > 0:
            least = least_time(timed.with_memory(most - 1))
            assert least is None or least > deadline, (seed, most)
            tried += 1
    assert tried >= 6


def test_without_recomputation_the_bound_is_the_peak_or_what_may_not_leave() -> None:
    for seed in range(20):
        problem, _ = memory_problem(seed)
        plain = replace(problem, recompute=Recompute.NONE, deadline=None)
        for each in (plain, replace(plain, offload=True), replace(plain, network=plain.trace)):
            bound = single_run_bound(each)
            assert bound.value == each.trace.least_memory
            assert recheck(bound, each) is None
            assert recheck(replace(bound, value=bound.value + 1), each) is not None
        assert single_run_bound(plain).value == plain.trace.peak_memory
        kept = kept_bound(plain)
        assert kept is None or kept.value <= plain.trace.peak_memory
        trace = replace(plain, network=plain.trace)
        assert "holds a trace" in str(recheck(proved("least-memory-kept", 1, Computed()), trace))


def test_what_does_not_fit_beside_a_gradient_has_to_stay() -> None:
    """Followed on paper in docs/theory/least-memory.md."""
    values = [Value("x", 1), Value("a", 2), Value("b", 4), Value("g", 3), Value("h", 0)]
    computations = [
        Computation("A", 5, 3, (0,), (1,)),
        Computation("B", 1, 0, (1,), (2,)),
        Computation("b", 1, 0, (2,), (3,), repeatable=False),
        Computation("a", 1, 0, (0, 1, 3), (4,), repeatable=False),
    ]
    network = Network(computations, values)
    problem = Problem(
        "paper", network, Platform(9, Fraction(1)), recompute=Recompute.ANY, offload=False,
        minimise=Minimise.MEMORY,
    )  # fmt: skip
    assert single_run_bound(problem).value == 7
    kept = kept_bound(problem)
    assert kept is not None
    assert kept.value == 9
    late = replace(problem, deadline=10)
    sooner = kept_bound(late)
    assert sooner is not None
    assert sooner.value == 10


def test_a_cut_at_prices_says_more_than_either_end() -> None:
    """Of ten values two can be made again in time, so eight are there when the backward begins."""
    values = [Value("x", 0)] + [Value(f"v{i}", 5) for i in range(10)] + [Value("g", 0)] * 1
    values += [Value(f"g{i}", 0) for i in range(10)]
    computations = [Computation(f"F{i}", 3, 0, (0,), (i + 1,)) for i in range(10)]
    computations.append(Computation("L", 1, 0, (0,), (11,), repeatable=False))
    computations += [
        Computation(f"B{i}", 1, 0, (i + 1, 11 if i == 0 else 11 + i), (12 + i,), repeatable=False)
        for i in range(10)
    ]
    network = Network(computations, values)
    problem = Problem(
        "prices", network, Platform(9, Fraction(1)), recompute=Recompute.ANY, offload=False,
        minimise=Minimise.MEMORY, deadline=network.compute_time + 6,
    )  # fmt: skip
    kept = kept_bound(problem)
    assert kept is None or kept.value < 40
    bound = cut_bound(problem, 5)
    assert bound is not None
    assert bound.value == 40
    assert recheck(bound, problem) is None
    assert "details.computation" in str(recheck(replace(bound, value=41), problem))
    nowhere = LeastMemoryCut(computation=99, unit=1, computing_price=0, moving_price=0)
    wrong = proved("least-memory-cut", 41, nowhere)
    assert "details.computation must be below" in str(recheck(wrong, problem))
    timed = replace(problem, minimise=Minimise.TIME, deadline=None)
    assert "it bounds memory" in str(recheck(bound, timed))


def test_least_cuts_are_those_of_networkx() -> None:
    rng = random.Random(3)
    for _ in range(60):
        nodes = rng.randint(2, 9)
        flow, graph = FlowNetwork(nodes), networkx.DiGraph()
        graph.add_nodes_from(range(nodes))
        for tail in range(nodes):
            for head in range(nodes):
                if tail != head and rng.random() < 0.4:
                    capacity = rng.randint(0, 10**12)
                    flow.arc(tail, head, capacity)
                    graph.add_edge(tail, head, capacity=capacity)
        assert flow.least_cut() == networkx.maximum_flow_value(graph, 0, 1)


@pytest.mark.parametrize(
    ("link", "offload", "deadline", "proved_bytes"),
    [
        # x may be made again (2 ticks at a price of 4), y may not in 2 spare ticks: 8 + 60 - 8.
        (Link.SIMPLEX, False, 13, 60),
        (Link.DUPLEX, False, 13, 60),
        # Both may leave (8 and 12 ticks at a price of 1), on a link that has 13, or twice 13.
        (Link.SIMPLEX, True, 13, 20 - 8 - 13),
        (Link.DUPLEX, True, 13, 20 - 8 - 26),
        # With all the time in the world nothing has to be there, whatever the prices.
        (Link.SIMPLEX, False, None, 0),
        (Link.SIMPLEX, True, None, 0),
    ],
)
def test_what_prices_prove_of_a_cut(
    link: Link, offload: bool, deadline: int | None, proved_bytes: int
) -> None:
    network = Network(
        [
            Computation("A", 2, writes=(0,)),
            Computation("B", 3, writes=(1,)),
            Computation("S", 5, repeatable=False),
            Computation("D", 1, reads=(0, 1), repeatable=False),
        ],
        [Value("x", 40), Value("y", 60)],
    )
    problem = Problem(
        "m", network, Platform(5, Fraction(10), link), recompute=Recompute.ANY, offload=offload,
        minimise=Minimise.MEMORY, deadline=deadline,
    )  # fmt: skip
    proof = LeastMemoryCut(computation=2, unit=1, computing_price=4, moving_price=1)
    said = recheck(proved("least-memory-cut", 1000, proof), problem)
    assert said is not None
    assert f"establish {proved_bytes} bytes where 1000 are claimed" in said


def test_bytes_by_time_rest_on_the_deadline_and_on_a_limit_just_below() -> None:
    problems = (memory_problem(seed)[0] for seed in range(1, 61, 2))
    problem, bound = next((each, found) for each in problems if (found := by_time(each)))
    ticks, limit = bound.details["ticks"], bound.details["limit"]
    assert recheck(bound, problem) is None
    for deadline in (ticks, ticks + 1):
        said = str(recheck(bound, replace(problem, deadline=deadline)))
        assert said.endswith(f"details.ticks {ticks} are within the deadline, {deadline}")
    said = str(recheck(bound, replace(problem, deadline=None)))
    assert said.endswith("it rests on a deadline, and the problem has none")
    said = str(recheck(replace(bound, value=limit + 2), problem))
    assert said.endswith(f"details.limit {limit} says nothing about {limit + 1} bytes")
