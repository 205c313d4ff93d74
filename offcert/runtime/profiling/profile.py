"""From a network, or a training step of one's own, to a problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError, OffcertError
from offcert.core.forms import member
from offcert.core.network import Network
from offcert.core.platform import Link
from offcert.core.trace import Trace
from offcert.core.units import Units, parse_limit, require_limit
from offcert.questions.schedule.device_memory import memory_beside, require_optimiser_counted
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime.capture import Clock, capture
from offcert.runtime.capture.capture import Capture
from offcert.runtime.capture.run import batch_bytes, uncounted_bytes_of
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.interface import Device
from offcert.runtime.hardware import Hardware
from offcert.runtime.hardware import hardware as find_hardware
from offcert.runtime.hardware.bandwidth import Measurement, modelled, retimed_network
from offcert.runtime.profiling.measured_step import measure_step
from offcert.runtime.profiling.optimisers import (
    Optimiser,
    OptimiserBytes,
    bytes_of,
    optimiser_bytes,
    require_state_known,
)
from offcert.runtime.watch.guard import one_line
from offcert.runtime.workloads.standard_step import standard_step, without_data
from offcert.runtime.workloads.workload import DEFAULT_DTYPE, DEFAULT_LOSS, Workload
from offcert.runtime.workloads.workload import input_shape as parse_shape

_UNITS = Units("ns", "B")


def profile(
    model: str | nn.Module | TrainingStep,
    input_shape: str | Sequence[int] | None = None,
    *,
    clock: str = "modules",
    hardware: str | Hardware | None = None,
    measure: bool = False,
    loss: str = DEFAULT_LOSS,
    options: Mapping[str, Any] | None = None,
    dtype: str = DEFAULT_DTYPE,
    seed: int = 0,
    name: str | None = None,
    memory: int | str | None = None,
    device_memory: int | str | None = None,
    optimiser: Optimiser | None = None,
    device: Device | None = None,
    link: str = Link.DUPLEX,
    recompute: str = Recompute.ANY,
) -> Problem:
    """Turn one training step into a problem, in nanoseconds and bytes.

    Bytes come from running the step once: on fake tensors, so that it needs no memory, or on real
    ones where the program looks at values (the source says which). Durations come from a stated
    hardware model or from measuring the device at hand, never from a mixture. A module of the
    caller's is as before when this returns, and its weights are not copied.

    Parameters
    ----------
    model : str, nn.Module or TrainingStep
        A name of the zoo; ``"package.module:callable"`` for what returns a module or a
        `TrainingStep`; a module that takes one tensor and returns one; or any step.
    input_shape : str or sequence of int, optional
        For example ``"32x3x224x224"``, batch size first. A network that gives its input to an
        `nn.Embedding` is fed with token numbers, any other with floats. A step has a batch.
    clock : str
        What an operation of the trace is: ``"modules"`` (what happens between two events at the
        boundaries of leaf modules), ``"operators"``, or ``"graphs"`` (what TorchInductor would fuse
        of the graphs that `torch.compile` makes of the step, here; for `offcert.backend`).
    hardware : str or Hardware, optional
        Name of a hardware model (`offcert.runtime.hardware.HARDWARE`), or of a TOML file that
        describes one: a roofline. ``hardware(name, peak=True)`` is one in which all operations
        reach the peak rates.
    measure : bool
        Measure durations and bandwidth: of a model that is named, on the first CUDA device or,
        without one, on the CPU, whose "link" is the copy to a memory-mapped file; of one that is
        given, where it is. On a CUDA device the step is captured as it runs there, durations are
        medians by events, workspaces are what the allocator says, and the link's rates are those
        while the step runs; what else was measured is in ``source["measurement"]``.
    loss : str
        ``"cross-entropy"`` over the last dimension of the output, or its ``"mean"``. Not for steps.
    options : mapping, optional
        Keyword arguments for what `model` names.
    dtype : str
        Data type of parameters and floating-point inputs. Not for steps.
    seed : int
        Seed of the initial weights.
    name : str, optional
        Name of the problem; by default network and input shape.
    memory : int or str, optional
        The limit without what the trace does not count (``source["uncounted"]``): bytes, a size
        such as ``"6GiB"``, or ``"25%"`` of the way from the least that is feasible to the peak. By
        default what that leaves of the device's memory, but at least the least that is feasible.
    device_memory : int or str, optional
        The limit, in bytes or as ``"16GiB"``, with parameters, gradients, buffers, batch and the
        optimiser's state.
    optimiser : str or torch.optim.Optimizer, optional
        Whose state is to be counted: ``"sgd"``, ``"momentum"``, ``"adam"``, ``"adamw"``,
        ``"adamw-fused"``, ``"adamw-8bit"``, ``"adafactor"``, ``"lion"`` or ``"lion-8bit"``, also as
        Trainer spells them; or an optimiser of this model, which takes no step. By default that of
        the step, if it has one.
    device : Device, optional
        With `measure`: on what to measure; by default the CUDA device that the model is on. A
        simulated device takes the word of `hardware` for durations, which must be given too.
    link : str
        With `hardware`: ``"duplex"``, at the rates that hold while both directions are used, where
        those are known; or ``"simplex"``, each direction alone.
    recompute : str
        ``"any"``: computations may run again; ``"none"``: tensors only move. A percentage in
        `memory` counts from the least memory of the one or the other.

    Returns
    -------
    Problem
        Its ``source`` has what training by a plan needs. It is about a `Network`, whose
        computations may run again; about a trace if it is not clear what the step computes from
        what, because of changes in place.

    Raises
    ------
    InputError
        If the network is unknown, fails or does not fit the input, if not exactly one of `hardware`
        and `measure` is given, or if nothing is left of the device's memory; or if the device has
        too little memory to measure a step that moves nothing.

    Examples
    --------
    A network by its name, or a module of your own:

    >>> import offcert, torch
    >>> problem = offcert.profile("resnet18", "2x3x64x64", hardware="v100-pcie")
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 8))
    >>> small = offcert.profile(model, "4x3x4x4", hardware="v100-pcie")
    >>> limited = problem.with_memory("50%")
    >>> limited.platform.memory < problem.trace.peak_memory
    True
    >>> offcert.write_problem("problem.json", limited)  # for offcert certify
    """
    chosen: Clock = member(Clock, clock, "clock")
    again = recompute_called(recompute)
    require_one_choice(chosen, hardware, measure, device)
    device_memory = _limits(memory, device_memory)
    # Looked up first: a wrong name should not have to wait for the network.
    found = None if hardware is None else find_hardware(hardware)
    served = link_called(link, measure)
    if optimiser is not None:
        require_state_known(optimiser)
    shape = None if input_shape is None else parse_shape(input_shape)
    spec = model if isinstance(model, str) else None
    workload = Workload(spec, shape, options or {}, dtype, loss, seed)
    label = _label(model, shape)
    try:
        real = measure or chosen is Clock.GRAPHS
        loaded = workload.load(shapes_only=not real) if isinstance(model, str) else model
        if device_memory is not None:
            require_optimiser_known(loaded, optimiser)
        made = _made(loaded, workload, chosen, found, measure, device, served)
        uncounted = {name: size for name, size in made.uncounted.items() if name != "optimiser"}
        stepping = _of_optimiser(loaded, optimiser)
        uncounted |= {} if stepping is None else {"optimiser": stepping.state}
    except OffcertError:
        raise
    except Exception as error:
        # Somebody else's network can fail in any way; it is the input that is bad then.
        raise InputError(f"{label} cannot be profiled: {one_line(error)}") from error
    source = dict(made.source) | {"uncounted": uncounted}
    source |= {"optimiser_step": stepping.during} if stepping and stepping.during else {}
    source |= _origin(made, measure, found)
    if device_memory is not None:
        memory = memory_beside(device_memory, uncounted)
    # What is left of the device's memory, or the least that is feasible.
    left = max(made.found.memory - sum(uncounted.values()), made.found.trace.least_memory)
    problem = Problem(
        name or label,
        made.network,
        made.found.platform(left),
        units=_UNITS,
        source=source,
        uncertainty=made.found.uncertainty,
        recompute=again if isinstance(made.network, Network) else Recompute.NONE,
    )
    return problem if memory is None else problem.with_memory(memory)


def _limits(memory: int | str | None, device_memory: int | str | None) -> int | None:
    """Return the device's memory in bytes; what is wrong with a limit shows before a capture."""
    if memory is not None and device_memory is not None:
        raise InputError("only one of memory and device memory can be given")
    if isinstance(memory, str):
        parse_limit(memory, _UNITS, lambda part: 0)
    elif memory is not None:
        require_limit(memory, "memory")
    return None if device_memory is None else require_limit(device_memory, "device memory")


