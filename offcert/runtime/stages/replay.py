"""Trains a network while its saved tensors leave the device and come back as a plan says.

The plans are those of chains, whose operations are stages. A stage ends where one tensor is all
that is handed on, which may be between two calls of functions in one forward pass: hooks on modules
hear nothing there. So these plans cannot be followed as all others are (`offcert.runtime.follow`),
and the stages are run one after another instead.
"""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

import torch
from torch import nn

from offcert.core.errors import InputError, PlanError
from offcert.core.trace import Trace
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.residences import host_residences_in_order
from offcert.questions.schedule.schedule import FluidSchedule, Schedule
from offcert.runtime.device.store import HostStore
from offcert.runtime.plan.host_layout import HostLayout, host_layout
from offcert.runtime.plan.predict import Prediction, predict
from offcert.runtime.plan.reports import Unfreed
from offcert.runtime.plan.step_plan import require_memory
from offcert.runtime.stages.meter import Key, Meter
from offcert.runtime.stages.recording import prepare, record
from offcert.runtime.stages.staged import StagedModel
from offcert.runtime.streaming.host_copies import HostCopies
from offcert.runtime.torch_private import FakeTensorMode
from offcert.runtime.watch.entries import Entry
from offcert.runtime.workloads.workload import Batches, Workload


@dataclass(frozen=True)
class ReplayReport:
    """Device memory in one planned training step.

    Attributes
    ----------
    at_begin, at_end : tuple of int
        Live bytes when each operation began (after its transfers) and ended.
    peaks : tuple of int
        The most live bytes while each operation ran.
    prediction : Prediction
        The plan's values of the same quantities.
    unfreed : tuple of Unfreed
        Storages that could not leave.
    offloaded_bytes, prefetched_bytes : int
        Bytes that were copied to the host and back.
    arena_bytes, arena_load, outside_entries, outside_bytes : int
        As in `offcert.runtime.plan.reports.StepReport`.
    """

    at_begin: tuple[int, ...]
    at_end: tuple[int, ...]
    peaks: tuple[int, ...]
    prediction: Prediction
    unfreed: tuple[Unfreed, ...]
    offloaded_bytes: int
    prefetched_bytes: int
    arena_bytes: int = 0
    arena_load: int = 0
    outside_entries: int = 0
    outside_bytes: int = 0

    @property
    def peak(self) -> int:
        """The most live bytes at any time."""
        return max(self.peaks, default=0)

    @property
    def follows_prediction(self) -> bool:
        """Whether live bytes are as predicted at every event and no peak is above its bound."""
        return (
            self.at_begin == self.prediction.at_begin
            and self.at_end == self.prediction.at_end
            and all(
                peak <= bound for peak, bound in zip(self.peaks, self.prediction.peaks, strict=True)
            )
        )


def replay(
    model: nn.Module,
    plan: Plan | Schedule | FluidSchedule,
    problem: Problem,
    *,
    directory: str | None = None,
) -> Replay:
    """Prepare to train `model` under a plan.

    The result is a context manager, to be entered around one training step or around many::

        with replay(model, schedule, problem) as step:
            for inputs, labels in batches:
                loss = step(inputs, labels)
                loss.backward()
                optimiser.step()
                optimiser.zero_grad()

    ``step`` copies the batch to the device (on the CPU: into storage of its own), runs the
    network and the problem's loss and returns the loss; ``loss.backward()`` does the rest.
    Losses, gradients, parameters and buffers are bitwise those of plain training.

    Parameters
    ----------
    model : nn.Module
        The problem's network, on the CPU, in training mode.
    plan : Plan or Schedule
        When tensors leave and come back. On the CPU, transfers happen between operations: before an
        operation starts, first everything leaves that the plan wants gone by then, then everything
        comes back whose memory the plan has taken by then.
    problem : Problem
        The problem that the plan was made for; its source tells input and loss.
    directory : str, optional
        Where the temporary file with the offloaded bytes is made.

    Raises
    ------
    InputError
        If the network is not the problem's: its trace on fake tensors differs; or if the plan is a
        schedule that moves tensors in pieces.
    PlanError
        If the plan does not make sense, or exceeds the problem's memory.
    """
    prediction = predict(problem.trace, plan)
    require_memory(problem, prediction)
    for parameter in model.parameters():
        if parameter.device.type != "cpu":
            raise InputError(f"the model must be on the CPU, not on {parameter.device}")
    workload = Workload.from_source(problem.source)
    prepared = prepare(model, workload)
    recording = record(prepared)
    _require_same(problem.trace, recording.trace)
    storages = recording.storages
    parts = {tensor: list(rows.items()) for tensor, rows in storages.items()}
    decisions = plan.plan(problem.trace) if isinstance(plan, Schedule) else plan
    assert isinstance(decisions, Plan)
    stays = host_residences_in_order(problem.trace, decisions)
    layout = host_layout(problem.name, stays, parts)
    meter = _Transfers(prepared.staged(), problem.trace, prediction, storages, layout, directory)
    return Replay(meter, prepared.batches)


