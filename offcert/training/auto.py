"""Plans that are made while the training begins: record a step, time a few, certify, follow."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)

from offcert.core.errors import InputError, NoPlanError, OffcertError, PlanError
from offcert.core.problem import Problem, Recompute
from offcert.proofs.certificate import Certificate
from offcert.runtime.capture import Capture, Clock
from offcert.runtime.capture.recorder import Recorder
from offcert.runtime.capture.run import batch_bytes, captured
from offcert.runtime.device.cuda import cuda_device
from offcert.runtime.device.interface import Event as DeviceEvent
from offcert.runtime.events import END, Event, Session
from offcert.runtime.hooks import Hooks
from offcert.runtime.host_memory import host_memory_of
from offcert.runtime.measurement import measured, retimed
from offcert.runtime.offload import Offload
from offcert.runtime.program import Program, program
from offcert.runtime.quiet import one_line
from offcert.runtime.reports import OffloadWarning, StepReport
from offcert.runtime.segments.attach import Segments
from offcert.runtime.segments.steps import SegmentedSteps
from offcert.runtime.signature import Signature, signature
from offcert.runtime.step import TrainingStep
from offcert.runtime.stopwatch import Stopwatch
from offcert.training.barred import opaque_modules, price, without
from offcert.training.planner import Planner, first_call

# Steps that are timed for a plan, and tries after which a kind of step is left without one.
_TIMED = 3
_TRIES = 8
# Of the time for a plan, what goes into one that only says what it costs that less may run again.
# Arbitrary.
_SHARE_OF_PRICE = 0.25


class AutoOffload(Offload):
    """A model that is trained under plans made on the way; see `offcert.training.offload`.

    Attributes
    ----------
    certificates : list of Certificate
        Of the plans made so far.
    """

    def __init__(
        self,
        model: nn.Module,
        planner: Planner,
        max_plans: int,
        *,
        host_memory: int | None = None,
        spills: bool = False,
        **following: Any,
    ) -> None:
        super().__init__(model, (), **following)
        self.certificates: list[Certificate] = []
        self._planner = planner
        self._max_plans = max_plans
        self._host_memory = host_memory
        self._spills = spills
        self._study: _Study | None = None
        # Kinds of steps that are left without a plan, and why.
        self._settled: list[Signature] = []
        self._reasons: list[str] = []
        # What each program was made for, if parts of it may run again; and modules that may not.
        self._problems: list[Problem] = []
        self._barred: dict[str, str] = {}
        # Calls of the model that are still to be made in the step in which modules were wrapped.
        self._unfollowed = 0

    def plan_for(self, step: TrainingStep) -> None:
        """Make a plan for an example before the training begins."""
        self._plan(self._planner.problem_of_step(step))

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Study a step of a new kind; follow a plan in the others."""
        if not torch.is_grad_enabled() or self._busy():
            return super().begin(args, kwargs)
        study = self._study
        if study is not None:
            if study.under_way:
                return study.session.begin(args, kwargs)
            self._conclude(study)
            if self._unfollowed:
                self._close_run("another step began")
                self.steps.update(["studied"])
        if self._unfollowed:
            self._unfollowed -= 1
            return None
        call = signature(self._hooks.parts, args, kwargs)
        if not self._is_new(call):
            self._plan_anew()
            if self._unfollowed:
                self._unfollowed -= 1
                return None
            return super().begin(args, kwargs)
        if self._study is None:
            self._study = _Study(self._root, call, self._planner.hardware is None)
            self._reserved.begin(fresh=True)
        self._close_run("another step began")
        self.steps.update(["studied"])
        self._accounts.report = StepReport("it is studied, for a plan to be made", True)
        return self._study.begin(self._hooks, args, kwargs, self._planner)

    def left(self, session: Session, output: Any) -> None:
        """Leave what the session has entered."""
        if isinstance(session, Recorder | _Stopwatch):
            session.left(session, output)
        else:
            super().left(session, output)

    def _segmented(self) -> Segments:
        """Return segments without programs: those that are made on the way will be theirs."""
        segments = Segments(self._root, [], self._hooks, verify_every=self._verify_every)
        self._hooks.steps = SegmentedSteps(self._relay, segments, self._relay.program_of)
        return segments

    def _attach(self) -> None:
        assert self._segments is not None
        self._segments.attach()
        # Any module may turn out to tick.
        self._hooks.attach()

    def _detach(self) -> None:
        self._unfollowed = 0
        study, self._study = self._study, None
        if study is not None:
            study.abandon()
        super()._detach()

    def _is_new(self, call: Signature) -> bool:
        if self._study is not None and self._study.call == call:
            return True
        known = [each.capture.calls[0] for each in self.programs] + self._settled
        return self._study is None and len(self.programs) < self._max_plans and call not in known

    def _conclude(self, study: _Study) -> None:
        """Take what a study has found out, and make a plan once it is complete."""
        self._planner.fragments = max(self._planner.fragments, self._reserved.fragments)
        try:
            problem = study.conclude(self._planner)
        except NoPlanError as error:
            self._study = None
            self._settle(study.call, str(error))
            return
        except OffcertError as error:
            self._give_up(study.call, str(error))
            return
        except Exception as error:
            # The user's training goes on whatever we stumble over.
            self._give_up(study.call, one_line(error))
            return
        if problem is not None:
            self._study = None
            try:
                self._plan(problem)
            except (InputError, PlanError) as error:
                self._give_up(study.call, str(error))
        elif study.tries >= _TRIES:
            self._give_up(study.call, "its steps differ, or run no backward pass")

    def _give_up(self, call: Signature, reason: str) -> None:
        self._study = None
        self._settled.append(call)
        self._reasons.append(f"no plan can be made: {reason}")
        self._tell("study", self._reasons[-1])

    def _plan(self, problem: Problem) -> None:
        """Follow a plan for a kind of step, in which only that runs again which may."""
        if problem.recompute is not Recompute.NONE:
            self._barred |= opaque_modules(self._root)
        allowed = without(problem, self._barred)
        unbarred = None
        if allowed is not problem:
            # Less time than the plan gets: it only says what is lost.
            unbarred = self._planner.certificate(problem, share=_SHARE_OF_PRICE)
        self._follow(allowed)
        self._problems.extend([problem] * (len(self.programs) - len(self._problems)))
        self._say_price(unbarred)

    def _plan_anew(self) -> None:
        """Make another plan in the place of one of which segments have been refused meanwhile."""
        assert self._segments is not None
        refused = self._segments.refused
        if not refused or (self._run is not None and not self._run.finished):
            return
        for number, each in enumerate(self.programs):
            proofs = [refused[n] for n in map(str, each.segments.nested()) if n in refused]
            if not proofs:
                continue
            self._barred |= {path: str(proof.refused) for proof in proofs for path in proof.paths}
            self._close_run("another step began")
            before = next(c for c in self.certificates if c.problem.name == each.name)
            self._follow(without(self._problems[number], self._barred), number)
            self._say_price(before)

    def _say_price(self, unbarred: Certificate | None) -> None:
        """Say what it costs that modules must not run again."""
        if unbarred is not None and self.certificates:
            said = price(self._barred, unbarred, self.certificates[-1])
            if said is not None:
                self._tell("barred", said)

    def _follow(self, problem: Problem, number: int | None = None) -> None:
        again = problem.recompute is not Recompute.NONE
        plainly = replace(problem, recompute=Recompute.NONE)
        left = self._left
        # What is too much may go into a file, and then is no limit for plans.
        room = None if self._spills else left
        try:
            certificate = self._planner.certificate(problem, room, self._pool)
            result = certificate.result
            if result.schedule is not None:
                made = self._program(certificate)
                self._take(made if left is None else made.within_host(left, self._spills), number)
        except NoPlanError as error:
            if not again:
                self._settle(first_call(problem), str(error))
                return
            # It may do all the same: that search is another one.
            self._follow(plainly, number)
            return
        except (InputError, PlanError) as error:
            if not again:
                raise
            warnings.warn(
                f"nothing runs again, plans only move tensors: {error}",
                OffloadWarning,
                stacklevel=2,
            )
            self._follow(plainly, number)
            return
        if result.schedule is None and again and result.infeasibility is None:
            self._follow(plainly, number)
            return
        self.certificates.append(certificate)
        if result.schedule is None:
            self._settle(first_call(problem), self._planner.why_none(certificate))

    def _settle(self, call: Signature, reason: str) -> None:
        """Leave a kind of step without a plan."""
        self._settled.append(call)
        self._reasons.append(f"no plan fits: {reason}")
        self._tell("budget", self._reasons[-1])

    def _choose(self, call: Signature) -> Program | str:
        """Return the plan that a step follows, or what was found out when none could be made."""
        found = super()._choose(call)
        if isinstance(found, str) and call in self._settled:
            return self._reasons[self._settled.index(call)]
        return found

    @property
    def _left(self) -> int | None:
        """Bytes of the host's memory that no plan takes yet; None if there may be any number."""
        if self._host_memory is None:
            return None
        return self._host_memory - host_memory_of(self.programs).held

    def _pool(self, certificate: Certificate) -> int:
        """Return how many bytes of the host's memory a plan takes."""
        return self._program(certificate).host.pool

    def _program(self, certificate: Certificate) -> Program:
        result = certificate.result
        assert result.schedule is not None
        streams = self._device is not None
        return program(certificate.problem, result.schedule, result.execution, streams=streams)

    def _take(self, made: Program, number: int | None = None) -> None:
        """Follow one more program from the next step on, or from this one if no module changes.

        With a number it takes the place of another one.
        """
        assert self._segments is not None
        if number is None:
            self._segments.add(made.segments)
            self.programs.append(made)
        else:
            self._segments.replace(number, made.segments)
            self.programs[number] = made
        if (made.segments or number is not None) and self._open is not None:
            # The call that has just begun is one of the model as it was: it runs as it is. As in
            # the beginning, what runs again is attached before the clock.
            self._hooks.detach()
            self._segments.detach()
            try:
                self._segments.attach()
            finally:
                self._hooks.attach()
            self._unfollowed = len(made.capture.calls)