@dataclass(frozen=True)
class _Made:
    """The outcome of profiling."""

    found: Measurement  # A trace with durations, and the device that they are of
    network: Trace | Network  # The trace or network of the problem
    source: Mapping[str, Any]  # The record of its origin
    uncounted: Mapping[str, int]  # The bytes that it does not count
    # By kernel that attention runs on, the part of its peak that the hardware reaches.
    attention: Mapping[str, Fraction] = field(default_factory=dict)


def _made(
    made: nn.Module | TrainingStep,
    workload: Workload,
    clock: Clock,
    hardware: Hardware | None,
    measure: bool,
    device: Device | None,
    link: Link,
) -> _Made:
    """Return the capture and times of a step, measured or by a hardware model."""
    # A model that is given is measured where it is.
    there = _on_device(made, device) if measure and workload.model is not None else made
    step = _step(there, workload)
    if measure:
        return _described(step, *measure_step(step, clock, device, hardware))
    assert hardware is not None
    if clock is Clock.GRAPHS:
        return _graphs(step, hardware, link)
    tensors = "fake" if without_data(step.model) else step.tensors
    captured = capture(step, clock=clock, hardware=hardware, tensors=tensors)
    return _described(step, captured, modelled(captured.trace, hardware, link))


def _origin(made: _Made, measured: bool, model: Hardware | None) -> dict[str, Any]:
    """Return a record of where durations come from: hardware, kernels, versions, measurement."""
    found = made.found
    stated = {} if model is None or measured else model.origin(made.attention)
    version = torch.__version__.partition("+")[0]
    origin = {"hardware": found.device, "measured": measured, "torch": version} | stated
    return origin | {"measurement": dict(found.details)} if found.details else origin


