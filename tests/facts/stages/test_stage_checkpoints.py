"""Stages as a chain that can run again: at every operation at least what the step takes."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.core.platform import Platform
from offcert.core.trace import Operation, Trace
from offcert.heuristics.combined.search import combined_plan
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime import zoo
from offcert.runtime.hardware import hardware
from offcert.runtime.workloads.workload import Workload
from offcert_lab.stages.recording import prepare, profile_stages
from papers.combined.checkpoints import chain_of_stages, lean_workspaces, profile_checkpoints

V100 = hardware("v100-pcie")


@pytest.mark.parametrize(("name", "shape"), [("resnet18", (2, 3, 64, 64)), ("gpt-tiny", (2, 32))])
def test_no_operation_takes_less_than_the_step(name: str, shape: tuple[int, ...]) -> None:
    with torch.device("meta"):
        model = zoo.build(name)
    workload = Workload(name, shape)
    trace = profile_stages(model, workload, V100).trace
    chain = profile_checkpoints(model, workload, V100)
    plain = chain.network().trace()
    assert plain.durations == trace.durations
    assert all(ours >= own for ours, own in zip(plain.demand, trace.demand, strict=True))
    # It is no caricature, either.
    assert plain.peak_memory <= 1.5 * trace.peak_memory
    assert sum(chain.extra) > 0
    assert chain.names[-1] == "loss"


class Residual(nn.Module):
    """A stage of its own: nothing crosses but its input."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 40, bias=False)
        self.down = nn.Linear(40, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.up(x).relu())


def test_what_a_stage_takes_without_keeping_anything() -> None:
    """Both wide maps are alive at once, before the output is, which the chain adds."""
    model = nn.Sequential(nn.Linear(8, 8, bias=False), Residual())
    prepared = prepare(model, Workload(None, (4, 8), loss="mean"))
    assert len(prepared.fake.stages) == 2
    wide, narrow = 4 * 40 * 4, 4 * 8 * 4
    assert lean_workspaces(prepared) == [0, 2 * wide - narrow]


def test_plans_of_networks_pass_the_checker() -> None:
    with torch.device("meta"):
        model = zoo.build("resnet18")
    chain = profile_checkpoints(model, Workload("resnet18", (4, 3, 64, 64)), V100)
    least, peak = max(chain.network().own_memory), chain.network().trace().peak_memory
    platform = Platform((least + peak) // 2, Fraction(61, 5))
    problem = Problem("resnet18", chain, platform, recompute=Recompute.CHAIN)
    plan = combined_plan(problem, 100)
    assert not check(problem.executed(plan.execution), plan.atomic(problem))
    alone = combined_plan(problem, 100, offload=False)
    assert plan.value <= alone.value


def test_half_a_stage_is_none() -> None:
    with pytest.raises(InputError, match="odd number of operations, 1"):
        chain_of_stages(Trace([Operation("F", 1)], []))
