"""Networks as graphs, and what is stored there as strategies: always legal."""

from __future__ import annotations

import random

import pytest

from offcert.core.computations import Computation, Value
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.heuristics.checkpoint.arbitrary import arbitrary_graph_solver
from offcert.heuristics.checkpoint.graph_networks import NetworkGraph, graph_of
from offcert.questions.selection.graph import CheckpointGraph
from offcert.verification.execution import execution_faults
from papers.checkpoint_graphs.least import least_selection
from support.problems.random_networks import checkpoint_chain, random_network


def step(*forward: tuple[tuple[int, ...], tuple[int, ...]], values: list[Value]) -> Network:
    """Return forward computations (reads, writes) and a backward one for each that reads both."""
    found = [Computation(f"F{i}", 1, 0, reads, writes) for i, (reads, writes) in enumerate(forward)]
    for i, (reads, writes) in reversed(list(enumerate(forward))):
        both = tuple(sorted({*reads, *writes}))
        found.append(Computation(f"B{i}", 1, 0, both, (), repeatable=False))
    return Network(found, values)


def numbered(made: NetworkGraph) -> list[tuple[int, ...]]:
    return list(made.computations)


def test_a_chain_by_hand() -> None:
    """Input, three tensors; the last is the target: read by nothing in the forward pass."""
    values = [Value(name, size) for name, size in (("x", 9), ("a", 2), ("b", 3), ("c", 4))]
    made = graph_of(step(((0,), (1,)), ((1,), (2,)), ((2,), (3,)), values=values))
    assert made.graph == CheckpointGraph(
        [0, 2, 3, 4], [(0, 1), (1, 2), (2, 3)], ["start", "F0", "F1", "F2"]
    )
    assert numbered(made) == [(), (0,), (1,), (2,)]
    nothing = made.strategy(made.graph.select(()))
    # What B2 needs of b comes from a and from the input: both run again before it.
    assert nothing.order == (0, 1, 2, 0, 1, 3, 4, 5)
    assert made.strategy(made.graph.select([1])).order == (0, 1, 2, 1, 3, 4, 5)
    # B2 reads b, c, and x is there; a is 2: at first sight as much as in the plain step.
    assert made.live_bytes(made.graph.select([1, 2])) == made.network.trace().peak_memory


def test_components_run_again_only_when_they_are_needed() -> None:
    """Two branches: the second one is needed first and is lost before the first one runs again."""
    values = [Value("x", 1), Value("a", 50), Value("b", 40), Value("y", 1)]
    network = Network(
        [
            Computation("Fa", 1, 0, (0,), (1,)),
            Computation("Fb", 1, 0, (0,), (2,)),
            Computation("Fy", 1, 0, (1, 2), (3,)),
            Computation("By", 1, 0, (3,), (), repeatable=False),
            Computation("Bb", 1, 0, (2,), (), repeatable=False),
            Computation("Ba", 1, 0, (1,), (), repeatable=False),
        ],
        values,
    )
    made = graph_of(network)
    selection = made.graph.select(())
    assert selection.components == ((1,), (2,))
    assert made.strategy(selection).order == (0, 1, 2, 3, 1, 4, 0, 5)


def test_what_is_changed_in_place_is_stored_with_its_changes() -> None:
    values = [Value("x", 1), Value("a", 5), Value("a'", 0, False, 1), Value("b", 3)]
    made = graph_of(
        Network(
            [
                Computation("norm", 1, 0, (0,), (1,)),
                Computation("relu_", 1, 0, (1,), (2,)),
                Computation("conv", 1, 0, (1, 2), (3,)),
                Computation("B", 1, 0, (1, 2, 3), (), repeatable=False),
            ],
            values,
        )
    )
    assert numbered(made) == [(), (0, 1), (2,)]
    assert made.graph.sizes == (0, 5, 3)
    assert made.strategy(made.graph.select(())).order == (0, 1, 2, 0, 1, 3)


def test_who_reads_before_a_change_goes_with_it() -> None:
    """Run again alone, the reader would find the value changed."""
    values = [Value("x", 1), Value("a", 5), Value("b", 3), Value("a'", 0, False, 1), Value("c", 2)]
    network = Network(
        [
            Computation("Fa", 1, 0, (0,), (1,)),
            Computation("Fb", 1, 0, (1,), (2,)),
            Computation("add_", 1, 0, (1, 2), (3,)),
            Computation("Fc", 1, 0, (1, 3), (4,)),
            Computation("B", 1, 0, (1, 2, 3), (), repeatable=False),
        ],
        values,
    )
    made = graph_of(network)
    assert numbered(made) == [(), (0, 1, 2), (3,)]
    execution = made.strategy(made.graph.select(())).expand(network)
    assert execution_faults(network, execution) == []


def test_several_outputs_have_an_end_of_their_own() -> None:
    values = [Value("x", 1), Value("a", 5), Value("b", 3)]
    made = graph_of(step(((0,), (1,)), ((0,), (2,)), values=values))
    assert made.graph.names == ("start", "F0", "F1", "end")
    assert made.graph.sizes == (0, 5, 3, 0)


@pytest.mark.slow
def test_strategies_of_random_selections_are_legal() -> None:
    rng = random.Random(1)
    repeated = 0
    for index in range(300):
        chain = checkpoint_chain(rng, rng.randint(1, 6)).network()
        network = random_network(rng, rng.randint(1, 8)) if index % 4 else chain
        made = graph_of(network)
        selection = made.graph.select([v for v in made.graph.inner if rng.random() < 0.5])
        execution = made.strategy(selection).expand(network)
        assert execution_faults(network, execution) == []
        assert made.live_bytes(selection) == execution.trace.peak_memory
        repeated += execution.repeated
        everything = made.graph.select(made.graph.inner)
        assert made.strategy(everything).expand(network).repeated == 0
    assert repeated > 300


def test_a_long_chain_takes_less_live_memory() -> None:
    """Sixteen equal tensors, no gradients: the model's saving is one of live bytes."""
    values = [Value(f"v{i}", 10) for i in range(18)]
    network = step(*[((i,), (i + 1,)) for i in range(17)], values=values)
    made = graph_of(network)
    found = arbitrary_graph_solver(made.graph).selection
    assert found.objective == least_selection(made.graph).selection.objective == 70
    plain = network.trace().peak_memory
    assert plain == 180
    # Both ends are there, too, and what is lost already does not count.
    assert made.live_bytes(found) <= found.objective + 20


def test_a_network_without_forward_computations_is_refused() -> None:
    backward = Computation("B", 1, 0, (0,), (), repeatable=False)
    with pytest.raises(InputError, match="no computation that writes something"):
        graph_of(Network([backward], [Value("x", 1)]))
