"""The step that stores tensors of a network: legal, within its limits, and better than plain."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from offcert.certification.ladder import certify
from offcert.certification.method import Effort
from offcert.certification.methods import solve
from offcert.certification.search import Search
from offcert.certification.search_steps.rematerialisation import descend_graphs
from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.heuristics.checkpoint.graph_networks import graph_of
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.selection.graph import CheckpointGraph
from offcert.verification.document import verify
from papers.checkpoint_graphs.random_graphs import random_checkpoint_graph
from papers.checkpoint_graphs.training_steps import training_step
from support.problems.random_networks import random_network
from support.seeds import by_seeds

EFFORT = Effort(5)
CHAIN = training_step(CheckpointGraph([0] + [4] * 8 + [0], [(v, v + 1) for v in range(9)]))


def problem_of(network: Network, memory: int, **fields) -> Problem:
    platform = Platform(memory, Fraction(1))
    return Problem("p", network, platform, recompute=Recompute.ANY, offload=False, **fields)


def searched(problem: Problem) -> Search:
    search = Search(problem, 20)
    descend_graphs(search, EFFORT)
    return search


def test_least_memory_of_a_chain() -> None:
    """Two of eight stored: 16 bytes of the model and two gradients."""
    search = searched(problem_of(CHAIN, 0, minimise=Minimise.MEMORY))
    assert search.objective == 24
    assert search.execution is not None
    assert search.execution.repeated > 0


def test_the_published_solver_is_a_method() -> None:
    """The same 24 bytes, by its name; the method has no bound of its own."""
    found = solve(problem_of(CHAIN, 0, minimise=Minimise.MEMORY), "arbitrary-graph")
    assert (found.method, found.result.objective) == ("arbitrary-graph", 24)
    assert verify(found).valid


def test_a_deadline_is_kept() -> None:
    problem = problem_of(CHAIN, 0, minimise=Minimise.MEMORY, deadline=CHAIN.compute_time + 4)
    search = searched(problem)
    assert search.execution is not None
    assert search.execution.repeated <= 4
    assert 24 < (search.objective or 0) <= CHAIN.trace().peak_memory


def test_least_time_within_the_memory() -> None:
    peak = CHAIN.trace().peak_memory
    times = [searched(problem_of(CHAIN, memory)).objective for memory in (23, 24, 32, peak)]
    assert times[0] is None
    assert times[-1] == CHAIN.compute_time
    found = [time for time in times if time is not None]
    assert found == sorted(found, reverse=True)
    assert found[0] > CHAIN.compute_time


@by_seeds(0, 40, 20)
def test_everything_offered_is_legal(seeds: range) -> None:
    """`Search` raises if an execution or a schedule is not."""
    rng = random.Random(2)
    better = 0
    for seed in seeds:
        graph = random_checkpoint_graph(seed, rng.randint(3, 10))
        network = random_network(rng, rng.randint(1, 8)) if seed % 2 else training_step(graph)
        search = searched(problem_of(network, 0, minimise=Minimise.MEMORY))
        assert search.objective is not None
        assert search.objective <= network.trace().peak_memory
        better += search.objective < network.trace().peak_memory
    assert better >= 4


def half_repeatable() -> Network:
    """A forward computation in the middle that may run once only, and reads what runs again."""
    rows = (
        ("F0", 2, 0, (), (0,), True, None),
        ("F1", 1, 0, (0,), (1,), False, None),
        ("F2", 4, 3, (0, 1), (2, 3), True, 1),
        ("F3", 1, 0, (), (4,), True, None),
        ("B0", 3, 0, (0, 3, 4), (), False, None),
    )
    computations = [
        Computation(name, ticks, workspace, reads, writes, again, lean=lean)
        for name, ticks, workspace, reads, writes, again, lean in rows
    ]
    return Network(computations, [Value(f"v{i}", size) for i, size in enumerate((3, 5, 5, 2, 1))])


def test_what_cannot_run_again_in_the_midst_reads_the_first_copies() -> None:
    """It used to run F2 again before F1 had made what it reads, which ended the whole search."""
    network = half_repeatable()
    made = graph_of(network)
    assert made.strategy(made.graph.select(())).order == (0, 1, 2, 3, 3, 0, 2, 4)
    certificate = certify(problem_of(network, 9), time_limit=2)
    assert certificate.notes.failed == {}
    assert verify(certificate.to_json()).valid


def test_a_network_in_which_nothing_can_run_again_is_left_alone() -> None:
    values = [Value("x", 1), Value("x'", 0, False, base=0)]
    network = Network([Computation("add_", 1, 0, (0,), (1,))], values)
    search = searched(problem_of(network, 0, minimise=Minimise.MEMORY))
    assert search.objective is None


def test_other_problems_are_left_alone() -> None:
    problem = problem_of(CHAIN, 100)
    for other in (replace(problem, recompute=Recompute.NONE),):
        search = Search(other, 20)
        descend_graphs(search, EFFORT)
        assert search.execution is None
        assert search.objective is None
