"""`Follower`: begins the steps of a model at its calls, and lets each of them follow a plan."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch import nn

from offcert.core.errors import OffcertError
from offcert.runtime.follow.accounts import Accounts
from offcert.runtime.follow.clock import IdleRun
from offcert.runtime.follow.counting import Counting, Reserved
from offcert.runtime.follow.kinds import Kinds
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.follow.run import StepRun
from offcert.runtime.follow.step_storages import StepStorages
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.segments.attach import SegmentedSteps, Segments
from offcert.runtime.streaming.mover_makers import (
    MoverMaker,
    StreamMoverMaker,
    SynchronousMoverMaker,
)
from offcert.runtime.watch.events import OPERATOR, Session
from offcert.runtime.watch.guard import Guard
from offcert.runtime.watch.hooks import Hooks, require_cpu, require_no_graphs
from offcert.runtime.watch.module_hooks import StepKeeper, Unseen
from offcert.runtime.watch.operators import sweep, within_transform
from offcert.runtime.watch.saved_hooks import Owned, enter_saving, leave_saving
from offcert.runtime.watch.signature import Signature, signature
from offcert.runtime.watch.tracker import LiveBytes


class StepListener(StepKeeper, Protocol):
    """The object that hears of steps first: a `Follower`, or one that makes its plans."""

    def plan_number(self, session: Session) -> int | None:
        """Return the number of the plan that a session follows, if anything runs again in it."""

    def new_run(self, chosen: StepPlan, *args: Any) -> StepRun:
        """Return the step that follows a plan; the other arguments are those of `StepRun`."""

    def reason_without_plan(self, call: Signature) -> str | None:
        """Return why no plan is made for steps that begin with a call, if that is known."""

    def ended(self, run: StepRun) -> None:
        """Take stock of a step whose backward pass has ended."""

    def closed(self, run: StepRun) -> None:
        """Take note that a step is over: another one begins, or the context ends."""

    def announce(self, name: str) -> None:
        """Take note of an operator that is called."""

    def failed(self, error: Exception, reason: str, session: Session | None) -> None:
        """Take note that an entry has failed in the midst of a step."""


class Relay:
    """Passes on what hooks, steps and counters say, to a listener that it does not keep alive.

    Hooks hold the relay: they would keep a context alive that its program has dropped.
    """

    def __init__(self, listener: StepListener) -> None:
        self.listener = weakref.ref(listener)

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Begin a step at a call of the model, or go on with the one under way."""
        sweep()
        listener = self.listener()
        return None if listener is None else listener.begin(args, kwargs)

    def left(self, session: Session, output: Any) -> None:
        """The call of the model has returned, or raised."""
        listener = self.listener()
        if listener is not None:
            listener.left(session, output)

    def plan_number(self, session: Session) -> int | None:
        """Return the number of the plan that a session follows, if anything runs again in it."""
        listener = self.listener()
        return None if listener is None else listener.plan_number(session)

    def ended(self, run: StepRun) -> None:
        """Pass on that a backward pass has ended."""
        listener = self.listener()
        if listener is not None:
            listener.ended(run)

    def failed(self, error: Exception, reason: str, session: Session | None) -> None:
        """Pass on that an entry has failed; nobody hears of it after the context is gone."""
        listener = self.listener()
        if listener is not None:
            listener.failed(error, reason, session)

    def announce(self, func: Any, args: Any, kwargs: Any) -> None:
        """Pass on that an operator is called."""
        listener = self.listener()
        if listener is not None:
            listener.announce(str(func))


