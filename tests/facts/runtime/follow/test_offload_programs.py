"""Whatever a forward pass does, training under a plan is plain training, bit by bit.

Each of these programs was trained differently, without a word, when a traced graph was replayed.
"""

import contextlib
import copy
import functools
import random
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from offcert.core.errors import PlanError
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.watch.signature import as_if_on
from support.runtime.captured import compare, evict_everything, mean_step, problem_of_step


class Layers(nn.Module):
    """A few layers whose activations have gaps; a test changes what happens between them."""

    def __init__(self, width=8, depth=4):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def between(self, index, x):
        return torch.sigmoid(x)

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = self.between(index, layer(x))
        return x


def test_no_grad_block():
    class Frozen(Layers):
        def between(self, index, x):
            with torch.no_grad():
                shift = torch.tanh(x * 3).mean(0)
            if index == 1:
                with torch.no_grad():
                    shift = shift + self.layers[0](x)
            return torch.sigmoid(x) + shift

    compare(mean_step(Frozen(), 4, 8)).require_followed()


def test_detach():
    class Detached(Layers):
        def between(self, index, x):
            return torch.sigmoid(x) * torch.sigmoid(x.detach())

    compare(mean_step(Detached(), 4, 8)).require_followed()


def test_autocast_block():
    class Mixed(Layers):
        def forward(self, x):
            x = torch.sigmoid(self.layers[0](x))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                x = torch.sigmoid(self.layers[1](x))
                x = torch.sigmoid(self.layers[2](x))
                with torch.autocast("cpu", enabled=False):
                    x = torch.sigmoid(self.layers[3](x.float()))
            return x

    outcome = compare(mean_step(Mixed(), 4, 8)).require_followed()
    dtypes = {row[2] for row in outcome.problem.source["capture"]["saved"]}
    assert dtypes == {"float32", "bfloat16"}


def test_mixed_precision_of_accelerate():
    # What `Accelerator.prepare` does to a model.
    model = Layers()
    forward = model.forward
    model.forward = functools.partial(_in_bfloat16, forward)
    step = TrainingStep(
        model,
        lambda model, x: model(x).float().square().mean(),
        lambda: torch.randn(4, 8),
    )
    # A copy would keep calling the forward of the original, so there is nothing to compare with.
    problem = problem_of_step(step)
    assert "bfloat16" in {row[2] for row in problem.source["capture"]["saved"]}
    plain = Layers()
    plain.forward = functools.partial(_in_bfloat16, plain.forward)
    with follow(model, evict_everything(problem), problem, FollowOptions(count=True)) as made:
        for _ in range(2):
            x = torch.randn(4, 8)
            step.run(model, x).backward()
            step.run(plain, x).backward()
            assert made.report.planned
            assert made.report.follows_prediction
            assert made.report.offloaded_bytes > 0
            for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
                assert torch.equal(ours.grad, theirs.grad)


def _in_bfloat16(forward, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return forward(x)


class Checkpointed(nn.Module):
    def __init__(self, width, reentrant):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, 4 * width), nn.Dropout(0.1), nn.ReLU(), nn.Linear(4 * width, width)
            )
            for _ in range(4)
        )
        self.reentrant = reentrant

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant):
    outcome = compare(mean_step(Checkpointed(8, reentrant), 16, 8)).require_followed()
    without = problem_of_step(mean_step(Checkpointed(8, None), 16, 8))
    # Held: a block's input each, and one block at a time.
    held = max(outcome.reports[0].at_begin)
    assert held <= outcome.reports[0].peak < 0.5 * without.trace.peak_memory
    assert outcome.problem.trace.peak_memory < 0.6 * without.trace.peak_memory


def test_forward_hooks_that_observe_and_that_change():
    model = Layers()
    model.seen = 0.0

    def observe(module, inputs, output):
        model.seen += float(output.detach().sum())

    def change(module, inputs, output):
        return output * 1.5

    def prepare(model):
        model.layers[1].register_forward_hook(functools.partial(_observe, model))
        model.layers[2].register_forward_hook(change)
        model.layers[2].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 0.5,))
        model.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))

    prepare(model)
    # `float` looks at values: such a step is captured on real tensors.
    compare(mean_step(model, 4, 8), tensors="real").require_followed()
    assert model.seen != 0


def _observe(model, module, inputs, output):
    model.seen += float(output.detach().sum())