class _Study:
    """Finds out what a plan for one kind of step needs: a recording, then times."""

    def __init__(self, root: nn.Module, call: Signature, timed: bool) -> None:
        self.call = call
        self.tries = 0
        self.session: Recorder | _Stopwatch
        self._root = root
        self._timed = timed
        self._watching: ExitStack | None = None
        self._batch = 0
        self._capture: Capture | None = None
        self._times: list[list[int]] = []

    @property
    def under_way(self) -> bool:
        """Whether the backward pass of the step that is being studied is still to end."""
        inside = torch._C._current_graph_task_id() != -1
        return inside or (self.session.calls_made > 0 and self.session.backward_passes == 0)

    def begin(
        self, hooks: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any], planner: Planner
    ) -> Session | None:
        """Study the step that begins."""
        self.tries += 1
        if self._capture is not None:
            self.session = _Stopwatch(hooks, self._capture)
            return self.session.begin(args, kwargs)
        self._batch = batch_bytes((args, kwargs))
        self.session = Recorder(hooks, planner.hardware)
        self._watching = ExitStack()
        self._watching.enter_context(self.session.active())
        return self.session.begin(args, kwargs)

    def conclude(self, planner: Planner) -> Problem | None:
        """Return the problem if everything is known, or None."""
        if isinstance(self.session, Recorder):
            self.abandon()
            self.session.finish()
            if self.session.backward_passes:
                step = TrainingStep(self._root, lambda model, batch: None)
                self._capture = captured(step, self.session, Clock.MODULES, "real", self._batch)
                if self._timed:
                    # Not only after the steps that are timed.
                    planner.require_possible(self._capture, type(self._root).__name__)
        elif self.session.complete:
            self._times.append(self.session.durations())
        if self._capture is None:
            return None
        name = type(self._root).__name__
        if not self._timed:
            return planner.problem_of(self._capture, None, name)
        if len(self._times) < _TIMED:
            return None
        durations = [round(statistics.median(times)) for times in zip(*self._times, strict=True)]
        capture = replace(self._capture, trace=retimed(self._capture.trace, durations))
        device = next((p.device for p in self._root.parameters()), torch.device("cpu"))
        return planner.problem_of(capture, measured(capture.trace, device), name)

    def abandon(self) -> None:
        """Stop watching operators."""
        watching, self._watching = self._watching, None
        if watching is not None:
            assert isinstance(self.session, Recorder)
            with _innermost(self.session.tracker):
                watching.close()


