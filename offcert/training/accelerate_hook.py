"""Plans as a hook of Accelerate, for models that are put together from its hooks.

For example::

    add_hook_to_module(model, OffloadHook(certificate))
    ...
    remove_hook_from_module(model)

In a loop with an `accelerate.Accelerator` no hook is needed: ``with offload(model, certificate):``
around the loop does the same for a model that `Accelerator.prepare` has prepared. A plan that is
made before the first step, for the longest samples of a loader, on tensors without data::

    example = longest_step(model, loader)
    with offload(model, "auto", memory="50%", example=example):
        ...
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture.borrowed import random_state_kept
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.offload import Offload
from offcert.runtime.plan.step_plan import AnyPlan, CertificateLike
from offcert.runtime.watch.guard import OffloadWarning, one_line
from offcert.training.offload import offload

try:
    from accelerate.hooks import ModelHook, SequentialHook
    from accelerate.utils import send_to_device
except ImportError as error:
    raise ImportError(
        "the hook for Accelerate needs accelerate: pip install '.[huggingface]'"
    ) from error


def longest_step(
    model: nn.Module, loader: Any, loss: Callable[[nn.Module, Any], torch.Tensor] | None = None
) -> TrainingStep:
    """Return the step that a loop makes of the longest samples of a loader, to be planned for.

    Parameters
    ----------
    model : nn.Module
        As it is trained: prepared by an `accelerate.Accelerator`, or not.
    loader : torch.utils.data.DataLoader
        Prepared or not; its order and the random states stay as they are.
    loss : callable, optional
        Returns the loss of a model and a batch; by default that in the model's output, as models
        of `transformers` have it.

    Raises
    ------
    InputError
        If the loader has no samples that can be looked at, or no batch size.
    """
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    if not isinstance(size, int):
        raise InputError("loader must have a batch size, and has none")
    with random_state_kept():
        batch = longest_batch(loader, size, without_lengths=True)
    if batch is None:
        raise InputError("loader must have a data set with a length and numbered samples")
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    return TrainingStep(model, loss or _own_loss, send_to_device(batch, device))


def _own_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    if not isinstance(batch, Mapping):
        raise InputError("loss must be given where batches are no mappings")
    found = getattr(model(**batch), "loss", None)
    if not isinstance(found, torch.Tensor):
        raise InputError("loss must be given where the model's output has none")
    return found


def longest_batch(
    loader: Any, size: int, *, most: int = 2048, without_lengths: bool = False
) -> Any:
    """Return the batch that a loader makes of the longest samples of its data set.

    Of more than `most` samples, so many at equal distances are looked at. None where the data set
    has no length, or samples have none, unless those count as equally long (`without_lengths`).
    """
    data = loader.dataset
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        return None
    count = len(data)
    numbers = range(0, count, max(1, -(-count // most)))
    sizes = {number: _length(data[number]) for number in numbers}
    if not sizes or not (without_lengths or any(sizes.values())):
        return None
    size = min(count, size)
    longest = sorted(sizes, key=lambda number: -sizes[number])[:size]
    longest += longest[:1] * (size - len(longest))
    return loader.collate_fn([data[number] for number in longest])


def _length(sample: Any) -> int:
    """Return the length of the longest part of a sample; 0 if it has none."""
    parts = sample.values() if isinstance(sample, Mapping) else ()
    return max(
        (len(part) for part in parts if getattr(part, "__len__", None) and _dim(part)), default=0
    )


def _dim(part: Any) -> int:
    return part.dim() if isinstance(part, torch.Tensor) else 1


def foreseen(
    step: Callable[[], TrainingStep], make: Callable[..., Offload], *, strict: bool
) -> Offload:
    """Return an offload with a plan for a step, made before anything runs.

    Where that cannot be done, a warning says why (an error, if `strict`), and a plan is made while
    the training runs: `make` returns the offload, given the step as `example` or nothing.
    """
    try:
        return make(example=step())
    except Exception as error:
        if strict:
            raise
        warnings.warn(
            f"no plan was made before the training began: {one_line(error)}; one is made while "
            "it runs",
            OffloadWarning,
            stacklevel=3,
        )
    return make()


class OffloadHook(ModelHook):
    """Trains the module that it is added to under a plan, until it is removed.

    Parameters
    ----------
    plan : Certificate, Plan, Schedule, sequence of certificates, or ``"auto"``
        As for `offcert.training.offload`.
    problem : Problem, optional
        The problem that a plan or schedule was made for.
    loader : torch.utils.data.DataLoader, optional
        With ``"auto"``: a plan is made for its longest samples when the hook is added, before
        anything runs (`longest_step`). Where that cannot be done, a warning says why, and a plan is
        made while the training runs.
    loss : callable, optional
        With a loader: as for `longest_step`.
    **options : object
        Of `offcert.training.offload`.

    Attributes
    ----------
    offload : Offload or None
        The plan, with its `steps` and its `report`; None before the hook is added to a module.
    """

    def __init__(
        self,
        plan: AnyPlan | Sequence[CertificateLike] | str,
        problem: Problem | None = None,
        *,
        loader: Any = None,
        loss: Callable[[nn.Module, Any], torch.Tensor] | None = None,
        **options: Any,
    ) -> None:
        self.offload: Offload | None = None
        self._open = ExitStack()
        self._module: nn.Module | None = None
        if loader is not None and not isinstance(plan, str):
            raise InputError('loader can only be given with plan="auto"')
        if loss is not None and loader is None:
            raise InputError("loss can only be given with a loader")

        def make(model: nn.Module) -> Offload:
            if loader is None:
                return offload(model, plan, problem, **options)
            return foreseen(
                lambda: longest_step(model, loader, loss),
                partial(offload, model, plan, problem, **options),
                strict=bool(options.get("strict")),
            )

        self._make: Callable[[nn.Module], Offload] = make

    def init_hook(self, module: nn.Module) -> nn.Module:
        """Attach the plan to the module.

        Raises
        ------
        InputError
            If the hook is on another module, or as `offcert.training.offload`.
        """
        if self._module is not None and self._module is not module:
            raise InputError("an OffloadHook is for one module; make another for the next")
        # A hook that is replaced by another one is not told.
        for hook in _offload_hooks(getattr(module, "_hf_hook", None)):
            hook.detach_hook(module)
        self.offload = self._make(module)
        self._open.enter_context(self.offload)
        self._module = module
        return module

    def detach_hook(self, module: nn.Module) -> nn.Module:
        """Detach the plan."""
        self._module = None
        self._open.close()
        return module

    def __deepcopy__(self, memo: dict[int, Any]) -> OffloadHook:
        """Return a hook that is on no module: the copy of a model is not the model of the plan."""
        copy = OffloadHook.__new__(OffloadHook)
        copy.offload, copy._open, copy._module = None, ExitStack(), None
        copy._make = self._make
        return copy


def _offload_hooks(hook: Any) -> list[OffloadHook]:
    if isinstance(hook, SequentialHook):
        return [found for each in hook.hooks for found in _offload_hooks(each)]
    return [hook] if isinstance(hook, OffloadHook) else []
