"""Problems from captured training steps: what is recorded of them, and what is left untouched."""

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import nn

from offcert.certification.ladder import certify
from offcert.core.errors import InputError
from offcert.core.platform import Kind, Link
from offcert.questions.schedule.files import read_problem, write_problem
from offcert.questions.schedule.problem import Recompute
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.host import HostStore
from offcert.runtime.hardware import HARDWARE, bandwidth
from offcert.runtime.profiling.profile import profile
from offcert.runtime.workloads.standard_step import standard_step
from offcert.runtime.workloads.workload import Workload, load
from offcert.verification.document import verify
from offcert_lab.stages.linearise import trace_module, vocabulary
from offcert_lab.stages.problem import stage_problem
from support.networks import own_steps
from support.runtime.captured import require_same, state_of

OWN = "support.networks.own_steps"


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), nn.Linear(16, 3))


# 195 parameters of 4 bytes; the batch has 4 x 8 floats and 4 labels of 8 bytes.
PARAMETERS, BATCH = 780, 160


def test_modules_are_the_default_and_the_source_says_what_was_done():
    problem = profile("gpt-tiny", "2x16", hardware="t4", options={"layers": 1}, seed=3)
    source = dict(problem.source)
    capture = source.pop("capture")
    assert source == {
        "model": "gpt-tiny",
        "options": {"layers": 1},
        "input": [2, 16],
        "dtype": "float32",
        "loss": "cross-entropy",
        "seed": 3,
        "clock": "modules",
        "uncounted": {
            "parameters": source["uncounted"]["parameters"],
            "gradients": source["uncounted"]["parameters"],
            "buffers": source["uncounted"]["buffers"],
            "batch": 2 * 2 * 16 * 8,
        },
        "hardware": "t4",
        "efficiency": {"convolution-float16": "0.63"},
        "measured": False,
        "torch": torch.__version__.partition("+")[0],
    }
    model = load("gpt-tiny", {"layers": 1})
    assert source["uncounted"]["parameters"] == sum(p.nbytes for p in model.parameters())
    assert source["uncounted"]["buffers"] == sum(b.nbytes for b in model.buffers())
    assert (capture["tensors"], capture["device"]) == ("fake", "cpu")
    assert len(capture["ticks"]) == len(problem.trace)
    assert problem.name == "gpt-tiny 2x16"
    assert problem.platform.bandwidth == Fraction(HARDWARE["t4"].link_bandwidth, 10**9)


def test_what_can_run_again_may_unless_nothing_is_asked_to():
    asked = {"model": "gpt-tiny", "input_shape": "2x16", "hardware": "t4"}
    usual, papers = profile(**asked), profile(**asked, recompute="none")
    assert (usual.recompute, papers.recompute) == (Recompute.ANY, Recompute.NONE)
    assert (usual.network, usual.platform) == (papers.network, papers.platform)
    # Percentages are of the way from the least memory of the one or the other.
    assert usual.least_memory < papers.least_memory
    limits = [profile(**asked, memory="0%", recompute=each) for each in ("any", "none")]
    assert [each.platform.memory for each in limits] == [usual.least_memory, papers.least_memory]
    with pytest.raises(InputError, match=r'^recompute must be "any" or "none", not \'chain\'$'):
        profile(**asked, recompute="chain")


def test_the_plan_of_a_profile_recomputes_and_is_shorter_than_moving_alone():
    problem = profile("gpt-tiny", "4x32", hardware="v100-pcie").with_bandwidth("1GB/s")
    problem = problem.with_memory("50%")
    found = certify(problem, time_limit=1, workers=1)
    moving = certify(replace(problem, recompute=Recompute.NONE), time_limit=1, workers=1)
    assert found.result.execution.repeated > 0
    assert found.result.objective < 0.9 * moving.result.objective
    assert verify(found).valid


def test_clocks_cut_the_same_work_differently():
    name, shape = "gpt-tiny", "2x16"
    modules, operators = (
        profile(name, shape, hardware="t4", clock=clock).trace for clock in ("modules", "operators")
    )
    stages = stage_problem(name, shape, HARDWARE["t4"]).trace
    assert stages.compute_time == modules.compute_time == operators.compute_time
    assert modules.peak_memory == operators.peak_memory
    assert len(stages) < len(modules) < len(operators)
    assert operators.least_memory <= modules.least_memory < stages.least_memory


