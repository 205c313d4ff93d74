"""Plans in the Trainer of Hugging Face: a callback that follows one, and the step to plan for.

For example::

    step = trainer_step(trainer)
    problem = profile(step, hardware="v100-pcie")
    certificate = certify(problem.with_memory(problem.memory_at(Fraction(1, 2))))
    trainer.add_callback(OffloadCallback(certificate))
    trainer.train()

or, with a plan that is made before the training begins, for the longest samples::

    trainer.add_callback(OffloadCallback("auto", memory="50%"))
    trainer.train()
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from torch import nn

from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture.borrowed import python_state_kept, random_state_kept
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.compiled.backend import Backend, backend
from offcert.runtime.follow.offload import Offload
from offcert.runtime.plan.step_plan import AnyPlan, CertificateLike
from offcert.runtime.watch.guard import OffloadWarning, one_line
from offcert.training.feedback import Announced, tell_of_planning
from offcert.training.loaders import longest_batch
from offcert.training.offload import offload
from offcert.training.planner import SECONDS

try:
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise ImportError(
        "the Trainer's callback needs transformers: pip install '.[huggingface]'"
    ) from error


class OffloadCallback(Announced, TrainerCallback):
    """Trains the model of a `transformers.Trainer` under a plan.

    The plan is attached when the training begins and detached when it ends, in whatever way. What
    the Trainer does between the steps (clipping, evaluation, saving) is left alone. Each
    micro-batch of an accumulated step follows the plan anew. Lines for people say when a plan is
    made, what it promises, and at the end what became of the steps; on a terminal, or in the log
    ``offcert.training``. The Trainer's loggers (TensorBoard, W&B, its history) get the numbers.

    Plan, problem and options are those of `offcert.training.offload`. Where the Trainer compiles
    the model (`torch_compile=True`), the plan must be a certificate, or a plan and its problem, of
    a profile by the clock ``graphs``.

    Attributes
    ----------
    offload : Offload or None
        The plan of the latest training, with its `steps` and its `report`; None before the first,
        and where the Trainer compiles the model.
    backend : Backend or None
        What compiles it there in the latest training, with its `report`.
    """

    def __init__(
        self,
        plan: AnyPlan | Sequence[CertificateLike] | str,
        problem: Problem | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        _tell_how_training_ends()
        self.backend: Backend | None = None
        self._plan: Any = plan
        self._problem = problem
        self._make: Callable[..., Offload] = partial(offload, plan=plan, problem=problem)
        self._options = options
        # Whether a plan can be made before anything runs, and what was made.
        self._foresees = isinstance(plan, str) and "example" not in options
        self._made: Offload | None = None
        self._trainer: Callable[[], Trainer | None] = lambda: None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **others: Any
    ) -> None:
        """Attach the plan."""
        if self.backend is not None:
            # What Accelerate has compiled follows it.
            self.offload = None
            return
        # A training that ran out of memory begins again with a smaller batch.
        self.detach()
        made, self._made = self._made, None
        if made is None or made.model is not model:
            made = self._make(model, **self._options)
        self.attach(made)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Tell the Trainer's loggers of plans that are new."""
        if self.backend is not None:
            whole = bool(self.backend.reports) and self.backend.report.complete
            self._other_steps["planned" if whole else "deviating"] += 1
        for numbers in self.news():
            self._log(numbers)

    def _log(self, metrics: Mapping[str, float]) -> None:
        """Give metrics to the Trainer's loggers: TensorBoard, its history, and so on."""
        trainer = self._trainer()
        if trainer is not None:
            trainer.log(dict(metrics))

    def prepare(self, trainer: Trainer) -> None:
        """Make a plan before the training of a Trainer begins, on tensors without data.

        It is for the batch with the longest samples (`largest_batch`), and so for all. Where that
        cannot be done, a warning says why, and a plan is made while the training runs.
        """
        self._trainer = weakref.ref(trainer)
        _require_whole_parameters(trainer)
        self.backend = None
        if _compiles(trainer):
            _require_compilable(trainer, self._plan)
            strict = bool(self._options.get("strict"))
            self.backend = backend(self._plan, self._problem, strict=strict)
            self._other_steps.clear()
            self._open.enter_context(_compiled_by(trainer, self.backend))
            return
        if not self._foresees:
            return
        batch = trainer.args.train_batch_size
        tell_of_planning(
            f"the longest samples, {batch} at a time,", self._options.get("time_limit", SECONDS)
        )
        make = partial(self._make, trainer.model, **self._options)
        try:
            example = trainer_step(trainer, largest_batch(trainer), tensors="fake")
            self._made = make(example=example)
        except Exception as error:
            if self._options.get("strict"):
                raise
            warnings.warn(
                f"no plan was made before the training began: {one_line(error)}; one is made while "
                "it runs",
                OffloadWarning,
                stacklevel=3,
            )
            self._made = make()

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Detach the plan and say in a line how the steps went."""
        self._log(self.end())


def _compiles(trainer: Trainer) -> bool:
    """Whether a Trainer compiles its model, by its arguments or Accelerate's settings."""
    backend = getattr(_dynamo_plugin(trainer), "backend", None)
    name = str(getattr(backend, "value", "no")).lower()
    return bool(trainer.args.torch_compile) or name != "no"


