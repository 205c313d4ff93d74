"""Plans in the Trainer of Lightning: a callback that follows one.

For example::

    callback = OffloadCallback("auto", memory="25%")
    lightning.Trainer(callbacks=[callback]).fit(module, loader)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Problem
from offcert.runtime.plan.step_plan import AnyPlan, CertificateLike
from offcert.training.feedback import Announced
from offcert.training.offload import offload

try:
    from lightning.pytorch import Callback
except ImportError as error:
    raise ImportError(
        "the callback for Lightning needs lightning: pip install '.[lightning]'"
    ) from error


class OffloadCallback(Announced, Callback):
    """Trains a module of a `lightning.Trainer` under a plan.

    The plan is attached when the training begins and detached when it ends, in whatever way;
    validation is left alone. Lightning calls ``training_step``, not the module itself, so the plan
    is for the network inside: the one that is called there.

    Plan, problem and options are those of `offcert.training.offload`; `network` is the name of the
    network in the ``LightningModule``, such as ``"model"``, by default the only part that has
    parameters, or the module itself if ``training_step`` calls ``self(batch)`` and there are
    several. `offload` is the plan of the latest training, with its `steps` and its `report`.
    """

    def __init__(
        self,
        plan: AnyPlan | Sequence[CertificateLike] | str,
        problem: Problem | None = None,
        *,
        network: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._plan, self._problem, self._network, self._options = plan, problem, network, options

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach the plan."""
        options = dict(self._options)
        if "device_memory" in options and len(trainer.optimizers) == 1:
            options.setdefault("optimiser", trainer.optimizers[0])
        network = network_of(pl_module, self._network)
        self.attach(offload(network, self._plan, self._problem, **options))

    def on_train_batch_end(self, trainer: Any, *args: Any, **others: Any) -> None:
        """Tell the loggers of plans that are new."""
        for numbers in self.news():
            _log(trainer, numbers)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Detach the plan and say in a line how the steps went."""
        _log(trainer, self.end())

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Detach the plan."""
        self.detach()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Detach the plan, if it is still attached."""
        self.detach()


def _log(trainer: Any, metrics: dict[str, float]) -> None:
    for logger in trainer.loggers:
        logger.log_metrics(metrics, step=trainer.global_step)


def network_of(module: nn.Module, name: str | None = None) -> nn.Module:
    """Return the network inside a ``LightningModule`` that a training step calls: a named part.

    By default it is the only part that has parameters, else the module itself.
    """
    parts = dict(module.named_children())
    if name is not None:
        if name not in parts:
            raise InputError(f"network must be one of {', '.join(parts)}, not {name!r}")
        return parts[name]
    trained = [part for part in parts.values() if any(True for _ in part.parameters())]
    own = any(True for _ in module.parameters(recurse=False))
    return trained[0] if len(trained) == 1 and not own else module
