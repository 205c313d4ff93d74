"""Training under a plan together with whatever else a training loop does, bitwise as without."""

import copy
import pickle
import threading
import warnings
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch._dynamo.backends.debugging import aot_eager
from torch.nn import functional
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from offcert.core.errors import InputError
from offcert.questions.schedule.plan import Plan
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import Offload, OffloadWarning, follow
from offcert.runtime.follow.options import FollowOptions
from support.runtime.captured import (
    compare,
    evict_everything,
    evicted_bytes,
    mean_step,
    problem_of_step,
    standard_loop,
)


def mlp(width=8, depth=4):
    torch.manual_seed(0)
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.BatchNorm1d(width), nn.Sigmoid(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(width, width))


def evicting(model, *shape, **options):
    """Return an offload that evicts everything, for the mean of the squared output."""
    problem = problem_of_step(mean_step(model, *shape))
    return follow(model, evict_everything(problem), problem, FollowOptions(**options))


def require_equal_models(ours, theirs):
    for one, other in zip(
        [*ours.parameters(), *ours.buffers()],
        [*theirs.parameters(), *theirs.buffers()],
        strict=True,
    ):
        assert torch.equal(one, other)
        assert (one.grad is None) == (other.grad is None)
        assert one.grad is None or torch.equal(one.grad, other.grad)


# What a loop does around a step.


def test_gradient_accumulation():
    step = mean_step(mlp(), 4, 8)

    def loop(model, batch, optimiser):
        optimiser.zero_grad()
        for _ in range(3):
            (step.run(model, step.make_batch()) / 3).backward()
        optimiser.step()

    compare(step, loop).require_followed(9)


def test_autocast_and_gradient_scaling():
    def run(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float().square().mean()

    step = TrainingStep(mlp(), run, lambda: torch.randn(4, 8))
    scalers = {}

    def loop(model, batch, optimiser):
        scaler = scalers.setdefault(model, torch.amp.GradScaler("cpu", init_scale=2.0**16))
        optimiser.zero_grad()
        loss = run(model, batch)
        scaler.scale(loss).backward()
        scaler.unscale_(optimiser)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimiser)
        scaler.update()
        return [loss.detach(), norm, scaler.get_scale()]

    # The scaled loss is more than was captured, so live bytes are not compared.
    outcome = compare(step, loop, count=False).require_followed()
    assert "bfloat16" in {row[2] for row in outcome.problem.source["capture"]["saved"]}


def test_another_precision_than_the_captured_one_is_told():
    model = mlp()
    with evicting(model, 4, 8) as made:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            with pytest.warns(OffloadWarning, match="its autocast is"):
                output = model(torch.randn(4, 8))
            output.float().mean().backward()
        model(torch.randn(4, 8)).square().mean().backward()
    assert made.steps == {"unplanned": 1, "planned": 1}


def test_clipping_by_value_and_weight_decay():
    step = mean_step(mlp(), 4, 8)

    def loop(model, batch, optimiser):
        optimiser.zero_grad()
        step.run(model, batch).backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimiser.step()

    compare(step, loop).require_followed()


def test_evaluation_between_steps_and_between_forward_and_backward():
    step = mean_step(mlp(), 4, 8)

    def evaluate(model):
        model.eval()
        with torch.no_grad():
            result = model(torch.ones(5, 8)).sum()
        model.train()
        return result

    def loop(model, batch, optimiser):
        optimiser.zero_grad()
        loss = step.run(model, batch)
        between = evaluate(model)
        loss.backward()
        optimiser.step()
        with torch.inference_mode():
            return [between, evaluate(model), model(torch.ones(4, 8)).sum().clone()]

    outcome = compare(step, loop, count=False).require_followed()
    assert outcome.offload.steps == {"planned": 3}


def test_evaluation_that_records_gradients_is_another_step():
    step = mean_step(mlp(), 4, 8)

    def loop(model, batch, optimiser):
        optimiser.zero_grad()
        step.run(model, batch).backward()
        optimiser.step()
        model.eval()
        loss = model(batch).mean()
        model.train()
        return loss.detach()

    with pytest.warns(OffloadWarning, match="0 modules in training mode"):
        outcome = compare(step, loop)
    assert outcome.offload.steps == {"planned": 3, "unplanned": 3}