def test_hooks_that_are_registered_after_the_capture():
    def prepare(model):
        model.layers[2].register_forward_hook(lambda module, inputs, output: torch.tanh(output))
        model.layers[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))

    outcome = compare(mean_step(Layers(), 4, 8), prepare=prepare)
    # The changed output is saved, too: more than was foreseen, and that is said.
    for report in outcome.reports:
        assert report.offloaded_bytes > 0
        (unforeseen,) = report.unforeseen
        assert (unforeseen.size, unforeseen.shape) == (4 * 8 * 4, (4, 8))
        assert unforeseen.operation == "F:after layers.2"


def test_full_backward_hooks():
    model = Layers()
    for module in (model.layers[1], model):
        module.register_full_backward_hook(_scale_gradient)
    model.layers[2].register_full_backward_pre_hook(lambda module, gradients: (gradients[0] * 3,))
    compare(mean_step(model, 4, 8)).require_followed()


def _scale_gradient(module, inputs, outputs):
    return tuple(None if gradient is None else gradient * 2 for gradient in inputs)


def test_hooks_on_tensors_and_parameters():
    class Hooked(Layers):
        def between(self, index, x):
            x.register_hook(lambda gradient: gradient * 1.25)
            return torch.sigmoid(x)

    def prepare(model):
        model.layers[0].weight.register_hook(lambda gradient: gradient + 1)

    outcome = compare(mean_step(Hooked(), 4, 8), prepare=prepare, count=False)
    outcome.require_followed()


def test_annealed_attribute_and_counter():
    class Annealed(Layers):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.temperature = 1.0

        def forward(self, x):
            self.calls += 1
            self.temperature *= 0.9
            return super().forward(x * self.temperature) / self.calls

    outcome = compare(mean_step(Annealed(), 4, 8)).require_followed()
    assert outcome.model.calls == 3


def test_random_layer_drop():
    class Dropped(Layers):
        def between(self, index, x):
            return torch.sigmoid(x) if random.random() < 0.5 else x

    outcome = compare(mean_step(Dropped(depth=8), 4, 8), steps=8)
    kinds = [report.deviation is None for report in outcome.reports]
    # Some step went another way than the captured one, and each of those says so.
    assert not all(kinds)
    for report in outcome.reports:
        assert report.planned or "has not saved" in report.deviation


def test_random_module_drop():
    class Dropped(Layers):
        def forward(self, x):
            for layer in self.layers:
                if random.random() < 0.7:
                    x = torch.sigmoid(layer(x))
            return x + 0 * self.layers[0](x)

    outcome = compare(mean_step(Dropped(depth=8), 4, 8), steps=8)
    assert any(report.deviation for report in outcome.reports)


def test_dropout_rate_that_changes():
    class Scheduled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(8, 8), nn.Dropout(0.0), nn.Linear(8, 8), nn.Dropout(0.0), nn.Linear(8, 8)
            )

        def forward(self, x):
            for layer in self.layers:
                if isinstance(layer, nn.Dropout):
                    layer.p += 0.2
            return self.layers(x)

    outcome = compare(mean_step(Scheduled(), 16, 8)).require_followed()
    assert outcome.model.layers[1].p == pytest.approx(0.6)


def test_noise_of_fixed_shape():
    class Noisy(Layers):
        def between(self, index, x):
            return torch.sigmoid(x + torch.randn(4, 8) * x)

    compare(mean_step(Noisy(), 4, 8)).require_followed()


def test_noise_of_other_generators():
    import numpy

    class Noisy(Layers):
        def between(self, index, x):
            scale = torch.from_numpy(numpy.random.rand(8).astype("float32")) + random.random()
            return torch.sigmoid(x * scale)

    compare(mean_step(Noisy(), 4, 8), tensors="real")


def test_buffers_updated_in_place():
    class Tracked(Layers):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(8))
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
            self.norm = nn.BatchNorm1d(8)

        def between(self, index, x):
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
            self.steps += 1
            return torch.sigmoid(self.norm(x) - self.mean.clone())

    outcome = compare(mean_step(Tracked(), 4, 8)).require_followed()
    # Capturing has not counted: three steps of four layers.
    assert int(outcome.model.steps) == int(outcome.model.norm.num_batches_tracked) == 12


