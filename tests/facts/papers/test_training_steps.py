"""Training steps on graphs of tensors, with gradients."""

from offcert.heuristics.checkpoint.graph_networks import graph_of
from offcert.questions.selection.graph import CheckpointGraph
from offcert.verification.execution import execution_faults
from papers.checkpoint_graphs.training_steps import training_step
from support.oracles.graphs import random_graphs


def test_the_graph_of_a_step_is_the_graph() -> None:
    for graph in random_graphs(60, most=8):
        made = graph_of(training_step(graph))
        assert made.graph.edges == graph.edges
        assert made.graph.sizes[1:] == graph.sizes[1:]
        selection = made.graph.select([v for v in made.graph.inner if v % 2])
        execution = made.strategy(selection).expand(made.network)
        assert execution_faults(made.network, execution) == []


def test_live_bytes_by_hand() -> None:
    """Sizes 1 2 4 8; the loss holds all tensors and the gradient of the last: 1+2+4+8+8."""
    chain = CheckpointGraph([1, 2, 4, 8], [(0, 1), (1, 2), (2, 3)])
    step = training_step(chain)
    # Its backward operation holds all tensors, that gradient, and that of its input: 23 + 4.
    assert step.trace().peak_memory == 27
    # If it does not need what it made, that is lost after the loss.
    assert training_step(chain, unread=[3]).trace().peak_memory == 23


def test_gradients_add_up_where_a_tensor_has_several_readers() -> None:
    diamond = CheckpointGraph([0, 5, 1, 1, 0], [(0, 1), (1, 2), (1, 3), (2, 4), (3, 4)])
    step = training_step(diamond)
    backward = {each.name: each for each in step.computations}
    # The second reader to come adds to the gradient that is there.
    assert backward["backward of 3"].workspace == 0
    assert backward["backward of 2"].workspace == 5
    assert execution_faults(step, graph_of(step).strategy(
        graph_of(step).graph.select(())).expand(step)) == []  # fmt: skip