class _innermost:  # noqa: N801
    """Makes a dispatch mode the innermost one in a block that leaves it.

    The user's own modes may have been entered after it, and modes are left in the order of a stack.
    """

    def __init__(self, mode: TorchDispatchMode) -> None:
        self._mode = mode
        self._above: Sequence[Any] = ()

    def __enter__(self) -> None:
        stack = _get_current_dispatch_mode_stack()
        place = max(index for index, mode in enumerate(stack) if mode is self._mode)
        self._above = stack[place + 1 :]
        for _ in self._above:
            _pop_mode()

    def __exit__(self, *reason: object) -> None:
        for mode in self._above:
            _push_mode(mode)


class _Stopwatch(Session):
    """Marks the time at every tick of a capture, in a step of the user's training."""

    def __init__(self, hooks: Hooks, capture: Capture) -> None:
        super().__init__(hooks)
        self.calls_made = 0
        self._ticks = capture.ticks
        self._numbers = {event: number for number, event in enumerate(capture.ticks)}
        self._passes = capture.backward_passes
        # Not the device of the plans, which may be a simulated one: its time is that of plans.
        self._watch = Stopwatch(cuda_device(hooks.root, timed=True))
        self._marks: list[int | DeviceEvent] = []
        self._wrong = False

    @property
    def complete(self) -> bool:
        """Whether every operation has begun, in order, and the last one has ended."""
        return not self._wrong and len(self._marks) == len(self._ticks) + 1

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session:
        """Go on with the step, which may call the model several times."""
        self.calls_made += 1
        return self

    def left(self, session: Session, output: Any) -> None:
        """Nothing has been entered."""

    def wants(self, event: Event) -> bool:
        """Whether the event is a tick; the model's own tell that a backward pass runs."""
        return event in self._numbers or not event.path

    def tick(self, event: Event) -> None:
        """Mark the time if an operation begins, or the last one ends."""
        number = self._numbers.get(event)
        if number is not None:
            self._wrong |= number != len(self._marks)
            self._marks.append(self._watch.mark())
        elif event.kind == END and event.call + 1 == self._passes:
            self._wrong |= len(self._marks) != len(self._ticks)
            self._marks.append(self._watch.mark())

    def durations(self) -> list[int]:
        """Return the nanoseconds of every operation."""
        return self._watch.between(self._marks)
