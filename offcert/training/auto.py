"""Plans that are made while the training begins: record a step, follow a makeshift, certify."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from offcert.core.errors import InputError, NoPlanError, OffcertError, PlanError
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime.capture.recorder import Recorder
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.device.cuda import cuda_device
from offcert.runtime.follow.accounts import say
from offcert.runtime.follow.run import StepRun
from offcert.runtime.plan.reports import StepReport
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.segments.attach import Segments
from offcert.runtime.segments.steps import SegmentedSteps
from offcert.runtime.watch.events import Session
from offcert.runtime.watch.guard import one_line
from offcert.runtime.watch.modes import within_transform
from offcert.runtime.watch.signature import Signature, signature
from offcert.runtime.workloads.turns import Stopwatch
from offcert.training.barred import without
from offcert.training.buckets import Candidates
from offcert.training.feedback import tell_of_study
from offcert.training.foretold import varied
from offcert.training.growth import Sizes, is_covered
from offcert.training.making import Making
from offcert.training.places import Made
from offcert.training.planner import Planner, first_call
from offcert.training.search import Order, forget_prepared, prepare
from offcert.training.study import Study, TimedRun
from offcert.training.together import Searching

# Tries after which a kind of step is left without a plan. Arbitrary.
_TRIES = 8


class AutoOffload(Making):
    """A model that is trained under plans made on the way; see `offcert.training.offload`."""

    def __init__(
        self,
        model: nn.Module,
        planner: Planner,
        max_plans: int,
        *,
        buckets: int = 1,
        **following: Any,
    ) -> None:
        super().__init__(model, planner, max_plans + buckets - 1, **following)
        planner.granule = getattr(self._device, "granule", 1)
        # How many plans share the sizes that one would do for, and the plans for the smaller ones.
        self._buckets = buckets
        self._sizes = Sizes()
        self._candidates: Candidates | None = None
        self._of_buckets: list[int] = []
        if buckets > 1 and not self._searches.alone:
            raise InputError(
                "buckets cannot be given with fully_shard (FSDP2): processes see other lengths, "
                "and all have to follow the same plan"
            )
        self._study: Study | None = None
        # Calls for which no plan was made of what is known of smaller steps, or one has been.
        self._unforetold: set[str] = set()
        # Steps with a call that no gradient came to: if it is so again, that is how they are.
        self._odd: set[str] = set()

    def plan_for(self, step: TrainingStep) -> None:
        """Make a plan for an example before the training begins."""
        problem = self._planner.problem_of_step(step)
        tell_of_study(problem)
        self._sizes.captured(problem)
        self._plan(problem)

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Study a step of a new kind; follow a plan in the others."""
        if not torch.is_grad_enabled() or self._busy() or within_transform():
            return super().begin(args, kwargs)
        study = self._study
        if study is not None and not study.concluded:
            if study.under_way:
                return study.session.begin(args, kwargs)
            self._conclude(study)
            self._if_unfollowed()
        else:
            if not self._goes_on:
                self._advance()
                self._plan_anew()
            self._if_unfollowed()
        if self._unfollowed:
            self._unfollowed -= 1
            return None
        call = signature(self._hooks.parts, args, kwargs)
        if self._buckets > 1 and not self._goes_on:
            self._sizes.saw(call)
        if not self._is_new(call):
            return super().begin(args, kwargs)
        if self._study is not None and self._study.call != call:
            study, self._study = self._study, None
            if study.fullest is not None:
                self._take_over(study)
                return self.begin(args, kwargs)
        if self._study is None:
            if self._foretold(call):
                return self.begin(args, kwargs)
            if self._device is not None:
                # What is recorded is copied, too, if it has no room.
                self._device.require_movable()
            begun = self._kinds.now()
            known = is_covered(self.step_plans, call, self._hooks.parts.device)
            if known and not self._wants_small(call):
                self._own.append(call)
            self._study = Study(self._root, call, begun)
            if self._background and self._searches.alone:
                prepare()
            self._reserved.begin(fresh=True)
        self._close_run("another step began")
        self._counting.leave()
        self.steps.update(["studied"])
        self._accounts.report = StepReport("it is recorded, for a plan to be made", True)
        self._hear(every=True)
        session = self._study.begin(self._hooks, args, kwargs, self._planner, self._left)
        watch = getattr(self._device, "watch", None)
        if watch is not None:
            # Only a simulated device does not see by itself which memory operators take.
            watch(self._study.session.tracker)
        return session

    @property
    def _goes_on(self) -> bool:
        """Whether a step is under way: its plan does not change then."""
        return self._run is not None and not self._run.finished

    def _if_unfollowed(self) -> None:
        """Take note of a step that is not followed, since modules were wrapped as it began."""
        if self._unfollowed:
            self._close_run("another step began")
            self.steps.update(["studied"])

    def _new_run(self, chosen: StepPlan, *args: Any) -> StepRun:
        made = next(
            (m for m, p in zip(self._made, self.step_plans, strict=True) if p is chosen), None
        )
        if made is None or made.times is None:
            return super()._new_run(chosen, *args)
        # Not the device of the plans, which may be a simulated one: its time is that of plans.
        watch = Stopwatch(cuda_device(self._root, timed=True))
        return TimedRun(watch, self._hooks, chosen, *args)

    def ended(self, run: StepRun) -> None:
        """Take stock of a step whose backward pass has ended, and its times."""
        # Counting takes time.
        if isinstance(run, TimedRun) and (self._count or run.counter is None):
            for made in self._made:
                if made.times is not None and made.times.step_plan is run.step_plan:
                    made.times.take(run)
        super().ended(run)
        if run.superseded is not None:
            self._branches.overlapped(run)
        if self._buckets > 1:
            self._choose_buckets()

    def _wants_small(self, call: Signature) -> bool:
        """Whether a step is captured only to know the problems of sizes that lie between."""
        wanted = self._buckets > 1 and self._candidates is None and bool(self.step_plans)
        return wanted and self._sizes.wants(call)

    def _choose_buckets(self) -> None:
        """Go on with plans for some of the smaller sizes: one search after the other."""
        try:
            if self._candidates is None:
                self._candidates = self._new_candidates()
                return
            found = self._candidates.advance(self._buckets)
            if found is not None:
                self._forget_candidates()
                say(str(found[0]))
                self._follow_buckets(found[1][:-1])
        except (InputError, PlanError) as error:
            self._forget_candidates()
            self._tell("buckets", f"smaller sizes have no plans of their own: {error}")

    def _new_candidates(self) -> Candidates | None:
        ends = self._sizes.ends
        if ends is None:
            return None
        largest = first_call(ends[1])
        for made, plan in zip(self._made, self.step_plans, strict=True):
            certificate = made.certificate
            if plan.capture.calls[0] == largest and certificate is not None:
                rows = self._sizes.candidates(*ends)
                return Candidates(ends, certificate, made.problem, rows, self._search_bucket)
        # Its plan is still being searched for.
        return None

    def _search_bucket(self, problem: Problem) -> Searching:
        problem = without(problem, self._barred)
        plain = None
        if problem.recompute is not Recompute.NONE:
            plain = replace(problem, recompute=Recompute.NONE)
        seconds, room = self._planner.time_limit, self._room(None)
        streams = self._device is not None
        order = Order(problem, plain, seconds, room, streams, kept=self._kept.find)
        return self._searches.begin(order, apart=self._background)

    def _follow_buckets(self, certificates: Sequence[Certificate]) -> None:
        """Follow plans for smaller sizes, in the place of those that were chosen before."""
        for index, certificate in enumerate(certificates):
            number = self._of_buckets[index] if index < len(self._of_buckets) else None
            self._kept.keep(certificate, certificate.problem, self._room(number))
            made = self._step_plan(certificate, number)
            if number is None:
                self._of_buckets.append(len(self.step_plans))
            self.certificates.append(certificate)
            self._place(made, number, Made(certificate.problem, certificate))

    def _forget_candidates(self) -> None:
        candidates, self._candidates = self._candidates, None
        if candidates is not None:
            candidates.close()
            self._sizes.chose()

    def left(self, session: Session, output: Any) -> None:
        """Leave the modes that the session has entered."""
        if isinstance(session, Recorder):
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
        """Return segments without plans: those that are made on the way will be theirs."""
        segments = Segments(self._root, [], self._hooks, verify_every=self._verify_every)
        self._hooks.steps = SegmentedSteps(self._relay, segments, self._relay.plan_number)
        return segments

    def _attach(self) -> None:
        assert self._segments is not None
        self._segments.attach()
        # Any module may turn out to tick.
        self._hooks.attach()

    def _detach(self) -> None:
        self._unfollowed = 0
        forget_prepared()
        self._forget_searches()
        self._forget_candidates()
        study, self._study = self._study, None
        if study is not None:
            study.abandon()
        super()._detach()

    def _is_new(self, call: Signature) -> bool:
        if call in self._settled:
            return False
        if self._study is not None and self._study.call == call:
            return True
        if self._wants_small(call):
            return True
        if len(self.step_plans) >= self._max_plans and self._outgrown(call) is None:
            return False
        return isinstance(super()._choose(call), str) or self._branches.wants(call)

    def _conclude(self, study: Study) -> None:
        """Take over a study's findings, and make a plan once it is complete."""
        if study.broken:
            # The user has been told of the reason.
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
            whole = study.whole
            self._kinds.vary |= not whole
            if self._wants_small(study.call):
                self._study = None
                self._sizes.captured(problem)
            elif whole or study.tries >= _TRIES:
                self._take_over(study)
        elif study.tries >= _TRIES:
            self._give_up(study.call, "its steps differ, or run no backward pass")

    def _foretold(self, call: Signature) -> bool:
        """Make a plan for a larger step than was studied, and for larger ones; whether it fits."""
        if self._goes_on or repr(call) in self._unforetold:
            return False
        self._unforetold.add(repr(call))
        with suppress(InputError, PlanError):
            problem = self._sizes.beyond(call)
            if problem is not None and self._planner.fits(problem):
                self._plan(problem)
                return True
        return False

    def _take_over(self, study: Study) -> None:
        """Make a plan for the step that did most of those that were studied."""
        self._study = None
        assert study.fullest is not None
        tell_of_study(study.fullest)
        self._sizes.captured(study.fullest)
        try:
            made = len(self.step_plans)
            self._plan(*self._varied(study.fullest))
            for step_plan in self.step_plans[made:]:
                self._kinds.was(step_plan, study.begun)
        except (InputError, PlanError) as error:
            self._give_up(study.call, str(error))

    def _varied(self, problem: Problem) -> tuple[Problem, int | None]:
        """Return the problem that a plan is to be made for, and the number of the one it replaces.

        A step that differs from a known one in sizes alone depends on data: one plan is for both.
        """
        for number, made in enumerate(self._made):
            if first_call(made.problem) == first_call(problem):
                with suppress(InputError):
                    found = varied(made.problem, problem)
                    say("sizes depend on data: the plan is for a quarter more than has been seen")
                    self._branches.varies(first_call(problem))
                    return found, number
        return problem, None

    def _is_disturbed(self, study: Study) -> bool:
        """Whether a study is to begin anew: it found a step that was given up, or a known one."""
        odd = study.oddity
        if odd is not None and odd not in self._odd and len(self._odd) < _TRIES:
            self._odd.add(odd)
            return True
        if study.capture is None or study.recorded:
            return False
        study.recorded = True
        here = self._hooks.parts.device
        known = [p.capture for p in self.step_plans if is_covered([p], study.call, here)]
        return not self._branches.studied(study.capture, known)

    def _give_up(self, call: Signature, reason: str) -> None:
        self._study = None
        self._branches.stop(call)
        self._settled.append(call)
        self._reasons.append(f"no plan can be made: {reason}")
        self._tell("study", self._reasons[-1])

    def _choose(self, call: Signature) -> list[StepPlan] | str:
        """Return the plan that a step follows, or the reason why none could be made."""
        found = super()._choose(call)
        if isinstance(found, str) and call in self._settled:
            return self._reasons[self._settled.index(call)]
        return found
