"""What a captured step reads, writes and changes, as a network."""

from __future__ import annotations

import torch
from torch import nn

from offcert.core.network import Network
from offcert.core.program import Program, Segment
from offcert.core.strategy import Strategy
from offcert.runtime.capture import Clock, capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.profiling.profile import profile
from offcert.verification.execution import execution_faults


class Residual(nn.Module):
    """Two convolutions around an in-place ReLU, and an in-place addition."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.second = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return self.second(self.relu(self.norm(self.first(x)))).add_(x)


def network_of(clock: Clock) -> Network:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), Residual(), nn.Flatten(), nn.Linear(1024, 2))
    batch = torch.randn(2, 3, 16, 16)
    step = TrainingStep(model, lambda model, batch: model(batch).sum().backward(), batch)
    captured = capture(step, clock=clock)
    assert captured.network is not None
    assert captured.network.trace() == captured.trace
    return captured.network


def called(network: Network, name: str) -> int:
    return next(i for i, each in enumerate(network.computations) if each.name == name)


def names(network: Network, values) -> set[str]:
    return {network.values[value].name for value in values}


def test_reads_and_writes_follow_the_data() -> None:
    network = network_of(Clock.MODULES)
    norm = network.computations[called(network, "F:1.norm")]
    assert names(network, norm.reads) == {"x:1.first"}
    assert "x:1.norm" in names(network, norm.writes)
    second = network.computations[called(network, "F:1.second")]
    assert names(network, second.reads) == {"x:1.norm", "x:1.norm'"}
    added = network.computations[called(network, "F:after 1.second")]
    assert names(network, added.reads) == {"x:1.second", "x:0"}
    assert second.repeatable
    assert added.repeatable


def test_changes_in_place_make_values_without_memory() -> None:
    network = network_of(Clock.MODULES)
    relu = network.computations[called(network, "F:1.relu")]
    assert names(network, relu.reads) == {"x:1.norm"}
    (made,) = relu.writes
    value = network.values[made]
    assert (value.size, network.values[value.base].name) == (0, "x:1.norm")


def test_backward_computations_know_whose_they_are() -> None:
    network = network_of(Clock.MODULES)
    of = {
        name
        for each in network.computations
        if not each.repeatable
        for name in (network.computations[index].name for index in each.of)
    }
    assert {"F:0", "F:1.first", "F:1.norm", "F:1.relu", "F:1.second", "F:3"} <= of


def test_the_loss_and_the_backward_pass_run_once() -> None:
    network = network_of(Clock.OPERATORS)
    again = {each.name: each.repeatable for each in network.computations}
    assert not again["F:model:sum"]
    assert again["F:3:addmm"]
    assert not any(repeats for name, repeats in again.items() if name.startswith("B:"))


def test_a_program_of_a_captured_network_is_legal() -> None:
    problem = profile("resnet18", "2x3x64x64", hardware="v100-pcie")
    network = problem.computed
    assert network is not None
    first, last = called(network, "F:layer1.0.conv1"), called(network, "F:layer1.0.relu #2")
    execution = Program([Segment(first, last)]).strategy(network).expand(network)
    assert execution_faults(network, execution) == []
    assert execution.repeated == last - first + 1
    plain = Strategy.plain(network).expand(network).trace
    assert execution.trace.demand[last + 5] < plain.demand[last + 5]