def test_buffers_and_attributes_assigned():
    class Assigned(Layers):
        def __init__(self):
            super().__init__()
            self.register_buffer("running", torch.zeros(8))
            self.last = None
            self.history = []

        def between(self, index, x):
            y = torch.sigmoid(x)
            self.running = 0.9 * self.running + y.detach().mean(0)
            self.last = y.detach()
            if index == 2:
                self.history.append(y)
            return y * self.running

    outcome = compare(mean_step(Assigned(), 4, 8))
    assert type(outcome.model.last) is torch.Tensor
    assert [type(each) for each in outcome.model.history] == 3 * [torch.Tensor]
    for report in outcome.reports:
        assert report.planned, report.deviation
        assert report.offloaded_bytes > 0


def test_submodule_replaced_while_training():
    def prepare(model):
        torch.manual_seed(5)
        model.layers[1] = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    loops = []

    def loop(model, batch, optimiser):
        if len(loops) % 3 == 1:
            prepare(model)
        loops.append(1)
        model.zero_grad()
        model(batch).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(0.1 * parameter.grad)

    outcome = compare(mean_step(Layers(), 4, 8), loop)
    assert [report.planned for report in outcome.reports] == [True, False, False]
    for report in outcome.reports[1:]:
        assert "layers.1 never began" in report.deviation
    assert outcome.offload.steps == {"planned": 1, "deviating": 2}


def test_submodule_replaced_before_the_context():
    step = mean_step(Layers(), 4, 8)
    problem = problem_of_step(step)
    step.model.layers[1] = nn.Linear(8, 8)
    step.model.layers[1].forward = torch.Tensor.detach
    made = follow(step.model, evict_everything(problem), problem)
    with pytest.warns(OffloadWarning, match="did not follow its plan"), made:
        step.run(step.model, torch.randn(4, 8)).backward()
    assert made.report.deviation is not None
    assert made.steps == {"deviating": 1}


def test_capturing_and_attaching_change_nothing():
    class Counted(Layers):
        def __init__(self):
            super().__init__()
            self.calls = {"forward": 0}
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x):
            self.calls["forward"] += 1
            self.layers[0].weight.data.mul_(0.5)
            return self.norm(super().forward(x))

    for tensors in ("fake", "real"):
        model = Counted()
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        identities = {name: id(tensor) for name, tensor in model.state_dict(keep_vars=True).items()}
        state = torch.get_rng_state()
        problem = problem_of_step(mean_step(model, 4, 8), tensors=tensors)
        with contextlib.suppress(OffloadWarning):
            follow(model, evict_everything(problem), problem).__enter__().__exit__(
                ValueError, ValueError(), None
            )
        assert torch.equal(state, torch.get_rng_state())
        assert model.calls == {"forward": 0}
        for name, tensor in model.state_dict(keep_vars=True).items():
            assert torch.equal(tensor, before[name]), (tensors, name)
            assert identities[name] == id(tensor)
        assert all(parameter.grad is None for parameter in model.parameters())


def test_control_flow_that_looks_at_values():
    class Branching(Layers):
        def between(self, index, x):
            return torch.sigmoid(x) if float(x.detach().mean()) > 0.0 else torch.tanh(x)

    outcome = compare(mean_step(Branching(), 4, 8), steps=4)
    assert outcome.problem.source["capture"]["tensors"] == "real"
    for report in outcome.reports:
        assert report.offloaded_bytes > 0


def test_a_step_that_was_captured_on_another_kind_of_device_is_the_same_step():
    step = mean_step(Layers(), 4, 8)
    problem = problem_of_step(step)
    source = copy.deepcopy(problem.source)
    assert source["capture"]["device"] == source["capture"]["calls"][0][0][0][2] == "cpu"
    source["capture"]["device"] = source["capture"]["calls"][0][0][0][2] = "cuda"
    elsewhere = replace(problem, source=source)
    with follow(
        step.model, evict_everything(problem), elsewhere, FollowOptions(strict=True)
    ) as made:
        step.execute(step.make_batch())
        assert made.report.planned
        with pytest.raises(PlanError, match="input 0 is 5x8 float32 on cuda instead of 4x8"):
            step.model(torch.randn(5, 8))


def test_autocast_is_told_apart_on_any_device():
    call = [[["float32", [4, 8], "cuda", False], "True"], [["cuda", "float16"]], [0, 1], [0, 1]]
    there = [[["float32", [4, 8], "cpu", False], "True"], [["cpu", "float16"]], [0, 1], [0, 1]]
    assert as_if_on(call, "cpu", "cuda") == there
    assert as_if_on(call, "cuda", "cuda") == call
    # What is on neither stays where it is.
    assert as_if_on(there, "xpu", "cuda") == there
