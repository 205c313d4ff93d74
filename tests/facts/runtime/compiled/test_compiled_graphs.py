"""Problems that are captured from compiled graphs, and plans for them carried out whole."""

import copy
import shutil
from typing import Any

import pytest
import torch
from torch import nn

import offcert
from offcert.core.computations import Run
from offcert.core.errors import InputError
from offcert.core.strategy import Strategy
from offcert.questions.schedule.plan import Plan
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.compiled.divided import DividedGraph
from offcert.runtime.compiled.graph_network import graphs_of, network_of
from offcert.runtime.watch.guard import OffloadWarning
from support.runtime.compiled_cases import (
    NETWORKS,
    RUNS,
    as_it_is,
    loss_of,
    moving_backend,
    plain,
    problem_of,
    reference,
    same,
    step_of,
    train,
)

SMALL = ("mlp", "cnn", "gpt", "dropout")


class Broken(nn.Module):
    """Two graphs, with something between them that no graph has."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.GELU())
        self.second = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)


NETWORKS["broken"] = (Broken, (16, 8))


@pytest.mark.parametrize("name", ["cnn", "dropout", "broken"])
def test_a_plan_for_graphs_is_carried_out_whole_and_bitwise(name: str) -> None:
    step, problem = step_of(name), problem_of(name)
    assert len(problem.source["compiled"]["graphs"]) == (2 if name == "broken" else 1)  # type: ignore[index]
    compiled = moving_backend(problem, as_it_is)
    found = train(step.model, step.batch, compiled)
    assert same(found, reference(name))
    report = compiled.report
    assert report.complete, str(report)
    assert report.carried_bytes == report.planned_bytes > 0
    # Of the network with random numbers, whatever may run again the least cut has already.
    assert report.again or name == "dropout"


def test_operators_of_others_run_once_as_nobody_knows_what_they_draw_or_keep() -> None:
    step, problem = step_of("counted"), problem_of("counted")
    RUNS[0] = 0
    found = train(step.model, step.batch, moving_backend(problem, as_it_is))
    # Once in each of two steps.
    assert RUNS == [2]
    RUNS[0] = 0
    assert same(found, train(step.model, step.batch, plain(problem, as_it_is)))


def test_operators_of_others_run_again_once_they_are_declared_to_be_pure() -> None:
    def again(name: str) -> list[bool]:
        [graph] = graphs_of(step_of(name))
        rows = [each for each in graph.sides[0] for n in each.nodes if name in str(n.target)]
        return [each.again for each in rows]

    assert again("counted") == [False]
    assert again("declared") == [True]


def uses_by_storages(graph: DividedGraph) -> dict[tuple[bool, int], set[int]]:
    """Return the operations that write or read each storage, from tensors without data alone.

    A storage of the forward graph is that of some input of the backward graph there; what both
    graphs make, they make twice.
    """
    found: dict[tuple[bool, int], set[int]] = {}
    forward, given = graph.forward.graph, graph.backward.graph.find_nodes(op="placeholder")
    names = {node.name for node in forward.nodes}
    saved = {node.meta["val"].untyped_storage()._cdata for node in given if node.name in names}
    for side, stretches in enumerate(graph.sides):
        for number, stretch in enumerate(stretches, side * (len(graph.sides[0]) + 1)):
            for node in stretch.nodes:
                for value in (n.meta["val"] for n in (*node.all_input_nodes, node)):
                    for each in value if isinstance(value, list | tuple) else [value]:
                        if isinstance(each, torch.Tensor):
                            key = each.untyped_storage()._cdata
                            found.setdefault((not side or key in saved, key), set()).add(number)
    return found


@pytest.mark.parametrize("name", SMALL)
def test_tensors_live_as_long_as_nodes_use_their_storages(name: str) -> None:
    [graph] = graphs_of(step_of(name))
    network = network_of([graph], lambda graph, stretch: 1)
    execution = Strategy(map(Run, range(len(network)))).expand(network)
    uses, nodes = uses_by_storages(graph), list(graph.made.values())
    for tensor, value in zip(execution.trace.tensors, execution.values, strict=True):
        storage = nodes[value].meta["val"].untyped_storage()
        expected = uses[nodes[value].graph is graph.forward.graph, storage._cdata]
        assert tensor.size == storage.nbytes()
        if tensor.evictable:
            assert set(tensor.uses) == expected
        else:
            # The caller holds results, and gradients come before they are read.
            assert tensor.uses[0] <= min(expected)
            assert tensor.uses[-1] >= max(expected)
    moved = {tensor.name for tensor in network.trace().tensors if tensor.evictable}
    assert moved
    # What random numbers are drawn for, and what a step changes, is computed once.
    for stretch in (each for side in graph.sides for each in side):
        names = {str(node.target) for node in stretch.nodes}
        if names & {"prims.inductor_seeds.default", "aten.copy_.default"}:
            assert not stretch.again


def test_another_model_follows_no_plan_and_is_told_why() -> None:
    problem = problem_of("mlp")
    compiled = moving_backend(problem, as_it_is)
    other = nn.Sequential(nn.Linear(8, 32), nn.Sigmoid(), nn.Linear(32, 4))
    with pytest.warns(offcert.runtime.watch.guard.OffloadWarning, match="none of those"):
        train(other, torch.randn(16, 8), compiled)
    assert not compiled.report.complete


def test_a_smaller_batch_trains_without_the_plan_and_is_told_why() -> None:
    step = step_of("mlp")
    compiled = moving_backend(problem_of("mlp"), as_it_is)
    runs = torch.compile(copy.deepcopy(step.model), backend=compiled)
    loss_of(runs, step.batch).backward()
    less = step.batch[:-1]
    loss = loss_of(runs, less)
    said = "its shapes are dynamic.*; of the graphs compiled before of the same code, 1 follow"
    with pytest.warns(OffloadWarning, match=said):
        loss.backward()
    assert compiled.report.before == (1, 0)
    assert torch.allclose(loss, loss_of(step.model, less))


def test_a_graph_that_runs_twice_is_refused() -> None:
    def run(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        return loss_of(model, batch) + loss_of(model, 2 * batch)

    step = TrainingStep(step_of("mlp").model, run, step_of("mlp").batch)
    with pytest.raises(InputError, match="runs 2 times"):
        offcert.profile(step, clock="graphs", hardware="v100-pcie")


@torch.library.custom_op("support::twice", mutates_args=())
def twice(values: torch.Tensor) -> torch.Tensor:
    """An operator without a gradient."""
    return 2 * values


@twice.register_fake
def _(values: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(values)


def _gradient(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
    raise ValueError("no gradient of twice is known")


twice.register_autograd(_gradient)


class Twice(nn.Linear):
    """A layer that the compiler fails at."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return twice(super().forward(values))


