"""A workload: a network, the shape of its input, a loss; and how a problem records it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from offcert.core.errors import InputError, OffcertError
from offcert.core.messages import short_repr
from offcert.core.options import users_function
from offcert.runtime import zoo
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.watch.guard import one_line

# Numbers of a batch: four tebibytes in float32. Arbitrary.
MOST_NUMBERS = 2**40

Loss = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]


def _cross_entropy(output: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
    if labels is None:
        raise InputError('the loss "cross-entropy" needs labels')
    return cross_entropy(output.flatten(0, -2), labels.flatten())


def _mean(output: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
    return output.mean()


LOSSES: dict[str, Loss] = {"cross-entropy": _cross_entropy, "mean": _mean}


def loss_function(name: str) -> Loss:
    """Return a loss by name.

    ``"cross-entropy"`` takes the output's last dimension as the logits of the classes and labels
    of the shape of the other dimensions; ``"mean"`` averages the output and takes no labels.
    """
    if name not in LOSSES:
        known = " or ".join(f'"{known}"' for known in LOSSES)
        raise InputError(f"loss must be {known}, not {name!r}")
    return LOSSES[name]


_DTYPES = ("float32", "float64", "bfloat16", "float16")

DEFAULT_LOSS = "cross-entropy"
DEFAULT_DTYPE = "float32"

# The step of a model that is made from its configuration.
CONFIGURED = "offcert.runtime.workloads.configured:training_step"

# Fields of a problem's source that have defaults, and their kinds.
_OPTIONAL: dict[str, Any] = {"options": dict, "dtype": str, "loss": str, "seed": int}


@dataclass(frozen=True)
class Workload:
    """Everything that is needed to rebuild a training step."""

    # A name of the zoo, ``"package.module:callable"``, or None for a module that only the caller
    # has.
    model: str | None
    # Shape of the input, batch size first; None if `model` names a `TrainingStep`, which brings its
    # own batch, types and loss.
    input: tuple[int, ...] | None
    # Keyword arguments of the callable or the zoo's builder.
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = DEFAULT_DTYPE  # Data type of parameters and inputs
    loss: str = DEFAULT_LOSS  # See `offcert.runtime.workloads.workload.loss_function`
    seed: int = 0  # Seed of the initial weights

    def __post_init__(self) -> None:
        if self.dtype not in _DTYPES:
            raise InputError(
                f"dtype must be one of {', '.join(_DTYPES)}, not {short_repr(self.dtype)}"
            )
        loss_function(self.loss)

    @classmethod
    def from_source(cls, source: Mapping[str, Any] | None) -> Workload:
        """Read the ``source`` of a problem."""
        if source is None:
            raise InputError("the problem has no source: it does not say which network it is")
        if "model" not in source and "input" not in source:
            raise InputError(
                "this problem was not made of a network, so there is nothing to run: `offcert "
                "profile` makes one that can be trained"
            )
        for name in ("model", "input"):
            if name not in source:
                raise InputError(f"source.{name} is missing")
        optional = {n: source[n] for n in _OPTIONAL if n in source}
        either = {"model": (str, type(None)), "input": (list, type(None))}
        kinds: dict[str, Any] = either | _OPTIONAL
        for name, kind in kinds.items():
            value = source.get(name)
            if name in source and (not isinstance(value, kind) or isinstance(value, bool)):
                raise InputError(f"source.{name} must not be {short_repr(value)}")
        shape = source["input"]
        if shape is not None and not all(type(size) is int for size in shape):
            raise InputError(f"source.input must be a list of integers, not {short_repr(shape)}")
        if not 0 <= optional.get("seed", 0) < 2**63:
            raise InputError(
                f"source.seed must be from 0 to below 2**63, not {short_repr(source['seed'])}"
            )
        return cls(source["model"], None if shape is None else input_shape(shape), **optional)

    def source(self) -> dict[str, Any]:
        """Return the part of a problem's ``source`` that describes the workload."""
        common = {"model": self.model, "options": dict(self.options)}
        if self.input is None:
            return common | {"input": None, "seed": self.seed}
        return common | {
            "input": list(self.input),
            "dtype": self.dtype,
            "loss": self.loss,
            "seed": self.seed,
        }

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the input."""
        if self.input is None:
            raise InputError(f"input is missing, the shape of what {self.model or 'it'} takes")
        return self.input

    @property
    def torch_dtype(self) -> torch.dtype:
        """The data type as PyTorch's."""
        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype

    def load(self, *, shapes_only: bool = False) -> nn.Module | TrainingStep:
        """Build the model of that name, with seeded weights, in training mode; or the step.

        With `shapes_only`, networks of the zoo and models from configurations take no memory and
        have no weights.
        """
        if self.model is None:
            raise InputError("source.model is null: pass the module itself")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            if shapes_only and self.model in (*zoo.names(), CONFIGURED):
                with torch.device("meta"):
                    made = load(self.model, self.options)
            else:
                made = load(self.model, self.options)
        if isinstance(made, TrainingStep):
            return made
        return made.to(self.torch_dtype).train()

    def build(self, *, shapes_only: bool = False) -> nn.Module:
        """Build the network; parameters as for `load`."""
        made = self.load(shapes_only=shapes_only)
        if isinstance(made, TrainingStep):
            raise InputError(
                f"model {self.model} must return an nn.Module here, not a TrainingStep"
            )
        return made


