"""The training step of a network that takes one tensor and returns one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError, OffcertError
from offcert.runtime.capture.borrowed import Originals, borrowed
from offcert.runtime.capture.kernels import FakeTwins
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.watch.guard import one_line, quiet
from offcert.runtime.workloads.workload import Batches, Workload, loss_function


def standard_step(model: nn.Module, workload: Workload) -> TrainingStep:
    """Return the step that feeds `model` with random inputs and applies the workload's loss.

    The network is run once, on fake tensors or else on real ones, to see what it returns. A network
    that gives its input to an `nn.Embedding` is fed with token numbers, any other with floats.
    """
    batches = _batches(model, workload)
    loss = loss_function(workload.loss)
    device = device_of(model)

    def run(model: nn.Module, batch: Any) -> torch.Tensor:
        inputs, labels = batch
        return loss(model(inputs), labels)

    def draw() -> Any:
        inputs, labels = batches.draw(torch.default_generator)
        return inputs.to(device), None if labels is None else labels.to(device)

    return TrainingStep(model, run, draw, source=workload.source())


def device_of(model: nn.Module) -> torch.device:
    """Return a model's device: the CPU for one without data, or without parameters."""
    parameter = next(model.parameters(), None)
    if parameter is None or parameter.device.type == "meta":
        return torch.device("cpu")
    return parameter.device


def without_data(model: nn.Module) -> bool:
    """Whether a model was built where tensors have no data, so that it cannot run."""
    return any(parameter.device.type == "meta" for parameter in model.parameters())


class _TokensWantedError(Exception):
    """An embedding was given floats."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens


def _batches(model: nn.Module, workload: Workload) -> Batches:
    tokens: int | None = None
    try:
        shape = _output_shape(model, Batches(workload, None, ()))
    except _TokensWantedError as wanted:
        tokens = wanted.tokens
        shape = _output_shape(model, Batches(workload, tokens, ()))
    return Batches(workload, tokens, shape)


def _output_shape(model: nn.Module, batches: Batches) -> tuple[int, ...]:
    name = type(model).__name__
    try:
        output = _run(model, batches)
    except (OffcertError, _TokensWantedError):
        raise
    except Exception as error:
        shape = "x".join(map(str, batches.workload.shape))
        raise InputError(f"{name} cannot run on an input of {shape}: {one_line(error)}") from error
    if not isinstance(output, torch.Tensor):
        raise InputError(
            f"{name} must return a tensor, not {type(output).__name__}: describe its training "
            "step with a TrainingStep"
        )
    return tuple(map(int, output.shape))


def _run(model: nn.Module, batches: Batches) -> Any:
    """Return the model's output for an input; nothing of the model is changed."""
    try:
        twins = FakeTwins()
        with _as_it_was(model, twins.twin), quiet(), twins.mode:
            return model(batches.inputs(torch.default_generator))
    except _TokensWantedError:
        raise
    except Exception:
        if without_data(model):
            raise
    # A program that looks at values cannot run without any.
    with _as_it_was(model, None), Originals():
        return model(batches.inputs(torch.default_generator).to(device_of(model)))


@contextmanager
def _as_it_was(model: nn.Module, replace: Any) -> Iterator[None]:
    with borrowed(model, replace=replace), torch.no_grad():
        handles = [
            module.register_forward_pre_hook(_require_tokens, with_kwargs=True)
            for module in model.modules()
            if isinstance(module, nn.Embedding)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _require_tokens(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Say so if an embedding is given floats, which it can make nothing of."""
    assert isinstance(module, nn.Embedding)
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            raise _TokensWantedError(module.num_embeddings)