def test_the_failure_within_the_compiler_is_named() -> None:
    with pytest.raises(InputError, match=r"profiled: ValueError: no gradient of twice is known$"):
        offcert.profile(Twice(8, 8), "2x8", clock="graphs", hardware="v100-pcie")


def test_capturing_leaves_the_model_as_it_was() -> None:
    model = copy.deepcopy(step_of("cnn").model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graphs_of(TrainingStep(model, loss_of, step_of("cnn").batch))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(each.grad is None for each in model.parameters())


def test_only_a_hardware_model_gives_times() -> None:
    with pytest.raises(InputError, match="save-hardware"):
        offcert.profile(step_of("mlp"), clock="graphs", measure=True)


def test_hooks_do_not_follow_a_plan_for_graphs() -> None:
    problem = problem_of("mlp").with_memory("100%")
    with (
        pytest.raises(InputError, match=r"offcert\.backend"),
        offcert.offload(step_of("mlp").model, Plan(), problem),
    ):
        pass


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kernels_follow_a_plan_for_graphs_within_its_memory() -> None:
    # A compiler takes most of a second for each kernel; here are few, and what is fused across a
    # product takes more than the limit here, too.
    step, problem = step_of("mlp"), problem_of("mlp")
    compiled, without = moving_backend(problem, "inductor"), plain(problem, "inductor")
    found = train(step.model, step.batch, compiled)
    # What runs again beside other operators, or leaves, is fused and rounded otherwise.
    for one, other in zip(found, train(step.model, step.batch, without), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    assert compiled.report.complete
    assert compiled.report.within
    assert without.report.peak is not None
    assert 0.7 * problem.trace.peak_memory < without.report.peak <= problem.trace.peak_memory