@dataclass(frozen=True)
class Batches:
    """Random batches for a workload."""

    workload: Workload  # Shape and data type of the input
    # The input consists of token numbers below this; None: of normally distributed floats.
    tokens: int | None
    # The labels have this shape without its last entry, which is the number of classes.
    output_shape: tuple[int, ...]

    def draw(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return an input and labels, or None in their place for losses without any."""
        inputs = self.inputs(generator)
        if self.workload.loss != "cross-entropy":
            return inputs, None
        shape = self.output_shape[:-1]
        return inputs, torch.randint(self.output_shape[-1], shape, generator=generator)

    def inputs(self, generator: torch.Generator) -> torch.Tensor:
        """Return an input."""
        if self.tokens is not None:
            return torch.randint(self.tokens, self.workload.shape, generator=generator)
        floats = torch.randn(self.workload.shape, generator=generator)
        return floats.to(self.workload.torch_dtype)


def input_shape(shape: str | Sequence[int]) -> tuple[int, ...]:
    """Return a shape given as ``"32x3x224x224"`` or as a sequence."""
    parts: Sequence[Any] = shape.lower().split("x") if isinstance(shape, str) else shape
    try:
        sizes = tuple(int(part) for part in parts)
    except (TypeError, ValueError):
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise InputError(f"input must look like 32x3x224x224, not {short_repr(shape)}")
    if math.prod(sizes) > MOST_NUMBERS:
        raise InputError(
            f"input {short_repr(shape)} has more numbers than any device holds: at most "
            f"{MOST_NUMBERS:,} in a batch"
        )
    return sizes


def load(spec: str, options: Mapping[str, Any] | None = None) -> nn.Module | TrainingStep:
    """Make a network or a `TrainingStep` by a name of the zoo or ``"package.module:callable"``."""
    options = dict(options or {})
    if ":" not in spec:
        return zoo.build(spec, **options)
    function = users_function(spec, "model")
    try:
        made = function(**options)
    except (Exception, SystemExit) as error:
        if spec == CONFIGURED and isinstance(error, OffcertError):
            raise
        raise InputError(f"model {spec} failed: {one_line(error)}") from error
    if not isinstance(made, nn.Module | TrainingStep):
        kind = type(made).__name__
        raise InputError(f"model {spec} must return an nn.Module or a TrainingStep, not {kind}")
    return made
