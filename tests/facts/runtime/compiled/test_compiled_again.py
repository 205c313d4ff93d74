"""What runs again in compiled graphs: the same numbers, less saved, nothing changed twice."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import nn

from offcert.core.carried.carry import carry
from offcert.core.execution import Execution
from offcert.core.platform import Platform
from offcert.core.units import Units
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime.capture import capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.compiled.backend import Backend
from offcert.runtime.compiled.planned import planned
from offcert.runtime.plan.place import program_of
from offcert.runtime.segments.placed import Kept, PlacedProgram, PlacedSegment
from offcert.runtime.watch.guard import OffloadWarning
from support.runtime.captured import evict_everything
from support.runtime.compiled_cases import (
    RUNS,
    Graphs,
    as_it_is,
    loss_of,
    reference,
    same,
    step_of,
    train,
)


def segment(first: str, last: str, *kept: str, inner: Any = ()) -> PlacedSegment:
    """Return children of the model that run again."""
    return PlacedSegment(
        "", 0, (first, last), tuple(Kept("enter", each) for each in kept), tuple(inner)
    )


def executed(step: TrainingStep, *segments: PlacedSegment) -> tuple[Problem, Execution]:
    """Return the problem of a step, and what runs when segments of it run again."""
    found = capture(step)
    assert found.network is not None
    assert found.record is not None
    problem = Problem(
        "test",
        found.network,
        Platform(2 * found.trace.peak_memory, Fraction(1)),
        units=Units("ns", "B"),
        source={"clock": "modules", "capture": found.to_json()},
        recompute=Recompute.ANY,
    )
    program = program_of(PlacedProgram(segments), found.ranges, found.ticks)
    execution = carry(found.network, program, found.ranges, found.record, found.ticks).execution
    return problem, execution


def backend_for(
    step: TrainingStep, *segments: PlacedSegment, moves: bool = False, compiler: Any = as_it_is
) -> Backend:
    problem, execution = executed(step, *segments)
    plan = evict_everything(problem.executed(execution)) if moves else Plan()
    return Backend(planned(problem, plan, execution), compiler=compiler)


def names_run(graphs: Graphs, graph: int) -> set[str]:
    """Return the operators' nodes of a graph, as they are called in the joint graph, too."""
    return {n.name for n in graphs.modules[graph].graph.nodes if n.op == "call_function"}


CASES = {
    "mlp": [segment("0", "3")],
    "cnn": [segment("1", "3"), segment("5", "6")],
    "gpt": [PlacedSegment("0", kept=(Kept("enter", "0.mix"),))],
    "dropout": [segment("0", "2"), segment("3", "4")],
}


@pytest.mark.parametrize("name", CASES)
def test_training_is_bitwise_the_same_where_parts_run_again(name: str) -> None:
    # Statistics of batch norms are among what is compared, and random numbers are drawn again.
    step, graphs = step_of(name), Graphs()
    compiled = backend_for(step, *CASES[name], moves=True, compiler=graphs)
    found = train(step.model, step.batch, compiled)
    assert same(found, reference(name))
    report = compiled.report
    assert report.complete
    assert [each.tensor for each in report.carried if not each.exact] == []
    assert report.carried_bytes == compiled.planned.bytes_moved > 0
    again = [set(each.nodes) for each in report.again]
    assert all(again)
    assert len(again) == len(CASES[name])
    # They run in both graphs.
    for nodes in again:
        assert nodes <= names_run(graphs, 1)
        assert nodes & names_run(graphs, 0)


def test_operators_of_others_run_once_unless_they_were_declared_to_be_pure() -> None:
    step, graphs = step_of("counted"), Graphs()
    RUNS[0] = 0
    found = train(step.model, step.batch, backend_for(step, segment("0", "2"), compiler=graphs))
    # Once in each of two steps, and not in the backward passes.
    assert RUNS == [2]
    assert "cos_1" in names_run(graphs, 1)
    RUNS[0] = 0
    assert same(found, train(step.model, step.batch, backend_for(step, compiler=as_it_is)))
    step = step_of("declared")
    train(step.model, step.batch, backend_for(step, segment("0", "2"), compiler=graphs))
    assert any("declared" in str(node.target) for node in graphs.modules[3].graph.nodes)


def saved_by(graphs: Graphs, outputs: int = 1) -> list[str]:
    results = graphs.modules[0].graph.find_nodes(op="output")[0].args[0]
    return [node.name for node in results[outputs:] if node.op == "call_function"]


def test_what_runs_again_is_not_saved_and_what_is_kept_is() -> None:
    step = step_of("mlp")
    kinds = {
        (): {"relu", "tanh"},
        (segment("1", "4"),): {"addmm"},
        (segment("0", "3"),): {"tanh"},
        (segment("0", "4", "3"),): {"tanh"},
    }
    for segments, expected in kinds.items():
        graphs = Graphs()
        train(step.model, step.batch, backend_for(step, *segments, compiler=graphs), 1)
        # Views of them, and of parameters, are saved besides.
        assert set(saved_by(graphs)) & {"addmm", "addmm_1", "relu", "tanh"} == expected


def test_the_statistics_that_a_part_reads_again_are_those_of_the_first_time() -> None:
    class Counts(nn.Module):
        """Its results depend on what it changes."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.ones(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = torch.sin(x + self.seen) * x
            self.seen.add_(1)
            return found

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Counts(), nn.Tanh(), nn.Linear(8, 4))
    step = TrainingStep(model, loss_of, torch.randn(4, 8))
    # Offloading hooks refuse to run it again; a graph can.
    problem, execution = executed(step)
    plain = Backend(planned(problem, Plan(), execution), compiler=as_it_is)
    graphs = Graphs()
    compiled = Backend(planned(problem, Plan(), execution), compiler=graphs)
    object.__setattr__(compiled.planned, "segments", PlacedProgram([segment("1", "2")]))
    # Without a plan, PyTorch saves what depends on it; with it, a copy.
    assert same(train(model, step.batch, compiled), train(model, step.batch, plain))
    assert any("clone" in name for name in saved_by(graphs, 2))
    assert "sin" in names_run(graphs, 1)


def test_parts_inside_of_parts_are_told() -> None:
    step = step_of("gpt")
    inner = PlacedSegment("0.feed")
    compiled = backend_for(step, PlacedSegment("0", inner=(inner,)))
    with pytest.warns(OffloadWarning, match=r"0\.feed inside of it runs again with it"):
        found = train(step.model, step.batch, compiled)
    assert same(found, reference("gpt"))
    assert not compiled.report.complete


def test_parts_that_a_graph_lacks_are_told() -> None:
    step = step_of("mlp")
    compiled = backend_for(step, segment("0", "1"))
    object.__setattr__(compiled.planned, "segments", PlacedProgram([PlacedSegment("nowhere")]))
    with pytest.warns(OffloadWarning, match="nowhere does not run again: no node"):
        train(step.model, step.batch, compiled, 1)
