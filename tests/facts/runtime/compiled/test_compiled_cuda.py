"""Plans in compiled graphs on CUDA."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from offcert.runtime.compiled.operators import OFFLOAD, RELOAD
from support.runtime.compiled_cases import (
    Graphs,
    as_it_is,
    leaving,
    loss_of,
    plain,
    problem_for,
    same,
    step_of,
    train,
)

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_training_on_cuda_is_bitwise_that_of_the_same_graphs(name: str) -> None:
    step = step_of(name)
    model, batch = copy.deepcopy(step.model).cuda(), step.batch.cuda()
    problem = problem_for(model, batch)
    graphs = Graphs()
    compiled = leaving(problem, compiler=graphs)
    assert same(train(model, batch, compiled), train(model, batch, plain(problem, as_it_is)))
    assert compiled.carried_bytes > 0
    moved = len(compiled.report.carried)
    assert graphs.count(OFFLOAD) == moved
    assert graphs.count(RELOAD) >= moved


def peak_of(model: nn.Module, batch: torch.Tensor, compiled: Any) -> int:
    torch._dynamo.reset()
    runs = torch.compile(model, backend=compiled)
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        loss_of(runs, batch).backward()
        model.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def test_memory_on_cuda_falls() -> None:
    layers = [layer for _ in range(8) for layer in (nn.Linear(512, 512), nn.Tanh())]
    model, batch = nn.Sequential(*layers).cuda(), torch.randn(16384, 512, device="cuda")
    problem = problem_for(model, batch)
    saved = sum(gap.tensor >= 0 for gap in problem.trace.gaps)
    assert saved >= 6
    with_plan = peak_of(model, batch, leaving(problem, strict=True))
    without = peak_of(model, batch, plain(problem, as_it_is))
    # Each of them takes 32 MiB.
    assert without - with_plan >= 3 * 2**25
