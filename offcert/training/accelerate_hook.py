"""Plans as a hook of Accelerate, for models that are put together from its hooks.

For example::

    add_hook_to_module(model, OffloadHook(certificate))
    ...
    remove_hook_from_module(model)

In a loop with an `accelerate.Accelerator` no hook is needed: ``with offload(model, certificate):``
around the loop does the same for a model that `Accelerator.prepare` has prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from torch import nn

from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Problem
from offcert.runtime.follow.offload import Offload
from offcert.runtime.plan.step_plan import AnyPlan, CertificateLike
from offcert.training.offload import offload

try:
    from accelerate.hooks import ModelHook, SequentialHook
except ImportError as error:
    raise ImportError(
        "the hook for Accelerate needs accelerate: pip install '.[huggingface]'"
    ) from error


class OffloadHook(ModelHook):
    """Trains the module that it is added to under a plan, until it is removed.

    Parameters
    ----------
    plan : Certificate, Plan, Schedule, sequence of certificates, or ``"auto"``
        As for `offcert.training.offload`.
    problem : Problem, optional
        The problem that a plan or schedule was made for.
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
        **options: Any,
    ) -> None:
        self.offload: Offload | None = None
        self._open = ExitStack()
        self._module: nn.Module | None = None
        self._make: Callable[[nn.Module], Offload] = lambda model: offload(
            model, plan, problem, **options
        )

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
