"""Copies as CUDA makes them: some are asynchronous, for others the host waits or copies first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from offcert.runtime.engines.lines import place
from offcert.runtime.engines.memory import HOST
from offcert.runtime.engines.recorder import Recorder, is_plain


def copy(
    recorder: Recorder, target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False
) -> torch.Tensor:
    """Copy as CUDA does, and enter what waits for what."""
    if not (is_plain(target) and is_plain(source)):
        return torch.ops.aten.copy_.default(target, source, non_blocking)
    to, of = recorder.where(target), recorder.where(source)
    called = recorder.called("copy_")
    if to != "device" and of != "device":
        _enter_copy(recorder, HOST, called, target, source)
    elif to == of:
        _enter_copy(recorder, recorder.stream, called, target, source)
    elif to == "device":
        to_device(recorder, target, source, non_blocking)
    else:
        _to_host(recorder, target, source, non_blocking)
    return torch.ops.aten.copy_.default(target, source)


def to_device(
    recorder: Recorder, target: torch.Tensor, source: torch.Tensor, non_blocking: bool
) -> None:
    """Enter a copy from the host to the device."""
    called = recorder.called("copy to the device")
    asynchronous = non_blocking and recorder.where(source) == "pinned"
    if asynchronous and source.is_contiguous():
        recorder.life(source).recorded.add(recorder.stream)
        _enter_copy(recorder, recorder.stream, called, target, source)
        return
    # The host copies to memory of the driver's, or to contiguous memory, before the call returns.
    staged = _staging(recorder, source)
    _enter_copy(recorder, HOST, called, staged, source)
    _enter_copy(recorder, recorder.stream, called, target, staged)
    if not non_blocking:
        recorder.machine.host_waits(recorder.machine.record(recorder.stream))


def _to_host(
    recorder: Recorder, target: torch.Tensor, source: torch.Tensor, non_blocking: bool
) -> None:
    called = recorder.called("copy to the host")
    pinned = recorder.where(target) == "pinned"
    if not (non_blocking and pinned and target.is_contiguous()):
        # Through contiguous memory, for which the host waits; then the host copies.
        staged = _staging(recorder, source)
        _enter_copy(recorder, recorder.stream, called, staged, source)
        recorder.machine.host_waits(recorder.machine.record(recorder.stream))
        _enter_copy(recorder, HOST, called, target, staged)
        return
    recorder.life(target).recorded.add(recorder.stream)
    _enter_copy(recorder, recorder.stream, called, target, source)


def _staging(recorder: Recorder, like: torch.Tensor) -> torch.Tensor:
    staged = torch.empty_like(like, memory_format=torch.contiguous_format)
    recorder.enter(staged.untyped_storage(), "host")
    return staged


def _enter_copy(
    recorder: Recorder, stream: int, called: str, target: torch.Tensor, source: torch.Tensor
) -> None:
    uses = [*recorder.uses([source], False), *recorder.uses([target], True)]
    run: Callable[..., Any] = torch.ops.aten.copy_.default
    args = recorder.referring((target, source), set())
    recorder.machine.give(stream, called, place(), uses, run, args, {}, results=[None])