def test_the_source_is_enough_to_profile_again(tmp_path: Path):
    problem = profile(
        f"{OWN}:two_inputs",
        hardware="t4",
        options={"width": 16},
        clock="modules",
    )
    write_problem(tmp_path / "problem.json", problem)
    source = read_problem(tmp_path / "problem.json").source
    workload = Workload.from_source(source)
    assert workload.input is None
    again = profile(workload.model, hardware="t4", options=workload.options, clock=source["clock"])
    assert again == problem


def test_a_module_of_ones_own_is_profiled_as_the_zoos_and_left_as_it_was():
    model = load("gpt-tiny")
    weight = next(model.parameters())
    weight.grad = torch.ones_like(weight)
    before = state_of(model)
    problem = profile(model, "2x16", hardware="t4", name="mine")
    require_same(before, state_of(model))
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert problem.name == "mine"
    assert problem.source["model"] is None
    assert problem.trace == profile("gpt-tiny", "2x16", hardware="t4").trace


@pytest.mark.parametrize(
    ("name", "shape"),
    [("gpt-tiny", (2, 8)), ("resnet18", (2, 3, 64, 64))],
)
def test_batches_are_those_of_the_traced_rule(name, shape):
    workload = Workload(name, shape)
    model = workload.build(shapes_only=True)
    tokens = vocabulary(trace_module(workload.build()))
    inputs, labels = standard_step(workload.build(), workload).make_batch()
    assert inputs.shape == shape
    assert inputs.is_floating_point() is (tokens is None)
    assert standard_step(model, workload).source == workload.source()
    # A label for each token, or one for each image.
    assert labels.shape == (shape if tokens else shape[:1])


class TokensSeenLate(nn.Module):
    """Reshapes its input before the embedding, which tracing did not see through."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(x.flatten()).tanh())


def test_a_network_is_fed_with_tokens_if_an_embedding_gets_the_input():
    model = TokensSeenLate()
    inputs, labels = standard_step(model, Workload(None, (4, 50))).make_batch()
    assert inputs.dtype == torch.int64
    assert 0 <= inputs.min() < inputs.max() == 10
    assert labels.shape == (200,)
    assert labels.max() == 4
    assert not model.table._forward_pre_hooks


def test_steps_with_dictionaries_several_inputs_and_losses_of_their_own():
    problem = profile(f"{OWN}:two_inputs", hardware="t4", options={"width": 16})
    assert problem.name == f"{OWN}:two_inputs"
    assert problem.source["input"] is None
    assert "loss" not in problem.source
    assert problem.source["uncounted"]["batch"] == 64 * 8 * 4 + 64 * 16 * 4 + 64 * 8
    names = {operation.name for operation in problem.trace.operations}
    # The shared module is called twice, forward and backward.
    assert {"F:shared", "F:shared #2", "F:loss", "B:shared", "B:shared #2"} <= names


def test_a_step_object_is_left_as_it_was():
    step = own_steps.two_inputs(optimiser="Adam")
    before = state_of(step.model)
    problem = profile(step, hardware="t4", clock="operators")
    require_same(before, state_of(step.model))
    assert step.optimiser.state == {}
    assert problem.source["model"] is None
    assert problem.name == "TwoInputs"
    assert problem.source["clock"] == "operators"


def test_programs_that_look_at_values_are_captured_on_real_tensors_and_the_source_says_so():
    problem = profile(f"{OWN}:branching", "4x8", hardware="t4")
    assert problem.source["capture"]["tensors"] == "real"
    model = own_steps.Branching()
    before = state_of(model)
    assert before["attributes"][""]["calls"] == 0
    assert profile(model, "4x8", hardware="t4").trace == problem.trace
    require_same(before, state_of(model))


BIG = """
import resource, torch
from torch import nn
from offcert.runtime.profiling.profile import profile

def status(field):
    with open("/proc/self/status") as lines:
        line = next(line for line in lines if line.startswith(field))
    return int(line.split()[1]) * 1024

