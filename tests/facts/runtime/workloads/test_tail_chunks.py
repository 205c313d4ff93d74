"""Head and loss in chunks of tokens: the same gradients, and less memory."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

import offcert
from offcert.core.errors import InputError
from offcert.report.text import least_summary, tail_remedy
from offcert.runtime.tail_chunks import chunked_loss, with_tail_chunks
from offcert.runtime.workloads.configured import training_step

WORDS = 4001
TINY: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": WORDS,
}


def gradients(loss: torch.Tensor, *tensors: torch.Tensor) -> list[torch.Tensor]:
    return [loss.detach(), *torch.autograd.grad(3 * loss, tensors)]


@pytest.mark.parametrize("chunks", [1, 3, 7, 100])
@pytest.mark.parametrize("biased", [False, True])
def test_loss_and_gradients_are_those_of_the_whole(chunks: int, biased: bool) -> None:
    torch.manual_seed(chunks)
    options = {"dtype": torch.float64, "requires_grad": True}
    hidden, weight = torch.randn(2, 5, 4, **options), torch.randn(11, 4, **options)
    bias = torch.randn(11, **options) if biased else None
    labels = torch.randint(11, (2, 5))
    labels[0, 1:3] = -100
    tensors = [hidden, weight, *([] if bias is None else [bias])]
    logits = functional.linear(hidden, weight, bias).flatten(0, 1)
    plain = gradients(functional.cross_entropy(logits, labels.flatten()), *tensors)
    ours = gradients(chunked_loss(hidden, weight, labels, chunks, bias=bias), *tensors)
    for found, expected in zip(ours, plain, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_only_the_gradients_that_are_wanted_are_made() -> None:
    hidden = torch.randn(6, 4, requires_grad=True)
    loss = chunked_loss(hidden, torch.randn(9, 4), torch.arange(6), 2, items=12)
    (found,) = torch.autograd.grad(loss, hidden)
    assert found.shape == hidden.shape
    with pytest.raises(InputError, match=r"labels must have the shape \(6,\).*, not \(5,\)"):
        chunked_loss(hidden, torch.randn(9, 4), torch.arange(5), 2)
    with pytest.raises(InputError, match="chunks"):
        chunked_loss(hidden, torch.randn(9, 4), torch.arange(6), 0)


@pytest.mark.parametrize("autocast", [None, "bf16"])
def test_a_model_has_the_same_gradients_but_for_rounding(autocast: str | None) -> None:
    found = []
    for chunks in (None, 3):
        torch.manual_seed(0)
        step = training_step(TINY, 2, 8, dtype="fp32", autocast=autocast, tail_chunks=chunks)
        batch = step.make_batch()
        # Whoever trains may train a copy.
        step = replace(step, model=deepcopy(step.model))
        loss = step.run(step.model, batch)
        assert loss is not None
        loss.backward()
        found.append({name: each.grad for name, each in step.model.named_parameters()})
        with torch.no_grad():
            assert step.model(**batch).logits.shape == (2, 8, WORDS)
    plain, chunked = found
    assert plain.keys() == chunked.keys()
    close = {"rtol": 0.02, "atol": 1e-3} if autocast else {"rtol": 1e-4, "atol": 1e-6}
    for name in plain:
        torch.testing.assert_close(chunked[name], plain[name], **close)


def test_a_model_that_does_more_to_its_logits_is_refused() -> None:
    scaled = TINY | {"model_type": "granite", "architectures": ["GraniteForCausalLM"]}
    step = training_step(scaled, 1, 4, dtype="fp32", tail_chunks=2)
    with pytest.raises(InputError, match="the model does more between its head and its"):
        step.run(step.model, step.make_batch())
    with pytest.raises(InputError, match="tail_chunks: Linear is no language model"):
        with_tail_chunks(torch.nn.Linear(2, 2), 2)


def test_chunks_certainly_need_less_memory() -> None:
    """The logits of 64 tokens are 64 x 4,001 numbers, of which one chunk of eight is an eighth."""
    problems = {}
    for chunks in (None, 8):
        with torch.device("meta"):
            step = training_step(TINY, 1, 64, tail_chunks=chunks)
        problems[chunks] = offcert.profile(
            step, hardware="h100-sxm", name="tiny", optimiser="sgd", recompute="none"
        )
    logits = 4 * 64 * WORDS
    told = {"options": {"config": TINY}}
    asked = {chunks: replace(each, source=told) for chunks, each in problems.items()}
    assert "--tail-chunks" in (tail_remedy(asked[None]) or "")
    assert least_summary(problems[None])["workspace"] >= logits
    chosen = {"options": {"config": TINY, "tail_chunks": 8}}
    assert tail_remedy(replace(problems[8], source=chosen)) is None
    plain, chunked = (problems[chunks].trace.least_memory for chunks in (None, 8))
    # At once: logits, their log-probabilities and their gradient.
    assert plain > 3 * logits
    # By eights: these of a chunk, and the gradient of the head's weight, which is kept meanwhile.
    assert chunked < 3 * logits // 8 + 2 * 2 * WORDS * 16 + logits // 4
    certificate = offcert.certify(problems[8].with_memory(plain - 1), time_limit=1)
    assert certificate.result.schedule is not None
    assert offcert.verify(certificate).valid
    impossible = offcert.certify(problems[None].with_memory(plain - 1), time_limit=2)
    assert impossible.result.infeasibility is not None
