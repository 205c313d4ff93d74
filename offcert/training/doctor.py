"""`doctor`: which batch fits into a device, and how fast it trains, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import nn

from offcert.certification.diagnosis import Diagnoses, Diagnosis
from offcert.certification.doctor import DoublingSearch, Size, diagnose
from offcert.certification.search import SearchProgress
from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.options import require_count
from offcert.core.units import require_limit, require_size
from offcert.questions.schedule.device_memory import require_optimiser_counted
from offcert.questions.schedule.problem import Problem
from offcert.runtime import zoo
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.hardware import Hardware
from offcert.runtime.hardware import hardware as find_hardware
from offcert.runtime.hardware.choice import choose
from offcert.runtime.profiling.optimisers import Optimiser, require_state_known
from offcert.runtime.profiling.profile import profile, require_optimiser_known
from offcert.runtime.workloads.workload import input_shape as parse_shape

# Parts of a size: the keyword under which a callable is given it, and its place in the shape of an
# input. By definition.
_PLACES = {"batch": 0, "sequence": 1}

Model = str | nn.Module | TrainingStep | Callable[..., TrainingStep | nn.Module]


def doctor(
    model: Model,
    input_shape: str | Sequence[int] | None = None,
    *,
    device_memory: int | str | None = None,
    host_memory: int | str | None = None,
    pageable_memory: int | str | None = None,
    batch: Sequence[int] | str = (),
    sequence: Sequence[int] = (),
    optimiser: Optimiser | None = None,
    optimizer: Optimiser | None = None,
    hardware: str | Hardware | None = None,
    options: Mapping[str, Any] | None = None,
    time_limit: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    recompute: bool = True,
    progress: Callable[[SearchProgress], None] | None = None,
    found: Callable[[Diagnosis], None] | None = None,
    **profiled: Any,
) -> Diagnoses:
    """Find the sizes at which a training step fits into a device, and how fast it is there.

    Every size is captured on fake tensors, so that neither the memory nor the device is needed, and
    gets the best plan that a search finds within its share of the time, with a proved bound.

    Parameters
    ----------
    model : str, nn.Module, TrainingStep or callable
        As for `profile`. Of a callable, or ``"package.module:callable"``, that takes no
        `input_shape`, each size is asked for by the keywords ``batch`` and ``sequence``.
    input_shape : str or sequence of int, optional
        For example ``"32x3x224x224"``: batch size first, then, for tokens, the length.
    device_memory : int or str, optional
        Of the whole device, in bytes or as a text such as ``"24GiB"``. By default that of the card,
        less half a gibibyte for the context of CUDA and a 32nd for fragmentation.
    host_memory : int or str, optional
        Of the host, as far as it may be pinned for copies: a plan that needs more is said to.
    pageable_memory : int or str, optional
        Of the host, not pinned: for copies that have no room in `host_memory` (which training
        keeps there with ``host_spill="/dev/shm"``), and for those of ``save_on_cpu``.
    batch, sequence : sequence of int
        Sizes to try; all pairs, if both are given. By default the one of the step. As `batch` also
        ``"auto"``: doubled until one does not fit, then those between, to the largest that does.
    optimiser, optimizer : str or torch.optim.Optimizer, optional
        As for `profile`, in either spelling.
    hardware : str or Hardware, optional
        Name of a hardware model, or of a TOML file that describes one. By default the CUDA device
        here, or else the card that `device_memory` suggests.
    options : mapping, optional
        More keyword arguments for what `model` names.
    time_limit : float
        Seconds for all sizes together, captures among them.
    workers : int
        Threads for solvers that can use several.
    seed : int
        Seed of every random choice.
    recompute : bool
        Whether computations may run again, or tensors only move.
    progress : callable, optional
        Told of every step and improvement of a search.
    found : callable, optional
        Given each size's answer as soon as it is known.
    **profiled
        More arguments of `profile`, such as ``dtype`` or ``clock``.

    Returns
    -------
    Diagnoses
        One a size, in the order in which they were looked at; fewer after an interrupt. Shown, it
        is a table.

    Raises
    ------
    InputError
        If a size cannot be had of this model, a number is out of its range, or it is not clear
        which card is meant.

    Examples
    --------
    >>> import offcert, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    >>> found = offcert.doctor(
    ...     model, "4x8", batch=[4, 64], device_memory="1MiB", hardware="RTX 4090", optimiser="sgd"
    ... )
    >>> [each.asked["batch"] for each in found]
    [4, 64]
    >>> found.largest.asked["batch"]
    64
    """
    memory = None if device_memory is None else require_limit(device_memory, "device_memory")
    optimiser = _either(optimiser, optimizer)
    chosen = choose(None if hardware is None else find_hardware(hardware), memory)
    shape = None if input_shape is None else parse_shape(input_shape)
    growing, batches = _batches(batch)
    _require_sizes(model, shape, {"batch": batches, "sequence": sequence})
    # What else is named, or called, may bring its optimiser.
    if isinstance(model, nn.Module | TrainingStep):
        require_optimiser_known(model, optimiser)
    elif model in zoo.names() and optimiser is None:
        require_optimiser_counted({})
    settings = {"hardware": chosen.card, "optimiser": optimiser, "seed": seed} | profiled

    def size(number: int | None, length: int | None) -> Size:
        pairs = zip(_PLACES, (number, length), strict=True)
        asked = {name: each for name, each in pairs if each is not None}
        return _size(model, shape, asked, dict(options or {}), settings)

    sizes: list[Size | DoublingSearch] = [
        DoublingSearch(partial(size, length=length)) if growing else size(number, length)
        for number, length in product(batches or (None,), sequence or (None,))
    ]
    limits = {"host_memory": host_memory, "pageable_memory": pageable_memory}
    diagnosed = diagnose(
        sizes,
        chosen.memory,
        **{n: require_size(limit, n) for n, limit in limits.items() if limit is not None},
        time_limit=time_limit,
        workers=workers,
        seed=seed,
        recompute=recompute,
        progress=progress,
        found=found,
    )
    if growing and diagnosed.asked == len(diagnosed):
        ordered = sorted(diagnosed, key=lambda each: (each.asked.get("sequence", 0), each.samples))
        diagnosed = replace(diagnosed, sizes=tuple(ordered))
    return replace(diagnosed, title=_title(model), notes=chosen.notes)


def _title(model: Model) -> str:
    if isinstance(model, str):
        return model
    named = model.model if isinstance(model, TrainingStep) else model
    return getattr(named, "__name__", type(named).__name__)


def _either(optimiser: Optimiser | None, optimizer: Optimiser | None) -> Optimiser | None:
    """Return the optimiser that is given in one spelling."""
    if optimiser is not None and optimizer is not None:
        raise InputError("optimiser and optimizer are the same: give one of them")
    found = optimizer if optimiser is None else optimiser
    if found is not None:
        require_state_known(found)
    return found


def _batches(batch: Sequence[int] | str) -> tuple[bool, Sequence[int]]:
    """Return whether sizes are to grow, and those that are given, of which 1 stands for them."""
    if not isinstance(batch, str):
        return False, batch
    if batch != "auto":
        raise InputError(f'batch must be a sequence of numbers or "auto", not {short_repr(batch)}')
    return True, (1,)


def _require_sizes(
    model: Model, shape: tuple[int, ...] | None, asked: Mapping[str, Sequence[int]]
) -> None:
    if shape is not None and not isinstance(model, str | nn.Module | TrainingStep):
        raise InputError("an input's shape goes with a module, or with a model that is named")
    for name, numbers in asked.items():
        if not isinstance(numbers, Sequence):
            raise InputError(f"{name} must be a sequence of numbers, not {short_repr(numbers)}")
        for index, number in enumerate(numbers):
            require_count(number, f"{name}[{index}]")
        if not numbers:
            continue
        if shape is not None:
            if _PLACES[name] >= len(shape):
                raise InputError(f"an input of {len(shape)} dimension has no {name}")
        elif isinstance(model, nn.Module | TrainingStep):
            raise InputError(
                f"{name} cannot be changed of a step that is there already: give a callable that "
                f"returns it, with the keyword {name}"
            )


def _size(
    model: Model,
    shape: tuple[int, ...] | None,
    asked: Mapping[str, int],
    options: dict[str, Any],
    settings: Mapping[str, Any],
) -> Size:
    if shape is not None and isinstance(model, str | nn.Module | TrainingStep):
        sizes = list(shape)
        for name, number in asked.items():
            sizes[_PLACES[name]] = number
        known = {name: sizes[place] for name, place in _PLACES.items() if name in asked}
        run = partial(profile, model, sizes, options=options, **settings)
        return Size(known or {"batch": sizes[0]}, sizes[0], run)
    if isinstance(model, str):
        run = partial(profile, model, options=options | dict(asked), **settings)
        return Size(asked, asked.get("batch", 1), run)
    if not isinstance(model, nn.Module | TrainingStep):
        return Size(asked, asked.get("batch", 1), partial(_of_callable, model, asked, settings))
    samples = _samples(model)
    return Size({"batch": samples}, samples, partial(profile, model, **settings))


def _of_callable(
    make: Callable[..., TrainingStep | nn.Module],
    asked: Mapping[str, int],
    settings: Mapping[str, Any],
) -> Problem:
    made = make(**asked)
    require_optimiser_known(made, settings["optimiser"])
    problem = profile(made, **settings)
    label = " ".join(f"{name} {number}" for name, number in asked.items())
    return replace(problem, name=f"{getattr(make, '__name__', 'step')} {label}".strip())


def _samples(model: nn.Module | TrainingStep) -> int:
    """Return the first size of the first tensor of a step's batch; 1 where there is none."""
    waiting = [model.make_batch() if isinstance(model, TrainingStep) else None]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, torch.Tensor) and part.dim():
            return len(part)
        if isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
    return 1
