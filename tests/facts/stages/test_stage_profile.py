"""Problems of stages: what they hold, where they come from, and networks that are refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.core.platform import Link
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Recompute
from offcert.runtime.hardware import HARDWARE
from offcert.runtime.pairs.train import train
from offcert.runtime.workloads.workload import Workload, load
from offcert_lab.stages.problem import stage_problem
from support.networks import own_steps
from support.networks.shallow_networks import shallow

T4 = HARDWARE["t4"]


def small(width: int = 8) -> nn.Module:
    """Build a network for tests that name it."""
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))


def not_a_module() -> int:
    return 3


def test_resnet50_in_full_size():
    problem = stage_problem("resnet50", "32x3x224x224", HARDWARE["v100-pcie"])
    trace = problem.trace
    assert problem.name == "resnet50 32x3x224x224"
    assert (problem.units.time, problem.units.size) == ("ns", "B")
    assert problem.platform.bandwidth == Fraction(122, 10)
    assert problem.platform.memory == HARDWARE["v100-pcie"].memory
    assert len(trace) == 44
    sizes = {tensor.name: tensor.size for tensor in trace.tensors}
    assert sizes["x0"] == 32 * 3 * 224 * 224 * 4
    assert sizes["x1"] == sizes["x2"] == sizes["y2"] == 32 * 64 * 112 * 112 * 4
    # The pooling saves 64-bit indices.
    assert sizes["internals2"] == 32 * 64 * 56 * 56 * 8
    assert sizes["labels"] == 32 * 8
    # Batch norm and in-place ReLU: saved by the pooling and by the ReLU, needed by both backwards.
    assert next(t.uses for t in trace.tensors if t.name == "x2") == (1, 2, 41, 42)
    assert [o.name for o in trace.operations[:2]] == ["F:conv1", "F:bn1"]
    assert trace.operations[21].name == "F:loss"
    assert trace.operations[22].name == "B:loss"
    # At 14 Tflop/s its 3 x 8.2 Gflop an image alone take 56 ms.
    assert 56e6 < trace.compute_time < 150e6
    assert 2.4e9 < trace.peak_memory < 3.2e9


def test_source_is_enough_to_profile_again():
    problem = stage_problem("gpt-tiny", (2, 16), T4, options={"layers": 1}, seed=3, loss="mean")
    assert dict(problem.source) == {
        "model": "gpt-tiny",
        "options": {"layers": 1},
        "input": [2, 16],
        "dtype": "float32",
        "loss": "mean",
        "seed": 3,
        "hardware": "t4",
        "efficiency": {"convolution-float16": "0.63"},
        "measured": False,
        "torch": torch.__version__.partition("+")[0],
    }
    workload = Workload.from_source(problem.source)
    again = stage_problem(
        workload.model,
        workload.input,
        T4,
        options=workload.options,
        seed=workload.seed,
        loss=workload.loss,
    )
    assert again == problem


def test_profiling_a_module_leaves_it_and_the_random_state_untouched():
    model = load("resnet18")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    problem = stage_problem(model, "2x3x64x64", T4)
    assert problem.name == "ResNet 2x3x64x64"
    assert problem.source["model"] is None
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(state, torch.get_rng_state())
    assert problem.trace == stage_problem("resnet18", "2x3x64x64", T4).trace


def test_networks_by_import_path():
    problem = stage_problem(f"{__name__}:small", "4x8", T4, options={"width": 16})
    sizes = {tensor.name: tensor.size for tensor in problem.trace.tensors}
    assert sizes["x1"] == sizes["x2"] == 4 * 16 * 4
    assert isinstance(load(f"{__name__}:small"), nn.Sequential)


def test_memory_defaults_to_the_devices_but_is_always_feasible():
    huge = stage_problem("alexnet", "65536x3x224x224", T4)
    assert huge.trace.least_memory > HARDWARE["t4"].memory
    assert huge.platform.memory == huge.trace.least_memory


def test_mean_needs_no_labels():
    trace = stage_problem(small(), "4x8", T4, loss="mean").trace
    assert "labels" not in {tensor.name for tensor in trace.tensors}


@pytest.mark.parametrize(
    ("model", "shape", "options", "message"),
    [
        ("resnet19", "2x3x64x64", {}, 'no network "resnet19"'),
        ("resnet18", "2x3x64", {}, "cannot run on an input of 2x3x64"),
        ("resnet18", "2xthree", {}, "input must look like"),
        ("resnet18", "0x3x64x64", {}, "input must look like"),
        ("gpt-tiny", "2x64", {}, "cannot run on an input of 2x64"),
        ("nowhere:net", "2x3", {}, "model nowhere:net cannot be imported"),
        (f"{__name__}:missing", "2x3", {}, "cannot be imported"),
        (f"{__name__}:not_a_module", "2x3", {}, "must return an nn.Module or a Tra"),
        (f"{__name__}:small", "2x3", {"depth": 3}, "failed: TypeError"),
        ("torch.nn:ReLU", "2x3", {}, "no parameter of the model requires a gradient"),
        (own_steps.Branching(), "4x8", {}, "Branching cannot be traced"),
        ("torch.nn:LSTM", "2x3x4", {"input_size": 4, "hidden_size": 4}, "LSTM cannot be traced"),
    ],
)
def test_bad_requests_get_one_clear_sentence(model, shape, options, message):
    with pytest.raises(InputError, match=message) as caught:
        stage_problem(model, shape, T4, options=options)
    assert "\n" not in str(caught.value)


def test_stages_move_in_turn_are_computed_once_and_are_not_trained():
    problem = stage_problem(small(), "4x8", T4, loss="mean")
    assert problem.platform.link is Link.SIMPLEX
    assert problem.recompute is Recompute.NONE
    assert "uncounted" not in problem.source
    with pytest.raises(InputError, match="is a problem of stages, for the papers' algorithms"):
        train(problem, Plan(), model=small())


def test_the_stages_of_a_densenet_are_its_dense_layers_unless_blocks_are_asked_for():
    def found(**options):
        return stage_problem("densenet121", "2x3x32x32", T4, options=options)

    with shallow():
        fine, coarse = found(), found(stages="blocks")
    assert fine.source["options"] == {"stages": "layers"}
    assert coarse.source["options"] == {"stages": "blocks"}
    # 2, 3, 3 and 2 layers instead of 4 blocks, forwards and backwards.
    assert len(fine.trace) - len(coarse.trace) == 2 * (10 - 4)
    assert fine.trace.least_memory < coarse.trace.least_memory