def test_training_in_evaluation_mode():
    outcome = compare(mean_step(mlp().eval(), 4, 8)).require_followed()
    assert not outcome.model.training


@pytest.mark.parametrize("captured", [False, True])
def test_two_backward_passes_over_one_graph(captured):
    def run(model, x):
        loss = model(x).square().mean()
        loss.backward(retain_graph=True)
        if captured:
            loss.backward()
            return None
        return loss

    if captured:
        compare(TrainingStep(mlp(), run, lambda: torch.randn(4, 8))).require_followed()
        return
    # The plan knows of the first; the second finds everything where it is.
    step = mean_step(mlp(), 4, 8)

    def loop(model, batch, optimiser):
        optimiser.zero_grad()
        run(model, batch).backward()
        optimiser.step()

    outcome = compare(step, loop, count=False)
    assert outcome.offload.steps == {"planned": 3}
    assert all(report.offloaded_bytes > 0 for report in outcome.reports)


def test_double_backward():
    # A gradient penalty: the gradient's norm is a part of the loss.
    def run(model, x):
        x.requires_grad_()
        output = model(x).square().mean()
        (gradient,) = torch.autograd.grad(output, x, create_graph=True)
        return output + gradient.square().sum()

    step = TrainingStep(mlp(), run, lambda: torch.randn(4, 8))
    outcome = compare(step)
    for report in outcome.reports:
        assert report.planned, report.deviation
        assert report.offloaded_bytes > 0
        assert report.late_bytes == 0
        assert report.at_begin == report.prediction.at_begin


def test_double_backward_that_the_plan_does_not_know():
    step = mean_step(mlp(), 4, 8)

    def loop(model, batch, optimiser):
        optimiser.zero_grad()
        output = step.run(model, batch)
        trained = list(model.parameters())
        gradients = torch.autograd.grad(output, trained, create_graph=True)
        (output + sum(gradient.square().sum() for gradient in gradients)).backward()
        optimiser.step()

    outcome = compare(step, loop)
    assert all(report.offloaded_bytes > 0 for report in outcome.reports)


def test_gradients_inside_of_the_forward_pass():
    # As in models of forces: the output is a gradient itself.
    class Force(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.energy = nn.Sequential(
                nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)
            )

        def forward(self, x):
            x = x.detach().requires_grad_()
            (force,) = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)
            return force

    outcome = compare(mean_step(Force(), 4, 8))
    for report in outcome.reports:
        assert report.planned, report.deviation
        assert report.offloaded_bytes > 0


def test_gradients_of_some_parameters():
    step = mean_step(mlp(), 4, 8)

    def loop(model, batch, optimiser):
        loss = step.run(model, batch)
        return torch.autograd.grad(loss, [model[8].weight, model[4].bias])

    outcome = compare(step, loop)
    # The backward pass ends early: the rest of the plan does not happen, and that is said.
    for report in outcome.reports:
        assert "never began" in report.deviation
        assert report.offloaded_bytes > 0


def test_gradients_by_autograd_grad():
    step = mean_step(mlp(), 4, 8)

    def run(model, x):
        loss = model(x).square().mean()
        model.gradients = torch.autograd.grad(loss, list(model.parameters()))

    def loop(model, batch, optimiser):
        run(model, batch)
        gradients = model.gradients
        del model.gradients
        return gradients

    outcome = compare(TrainingStep(step.model, run, step.batch), loop, count=False)
    outcome.require_followed()


def test_frozen_layers():
    model = mlp()
    for layer in model[:8]:
        layer.requires_grad_(False)
    compare(mean_step(model, 4, 8)).require_followed()


class LowRank(nn.Module):
    """A frozen layer and a trained correction of it."""

    def __init__(self, layer, rank=2):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


def test_low_rank_adaptation():
    model = mlp()
    for index, layer in enumerate(model):
        if isinstance(layer, nn.Linear):
            model[index] = LowRank(layer)
        else:
            layer.requires_grad_(False)
    compare(mean_step(model, 4, 8)).require_followed()


