"""Accelerate: its hook, and its Accelerator with a loop of one's own."""

import copy
from contextlib import nullcontext
from fractions import Fraction

import pytest
import torch
from accelerate import Accelerator
from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module
from accelerate.state import AcceleratorState
from torch import nn

from offcert.certify.ladder import certify
from offcert.core.errors import InputError
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.profiling.profile import profile
from offcert.training import offload
from offcert.training.accelerate_hook import OffloadHook
from support.networks import huggingface_models as models


@pytest.fixture
def _accelerator_forgotten():
    """Every Accelerator of a process has the first one's precision."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


def certificate_of(model, batch, run=models.loss_of):
    step = TrainingStep(model, run, batch, tensors="real")
    problem = profile(step, hardware="v100-pcie", recompute="none")
    problem = problem.with_memory(problem.memory_at(Fraction(1, 2)))
    return certify(problem, time_limit=1, workers=1)


def train(model, batch, steps=3):
    """Return the losses; everything random is drawn anew."""
    torch.manual_seed(1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        loss = models.loss_of(model, batch())
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    return losses


def same_weights(one, other):
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


def hooks_of(model):
    names = ["_forward_hooks", "_forward_pre_hooks", "_backward_hooks"]
    return [len(getattr(m, name)) for m in model.modules() for name in names]


@pytest.mark.parametrize("name", ["bert", "mixtral"])
def test_a_model_with_the_hook_trains_as_without_it(name):
    model, batch = models.build(name)
    plain = copy.deepcopy(model)
    hook = OffloadHook(certificate_of(model, batch), count=True)
    before = hooks_of(model)
    assert add_hook_to_module(model, hook) is model
    assert hooks_of(model) != before
    assert train(model, batch) == train(plain, batch)
    assert hook.offload.steps == {"planned": 3}
    assert hook.offload.report.follows_prediction
    assert hook.offload.report.offloaded_bytes > 0
    remove_hook_from_module(model)
    # Some models make hooks of their own in their first forward pass.
    assert hooks_of(model) == hooks_of(plain)
    assert same_weights(model, plain)
    assert model.forward == type(model).forward.__get__(model)


def test_beside_another_hook():
    class Scaling(ModelHook):
        def post_forward(self, module, output):
            output.loss = output.loss * 2
            return output

    model, batch = models.build("gpt2")
    plain = copy.deepcopy(model)
    add_hook_to_module(plain, Scaling())
    add_hook_to_module(model, Scaling())
    # What the hook does is a part of the step.
    certificate = certificate_of(model, batch)
    hook = OffloadHook(certificate)
    add_hook_to_module(model, hook, append=True)
    assert train(model, batch) == train(plain, batch)
    assert hook.offload.report.planned
    assert hook.offload.report.offloaded_bytes > 0


def test_a_hook_that_is_replaced_is_detached():
    model, batch = models.build("gpt2")
    certificate = certificate_of(model, batch)
    before = hooks_of(model)
    first, second = OffloadHook(certificate), OffloadHook(certificate)
    add_hook_to_module(model, first)
    attached = hooks_of(model)
    with pytest.warns(UserWarning, match="nothing was moved"):
        add_hook_to_module(model, second)
    assert hooks_of(model) == attached
    with pytest.raises(InputError, match="for one module"):
        add_hook_to_module(nn.Linear(1, 1), second)
    train(model, batch, steps=1)
    remove_hook_from_module(model)
    assert hooks_of(model) == before
    assert first.offload.steps == {}
    assert second.offload.steps == {"planned": 1}


def test_a_copy_of_the_model_follows_no_plan():
    model, batch = models.build("gpt2")
    hook = OffloadHook(certificate_of(model, batch))
    add_hook_to_module(model, hook)
    twin = copy.deepcopy(model)
    assert twin._hf_hook is not hook
    assert twin._hf_hook.offload is None
    losses = train(twin, batch)
    assert hook.offload.steps == {}
    assert losses == train(model, batch)
    remove_hook_from_module(model)
    assert same_weights(model, twin)


@pytest.mark.usefixtures("_accelerator_forgotten")
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_loop_with_an_accelerator(precision):
    def loop(planned):
        model, batch = models.build("llama")
        accelerator = Accelerator(
            cpu=True, mixed_precision=precision, gradient_accumulation_steps=2
        )
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimiser = accelerator.prepare(model, optimiser)
        torch.manual_seed(1)
        context = offload(model, certificate_of(model, batch)) if planned else nullcontext()
        with context as attached:
            for _ in range(4):
                with accelerator.accumulate(model):
                    loss = models.loss_of(model, batch())
                    accelerator.backward(loss)
                    accelerator.clip_grad_norm_(model.parameters(), 0.5)
                    optimiser.step()
                    optimiser.zero_grad()
        return model, loss.item(), attached

    plain, expected, _ = loop(False)
    model, found, attached = loop(True)
    assert found == expected
    assert same_weights(model, plain)
    assert attached.steps == {"planned": 4}
    assert attached.report.offloaded_bytes > 0


class Sentences(torch.utils.data.Dataset):
    """Tokens of as many lengths as there are sentences."""

    def __len__(self):
        return 6

    def __getitem__(self, number):
        return {"input_ids": torch.full((4 + number,), number)}


def padded(samples):
    rows = [sample["input_ids"] for sample in samples]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return {"input_ids": ids, "labels": ids}


@pytest.mark.usefixtures("_accelerator_forgotten")
def test_a_plan_for_the_longest_samples_of_a_loader_before_the_first_step():
    def loop(planned):
        model, _ = models.build("gpt2")
        accelerator = Accelerator(cpu=True)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(Sentences(), 2, collate_fn=padded, shuffle=True)
        model, optimiser, loader = accelerator.prepare(model, optimiser, loader)
        torch.manual_seed(1)
        if planned:
            options = {"memory": "60%", "hardware": "v100-pcie", "time_limit": 1}
            hook = OffloadHook("auto", loader=loader, recompute="none", **options)
            add_hook_to_module(model, hook)
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimiser.step()
            optimiser.zero_grad()
        if not planned:
            return model, loss.item(), None
        remove_hook_from_module(model)
        return model, loss.item(), hook.offload

    plain, expected, _ = loop(False)
    model, found, attached = loop(True)
    assert found == expected
    assert same_weights(model, plain)
    assert attached.steps == {"planned": 3}


def test_a_loader_that_cannot_be_planned_for_says_why():
    model, batch = models.build("gpt2")
    loader = torch.utils.data.DataLoader([torch.ones(3)] * 4, 2)
    hook = OffloadHook("auto", loader=loader, memory="60%", recompute="none", time_limit=1)
    with pytest.warns(UserWarning, match="loss must be given where batches are no mappings"):
        add_hook_to_module(model, hook)
    train(model, batch)
    assert hook.offload.steps["studied"] == 1
    remove_hook_from_module(model)
    with pytest.raises(InputError, match="loader can only be given with"):
        OffloadHook(certificate_of(model, batch), loader=loader)
    with pytest.raises(InputError, match="loss can only be given with a loader"):
        OffloadHook("auto", loss=models.loss_of)