class Replay(AbstractContextManager["Replay"]):
    """A network that trains under a plan; see `replay`. It can be entered again and again.

    Attributes
    ----------
    batches : Batches
        Draws random batches of the shape that the problem was made for.
    """

    def __init__(self, meter: _Transfers, batches: Batches) -> None:
        self._meter = meter
        self.batches = batches
        self._active: AbstractContextManager[None] | None = None

    def __enter__(self) -> Replay:
        """Start to watch operators."""
        if self._active is not None:
            raise InputError("this replay has been entered already")
        self._active = self._meter.active()
        self._active.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop to watch operators."""
        active, self._active = self._active, None
        if active is not None:
            active.__exit__(kind, error, traceback)

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """Run the forward operations on a batch and return the loss.

        Raises
        ------
        InputError
            If the context has not been entered or the batch is not of the problem's shape and type.
        """
        if self._active is None:
            raise InputError("use replay as a context: with replay(...) as step")
        _require_batch(self.batches, inputs, labels)
        return self._meter.step(inputs, labels)

    @property
    def report(self) -> ReplayReport:
        """The report of the latest step so far; complete after its backward pass."""
        return self._meter.report()


class _Transfers(Meter):
    """A meter that moves tensors before operations begin."""

    def __init__(
        self,
        staged: StagedModel,
        trace: Trace,
        prediction: Prediction,
        storages: dict[int, dict[Key, int]],
        layout: HostLayout[Key],
        directory: str | None,
    ) -> None:
        super().__init__(staged)
        self._trace = trace
        self._prediction = prediction
        self._storages = storages
        self._directory = directory
        self._store: HostStore | None = None
        self._layout = layout

    def _reset(self) -> None:
        super()._reset()
        self._unfreed: list[Unfreed] = []
        self._copies: HostCopies[Key] | None = None
        self._offloaded_bytes = 0
        self._prefetched_bytes = 0

    def report(self) -> ReplayReport:
        """Return the report of the latest step so far: memory, and bytes that moved."""
        return ReplayReport(
            tuple(self.at_begin),
            tuple(self.at_end),
            tuple(self.peaks),
            self._prediction,
            tuple(self._unfreed),
            self._offloaded_bytes,
            self._prefetched_bytes,
            self._layout.pool,
            self._layout.load,
            0 if self._copies is None else self._copies.outside_entries,
            0 if self._copies is None else self._copies.outside_bytes,
        )

    def transfer(self, operation: int) -> None:
        """Release and claim what the plan says."""
        for tensor in self._prediction.releases[operation]:
            for key in self._storages[tensor]:
                self._release(self._entry(key, tensor), tensor, operation)
        for tensor in self._prediction.claims[operation]:
            for key in self._storages[tensor]:
                self._claim(self._entry(key, tensor))

    def _entry(self, key: Key, tensor: int) -> Entry:
        entry = self.saved.get(key)
        if entry is None or entry.size != self._storages[tensor][key]:
            raise PlanError(
                f"storage {key[1]} of operation {key[0]}, a part of "
                f"{self._trace.tensors[tensor].name}, is not what it was when the network was "
                "profiled"
            )
        return entry

    def _release(self, entry: Entry, tensor: int, operation: int) -> None:
        reference = None
        if not entry.held_elsewhere:
            if not self._host().has(entry):
                self._copy(entry, to_host=True)
            reference = weakref.ref(entry.device_storage())
            entry.drop()
        if reference is None or reference() is not None:
            self._unfreed.append(
                Unfreed(
                    self._trace.tensors[tensor].name,
                    self._trace.operations[operation].name,
                    entry.size,
                )
            )

    def _claim(self, entry: Entry) -> None:
        if not entry.away:
            return
        # Counted, because the tracker sees the operator.
        entry.put(torch.empty(entry.size, dtype=torch.uint8))
        self._copy(entry, to_host=False)

    def _copy(self, entry: Entry, *, to_host: bool) -> None:
        with self.tracker.paused():
            if to_host:
                self._host().write(entry)
                self._offloaded_bytes += entry.size
            else:
                device = torch.empty(0, dtype=torch.uint8).set_(entry.device_storage())
                self._host().read(entry, device)
                self._prefetched_bytes += entry.size

    def _host(self) -> HostCopies[Key]:
        if self._store is None:
            self._store = HostStore(self._layout.pool, self._directory)
        if self._copies is None:
            self._copies = HostCopies(self._layout, self._store)
        return self._copies


def _require_batch(batches: Batches, inputs: torch.Tensor, labels: torch.Tensor | None) -> None:
    with FakeTensorMode():
        expected = batches.shapes()
    for name, tensor, like in zip(("input", "labels"), (inputs, labels), expected, strict=True):
        if (tensor is None) is not (like is None):
            loss = batches.workload.loss
            raise InputError(f'the loss "{loss}" {"takes no" if like is None else "needs"} labels')
        if tensor is None or like is None:
            continue
        if tensor.shape != like.shape or tensor.dtype != like.dtype:
            raise InputError(
                f"the {name} must be of shape {list(like.shape)} and {like.dtype}, as in the "
                f"problem, not {list(tensor.shape)} and {tensor.dtype}"
            )


def _require_same(planned: Trace, found: Trace) -> None:
    """Raise if the network at hand is not the one that was planned; times may differ."""
    if len(planned) != len(found):
        raise InputError(
            f"the network has {len(found)} operations, but the problem has {len(planned)}"
        )
    if len(planned.tensors) != len(found.tensors):
        raise InputError(
            f"the network has {len(found.tensors)} tensors, but the problem has "
            f"{len(planned.tensors)}"
        )
    for expected, tensor in zip(planned.tensors, found.tensors, strict=True):
        if expected != tensor:
            raise InputError(
                f"tensor {tensor.name} of the network has {tensor.size} bytes and uses "
                f"{list(tensor.uses)}, but the problem says {expected.name}, {expected.size} bytes "
                f"and {list(expected.uses)}"
            )