def test_layers_frozen_after_the_capture_are_told():
    def prepare(model):
        model[0].requires_grad_(False)

    with pytest.warns(OffloadWarning, match="16 trained parameters instead of 18"):
        outcome = compare(mean_step(mlp(), 4, 8), prepare=prepare)
    assert outcome.offload.steps == {"unplanned": 3}


# Several models, calls, signatures.


def test_two_models_that_take_turns():
    torch.manual_seed(0)
    generator, critic = mlp(), mlp(depth=3)
    plain = copy.deepcopy((generator, critic))

    def critic_step(critic, batch):
        real, fake = batch
        return critic(real).square().mean() - critic(fake).mean()

    def batch():
        return torch.randn(4, 8), torch.randn(4, 8)

    problem = problem_of_step(TrainingStep(critic, critic_step, batch))

    def generator_step(generator, noise):
        return critic(generator(noise)).square().mean()

    # The critic inside of the loss is a part of the generator's step.
    other = problem_of_step(TrainingStep(generator, generator_step, lambda: torch.randn(4, 8)))

    def train(generator, critic):
        torch.manual_seed(3)
        optimisers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (generator, critic)]
        for _ in range(3):
            noise = torch.randn(4, 8)
            optimisers[1].zero_grad()
            critic_step(critic, (torch.randn(4, 8), generator(noise).detach())).backward()
            optimisers[1].step()
            optimisers[0].zero_grad()
            critic(generator(noise)).square().mean().backward()
            optimisers[0].step()

    train(*plain)
    with (
        follow(critic, evict_everything(problem), problem) as critics,
        follow(generator, evict_everything(other), other) as generators,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", OffloadWarning)
        train(generator, critic)
    require_equal_models(generator, plain[0])
    require_equal_models(critic, plain[1])
    # The critic's steps follow its plan; in the generator's steps its input requires a gradient.
    assert critics.steps == {"planned": 3, "unplanned": 3}
    # Of the generator's steps, those that are detached never have a backward pass.
    assert generators.steps == {"planned": 3, "unfinished": 3}
    assert generators.report.offloaded_bytes > 0


def test_one_offloaded_model_inside_of_another():
    class Outer(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.head = nn.Linear(8, 8)

        def forward(self, x):
            return self.head(torch.sigmoid(self.inner(x)))

    model = Outer(mlp())
    plain = copy.deepcopy(model)
    with evicting(model, 4, 8) as outer, warnings.catch_warnings():
        warnings.simplefilter("ignore", OffloadWarning)
        with evicting(model.inner, 4, 8) as inner:
            for each in (plain, model):
                torch.manual_seed(1)
                each(torch.ones(4, 8)).square().mean().backward()
    require_equal_models(model, plain)
    assert outer.report.planned
    assert outer.report.offloaded_bytes > 0
    assert "other saved-tensor hooks" in inner.report.deviation


def test_model_called_twice_in_a_step():
    def run(model, batch):
        first, second = batch
        return functional.cosine_similarity(model(first), model(second)).mean()

    step = TrainingStep(mlp(), run, lambda: (torch.randn(4, 8), torch.randn(4, 8)))
    compare(step).require_followed()


def test_model_that_calls_itself():
    class Halving(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x, depth=3):
            x = torch.sigmoid(self.layer(x))
            return x if depth == 0 else x * self(x, depth - 1)

    outcome = compare(mean_step(Halving(), 4, 8))
    for report in outcome.reports:
        assert report.planned, report.deviation
        assert report.offloaded_bytes > 0
        assert report.follows_prediction


def test_two_steps_before_either_backward_pass():
    step = mean_step(mlp(), 4, 8)

    def loop(model, batch, optimiser):
        optimiser.zero_grad()
        first = step.run(model, batch)
        second = step.run(model, 2 * batch)
        first.backward()
        second.backward()
        optimiser.step()

    with pytest.warns(OffloadWarning, match="another step began before its backward pass"):
        outcome = compare(step, loop, count=False)
    assert outcome.offload.steps == {"planned": 3, "deviating": 3}
    assert all(r.offloaded_bytes > 0 for r in outcome.reports)


def test_losses_of_two_steps_added():
    step = mean_step(mlp(), 4, 8)

    def loop(model, batch, optimiser):
        optimiser.zero_grad()
        (step.run(model, batch) + step.run(model, 2 * batch)).backward()
        optimiser.step()

    compare(step, loop)


def test_hidden_state_that_is_carried_from_step_to_step():
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x, hidden):
            for layer in self.layers:
                hidden = torch.tanh(layer(hidden) + x)
            return hidden

    def run(model, batch):
        return model(*batch).square().mean()

    step = TrainingStep(Cell(), run, lambda: (torch.randn(4, 8), torch.zeros(4, 8)))

    def loop(model, batch, optimiser):
        optimiser.zero_grad()
        x, hidden = batch
        losses = []
        for _ in range(3):
            hidden = model(x, hidden.detach())
            loss = hidden.square().mean()
            loss.backward()
            losses.append(loss.detach())
        optimiser.step()
        return losses

    outcome = compare(step, loop, count=False)
    assert outcome.offload.steps == {"planned": 9}
    assert all(r.offloaded_bytes > 0 for r in outcome.reports)


def test_last_smaller_batch_and_several_plans():
    model = mlp()
    plain = copy.deepcopy(model)
    problems = [problem_of_step(mean_step(model, size, 8)) for size in (6, 4)]
    certificates = [_Certified(problem, evict_everything(problem)) for problem in problems]

    def train(model):
        torch.manual_seed(1)
        for size in (6, 6, 4, 5, 3, 6, 7):
            model(torch.randn(size, 8)).square().mean().backward()
            yield

    list(train(plain))
    made = _several(model, certificates)
    with made, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        moved = [made.report.offloaded_bytes for _ in train(model)]
    assert ["input 0 is 7x8 float32 on cpu instead of 6x8" in str(w.message) for w in told] == [
        True
    ]
    require_equal_models(model, plain)
    assert made.steps == {"planned": 6, "unplanned": 1}
    large, small = (evicted_bytes(each.problem, each.plan) for each in certificates)
    # 5 rows follow the plan for 6, and 3 the one for 4.
    assert moved[:3] == [large, large, small]
    assert small < moved[3] < large
    assert 0 < moved[4] < small
    assert moved[5:] == [large, 0]
    assert 0 < small < large


@dataclass
class _Certified:
    problem: object
    plan: Plan


def _several(model, certificates):
    from offcert.runtime.plan.step_plan import step_plan

    return Offload(model, [step_plan(each.problem, each.plan) for each in certificates])


# Kinds of models.


def test_outputs_in_dictionaries_and_dataclasses():
    @dataclass
    class Output:
        loss: torch.Tensor
        hidden: dict

    class Rich(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.heads = (
                mlp(),
                nn.ModuleDict({"a": nn.Linear(8, 4), "b": nn.Linear(8, 2)}),
            )

        def forward(self, x, *, scale=1.0, extra=None):
            hidden = torch.sigmoid(self.body(x)) * scale
            if extra is not None:
                hidden = hidden + extra["bias"][0]
            outputs = {name: head(hidden) for name, head in self.heads.items()}
            return Output(outputs["a"].square().mean(), {"b": [outputs["b"]], "none": None})

    def run(model, batch):
        output = model(batch["x"], scale=0.5, extra={"bias": (batch["bias"],)})
        return output.loss + output.hidden["b"][0].sigmoid().mean()

    def batch():
        return {"x": torch.randn(4, 8), "bias": torch.randn(8)}

    compare(TrainingStep(Rich(), run, batch)).require_followed()


def test_in_place_activations_and_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embed = nn.Embedding(16, 8)
            self.body = nn.Sequential(
                nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.SiLU(inplace=True)
            )
            self.head = nn.Linear(8, 16, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            x = self.body(self.embed(tokens))
            x += self.embed(tokens)
            return self.head(x.relu_())

    def run(model, batch):
        tokens, labels = batch
        return functional.cross_entropy(model(tokens), labels)

    step = TrainingStep(Tied(), run, lambda: (torch.randint(16, (12,)), torch.randint(16, (12,))))
    compare(step).require_followed()


def test_convolutions_pooling_and_recurrent_layers():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.convolutions = nn.Sequential(
                nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True),
                nn.MaxPool2d(2), nn.Conv2d(6, 4, 3, padding=1), nn.GELU(),
            )  # fmt: skip
            self.recurrent = nn.LSTM(4, 5, num_layers=2, batch_first=True)
            self.attention = nn.MultiheadAttention(5, 1, batch_first=True)
            self.norm = nn.LayerNorm(5)

        def forward(self, x):
            x = self.convolutions(x).flatten(2).transpose(1, 2)
            x, _ = self.recurrent(x)
            y, _ = self.attention(x, x, x)
            return self.norm(x + y)

    outcome = compare(mean_step(Mixed(), 2, 3, 8, 8))
    for report in outcome.reports:
        assert report.planned, report.deviation
        assert report.offloaded_bytes > 0
        assert report.late_bytes == 0


def test_generators_cannot_be_followed():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = torch.sigmoid(layer(x))
                yield x

    def run(model, x):
        return sum(each.mean() for each in model(x))

    with pytest.raises(InputError, match="no backward pass goes through the model"):
        problem_of_step(TrainingStep(Lazy(), run, lambda: torch.randn(4, 8)))


# Compiled modules and wrappers.


def compiling(backend):
    """Return a backend of `torch.compile`, and the list of what it has compiled."""
    compiled = []

    def compile_graph(graph, inputs):
        compiled.append(graph)
        return graph if backend == "eager" else aot_eager(graph, inputs)

    torch._dynamo.reset()
    return compile_graph, compiled


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("count", [False, True])
def test_compiled_submodules(backend, count):
    compile_graph, compiled = compiling(backend)
    plain, model = mlp(), mlp()
    for each in (plain, model):
        for index in (0, 8):
            each[index] = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    plain.load_state_dict(model.state_dict())
    for index in (0, 8):
        model[index] = torch.compile(model[index], backend=compile_graph)
    problem = problem_of_step(mean_step(model, 4, 8))
    assert compiled == []
    expected = evicted_bytes(problem, evict_everything(problem))
    with follow(model, evict_everything(problem), problem, FollowOptions(count=count)) as made:
        for turn in range(4):
            for each in (plain, model):
                torch.manual_seed(turn)
                each(torch.randn(4, 8)).square().mean().backward()
            require_equal_models(model, plain)
            # What the others save is moved; what compiled code saves stays.
            assert made.report.planned, made.report.deviation
            assert made.report.offloaded_bytes == expected > 0
            assert made.report.unfreed == ()
    # What is compiled once stays compiled, and our hooks are not compiled with it.
    assert len(compiled) == 2
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_functions_in_the_forward_pass(backend):
    compile_graph, compiled = compiling(backend)

    def gate(x):
        return torch.tanh(x) * torch.sigmoid(x)

    class Gated(nn.Module):
        def __init__(self, gate):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
            self.gate = gate

        def forward(self, x):
            for layer in self.layers:
                x = self.gate(layer(x))
            return x

    model, plain = Gated(torch.compile(gate, backend=compile_graph)), Gated(gate)
    problem = problem_of_step(mean_step(model, 4, 8))
    expected = evicted_bytes(problem, evict_everything(problem))
    with follow(model, evict_everything(problem), problem) as made:
        for turn in range(4):
            for each in (plain, model):
                torch.manual_seed(turn)
                each(torch.randn(4, 8)).square().mean().backward()
            require_equal_models(model, plain)
            assert made.report.planned, made.report.deviation
            assert made.report.offloaded_bytes == expected > 0
    assert len(compiled) == 1
    torch._dynamo.reset()


def test_models_that_are_compiled_as_a_whole_or_in_place_are_refused_by_name():
    problem = problem_of_step(mean_step(mlp(), 4, 8))
    plan = evict_everything(problem)
    whole = torch.compile(mlp(), backend="eager")
    with pytest.raises(InputError, match="OptimizedModule is compiled as a whole"):
        follow(whole, plan, problem)
    with pytest.raises(InputError, match="OptimizedModule is compiled as a whole"):
        problem_of_step(mean_step(whole, 4, 8))
    model = mlp()
    model[8].compile(backend="eager")
    made = follow(model, plan, problem)
    with pytest.raises(InputError, match="8 was compiled in place"), made:
        pass
    with pytest.raises(InputError, match="8 was compiled in place"):
        problem_of_step(mean_step(model, 4, 8))
    assert not any(module._forward_hooks for module in model.modules())


def test_wrappers_that_replicate_or_shard_are_refused_by_name():
    model = mlp()
    problem = problem_of_step(mean_step(model, 4, 8))
    plan = evict_everything(problem)
    with pytest.raises(InputError, match="DataParallel cannot be trained under a plan: it copies"):
        follow(nn.DataParallel(model), plan, problem)

    class FullyShardedDataParallel(nn.Module):
        pass

    with pytest.raises(InputError, match="FullyShardedDataParallel cannot be trained"):
        follow(FullyShardedDataParallel(), plan, problem)
    with pytest.raises(InputError, match=r"model must be an nn\.Module, not function"):
        follow(mlp, plan, problem)
    with pytest.raises(InputError, match=r"must be on the CPU, but 0\.weight is on meta"):
        follow(copy.deepcopy(model).to("meta"), plan, problem)


# Threads.


def test_step_in_another_thread():
    model, plain = mlp(), mlp()
    torch.manual_seed(1)
    made = evicting(model, 4, 8)
    results = []

    def train():
        for turn in range(2):
            torch.manual_seed(turn)
            model(torch.ones(4, 8)).square().mean().backward()
            results.append(made.report)

    with made:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    for turn in range(2):
        torch.manual_seed(turn)
        plain(torch.ones(4, 8)).square().mean().backward()
    require_equal_models(model, plain)
    assert [report.planned for report in results] == [True, True]
    assert all(report.offloaded_bytes > 0 for report in results)


def in_a_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_live_bytes_are_counted_in_whichever_thread_a_step_runs():
    model = mlp()
    with evicting(model, 4, 8, count=True) as made:
        for run in in_a_thread, lambda step: step(), in_a_thread:
            run(lambda: model(torch.ones(4, 8)).square().mean().backward())
            assert made.report.planned
            assert made.report.follows_prediction
    assert _get_current_dispatch_mode_stack() == []


def test_a_step_whose_backward_pass_runs_in_another_thread_is_not_taken_for_counted():
    model = mlp()
    with evicting(model, 4, 8) as made, warnings.catch_warnings():
        warnings.simplefilter("ignore", OffloadWarning)
        for _ in range(2):
            loss = model(torch.ones(4, 8)).square().mean()
            in_a_thread(loss.backward)
            assert made.report.peaks == ()
        # Two have been counted in part: the next one is counted, which takes a thousand times more.
        model.register_forward_pre_hook(lambda *_: bool(torch.zeros(10**6).sum()) or None)
        model(torch.ones(4, 8)).square().mean().backward()
        assert made.report.peak > 4 * 10**6 > made.report.limit
        assert "bytes were alive during" in made.report.deviation


def test_two_threads_at_once():
    model, plain = mlp().eval(), mlp().eval()
    made = evicting(model, 4, 8)
    batches = torch.randn(2, 20, 4, 8)
    errors = []
    barrier = threading.Barrier(2)

    def train(inputs):
        try:
            barrier.wait()
            for x in inputs:
                loss = model(x).square().mean()
                gradients = torch.autograd.grad(loss, list(model.parameters()))
                expected = torch.autograd.grad(plain(x).square().mean(), list(plain.parameters()))
                assert all(map(torch.equal, gradients, expected))
        except BaseException as error:
            errors.append(error)

    with made, warnings.catch_warnings():
        warnings.simplefilter("ignore", OffloadWarning)
        threads = [threading.Thread(target=train, args=(each,)) for each in batches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert sum(made.steps.values()) == 40
    assert made.steps["unfinished"] == 0


def test_a_thread_in_the_middle_of_a_forward_pass_refuses_others():
    class Waiting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = mlp()
            self.inside, self.go_on = threading.Event(), threading.Event()
            self.wait = False

        def forward(self, x):
            if self.wait and threading.current_thread() is not threading.main_thread():
                self.inside.set()
                self.go_on.wait()
            return self.layers(x)

        def __deepcopy__(self, memo):
            raise NotImplementedError

    model = Waiting()
    problem = problem_of_step(mean_step(model, 4, 8), tensors="real")
    made = follow(model, evict_everything(problem), problem)
    model.wait = True
    with made:
        thread = threading.Thread(target=lambda: model(torch.ones(4, 8)).square().mean().backward())
        thread.start()
        model.inside.wait()
        try:
            with pytest.warns(OffloadWarning, match="another thread is in the middle of a forward"):
                model(torch.ones(4, 8)).square().mean().backward()
        finally:
            model.go_on.set()
            thread.join()
        assert made.steps == {"unplanned": 1, "planned": 1}
        assert made.report.offloaded_bytes > 0


def test_a_context_that_ends_while_a_thread_is_in_the_middle_of_a_forward_pass():
    model, plain = mlp(), mlp()
    inside, go_on, results = threading.Event(), threading.Event(), []

    def wait(module, inputs):
        inside.set()
        go_on.wait()

    def train():
        torch.manual_seed(0)
        model(torch.ones(4, 8)).square().mean().backward()
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
        # Nobody else can take them out of this thread, but they do nothing any more.
        results.append(None if hooks is None else hooks[0](torch.ones(3)).entry)

    made = evicting(model, 4, 8)
    handle = model[8].register_forward_pre_hook(wait)
    thread = threading.Thread(target=train)
    made.__enter__()
    try:
        thread.start()
        inside.wait()
        with pytest.warns(OffloadWarning, match="the context ends while another thread"):
            made.__exit__(None, None, None)
    finally:
        go_on.set()
        thread.join()
    handle.remove()
    assert results == [None]
    torch.manual_seed(0)
    plain(torch.ones(4, 8)).square().mean().backward()
    require_equal_models(model, plain)
    assert not any(module._forward_hooks for module in model.modules())


# Copies of the model.


def test_copies_of_a_hooked_model_do_not_touch_the_engine():
    model = mlp()
    with evicting(model, 4, 8) as made:
        model(torch.ones(4, 8)).square().mean().backward()
        average = copy.deepcopy(model)
        stored = pickle.loads(pickle.dumps(model))
        for other in (average, stored):
            steps, before = made.steps.copy(), made.report
            other(torch.ones(4, 8)).square().mean().backward()
            with torch.no_grad():
                for mine, theirs in zip(other.parameters(), model.parameters(), strict=True):
                    mine.lerp_(theirs, 0.1)
            assert made.steps == steps
            assert made.report == before
        model(torch.ones(4, 8)).square().mean().backward()
        assert made.report.planned
    assert made.steps == {"planned": 2}
    # They work on without the context, and can be trained under a plan of their own.
    with evicting(average, 4, 8) as other:
        average(torch.ones(4, 8)).square().mean().backward()
    assert other.steps == {"planned": 1}


def test_average_of_weights():
    step = mean_step(mlp(), 4, 8)

    def loop(model, batch, optimiser):
        average = torch.optim.swa_utils.AveragedModel(model)
        standard_loop(step)(model, batch, optimiser)
        average.update_parameters(model)
        return {name: tensor.clone() for name, tensor in average.state_dict().items()}

    compare(step, loop, count=False).require_followed()


def test_state_saved_and_loaded_between_steps():
    step = mean_step(mlp(), 4, 8)

    def loop(model, batch, optimiser):
        standard_loop(step)(model, batch, optimiser)
        state = copy.deepcopy(model.state_dict())
        standard_loop(step)(model, batch, optimiser)
        model.load_state_dict(state)

    compare(step, loop).require_followed(6)