def _dynamo_plugin(trainer: Any) -> Any:
    return getattr(trainer.accelerator.state, "dynamo_plugin", None)


def _require_compilable(trainer: Trainer, plan: object) -> None:
    """Raise an `InputError` if a Trainer compiles its model in a way that follows no plan."""
    if isinstance(plan, str):
        raise InputError(
            "plan must be a certificate where torch_compile compiles the model as a whole, since "
            "compiled code saves what no hook sees: certify profile(trainer_step(trainer), "
            'clock="graphs", hardware=...)'
        )
    plugin = _dynamo_plugin(trainer)
    mode = getattr(plugin, "mode", None)
    if mode not in (None, "default") or getattr(plugin, "options", None):
        raise InputError(f"compiled code follows a plan without a mode or options, not {mode!r}")
    if getattr(plugin, "use_regional_compilation", None):
        raise InputError("compiled code follows a plan without regional compilation")
    if getattr(trainer, "is_fsdp_enabled", False):
        raise InputError("a Trainer that compiles its model follows a plan without FSDP")


@contextmanager
def _compiled_by(trainer: Any, found: Backend | None) -> Iterator[None]:
    """Let Accelerate compile by a backend of ours, or nothing at all."""
    plugin = _dynamo_plugin(trainer)
    if plugin is None:
        yield
        return
    kept = plugin.backend
    if found is None:
        plugin.backend = type(kept)("NO")
    else:
        plugin.backend = type(kept)("INDUCTOR")
        plugin.to_kwargs = lambda: {"backend": found, "dynamic": False}
    try:
        yield
    finally:
        plugin.backend = kept
        plugin.__dict__.pop("to_kwargs", None)


def _require_whole_parameters(trainer: Trainer) -> None:
    """Raise an `InputError` if parameters are kept by an engine whose steps cannot be followed."""
    if getattr(trainer, "is_deepspeed_enabled", False):
        raise InputError(
            "a Trainer with DeepSpeed gives parameters, gradients and steps to its engine, where "
            "no plan is followed: train with FSDP2 instead"
        )
    plugin = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    if plugin is not None and plugin.fsdp_version == 1:
        raise InputError(
            "a Trainer with FSDP1 keeps its parameters in flat ones, whose views no plan can tell "
            'from what is saved: use FSDP2, fsdp_config={"version": 2}'
        )


def _tell_how_training_ends() -> None:
    """Make the Trainer tell our callbacks what it has no events for: who trains, and an error."""
    train = Trainer.train
    if hasattr(train, "_detaches_plans"):
        return

    @functools.wraps(train)
    def detaching(self: Any, *args: Any, **kwargs: Any) -> Any:
        ours = [c for c in self.callback_handler.callbacks if isinstance(c, OffloadCallback)]
        for callback in ours:
            callback.prepare(self)
        try:
            return train(self, *args, **kwargs)
        finally:
            for callback in ours:
                callback.detach()

    detaching._detaches_plans = True  # type: ignore[attr-defined]
    Trainer.train = detaching