class Follower:
    """The steps of a model under plans, one after the other.

    What others do with it: `attach` and `detach` hooks; `begin` and `left`, `ended`, `failed` and
    `announce`, of which hooks tell; `close_run` when no call is to go on with the latest step,
    `run`. Whoever changes its `step_plans` later tells `segments`, `kinds`, `mover_maker` and
    `counting`, which know something of each; `grows`: some are still to come.
    """

    def __init__(
        self,
        root: nn.Module,
        step_plans: Sequence[StepPlan],
        options: FollowOptions,
        *,
        grows: bool = False,
    ) -> None:
        if options.device is None:
            require_cpu(root)
        else:
            require_no_graphs(root)
        self.root, self.options = root, options
        self.device = device = options.device
        self.step_plans = list(step_plans)
        self.accounts = Accounts(options.strict)
        self.reserved = Reserved(device, options.reserved_limit)
        known: dict[str, Any] = {"timed": options.timed, "spill": options.spill}
        self.mover_maker: MoverMaker[Any] = (
            SynchronousMoverMaker(options.directory, **known)
            if device is None
            else StreamMoverMaker(device, **known)
        )
        self.relay = Relay(self)
        self.hooks = Hooks(root, self.relay, Guard(self.relay.failed))
        self.kinds = Kinds(self.hooks.parts.modules)
        self.counting = Counting(self.hooks, self.relay.announce, device, options.count)
        self.segments: Segments | None = None
        if grows or any(each.segments for each in step_plans):
            placed = [each.segments for each in step_plans]
            self.segments = Segments(root, placed, self.hooks, verify_every=options.verify_every)
            self.hooks.steps = SegmentedSteps(self.relay, self.segments, self.relay.plan_number)
        self.run: StepRun | None = None
        self.is_open, self._grows, self._asks = False, grows, options.asks
        self._always_full = options.timed or bool(options.count)
        # What the latest step saves, and the step itself, also once another one has begun.
        self._storages: StepStorages | None = None
        self._latest: weakref.ref[StepRun] | None = None
        # The thread that is in the middle of a forward pass.
        self._thread: int | None = None
        self._lock = threading.RLock()

    def attach(self) -> None:
        """Hook the model."""
        if self.segments is not None:
            # Before the clock: what is kept is then saved in the operation that makes it.
            self.segments.attach()
        # Of plans that are still to come, any module may turn out to tick.
        self.hooks.attach(lambda path: self._grows)
        if not self._grows:
            self.hear()

    def wait_for_a_call(self) -> Unseen:
        """Wait for gradients of the model until it is called for the first time."""
        told = partial(self.accounts.refuse, "unseen", alone=True)
        self.hooks.unseen = Unseen(self.root, told, self.hooks.guard)
        return self.hooks.unseen

    def detach(self) -> None:
        """End the latest step; what hooks the model is removed by `unhook`."""
        self.is_open = False
        if self.is_busy():
            message = "the context ends while another thread runs a forward pass"
            self.accounts.tell("thread", message)
        if self._storages is not None:
            self._storages.closed = True
        leave_saving(self.hooks.local)
        self.close_run("the context ended")
        self._thread = None

    def hear(self, *, full: bool = False, every: bool = False) -> None:
        """Hook the modules that steps by the plans have to hear of, or `every` module.

        Steps under plans that change nothing count if something is asked of them.
        """
        full = full or self._full
        plans = [each for each in self.step_plans if self._asks or full or not each.is_idle]
        tables = [each.full_table if full else each.table for each in plans]
        heard = {path for table in tables for path in table.heard}
        left = {path for table in tables for path in table.left}
        self.hooks.listen(None if every else heard, None if every else left)

    @property
    def _full(self) -> bool:
        """Whether steps have to hear of every operation, or to be told apart by their modules."""
        return self._always_full or self.kinds.tell_apart(self.step_plans)

    def failed(self, error: Exception, reason: str, session: Session | None) -> None:
        """Take note that an entry has failed: the step goes on, and nothing more leaves."""
        run = session if isinstance(session, StepRun) else self.run
        leave_saving(self.hooks.local)
        if run is not None:
            self.mover_maker.distrust(run)
        self.accounts.failed(error, reason, run)

    def plan_number(self, session: Session) -> int | None:
        """Return the number of the plan that a session follows, if anything runs again in it."""
        if not isinstance(session, StepRun) or not session.step_plan.segments:
            return None
        return next(n for n, each in enumerate(self.step_plans) if each is session.step_plan)

    def announce(self, name: str) -> None:
        """Tick at an operator, if the clock is one of operators."""
        local = self.hooks.local
        # An evaluation is not a part of the step, whatever it comes between.
        if self.run is not None and (local.forward is not None or not local.depth):
            self.run.count(OPERATOR, name)

    # Steps.

    @property
    def goes_on(self) -> bool:
        """Whether a step is under way: its plan does not change then."""
        return self.run is not None and not self.run.finished

    def is_busy(self) -> bool:
        """Whether another thread is in the middle of a forward pass."""
        return self._thread not in (None, threading.get_ident()) and any(
            thread.ident == self._thread for thread in threading.enumerate()
        )

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Begin a step at a call of the model, or go on with the one under way."""
        if not torch.is_grad_enabled() or not self.is_open:
            return None
        with self._lock:
            if within_transform():
                self._refuse("transform", "the model is called within a transform of torch.func")
                return None
            if self.is_busy():
                self._refuse("thread", "another thread is in the middle of a forward pass")
                return None
            call = signature(self.hooks.parts, args, kwargs)
            goes_on = self.run is not None and self.run.accepts(call)
            run = self.run if goes_on else self._begin_step(call)
            if isinstance(run, StepRun):
                if run.hooks_saved:
                    enter_saving(self.hooks.local, run.deviate, self._storages)
                self._thread = threading.get_ident()
        return run

    def left(self, session: Session, output: Any) -> None:
        """Leave the saved-tensor hooks with the model."""
        if self._thread == threading.get_ident():
            self._thread = None
        if not session.failed:
            session.returned()

    def choose(self, call: Signature) -> list[StepPlan] | str:
        """Return the plan that a step follows and what else it may be, or why there is none."""
        return self.kinds.plans_for(self.step_plans, call, self.hooks.parts.device)

    def _begin_step(self, call: Signature) -> Session | None:
        alone = self.run is None or self.run.finished or self.run.failed
        self.close_run("another step began")
        found = self.choose(call)
        if isinstance(found, str):
            known = (self.relay.listener() or self).reason_without_plan(call)
            self._refuse("unplanned", known or found)
            return None
        chosen, *others = found
        counter = self.counting.begin(chosen, call, alone)
        if chosen.is_idle and not self._asks and not others:
            return self._run_idle(chosen, counter, call)
        run = self._start(chosen, counter, call)
        if run is not None and others:
            run.alternatives, run.entered = tuple(found), []
        return run

    def _run_idle(self, chosen: StepPlan, counter: LiveBytes | None, call: Signature) -> IdleRun:
        if counter is not None:
            counter.start(self.hooks.parts.sharded)
        self.reserved.begin(chosen)
        self.hear()
        self.accounts.idle(chosen)
        told = self.accounts.exceeded, self.reserved, self.counting.known(chosen), counter
        return IdleRun(self.hooks, chosen, call, *told)

    def _start(
        self, chosen: StepPlan, counter: LiveBytes | None, call: Signature
    ) -> StepRun | None:
        if self.device is not None and not chosen.moves_nothing:
            self.device.require_movable()
        # Memory of the host does not count.
        with nullcontext() if counter is None else counter.paused():
            try:
                mover, room = self.mover_maker.mover(chosen)
            except OffcertError as error:
                self._refuse("room", str(error))
                return None
        if counter is not None:
            counter.start(self.hooks.parts.sharded)
        self.reserved.begin(chosen)
        full = self._full or counter is not None
        told = self.relay.ended, self.reserved, full, self.counting.known(chosen)
        listener = self.relay.listener() or self
        run = listener.new_run(chosen, mover, counter, self.options.strict, *told)
        self.mover_maker.took(chosen, room, run)
        self.hear(full=full, every=run.hears_all)
        accepted = run.accepts(call)
        assert accepted
        before, self.run, self._latest = self._latest, run, weakref.ref(run)
        self._storages = StepStorages(run, Owned(self.hooks.parts), counter)
        # What autograd still needs keeps the step that has saved it alive.
        run.begin_beside(None if before is None else before())
        return run

    def new_run(self, chosen: StepPlan, *args: Any) -> StepRun:
        """Return the step that follows a plan."""
        return StepRun(self.hooks, chosen, *args)

    def reason_without_plan(self, call: Signature) -> None:
        """Return None: no plan is made here."""

    def close_run(self, what: str) -> None:
        """Take stock of the latest step: another one begins, or the context ends."""
        run, self.run, self._storages = self.run, None, None
        if run is not None:
            run.supersede(what)
            self.kinds.ended(run)
            if self.accounts.close(run).unforeseen:
                self.hooks.look_again()
            (self.relay.listener() or self).closed(run)

    def closed(self, run: StepRun) -> None:
        """Do nothing more: all is done in `close_run`."""

    def ended(self, run: StepRun) -> None:
        """Take stock of a step whose backward pass has ended."""
        latest = self._latest is not None and self._latest() is run
        self.accounts.ended(run, under_way=self.run is run, latest=latest)
        made = run.step_plan
        if self.segments is not None and self.accounts.rehearses(made):
            for each, lookup in zip(self.step_plans, self.segments.lookups, strict=True):
                if each is made:
                    self.accounts.rehearsed(made, lookup.proofs)

    def _refuse(self, kind: str, message: str) -> None:
        """Take note of a step that no plan is followed for."""
        self.accounts.refuse(kind, message, alone=self.run is None)


def unhook(hooks: Hooks, segments: Segments | None) -> None:
    """Leave a model as it was."""
    try:
        hooks.detach()
    finally:
        if segments is not None:
            segments.detach()
