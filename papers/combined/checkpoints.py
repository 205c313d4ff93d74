"""The stages of a network as a `CheckpointChain`: what each keeps, and what it takes without that.

The trace of a step says what lives when. On the chain, what a stage's output and internals are
stays until the stage's backward operation, and the input stays until the last one; where the step
gives something up sooner, or where something lives that is no activation (labels), the workspaces
make up for it: no operation of the chain takes less than the step's.

A forward operation that keeps nothing but its output takes memory as well: each of its operators'
results is alive until the next has read it. That is counted in a pass without gradients, and goes
into the same workspace, of which the chain has one: so a stage that keeps everything is counted as
if it needed the larger of the two beside that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError
from offcert.core.trace import Tensor, Trace
from offcert.runtime.hardware import Hardware
from offcert.runtime.watch.tracker import LiveBytes
from offcert.runtime.workloads.workload import Workload
from offcert_lab.stages.recording import Prepared, prepare, profile_stages


def profile_checkpoints(
    module: nn.Module, workload: Workload, hardware: Hardware
) -> CheckpointChain:
    """Return a network's stages as a chain of which every stage can run again.

    Parameters
    ----------
    module : nn.Module
        A module that takes one tensor and returns one.
    workload : Workload
        Inputs of the module, and the loss, which is the last stage.
    hardware : Hardware
        The roofline.

    Raises
    ------
    InputError
        If the network cannot be traced or does not fit the input.
    """
    trace = profile_stages(module, workload, hardware).trace
    return chain_of_stages(trace, lean_workspaces(prepare(module, workload)))


def chain_of_stages(trace: Trace, lean: Sequence[int] = ()) -> CheckpointChain:
    """Return the chain whose operations take at least what those of a trace of stages take.

    Parameters
    ----------
    trace : Trace
        Operations ``F_0 … F_L B_L … B_0``.
    lean : sequence of int
        For the first stages, bytes that a forward operation which keeps its output alone takes
        beside its input and that.

    Raises
    ------
    InputError
        If the trace has an odd number of operations.
    """
    if len(trace) % 2:
        raise InputError(f"a step of stages has no odd number of operations, {len(trace)}")
    stages = len(trace) // 2
    output, extra, gradient = _sizes(trace, stages)
    durations = trace.durations
    plain = CheckpointChain(
        durations[:stages],
        durations[:stages - 1:-1],
        output,
        [a + e for a, e in zip(output[1:], extra, strict=True)],
        gradient,
    )  # fmt: skip
    work = [
        max(operation.workspace, trace.demand[o] - plain.network().trace().demand[o])
        for o, operation in enumerate(trace.operations)
    ]
    uncounted = _resident(trace)
    forward = [
        max(own, lean[i] + uncounted if i < len(lean) else 0) for i, own in enumerate(work[:stages])
    ]
    return CheckpointChain(
        plain.forward,
        plain.backward,
        output,
        plain.saved,
        gradient,
        forward,
        work[: stages - 1 : -1],
        [operation.name.removeprefix("F:") for operation in trace.operations[:stages]],
    )


def _sizes(trace: Trace, stages: int) -> tuple[list[int], list[int], list[int]]:
    """Return the bytes of outputs, of what is kept beside them, and of gradients."""
    output, extra = [0] * (stages + 1), [0] * stages
    gradient = [0] * (stages + 1)
    for tensor in trace.tensors:
        born, died = tensor.uses[0], tensor.uses[-1]
        if born < 0:
            output[0] += tensor.size if _is_input(tensor) else 0
        elif born >= stages:
            # The gradient of the input of B_i's stage is what its neighbour reads.
            gradient[2 * stages - 1 - born] += tensor.size if died == born + 1 else 0
        elif born + 1 in tensor.uses or died == born + 1:
            output[born + 1] += tensor.size
        elif died >= stages:
            extra[born] += tensor.size
    return output, extra, gradient


def _is_input(tensor: Tensor) -> bool:
    return tensor.uses[0] < 0 and 0 in tensor.uses


def _resident(trace: Trace) -> int:
    """Return the bytes that are there at the start and are not the input."""
    return sum(t.size for t in trace.tensors if t.uses[0] < 0 and not _is_input(t))


def lean_workspaces(prepared: Prepared) -> list[int]:
    """Return the bytes of each stage beside input and output if autograd keeps nothing.

    The loss is left out: it runs once, and its backward operation follows.
    """
    line = prepared.fake
    tracker = LiveBytes()
    needed = []
    with prepared.mode, torch.no_grad(), tracker:
        inputs = prepared.batches.inputs(torch.default_generator)
        tracker.start()
        tracker.exclude(line.belongings())
        interpreter = line.interpreter(inputs.clone())
        del inputs
        for stage in line.stages:
            begin = tracker.live
            tracker.start_peak()
            stage.run(interpreter)
            made = interpreter.env[stage.output].untyped_storage().nbytes()
            needed.append(max(0, tracker.peak - begin - made))
        tracker.stop()
    return needed
