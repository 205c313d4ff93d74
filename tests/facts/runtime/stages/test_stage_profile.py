from fractions import Fraction
from functools import partial

import pytest
import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.core.platform import Kind
from offcert.questions.schedule.plan import Plan
from offcert.runtime.device.store import HostStore
from offcert.runtime.hardware import HARDWARE, bandwidth
from offcert.runtime.pairs.train import train
from offcert.runtime.profiling.profile import profile as profile_by
from offcert.runtime.workloads.workload import Workload, load

profile = partial(profile_by, clock="stages")


def small(width: int = 8) -> nn.Module:
    """Build a network for tests that name it."""
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))


def not_a_module() -> int:
    return 3


def test_resnet50_in_full_size():
    problem = profile("resnet50", "32x3x224x224", hardware="v100-pcie")
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
    problem = profile(
        "gpt-tiny", (2, 16), hardware="t4", options={"layers": 1}, seed=3, loss="mean"
    )
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
    again = profile(
        workload.model,
        workload.input,
        hardware="t4",
        options=workload.options,
        seed=workload.seed,
        loss=workload.loss,
    )
    assert again == problem


def test_profiling_a_module_leaves_it_and_the_random_state_untouched():
    model = load("resnet18")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    problem = profile(model, "2x3x64x64", hardware="t4", name="mine")
    assert problem.name == "mine"
    assert problem.source["model"] is None
    assert all(torch.equal(before[n], t) for n, t in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(state, torch.get_rng_state())
    assert problem.trace == profile("resnet18", "2x3x64x64", hardware="t4").trace


def test_networks_by_import_path():
    problem = profile(f"{__name__}:small", "4x8", hardware="t4", options={"width": 16})
    sizes = {tensor.name: tensor.size for tensor in problem.trace.tensors}
    assert sizes["x1"] == sizes["x2"] == 4 * 16 * 4
    assert isinstance(load(f"{__name__}:small"), nn.Sequential)


def test_memory_defaults_to_the_devices_but_is_always_feasible():
    assert profile("resnet18", "2x3x64x64", hardware="t4", memory="5B").platform.memory == 5
    huge = profile("alexnet", "65536x3x224x224", hardware="t4")
    assert huge.trace.least_memory > HARDWARE["t4"].memory
    assert huge.platform.memory == huge.trace.least_memory


def test_mean_needs_no_labels():
    trace = profile(small(), "4x8", hardware="t4", loss="mean").trace
    assert "labels" not in {tensor.name for tensor in trace.tensors}


def test_each_direction_of_the_link_is_timed_on_its_own(monkeypatch):
    stores = []

    class Recorded(HostStore):
        def view(self, offset, size):
            stores.append(super().view(offset, size))
            return stores[-1]

    def copy_time(source, target):
        assert (source is stores[0]) != (target is stores[0])
        return 2**20 if target is stores[0] else 2**21

    monkeypatch.setattr(bandwidth, "HostStore", Recorded)
    monkeypatch.setattr(bandwidth, "copy_time", copy_time)
    platform = profile_by("gpt-tiny", "2x16", measure=True).platform
    assert (platform.rate(Kind.OFFLOAD), platform.rate(Kind.PREFETCH)) == (64, 32)


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
        ("torch.nn:LSTM", "2x3x4", {"input_size": 4, "hidden_size": 4}, "LSTM cannot be traced"),
    ],
)
def test_bad_requests_get_one_clear_sentence(model, shape, options, message):
    with pytest.raises(InputError, match=message) as caught:
        profile(model, shape, hardware="t4", options=options)
    assert "\n" not in str(caught.value)


def test_exactly_one_source_of_times_and_known_names():
    for choice in ({}, {"hardware": "t4", "measure": True}):
        with pytest.raises(InputError, match="exactly one of hardware and measure"):
            profile("resnet18", "2x3x64x64", **choice)
    with pytest.raises(InputError, match="hardware must be one of"):
        profile("resnet18", "2x3x64x64", hardware="abacus")
    with pytest.raises(InputError, match="loss must be"):
        profile("resnet18", "2x3x64x64", hardware="t4", loss="hinge")
    with pytest.raises(InputError, match="dtype must be"):
        profile("resnet18", "2x3x64x64", hardware="t4", dtype="float31")


def test_stages_are_neither_measured_nor_trained():
    with pytest.raises(InputError, match="takes its times from a hardware model"):
        profile(small(), "4x8", measure=True)
    problem = profile(small(), "4x8", hardware="t4", loss="mean")
    with pytest.raises(InputError, match="is a problem of stages, for the papers' algorithms"):
        train(problem, Plan(), model=small())


def test_models_in_the_working_directory_can_be_named(tmp_path, monkeypatch):
    name = "network_only_found_in_the_working_directory"
    source = "from torch import nn\n\ndef build():\n    return nn.Linear(4, 2)\n"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry for entry in __import__("sys").path if entry])
    assert isinstance(load(f"{name}:build"), nn.Linear)