def layers(count, width):
    made = [nn.utils.skip_init(nn.Linear, width, width, bias=False) for _ in range(count)]
    return nn.Sequential(*(layer for one in made for layer in (one, nn.Tanh())))

# What is imported late is no part of the answer.
profile(layers(2, 8), (2, 8), hardware="t4")
model = layers(24, 4096)
assert sum(p.nbytes for p in model.parameters()) == 3 * 2**29
before = status("VmRSS")
# Neither is the batch.
problem = profile(model, (100_000, 4096), hardware="t4")
assert problem.source["uncounted"]["parameters"] == 3 * 2**29
print(status("VmHWM") - before)
"""


def test_profiling_weights_of_1_5_gib_takes_less_than_100_mib():
    # The high-water mark of a process of its own; nothing writes to the weights, so they are not
    # resident, and a copy of them would be.
    run = subprocess.run([sys.executable, "-c", BIG], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 100 * 2**20


def test_the_limit_of_a_device_is_less_what_the_trace_does_not_count():
    sizes = {"sgd": 0, "momentum": PARAMETERS, "adam": 2 * PARAMETERS + 4 * 4}
    for optimiser, state in (sizes | {"adamw": sizes["adam"]}).items():
        problem = profile(small(), "4x8", hardware="t4", device_memory=10**6, optimiser=optimiser)
        assert problem.source["uncounted"] == {
            "parameters": PARAMETERS,
            "gradients": PARAMETERS,
            "buffers": 0,
            "batch": BATCH,
            "optimiser": state,
        }
        assert problem.platform.memory == 10**6 - 2 * PARAMETERS - BATCH - state
    taken = 2 * PARAMETERS + BATCH
    exact = profile(small(), "4x8", hardware="t4", device_memory=taken, optimiser="sgd")
    assert exact.platform.memory == 0
    with pytest.raises(InputError, match=f"at least {taken} bytes, not {taken - 1}"):
        profile(small(), "4x8", hardware="t4", device_memory=taken - 1, optimiser="sgd")
    with pytest.raises(InputError, match="the optimiser's state, whose size is not known"):
        profile(small(), "4x8", hardware="t4", device_memory=10**6)


def test_frozen_parameters_have_neither_gradients_nor_optimiser_state():
    model = small()
    model[0].requires_grad_(False)
    uncounted = profile(model, "4x8", hardware="t4", optimiser="adam").source["uncounted"]
    trained = (16 * 3 + 3) * 4
    assert uncounted["parameters"] == PARAMETERS
    assert uncounted["gradients"] == trained
    assert uncounted["optimiser"] == 2 * trained + 2 * 4


def test_memory_defaults_to_what_the_device_has_left_but_is_always_feasible():
    assert profile(small(), "4x8", hardware="t4", memory="5B").platform.memory == 5
    left = HARDWARE["t4"].memory - 2 * PARAMETERS - BATCH
    assert profile(small(), "4x8", hardware="t4").platform.memory == left
    huge = profile("alexnet", "65536x3x224x224", hardware="t4")
    assert huge.trace.least_memory > HARDWARE["t4"].memory
    assert huge.platform.memory == huge.trace.least_memory


def test_measured_durations_are_those_of_the_device_at_hand_and_sizes_the_same():
    measured = profile("gpt-tiny", "2x16", measure=True)
    modelled = profile("gpt-tiny", "2x16", hardware="t4")
    assert measured.trace.tensors == modelled.trace.tensors
    assert measured.source["capture"] == modelled.source["capture"]
    assert measured.source["measured"] is True
    assert measured.source["hardware"] not in HARDWARE
    assert all(operation.duration > 0 for operation in measured.trace.operations)
    assert measured.trace.durations != modelled.trace.durations
    assert all(measured.platform.rate(kind) > 0 for kind in Kind)


@pytest.mark.parametrize(
    ("model", "shape", "options", "message"),
    [
        ("resnet19", "2x3x64x64", {}, "no network \"resnet19\""),
        ("resnet18", "2x3x64", {}, "ResNet cannot run on an input of 2x3x64"),
        ("resnet18", "2xthree", {}, "input must look like"),
        ("resnet18", None, {}, "input is missing, the shape of what resnet18 takes"),
        ("gpt-tiny", "2x64", {}, "cannot run on an input of 2x64"),
        ("nowhere:net", "2x3", {}, "model nowhere:net cannot be imported"),
        (f"{OWN}:missing", "2x3", {}, "cannot be imported"),
        (f"{OWN}:not_a_module", "2x3", {}, "must return an nn.Module or a TrainingStep, not"),
        (f"{OWN}:two_inputs", None, {"depth": 3}, "failed: TypeError"),
        (f"{OWN}:two_inputs", "2x3", {}, "input cannot be given with a TrainingStep"),
        ("torch.nn:ReLU", "2x3", {}, "no parameter of the model requires a gradient"),
        (
            "torch.nn:LSTM", "2x3x4", {"input_size": 4, "hidden_size": 4},
            "LSTM must return a tensor, not tuple: describe its training step with a TrainingStep",
        ),
    ],
)  # fmt: skip
def test_bad_requests_get_one_clear_sentence(model, shape, options, message):
    with pytest.raises(InputError, match=message) as caught:
        profile(model, shape, hardware="t4", options=options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of hardware and measure"),
        ({"hardware": "t4", "measure": True}, "exactly one of hardware and measure"),
        ({"hardware": "abacus"}, "hardware must be one of"),
        ({"hardware": "t4", "loss": "hinge"}, "loss must be"),
        ({"hardware": "t4", "dtype": "float31"}, "dtype must be"),
        (
            {"hardware": "t4", "clock": "hours"},
            'clock must be one of "modules", "operators", "graphs"',
        ),
        ({"hardware": "t4", "optimiser": "lyon"}, "optimiser must be one of sgd, momentum, adam"),
        ({"hardware": "t4", "memory": 1, "device_memory": 2}, "only one of memory and device"),
        ({"measure": True, "clock": "operators"}, "single operators cannot be measured"),
    ],
)
def test_contradictions_and_unknown_names_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        profile("resnet18", "2x3x64x64", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "mean"}, "loss cannot be given with a TrainingStep"),
        ({"dtype": "float64"}, "dtype cannot be given with a TrainingStep"),
    ],
)
def test_what_a_step_decides_itself_cannot_be_asked_for(options, message):
    with pytest.raises(InputError, match=message):
        profile(own_steps.two_inputs(), hardware="t4", **options)


def test_a_step_that_fails_says_why_in_one_sentence():
    step = TrainingStep(small(), lambda model, batch: model(batch).sum(), torch.zeros(4, 7))
    with pytest.raises(InputError, match="Sequential cannot be captured: RuntimeError") as caught:
        profile(step, hardware="t4")
    assert "\n" not in str(caught.value)


def test_links_serve_both_ways_at_once_where_that_was_measured() -> None:
    """An A100's moves 24 GB/s out and 12 back then; alone each way 24.4."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    found = {
        (card, link): profile(model, "2x8", hardware=card, loss="mean", link=link).platform
        for card in ("a100-80gb-sxm", "t4")
        for link in ("duplex", "simplex")
    }
    both = found["a100-80gb-sxm", "duplex"]
    assert (both.link, both.bandwidth, both.prefetch_bandwidth) == (Link.DUPLEX, 24, 12)
    alone = found["a100-80gb-sxm", "simplex"]
    assert alone.link is Link.SIMPLEX
    assert (alone.bandwidth, alone.prefetch_bandwidth) == (Fraction(244, 10), None)
    assert found["t4", "duplex"] == found["t4", "simplex"]
    with pytest.raises(InputError, match='link must be one of "simplex", "duplex"'):
        profile(model, "2x8", hardware="t4", link="half")


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
    platform = profile("gpt-tiny", "2x16", measure=True).platform
    assert (platform.rate(Kind.OFFLOAD), platform.rate(Kind.PREFETCH)) == (64, 32)


def test_models_in_the_working_directory_can_be_named(tmp_path, monkeypatch):
    name = "network_only_found_in_the_working_directory"
    source = "from torch import nn\n\ndef build():\n    return nn.Linear(4, 2)\n"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [entry for entry in __import__("sys").path if entry])
    assert isinstance(load(f"{name}:build"), nn.Linear)
