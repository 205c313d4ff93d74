"""Runs one training step on fake tensors, or on real ones where that does not work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from offcert.core.errors import InputError, OffcertError
from offcert.runtime.capture.borrowed import Originals, borrowed, sharding_kept
from offcert.runtime.capture.build import build
from offcert.runtime.capture.capture import Capture, Clock
from offcert.runtime.capture.kernels import (
    AttentionKernels,
    CpuKernels,
    FakeTwins,
    Unsent,
    require_gathered,
)
from offcert.runtime.capture.recorder import Recorder
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.hardware import Hardware
from offcert.runtime.segments.attach import SegmentedSteps, Segments
from offcert.runtime.segments.placed import PlacedProgram
from offcert.runtime.torch_private import tree_leaves, tree_map_only
from offcert.runtime.watch.guard import one_line, quiet
from offcert.runtime.watch.hooks import Hooks, uncompiled, unwrap
from offcert.runtime.watch.sharded import Parts, local


def capture(
    step: TrainingStep,
    *,
    clock: Clock | str = Clock.MODULES,
    hardware: Hardware | None = None,
    tensors: str | None = None,
    program: PlacedProgram | None = None,
) -> Capture:
    """Capture one training step as a trace.

    The step is the user's own code, run once: any inputs, outputs, losses, and whatever control
    flow that one step takes. Parameters, buffers, gradients, attributes, hooks and the states of
    random generators are as before when it returns.

    The clock is ``"modules"`` or ``"operators"``; the roofline of `hardware` gives operations their
    durations in nanoseconds, zero without one. `tensors` are ``"auto"``, ``"fake"`` or ``"real"``
    instead of what the step says; those that it was run on the capture says. Where segments of a
    `program` run again in the backward pass, the trace is that of the step as it runs then.
    """
    clock = Clock(clock)
    if clock is Clock.GRAPHS:
        raise InputError("graphs are traced, not captured: use offcert.profile")
    if tensors is not None:
        step = replace(step, tensors=tensors)
    for name, parameter in step.model.named_parameters():
        if is_lazy(parameter):
            raise InputError(f"{name} has no shape yet: run the model once before it is captured")
    if step.tensors == "auto":
        with suppress(Exception):
            return _captured(step, clock, hardware, "fake", program)
    try:
        tensors = "fake" if step.tensors == "fake" else "real"
        return _captured(step, clock, hardware, tensors, program)
    except Exception as error:
        raise _told(step, error) from error


def _told(step: TrainingStep, error: Exception) -> OffcertError:
    if isinstance(error, OffcertError):
        return error
    # Somebody else's program can fail in any way; it is the input that is bad then.
    name = type(step.model).__name__
    return InputError(f"a training step of {name} cannot be captured: {one_line(error)}")


def _captured(
    step: TrainingStep,
    clock: Clock,
    hardware: Hardware | None,
    tensors: str,
    program: PlacedProgram | None,
) -> Capture:
    run = _run_fake if tensors == "fake" else _run_real
    recorder, batch = run(step, hardware, program)
    uncounted = uncounted_bytes_of(step.model, batch, step.optimiser)
    return build(recorder, clock, tensors, uncounted)


def uncounted_bytes_of(
    model: nn.Module, batch: int, optimiser: torch.optim.Optimizer | None = None
) -> dict[str, int]:
    """Return the bytes that a trace of a step does not count, by what they are."""
    parts = Parts(model)
    parameters = list({id(p): p for p in parts.parameters}.values())
    sizes = {
        "parameters": sum(map(held_bytes, parameters)),
        "gradients": sum(held_bytes(p) for p in parameters if p.requires_grad),
        "buffers": sum(map(held_bytes, model.buffers())),
        "batch": batch,
    }
    whole = sum(map(held_bytes, parts.sharded.gradients()))
    if whole:
        sizes["gradients of all processes"] = whole
    if optimiser is not None:
        leaves = tree_leaves([dict(state) for state in optimiser.state.values()])
        state = sum(held_bytes(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))
        sizes["optimiser"] = state
    return sizes


def held_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor, or of the shard that this process holds, with its padding."""
    part = local(tensor)
    if part is not tensor:
        return part.untyped_storage().nbytes()
    return tensor.numel() * tensor.element_size()


def batch_bytes(batch: Any) -> int:
    """Return the bytes of the storages of a batch."""
    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
    storages: dict[int, int] = {}
    for tensor in tensors:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            # Sparse tensors have none, and neither have those of function transforms.
            storages[id(tensor)] = held_bytes(tensor)
        else:
            storages[storage._cdata] = storage.nbytes()
    return sum(storages.values())


def _run_fake(
    step: TrainingStep, hardware: Hardware | None, program: PlacedProgram | None = None
) -> tuple[Recorder, int]:
    twins = FakeTwins()
    foreseen = nullcontext() if hardware is None or step.here else AttentionKernels(hardware)
    parts = Parts(step.model)
    require_gathered(parts)
    unsent = Unsent() if parts.sharded else nullcontext()
    with _as_it_was(step, twins.twin), quiet(), twins.mode, CpuKernels(), unsent, foreseen:
        batch = tree_map_only(torch.Tensor, twins.twin, step.make_batch())
        return _record(step, batch, hardware, program)


def _run_real(
    step: TrainingStep, hardware: Hardware | None, program: PlacedProgram | None = None
) -> tuple[Recorder, int]:
    with _as_it_was(step, None):
        batch = step.make_batch()
        with Originals():
            return _record(step, batch, hardware, program)


@contextmanager
def _as_it_was(step: TrainingStep, replace: Any) -> Iterator[None]:
    with ExitStack() as stack:
        sharded = Parts(step.model).sharded
        if sharded:
            stack.enter_context(sharding_kept(sharded, replace))
        stack.enter_context(uncompiled())
        stack.enter_context(borrowed(*borrowing(step), replace=replace))
        yield


def borrowing(step: TrainingStep) -> tuple[Any, ...]:
    """Return the objects a step may change: model, function, batch, and the function's globals."""
    return step.model, step.run, step.batch, *_globals_of(step.run)


def _globals_of(function: Any) -> list[Any]:
    """Return the modules and containers that a function finds in the file it was written in."""
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None)
    if code is None:
        return []
    found = [function.__globals__.get(name) for name in code.co_names]
    return [each for each in found if isinstance(each, nn.Module | dict | list | set)]


def _record(
    step: TrainingStep, batch: Any, hardware: Hardware | None, program: PlacedProgram | None
) -> tuple[Recorder, int]:
    """Return the recording of a step, and the bytes of its batch, which it may take apart."""
    size = batch_bytes(batch)
    hooks = Hooks(unwrap(step.model), Nobody())
    recorder = Recorder(hooks, hardware)
    programs = [program] if program else []
    segments = Segments(hooks.root, programs, hooks, rehearsed=False)
    hooks.steps = SegmentedSteps(recorder, segments) if program else recorder
    # Before the clock: what is kept is then saved in the operation that makes it.
    segments.attach()
    hooks.attach()
    try:
        with recorder.active():
            step.execute(batch)
    finally:
        hooks.detach()
        segments.detach()
    recorder.finish()
    return recorder, size


class Nobody:
    """Begins no steps."""

    def begin(self, args: Any, kwargs: Any) -> None:
        """Watch nothing."""

    def left(self, session: Any, output: Any) -> None:
        """Watch nothing."""
