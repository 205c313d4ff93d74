"""Capturing a step: what it takes, what it leaves, what it refuses."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from offcert.core.errors import InputError
from offcert.core.result import SolveStatus
from offcert.core.units import format_size
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.result import Result
from offcert.report.text import describe_certificate
from offcert.runtime.capture import capture
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.profiling.profile import profile
from support.runtime.captured import compare, require_same, state_of


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 8), nn.Tanh())


def squared(model, x):
    return model(x).square().mean()


def traces_of(model):
    """Return what hooks, modes and graphs leave behind."""
    dictionaries = [
        {name: list(value) for name, value in vars(module).items() if "hooks" in name and value}
        for module in model.modules()
    ]
    return (
        dictionaries,
        [
            [*(p._backward_hooks or ()), *(p._post_accumulate_grad_hooks or ())]
            for p in model.parameters()
        ],
        torch._C._len_torch_dispatch_stack(),
        torch._C._autograd._top_saved_tensors_default_hooks(True),
        torch.is_grad_enabled(),
    )


@pytest.mark.parametrize("tensors", ["fake", "real"])
@pytest.mark.parametrize("where", ["none", "forward", "loss", "backward"])
def test_nothing_stays_behind(tensors, where):
    model = network()

    def fail(*arguments):
        raise ZeroDivisionError("on purpose")

    def run(model, x):
        if where == "forward":
            model[3].register_forward_hook(fail)
        y = model(x)
        if where == "backward":
            y.register_hook(fail)
        return fail() if where == "loss" else y.mean()

    before, state = traces_of(model), state_of(model)
    step = TrainingStep(model, run, lambda: torch.randn(4, 8))
    if where == "none":
        capture(step, tensors=tensors)
    else:
        with pytest.raises(InputError, match="Sequential cannot be captured: ZeroDivisionError"):
            capture(step, tensors=tensors)
    assert traces_of(model)[1:] == before[1:]
    assert traces_of(model)[0] == before[0]
    require_same(state, state_of(model))
    # Nothing that was computed is kept alive: no cycle through a graph holds it.
    reference = weakref.ref(model)
    del model, step, run
    gc.collect()
    assert reference() is None


def test_several_calls_and_several_backward_passes():
    def run(model, batches):
        first = squared(model, batches[0])
        second = squared(model, batches[1])
        first.backward()
        third = squared(model, batches[2])
        (second + third).backward()

    step = TrainingStep(network(), run, lambda: [torch.randn(4, 8) for _ in range(3)])
    outcome = compare(step).require_followed()
    found = outcome.problem.source["capture"]
    assert len(found["calls"]) == 3
    assert found["backward_passes"] == 2


def test_a_call_without_gradients_is_no_part_of_the_step():
    def run(model, x):
        with torch.no_grad():
            target = model(x)
        return (model(x) - target).square().mean()

    outcome = compare(TrainingStep(network(), run, lambda: torch.randn(4, 8))).require_followed()
    assert len(outcome.problem.source["capture"]["calls"]) == 1


def test_checkpointing_is_captured_as_it_runs():
    class Checkpointed(nn.Module):
        def __init__(self, on):
            super().__init__()
            self.parts = nn.ModuleList(network() for _ in range(4))
            self.on = on

        def forward(self, x):
            for part in self.parts:
                x = checkpoint(part, x, use_reentrant=False) if self.on else part(x)
            return x

    steps = [TrainingStep(Checkpointed(on), squared, torch.randn(64, 8)) for on in (False, True)]
    plain, checkpointed = [capture(step).trace for step in steps]
    assert checkpointed.peak_memory < 0.7 * plain.peak_memory
    again = [o.name for o in checkpointed.operations if o.name.startswith("R:")]
    # What needs nothing from the second run is not in it: the last Tanh of a part is.
    assert again
    assert not any(o.name.startswith("R:") for o in plain.operations)
    compare(steps[1]).require_followed()

    # Between the model's own second runs no plan can run anything again.
    problem = profile(steps[1], hardware="v100-pcie").with_memory("0%")
    said = describe_certificate(Certificate(problem, Result(SolveStatus.UNKNOWN, None)))
    least = format_size(problem.trace.least_memory, problem.units)
    assert f"moving alone needs {least}. For less memory switch its own checkpointing off" in said


def test_who_looks_at_values_is_captured_on_real_tensors():
    def run(model, x):
        return squared(model, x if x.sum() > 0 else -x)

    step = TrainingStep(network(), run, torch.ones(4, 8))
    assert capture(step).tensors == "real"
    with pytest.raises(InputError, match="DataDependentOutputException"):
        capture(step, tensors="fake")
    assert capture(TrainingStep(network(), squared, torch.ones(4, 8))).tensors == "fake"
    chosen = TrainingStep(network(), squared, torch.ones(4, 8), tensors="real")
    assert capture(chosen).tensors == "real"
    with pytest.raises(InputError, match='"auto", "fake" or "real", not \'none\''):
        TrainingStep(network(), squared, tensors="none")


def test_weights_on_meta_are_enough():
    with torch.device("meta"):
        model = network()
    found = capture(TrainingStep(model, squared, lambda: torch.randn(4, 8)))
    same = capture(TrainingStep(network(), squared, lambda: torch.randn(4, 8)))
    assert found.trace == same.trace
    assert all(parameter.is_meta for parameter in model.parameters())


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda model, x: 3.0, "must return the loss or None, not float"),
        (lambda model, x: x.sum(), "no parameter of the model requires a gradient"),
        (lambda model, x: model[0](x).sum(), "does not call the model"),
        (lambda model, x: (model(x), None)[1], "no backward pass goes through the model"),
        (lambda model, x: model(x[:, :3]).sum(), "Sequential cannot be captured: RuntimeError"),
    ],
)
@pytest.mark.parametrize("tensors", ["fake", "real"])
def test_what_is_no_training_step_is_refused(run, message, tensors):
    with pytest.raises(InputError, match=message):
        capture(TrainingStep(network(), run, torch.randn(4, 8)), tensors=tensors)


def test_a_lazy_module_has_to_be_run_once():
    model = nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.Linear(8, 8))
    step = TrainingStep(model, squared, lambda: torch.randn(4, 3))
    with pytest.raises(InputError, match=r"0\.weight has no shape yet: run the model once"):
        capture(step)
    assert type(model[0]) is nn.LazyLinear
    model(torch.randn(4, 3))
    capture(step)
