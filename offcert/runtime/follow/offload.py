"""`follow`: the user's own training loop, under a plan."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import TracebackType
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError, OffcertError
from offcert.core.options import require_count
from offcert.questions.schedule.problem import Problem
from offcert.runtime.device.cuda import cuda_device
from offcert.runtime.device.interface import Device
from offcert.runtime.follow.accounts import Accounts
from offcert.runtime.follow.agreement import require_agreement
from offcert.runtime.follow.clock import listen
from offcert.runtime.follow.counting import Counting
from offcert.runtime.follow.excess import IdleRun
from offcert.runtime.follow.kinds import Kinds
from offcert.runtime.follow.memory import Reserved, memory_limit, within_host
from offcert.runtime.follow.outcome import Outcome
from offcert.runtime.follow.overlap import begin_beside
from offcert.runtime.follow.relay import Relay, give_up, unhook, watch_unseen
from offcert.runtime.follow.run import StepRun
from offcert.runtime.follow.step_storages import StepStorages
from offcert.runtime.plan.step_plan import AnyPlan, CertificateLike, StepPlan, step_plans
from offcert.runtime.segments.attach import Segments
from offcert.runtime.segments.steps import SegmentedSteps
from offcert.runtime.streaming.mover_makers import mover_maker_for
from offcert.runtime.watch.events import OPERATOR, Session
from offcert.runtime.watch.guard import Guard, OffloadWarning
from offcert.runtime.watch.hooks import Hooks, require_cpu, require_no_graphs, unwrap
from offcert.runtime.watch.modes import within_transform
from offcert.runtime.watch.saved_hooks import Owned, enter_saving, leave_saving
from offcert.runtime.watch.signature import Signature, signature
from offcert.runtime.watch.tracker import LiveBytes

__all__ = ["Offload", "OffloadWarning", "follow"]


def follow(
    model: nn.Module,
    plan: AnyPlan | Sequence[CertificateLike],
    problem: Problem | None = None,
    *,
    strict: bool = False,
    count: bool | None = None,
    directory: str | None = None,
    device: Device | None = None,
    timed: bool = False,
    host_memory: int | str | None = None,
    host_spill: bool | str = False,
    reserved_memory: int | str | None = None,
    verify_every: int | None = None,
) -> Offload:
    """Prepare to train `model` under a plan.

    The result is a context manager around a training loop, which stays the user's::

        with follow(model, certificate):
            for inputs, labels in batches:
                loss = criterion(model(inputs), labels)
                loss.backward()
                optimiser.step()
                optimiser.zero_grad()

    The model's own forward runs; hooks on its modules are the clock, and hooks on what autograd
    saves move it. Losses, gradients, parameters and buffers are bitwise those of plain training. A
    step that is not the captured one (another batch size, another branch, evaluation) keeps its
    tensors; that is reported, and warned of once.

    Parameters
    ----------
    model : nn.Module
        The captured network, on the CPU or one CUDA device; DistributedDataParallel may wrap it.
    plan : Certificate, Plan or Schedule, or a sequence of certificates
        When tensors leave and come back. Of several certificates each step follows the one that was
        captured with inputs like its own.
    problem : Problem, optional
        The problem that a plan or schedule was made for; a certificate brings its own.
    strict : bool
        Raise a `PlanError` where a step does not follow its plan.
    count : bool, optional
        Count live bytes at every operation, in all steps or in none; by default in the first two of
        each plan, and where the autograd graph has a new shape or inputs are larger than before. It
        costs 20 to 40 microseconds an operator.
    directory : str, optional
        Where the temporary file with the offloaded bytes is made; on a device with streams they are
        in an arena of pinned memory.
    device : Device, optional
        Whose streams copy; by default those of the CUDA device that the model is on, and none for a
        model on the CPU: there tensors move at once, between two operations.
    timed : bool
        Take note of the times of operations and transfers; see `Offload.times`.
    host_memory : int or str, optional
        Bytes of the host's memory that what has left may take (``"8GiB"``); by default any number.
        `Offload.host` says what the plan needs.
    host_spill : bool or str
        Put what is more into a memory-mapped file (in this folder), instead of refusing the plan.
    reserved_memory : int or str, optional
        Bytes that PyTorch's allocator may have reserved on the device at most (``"16GiB"``): what
        tensors take, and the pieces between them. A step in which it reserves more has not followed
        its plan. By default what a plan is made for limits what tensors take. With it, peaks of the
        allocator's statistics are reset in every step, and what it keeps in vain beyond the limit
        is given back before a step.
    verify_every : int, optional
        After how many steps each segment that runs again is compared in full with its first run; by
        default after as many as there are segments, one in each step.

    Returns
    -------
    Offload
        A context manager, which can be entered again and again.

    Raises
    ------
    InputError
        If a problem was not captured with a clock that training can follow, the model is on several
        devices, a plan is a schedule that moves tensors in pieces, or it needs more of the host's
        memory than it may have.
    PlanError
        If a plan does not make sense, or exceeds its problem's memory.
    """
    of = device if device is not None else cuda_device(unwrap(model), timed=timed)
    found = step_plans(plan, problem, streams=of is not None)
    return Offload(
        model,
        within_host(found, host_memory, host_spill),
        strict=strict,
        count=count,
        directory=directory,
        device=of,
        timed=timed,
        spill=host_spill if isinstance(host_spill, str) else None,
        reserved_memory=memory_limit(reserved_memory, "reserved_memory"),
        verify_every=verify_every,
    )


class Offload(Outcome, AbstractContextManager["Offload"]):
    """A model that trains under plans; see `follow`. Dropped, it undoes what it did as if left.

    Attributes
    ----------
    steps : Counter
        How many steps were ``"planned"`` (followed their plan to the end), ``"deviating"``,
        ``"unplanned"`` (there is no plan for such a step) or ``"unfinished"``.
    """

    def __init__(
        self,
        model: nn.Module,
        step_plans: Sequence[StepPlan],
        *,
        strict: bool = False,
        count: bool | None = None,
        directory: str | None = None,
        device: Device | None = None,
        timed: bool = False,
        spill: str | None = None,
        reserved_memory: int | None = None,
        verify_every: int | None = None,
    ) -> None:
        every = verify_every
        self._verify_every = None if every is None else require_count(every, "verify_every")
        self._model, self._root = model, unwrap(model)
        if device is None:
            require_cpu(self._root)
        else:
            require_no_graphs(self._root)
        self.step_plans = list(step_plans)
        self._strict, self._count = strict, bool(count)
        self._device, self._timed = device, timed
        self._accounts = Accounts(strict)
        # Steps under plans that change nothing run without us, unless something is asked of them.
        self._asked = self._count or timed or reserved_memory is not None
        self._reserved = Reserved(device, reserved_memory)
        self._mover_maker = mover_maker_for(device, directory, timed=timed, spill=spill)
        self._relay = Relay(self)
        self._hooks = Hooks(self._root, self._relay, Guard(self._relay.failed))
        self._segments = self._segmented()
        self._kinds = Kinds(self._hooks.parts.modules)
        # The latest step, as long as no other one has begun, and what it saves.
        self._run: StepRun | None = None
        self._storages: StepStorages | None = None
        self._latest: weakref.ref[StepRun] | None = None
        self._counting = Counting(self._hooks, self._relay.announce, device, count)
        # The stack that undoes entering, and the finalizer that closes it if nobody leaves.
        self._open: ExitStack | None = None
        self._finalizer: weakref.finalize[..., Offload] | None = None
        # The thread that is in the middle of a forward pass.
        self._thread: int | None = None
        self._lock = threading.RLock()

    def __enter__(self) -> Offload:
        """Hook the model."""
        if self._open is not None:
            raise InputError("this offload context has been entered already")
        require_agreement(self._model, self.step_plans)
        self._accounts.begin()
        # The stack must not hold this object, which may be dropped without being left.
        with ExitStack() as undo:
            undo.callback(self._mover_maker.close)
            undo.callback(unhook, self._hooks, self._segments)
            self._attach()
            undo.callback(watch_unseen(self._hooks, self._accounts).close)
            undo.callback(self._counting.enter())
            self._open = undo.pop_all()
        self._finalizer = weakref.finalize(self, give_up, self._open)
        self._finalizer.atexit = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the hooks; warn if no step has moved anything although it should have."""
        undo, self._open = self._open, None
        if undo is not None:
            assert self._finalizer is not None
            self._finalizer.detach()
            with self._hooks.guard.end(failing=kind is not None), undo:
                self._detach()
        if kind is None:
            self._accounts.warn_if_nothing_moved(self.step_plans)

    def failed(self, error: Exception, reason: str, session: Session | None) -> None:
        """Take note that an entry has failed: the step goes on, and nothing more leaves."""
        run = session if isinstance(session, StepRun) else self._run
        leave_saving(self._hooks.local)
        if run is not None:
            self._mover_maker.distrust(run)
        self._accounts.failed(error, reason, run)

    def _segmented(self) -> Segments | None:
        """Return the segments of all plans, if anything runs again."""
        if not any(each.segments for each in self.step_plans):
            return None
        placed = [each.segments for each in self.step_plans]
        found = Segments(self._root, placed, self._hooks, verify_every=self._verify_every)
        self._hooks.steps = SegmentedSteps(self._relay, found, self._relay.plan_number)
        return found

    def plan_number(self, session: Session) -> int | None:
        """Return the number of the plan that a session follows, if anything runs again in it."""
        if not isinstance(session, StepRun) or not session.step_plan.segments:
            return None
        return next(n for n, each in enumerate(self.step_plans) if each is session.step_plan)

    def _attach(self) -> None:
        if self._segments is not None:
            # Before the clock: what is kept is then saved in the operation that makes it.
            self._segments.attach()
        self._hooks.attach(lambda path: False)
        self._hear()

    def _hear(self, *, full: bool = False, every: bool = False) -> None:
        """Hook the modules that steps by the plans have to hear of, or `every` module."""
        full = full or self._full
        listen(self._hooks, self.step_plans, idle=self._asked or full, full=full, every=every)

    @property
    def _full(self) -> bool:
        """Whether steps have to hear of every operation, or to be told apart by their modules."""
        return self._timed or self._count or self._kinds.tell_apart(self.step_plans)

    def _detach(self) -> None:
        if self._busy():
            self._tell("thread", "the context ends while another thread runs a forward pass")
        if self._storages is not None:
            self._storages.closed = True
        leave_saving(self._hooks.local)
        self._close_run("the context ended")
        self._thread = None

    def announce(self, name: str) -> None:
        """Tick at an operator, if the clock is one of operators."""
        local = self._hooks.local
        # An evaluation is not a part of the step, whatever it comes between.
        if self._run is not None and (local.forward is not None or not local.depth):
            self._run.count(OPERATOR, name)

    # Steps.

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Begin a step at a call of the model, or go on with the one under way."""
        if not torch.is_grad_enabled() or self._open is None:
            return None
        with self._lock:
            if within_transform():
                self._refuse("transform", "the model is called within a transform of torch.func")
                return None
            if self._busy():
                self._refuse("thread", "another thread is in the middle of a forward pass")
                return None
            call = signature(self._hooks.parts, args, kwargs)
            goes_on = self._run is not None and self._run.accepts(call)
            run = self._run if goes_on else self._begin_step(call)
            if isinstance(run, StepRun):
                if run.hooks_saved:
                    enter_saving(self._hooks.local, run, self._storages)
                self._thread = threading.get_ident()
        return run

    def left(self, session: Session, output: Any) -> None:
        """Leave the saved-tensor hooks with the model."""
        if self._thread == threading.get_ident():
            self._thread = None
        if not session.failed:
            session.returned()

    def _busy(self) -> bool:
        """Whether another thread is in the middle of a forward pass."""
        return self._thread not in (None, threading.get_ident()) and any(
            thread.ident == self._thread for thread in threading.enumerate()
        )

    def _begin_step(self, call: Signature) -> Session | None:
        alone = self._run is None or self._run.finished or self._run.failed
        self._close_run("another step began")
        found = self._choose(call)
        if isinstance(found, str):
            self._refuse("unplanned", found)
            return None
        chosen, *others = found
        counter = self._counting.begin(chosen, call, alone)
        if chosen.is_idle and not self._asked and not others:
            return self._run_idle(chosen, counter, call)
        run = self._start(chosen, counter, call)
        if run is not None and others:
            run.choose_among(found)
        return run

    def _run_idle(self, chosen: StepPlan, counter: LiveBytes | None, call: Signature) -> IdleRun:
        if counter is not None:
            counter.start(self._hooks.parts.sharded)
        self._reserved.begin(chosen)
        self._hear()
        self._accounts.idle(chosen)
        told = self._accounts.exceeded, self._reserved, self._counting.known(chosen), counter
        run = IdleRun(self._hooks, chosen, *told)
        run.begin_call(call)
        return run

    def _choose(self, call: Signature) -> list[StepPlan] | str:
        """Return the plan that a step follows and what else it may be, or why there is none."""
        return self._kinds.plans_for(self.step_plans, call, self._hooks.parts.device)

    def _start(self, chosen: StepPlan, counter: Any, call: Signature) -> StepRun | None:
        if self._device is not None and not chosen.moves_nothing:
            self._device.require_movable()
        # Memory of the host does not count.
        with nullcontext() if counter is None else counter.paused():
            try:
                mover, room = self._mover_maker.mover(chosen)
            except OffcertError as error:
                self._refuse("room", str(error))
                return None
        if counter is not None:
            counter.start(self._hooks.parts.sharded)
        self._reserved.begin(chosen)
        full = self._full or counter is not None
        told = self._relay.ended, self._reserved, full, self._counting.known(chosen)
        run = self._new_run(chosen, mover, counter, self._strict, *told)
        self._mover_maker.took(chosen, room, run)
        self._hear(full=full, every=run.hears_all)
        accepted = run.accepts(call)
        assert accepted
        before, self._run, self._latest = self._latest, run, weakref.ref(run)
        self._storages = StepStorages(run, Owned(self._hooks.parts), counter)
        begin_beside(run, before)
        return run

    def _new_run(self, chosen: StepPlan, *args: Any) -> StepRun:
        return StepRun(self._hooks, chosen, *args)

    def _close_run(self, what: str) -> None:
        """Take stock of the latest step: another one begins, or the context ends."""
        run, self._run, self._storages = self._run, None, None
        if run is not None:
            run.supersede(what)
            self._kinds.ended(run)
            if self._accounts.close(run).unforeseen:
                self._hooks.look_again()

    def ended(self, run: StepRun) -> None:
        """Take stock of a step whose backward pass has ended."""
        latest = self._latest is not None and self._latest() is run
        self._accounts.ended(run, under_way=self._run is run, latest=latest)
        self._rehearsed(run)