def _label(model: str | nn.Module | TrainingStep, shape: tuple[int, ...] | None) -> str:
    if isinstance(model, TrainingStep):
        model = model.model
    label = model if isinstance(model, str) else type(model).__name__
    return label if shape is None else f"{label} {'x'.join(map(str, shape))}"


def _graphs(step: TrainingStep, hardware: Hardware, link: Link) -> _Made:
    # The compiler takes a second to load.
    from offcert.runtime.compiled.graph_network import profile_graphs

    network, source = profile_graphs(step, hardware)
    found = modelled(network.trace(), hardware, link)
    source = dict(step.source) | {"clock": str(Clock.GRAPHS), "compiled": source}
    batch = batch_bytes(step.make_batch())
    return _Made(found, network, source, uncounted_bytes_of(step.model, batch))


def _described(step: TrainingStep, captured: Capture, found: Measurement) -> _Made:
    source = dict(step.source)
    source |= {"clock": str(captured.clock), "capture": captured.to_json()}
    known = captured.network if step.again else None
    network = found.trace if known is None else retimed_network(known, found.trace)
    return _Made(found, network, source, captured.uncounted, captured.attention)


def _step(made: nn.Module | TrainingStep, workload: Workload) -> TrainingStep:
    if not isinstance(made, TrainingStep):
        return standard_step(made, workload)
    asked = {
        "input": workload.input is not None,
        "loss": workload.loss != DEFAULT_LOSS,
        "dtype": workload.dtype != DEFAULT_DTYPE,
    }
    for name, given in asked.items():
        if given:
            raise InputError(f"{name} cannot be given with a TrainingStep, which brings its own")
    source = workload.source() if workload.model is not None else made.source
    return replace(made, source=source or workload.source())


def _on_device(made: nn.Module | TrainingStep, device: Device | None) -> nn.Module | TrainingStep:
    # A step decides itself where its model is.
    if isinstance(made, TrainingStep):
        return made
    if device is not None:
        return made.to(device.tensors)
    return made.to("cuda") if torch.cuda.is_available() else made


def require_optimiser_known(made: nn.Module | TrainingStep, optimiser: Optimiser | None) -> None:
    """Raise an `InputError` before a step is captured if its optimiser's state is not known."""
    if optimiser is None and not (isinstance(made, TrainingStep) and made.optimiser is not None):
        require_optimiser_counted({})


def _of_optimiser(
    made: nn.Module | TrainingStep, optimiser: Optimiser | None
) -> OptimiserBytes | None:
    """Return the bytes of the optimiser that is given, or that of the step, if they are known."""
    if optimiser is not None:
        return optimiser_bytes(optimiser, made.model if isinstance(made, TrainingStep) else made)
    own = made.optimiser if isinstance(made, TrainingStep) else None
    return None if own is None else bytes_of(own)


def require_one_choice(
    clock: Clock, hardware: str | Hardware | None, measure: bool, device: Device | None
) -> None:
    """Raise an `InputError` unless times come either from a hardware model or from measuring."""
    if device is not None and not measure:
        raise InputError("a device is for measuring: give measure=True too")
    if device is not None and device.tensors.type == "cpu":
        if hardware is None:
            raise InputError("a simulated device takes durations from a hardware model: give one")
    elif (hardware is None) is not measure:
        raise InputError("exactly one of hardware and measure must be given")
    if measure and clock is Clock.GRAPHS:
        raise InputError(
            "compiled graphs are not measured kernel by kernel: give a hardware model, such as "
            "what offcert profile --measure --save-hardware FILE.toml writes of the device at hand"
        )
    if measure and clock is Clock.OPERATORS:
        raise InputError(
            "single operators cannot be measured: what watches them takes longer than many of "
            "them do; use the clock modules, or a hardware model"
        )


def link_called(name: str, measure: bool) -> Link:
    """Return the link of a name, which only a hardware model lets choose."""
    found: Link = member(Link, name, "link")
    if measure and found is not Link.DUPLEX:
        raise InputError("a link is measured, not chosen: leave it out with measure")
    return found


def recompute_called(name: str) -> Recompute:
    """Return whether computations may run again, by name."""
    if name not in (Recompute.ANY, Recompute.NONE):
        raise InputError(f'recompute must be "any" or "none", not {name!r}')
    return Recompute(name)
