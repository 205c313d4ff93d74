"""Accelerate: its Accelerator with a loop of one's own."""

from contextlib import nullcontext
from fractions import Fraction

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn

from offcert.certification.ladder import certify
from offcert.core.errors import InputError
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.profiling.profile import profile
from offcert.training import offload
from offcert.training.loaders import longest_step
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


def same_weights(one, other):
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


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
        context = nullcontext()
        if planned:
            options = {"memory": "60%", "hardware": "v100-pcie", "time_limit": 1}
            example = longest_step(model, loader)
            context = offload(model, "auto", example=example, recompute="none", **options)
        with context as attached:
            for batch in loader:
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimiser.step()
                optimiser.zero_grad()
        return model, loss.item(), attached

    plain, expected, _ = loop(False)
    model, found, attached = loop(True)
    assert found == expected
    assert same_weights(model, plain)
    assert attached.steps == {"planned": 3}


def test_a_loader_that_cannot_be_planned_for_says_why():
    model, _ = models.build("gpt2")
    step = longest_step(model, torch.utils.data.DataLoader([torch.ones(3)] * 4, 2))
    with pytest.raises(InputError, match="loss must be given where batches are no mappings"):
        step.execute(step.make_batch())
    with pytest.raises(InputError, match="loader must have a batch size"):
        longest_step(model, [torch.ones(3)])
