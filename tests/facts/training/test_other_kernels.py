"""A plan for attention of another card is said to be one, once, before the first step."""

import logging
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import offcert
from offcert.runtime.plan.predict import predict
from offcert.runtime.watch.guard import OffloadWarning
from support.runtime.captured import evict_everything, mean_step


class Attention(nn.Module):
    """Attention with dropout, for which the CPU has no kernel of its own."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.dropout = dropout
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            y = layer(x)[:, None]
            x = scaled_dot_product_attention(y, y, y, dropout_p=self.dropout)[:, 0]
        return x


def test_scores_that_only_a_card_without_a_kernel_keeps_are_explained():
    model = Attention(dropout=0).to(torch.bfloat16)
    batch = torch.randn(2, 8, 16, dtype=torch.bfloat16)
    step = replace(mean_step(model, 2, 8, 16), batch=batch)
    problem = offcert.profile(step, hardware="v100-pcie")
    assert problem.source["attention"] == "math"
    plan = evict_everything(problem)
    problem = problem.with_memory(predict(problem.trace, plan).peak)
    with (
        pytest.warns(OffloadWarning, match=r"v100-pcie runs it \(math\).*profile it with measure"),
        offcert.offload(model, plan, problem),
    ):
        step.run(model, step.make_batch()).backward()


@pytest.mark.filterwarnings("ignore::offcert.runtime.watch.guard.OffloadWarning")
@pytest.mark.parametrize("here", [True, False])
def test_steps_captured_for_other_kernels_are_no_deviations_one_by_one(caplog, here):
    caplog.set_level(logging.INFO, "offcert.training")
    torch.manual_seed(0)
    model = Attention()
    step = replace(mean_step(model, 2, 8, 16), here=here)
    problem = offcert.profile(step, hardware="v100-pcie")
    plan = evict_everything(problem)
    problem = problem.with_memory(predict(problem.trace, plan).peak)
    with offcert.offload(model, plan, problem) as training:
        said = [record.getMessage() for record in caplog.records]
        for _ in range(3):
            model(torch.randn(2, 8, 16)).square().mean().backward()
    if here:
        assert said == []
        assert training.steps == {"planned": 3}
        return
    (line,) = said
    assert "was captured for attention as v100-pcie runs it (efficient)" in line
    assert training.steps == {"deviating": 1, "unplanned": 2}
    assert training.report.what in line
