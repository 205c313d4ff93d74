"""Plans that are made while the training begins: record a step, time a few, certify, follow."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError, NoPlanError, OffcertError, PlanError
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime.capture.recorder import Recorder
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.host_memory import host_memory_of
from offcert.runtime.follow.offload import Offload
from offcert.runtime.follow.run import StepRun
from offcert.runtime.plan.reports import StepReport
from offcert.runtime.plan.step_plan import StepPlan, step_plan
from offcert.runtime.segments.attach import Segments
from offcert.runtime.segments.placed import NOTHING_AGAIN
from offcert.runtime.segments.steps import SegmentedSteps
from offcert.runtime.watch.events import Session
from offcert.runtime.watch.guard import OffloadWarning, one_line
from offcert.runtime.watch.modes import sweep, within_transform
from offcert.runtime.watch.signature import Signature, signature
from offcert.training.barred import opaque_modules, price, without
from offcert.training.branches import Branches
from offcert.training.feedback import tell_of_plans
from offcert.training.growth import is_covered, outgrown
from offcert.training.planner import Planner, first_call
from offcert.training.study import StepTimes, Study

# Tries after which a kind of step is left without a plan. Arbitrary.
_TRIES = 8
# Of the time for a plan, what goes into one that only says what it costs that less may run again.
# Arbitrary.
_SHARE_OF_PRICE = 0.25
# Plans in the place of others of which something was refused; after so many plans only move
# tensors. Arbitrary.
_MOST_ANEW = 6


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
        self._study: Study | None = None
        # First calls of plans for steps that a larger plan should have done for, but did not.
        self._own: list[Signature] = []
        # Kinds of steps that are left without a plan, and why.
        self._settled: list[Signature] = []
        self._reasons: list[str] = []
        self._branches = Branches()
        # Steps with a call that no gradient came to: if it is so again, that is how they are.
        self._odd: set[str] = set()
        # What each program was made for and from; modules that must not run again, and why; how
        # many plans were made in the place of others.
        self._made: list[tuple[Problem, Certificate]] = []
        self._barred: dict[str, str] = {}
        self._anew = 0
        # Calls of the model that are still to be made in the step in which modules were wrapped.
        self._unfollowed = 0

    def plan_for(self, step: TrainingStep) -> None:
        """Make a plan for an example before the training begins."""
        self._plan(self._planner.problem_of_step(step))

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Study a step of a new kind; follow a plan in the others."""
        sweep()
        if not torch.is_grad_enabled() or self._busy() or within_transform():
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
            begun = self._kinds.now()
            if is_covered(self.programs, call, self._hooks.parts.device):
                self._own.append(call)
            self._study = Study(self._root, call, self._planner.hardware is None, begun)
            self._reserved.begin(fresh=True)
        self._close_run("another step began")
        self.steps.update(["studied"])
        self._accounts.report = StepReport("it is studied, for a plan to be made", True)
        return self._study.begin(self._hooks, args, kwargs, self._planner)

    def left(self, session: Session, output: Any) -> None:
        """Leave what the session has entered."""
        if isinstance(session, Recorder | StepTimes):
            session.left(session, output)
        else:
            super().left(session, output)

    def failed(self, error: Exception, reason: str, session: Session | None) -> None:
        """Take note that an entry has failed: a study is of no use then."""
        if self._study is None or isinstance(session, StepRun):
            super().failed(error, reason, session)
            return
        self._study.fail(reason)
        self._accounts.failed(error, reason, None)

    def _close_run(self, what: str) -> None:
        run = self._run
        super()._close_run(what)
        if run is not None:
            self._branches.ended(run)

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
        if self._study is not None:
            return False
        if len(self.programs) >= self._max_plans and self._outgrown(call) is None:
            return False
        if call in self._settled:
            return False
        if not isinstance(super()._choose(call), str):
            return self._branches.wants(call)
        return True

    def _outgrown(self, call: Signature) -> int | None:
        """Return the number of the plan in whose place one for a larger call is followed."""
        full = len(self.programs) >= self._max_plans
        return outgrown(self.programs, call, self._hooks.parts.device, self._own, full=full)

    def _conclude(self, study: Study) -> None:
        """Take what a study has found out, and make a plan once it is complete."""
        if study.broken:
            # That has been told.
            self._study = None
            self._settled.append(study.call)
            self._reasons.append(study.broken)
            study.abandon()
            return
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
        if self._is_disturbed(study):
            self._study = None
        elif problem is not None:
            self._study = None
            try:
                made = len(self.programs)
                self._plan(problem)
                for step_plan in self.programs[made:]:
                    self._kinds.was(step_plan, study.begun)
            except (InputError, PlanError) as error:
                self._give_up(study.call, str(error))
        elif study.tries >= _TRIES:
            self._give_up(study.call, "its steps differ, or run no backward pass")

    def _is_disturbed(self, study: Study) -> bool:
        """Whether a study is to begin anew: it found a step that was given up, or a known one."""
        odd = study.oddity
        if odd is not None and odd not in self._odd and len(self._odd) < _TRIES:
            self._odd.add(odd)
            return True
        if study.capture is None or study.recorded:
            return False
        study.recorded = True
        known = [each.capture for each in self.programs]
        return not self._branches.studied(study.capture, known)

    def _give_up(self, call: Signature, reason: str) -> None:
        self._study = None
        self._branches.stop(call)
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
        number, made = self._outgrown(first_call(problem)), len(self.certificates)
        self._follow(allowed, number)
        if number is None and len(self.programs) > len(self._made):
            self._made.append((problem, self.certificates[-1]))
        elif number is not None and self.certificates[made:]:
            self._made[number] = problem, self.certificates[-1]
        self._say_price(unbarred)

    def _plan_anew(self) -> None:
        """Make another plan in the place of one of which segments have been refused meanwhile."""
        assert self._segments is not None
        refused = self._segments.refused
        if not refused or (self._run is not None and not self._run.finished):
            return
        for number, each in enumerate(self.programs):
            proofs = [refused[n] for n in map(str, each.segments.nested()) if n in refused]
            new = {path: str(proof.refused) for proof in proofs for path in proof.paths}
            if new.keys() <= self._barred.keys():
                continue
            self._barred |= new
            self._anew += 1
            self._close_run("another step began")
            problem, before = self._made[number]
            allowed = without(problem, self._barred)
            if self._anew > _MOST_ANEW:
                allowed = replace(problem, recompute=Recompute.NONE)
            self._follow(allowed, number)
            self._made[number] = problem, self.certificates[-1]
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
                made = made if left is None else made.within_host(left, self._spills)
                self._take(made, number)
                tell_of_plans(self, [(certificate, made)])
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
        self._branches.stop(call)
        self._tell("budget", self._reasons[-1])

    def _choose(self, call: Signature) -> list[StepPlan] | str:
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

    def _program(self, certificate: Certificate) -> StepPlan:
        result = certificate.result
        assert result.schedule is not None
        streams = self._device is not None
        return step_plan(certificate.problem, result.schedule, result.execution, streams=streams)

    def _take(self, made: StepPlan, number: int | None = None) -> None:
        """Follow one more program from the next step on, or from this one if no module changes.

        With a number it takes the place of another one.
        """
        assert self._segments is not None
        before = NOTHING_AGAIN if number is None else self.programs[number].segments
        if self._open is None or not (made.segments or before):
            self._put(made, number)
            return
        wrapped = any(each.segments for each in self.programs)
        if not wrapped:
            # Refused before anything is changed.
            self._put(made, number)
        # The call that has just begun is one of the model as it was: it runs as it is. As in the
        # beginning, what runs again is attached before the clock.
        self._hooks.detach()
        self._segments.detach()
        try:
            if wrapped:
                self._put(made, number)
        finally:
            self._unfollowed = len(made.capture.calls)
            try:
                self._segments.attach()
            finally:
                self._hooks.attach()

    def _put(self, made: StepPlan, number: int | None) -> None:
        assert self._segments is not None
        if number is None:
            self._segments.add(made.segments)
            self.programs.append(made)
        else:
            self._kinds.forget(self.programs[number])
            self._segments.replace(number, made.segments)
            self.programs[number] = made