def largest_batch(trainer: Any, *, most: int = 2048) -> Any:
    """Return the batch that a Trainer makes of the longest samples of its data set.

    Its random states stay as they are; see `longest_batch`.
    """
    with _left_alone(trainer), random_state_kept():
        loader = trainer.get_train_dataloader()
        return longest_batch(loader, trainer.args.train_batch_size, most=most)


def trainer_step(trainer: Any, batch: Any = None, *, tensors: str = "real") -> TrainingStep:
    """Return the step that a Trainer makes of one batch, to be profiled.

    It is `Trainer.training_step`, with the precision and the gradient checkpointing of the
    Trainer's arguments: they are put on the model while the step runs and taken off again. Neither
    the trainer nor the model nor the random states are changed. It is the first micro-batch of an
    accumulated step: from the second one on, each gradient exists besides the sum it is added to.

    The batch is by default the first of the Trainer's own loader, whose size and length other
    batches should have. Captured on `tensors` without data, models of `transformers` make masks
    that they leave out where they see that nothing is masked. Another engine than PyTorch's own
    (DeepSpeed, FSDP) is an `InputError`.
    """
    if not isinstance(trainer, Trainer):
        raise InputError(f"trainer must be a transformers.Trainer, not {type(trainer).__name__}")
    for engine in ("deepspeed", "fsdp"):
        if getattr(trainer, f"is_{engine}_enabled", False):
            raise InputError(f"a Trainer with {engine} cannot be profiled")
    accumulated = trainer.args.gradient_accumulation_steps
    with _left_alone(trainer), random_state_kept():
        batches = iter(
            [batch] * accumulated if batch is not None else trainer.get_train_dataloader()
        )
        samples, items = trainer.get_batch_samples(batches, accumulated, trainer.args.device)
        del batches
    if not samples:
        raise InputError("the Trainer's data set gives no batch")

    def run(model: nn.Module, batch: Any) -> None:
        inputs, items = batch
        with _left_alone(trainer), python_state_kept(model):
            trainer.current_gradient_accumulation_steps = len(samples)
            # What is compiled calls the model, which Accelerate prepares before it is compiled.
            whole = getattr(model, "_orig_mod", model)
            prepared = _prepared(trainer, whole)
            trainer.training_step(prepared if model is whole else model, inputs, items)

    first = samples[0], items
    return TrainingStep(trainer.model, run, first, trainer.optimizer, tensors=tensors)


def _prepared(trainer: Any, model: nn.Module) -> nn.Module:
    """Give a model what `Trainer.train` gives it: checkpointing, and Accelerate's precision."""
    arguments = trainer.args
    asked = getattr(arguments, "activation_checkpointing", arguments.gradient_checkpointing)
    if asked and not getattr(model, "is_gradient_checkpointing", False):
        options = getattr(
            arguments, "activation_checkpointing_kwargs", arguments.gradient_checkpointing_kwargs
        )
        options = dict(options or {})
        own = {name: options.pop(name) for name in ("every_n_layers", "offload") if name in options}
        # Its name before transformers 5.23, and after.
        enable: Any = getattr(model, "activation_checkpointing_enable", None)
        if enable is None:
            enable = model.gradient_checkpointing_enable
        enable(options or None, **own)
    with _compiled_by(trainer, None):
        prepared: nn.Module = trainer.accelerator.prepare_model(
            model, device_placement=False, evaluation_mode=True
        )
    return prepared


def _left_alone(trainer: Any) -> AbstractContextManager[None]:
    """Put back what the trainer and its accelerator remember of models, loaders and batches."""
    accelerator = trainer.accelerator
    return python_state_kept(trainer, accelerator, accelerator.gradient_state, deep=False)
