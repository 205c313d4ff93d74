"""`AutoPlans`: plans that are made while the training begins, of steps that it records."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from offcert.certification.kept_plans import KeptPlans
from offcert.core.errors import InputError, NoPlanError, OffcertError, PlanError
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem
from offcert.runtime.capture.recorder import Recorder
from offcert.runtime.device.cuda import cuda_device
from offcert.runtime.follow.accounts import say
from offcert.runtime.follow.follower import Follower
from offcert.runtime.follow.run import StepRun
from offcert.runtime.plan.reports import StepReport
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.streaming.step_events import Stopwatch
from offcert.runtime.watch.events import Session
from offcert.runtime.watch.guard import one_line
from offcert.runtime.watch.operators import within_transform
from offcert.runtime.watch.signature import Signature, signature
from offcert.training.feedback import tell_of_study
from offcert.training.growth import Branches, foretold, is_covered, varied
from offcert.training.making import PlanMaker
from offcert.training.places import PlanFolder
from offcert.training.planner import Planner, first_call
from offcert.training.search import forget_prepared, prepare
from offcert.training.study import Study, TimedRun
from offcert.training.together import searches_for

# Tries after which a kind of step is left without a plan. Arbitrary.
_TRIES = 8


class AutoPlans:
    """Studies steps of a new kind, has plans made for them, and lets a follower do the others.

    It hears of every step first (`offcert.runtime.follow.follower.StepListener`), and passes it on.
    What it knows of steps is in its parts: `Branches` (kinds of steps that are not what they were
    taken for), `PlanMaker` with its `Places` (the plans, and the
    searches for better ones), `Study` (the step that is being recorded). Plans may be kept in a
    folder.
    """

    def __init__(self, follower: Follower, planner: Planner, plans: KeptPlans | None) -> None:
        self._follower, self._planner = follower, planner
        self._searches = searches_for(follower.root)
        self._branches = Branches()
        self._captured: list[Problem] = []  # With the times of a hardware model
        kept = PlanFolder(plans, lambda why: follower.accounts.tell("kept", why))
        self.maker = PlanMaker(follower, planner, self._searches, kept, self._branches)
        self._study: Study | None = None
        # Calls for which no plan was made of what is known of smaller steps, or one has been.
        self._unforetold: set[str] = set()
        # Steps with a call that no gradient came to: if it is so again, that is how they are.
        self._odd: set[str] = set()

    @property
    def certificates(self) -> list[Certificate]:
        """The certificates of the plans that were made so far."""
        return self.maker.places.certificates

    def plan(self, problem: Problem) -> None:
        """Make a plan for a step that was captured."""
        tell_of_study(problem)
        self._captured.append(problem)
        self.maker.plan(*self._varied(problem))

    # Of steps, hooks tell.

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Study a step of a new kind; follow a plan in the others."""
        follower, places = self._follower, self.maker.places
        if not torch.is_grad_enabled() or follower.is_busy() or within_transform():
            return follower.begin(args, kwargs)
        study = self._study
        if study is not None and not study.concluded:
            if study.under_way:
                return study.session.begin(args, kwargs)
            self._conclude(study)
        elif not follower.goes_on:
            self.maker.advance()
            self.maker.plan_anew()
        if places.unfollowed:
            # Modules were wrapped as the step began.
            follower.close_run("another step began")
            follower.accounts.steps.update(["studied"])
            places.unfollowed -= 1
            return None
        call = signature(follower.hooks.parts, args, kwargs)
        if not self._is_new(call):
            return follower.begin(args, kwargs)
        if self._study is not None and self._study.call != call:
            study, self._study = self._study, None
            if study.fullest is not None:
                self._take_over(study)
                return self.begin(args, kwargs)
        if self._study is None:
            if self._foretold(call):
                return self.begin(args, kwargs)
            self._study = self._new_study(call)
        return self._record(self._study, args, kwargs)

    def _new_study(self, call: Signature) -> Study:
        follower = self._follower
        if follower.device is not None:
            # What is recorded is copied, too, if it has no room.
            follower.device.require_movable()
        begun = follower.kinds.now()
        if is_covered(follower.step_plans, call, follower.hooks.parts.device):
            self.maker.own.append(call)
        if self._planner.options.background and self._searches.alone:
            prepare()
        follower.reserved.begin(fresh=True)
        return Study(follower.root, call, begun)

    def _record(
        self, study: Study, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Session | None:
        follower = self._follower
        follower.close_run("another step began")
        follower.counting.leave()
        follower.accounts.steps.update(["studied"])
        follower.accounts.report = StepReport("it is recorded, for a plan to be made", True)
        follower.hear(every=True)
        left = self.maker.places.left()
        session = study.begin(follower.hooks, args, kwargs, self._planner, left)
        watch = getattr(follower.device, "watch", None)
        if watch is not None:
            # Only a simulated device does not see by itself which memory operators take.
            watch(study.session.tracker)
        return session

    def left(self, session: Session, output: Any) -> None:
        """Leave the modes that the session has entered."""
        if isinstance(session, Recorder):
            session.left(session, output)
        else:
            self._follower.left(session, output)

    def plan_number(self, session: Session) -> int | None:
        """Return the number of the plan that a session follows, if anything runs again in it."""
        return self._follower.plan_number(session)

    def announce(self, name: str) -> None:
        """Pass on that an operator is called."""
        self._follower.announce(name)

    def new_run(self, chosen: StepPlan, *args: Any) -> StepRun:
        """Return the step that follows a plan; one that is timed, if its times are wanted."""
        follower = self._follower
        pairs = zip(self.maker.places.made, follower.step_plans, strict=True)
        if not any(plan is chosen and made.times is not None for made, plan in pairs):
            return follower.new_run(chosen, *args)
        # Not the device of the plans, which may be a simulated one: its time is that of plans.
        watch = Stopwatch(cuda_device(follower.root, timed=True))
        return TimedRun(watch, follower.hooks, chosen, *args)

    def reason_without_plan(self, call: Signature) -> str | None:
        """Return why no plan was made for steps that begin with a call, if none was."""
        return self._branches.reason(call)

    def ended(self, run: StepRun) -> None:
        """Take stock of a step whose backward pass has ended, and its times."""
        # Counting takes time.
        if isinstance(run, TimedRun) and (self._follower.options.count or run.counter is None):
            for made in self.maker.places.made:
                if made.times is not None and made.times.step_plan is run.step_plan:
                    made.times.take(run)
        self._follower.ended(run)
        self.maker.ended(run)
        if run.superseded is not None:
            self._branches.missed(run)

    def closed(self, run: StepRun) -> None:
        """Take note of a step that followed its plan, or did not."""
        if run.finished and run.deviation is not None:
            self._branches.missed(run)

    def failed(self, error: Exception, reason: str, session: Session | None) -> None:
        """Take note that an entry has failed: a study is of no use then."""
        if self._study is None or isinstance(session, StepRun):
            self._follower.failed(error, reason, session)
            return
        self._study.fail(reason)
        self._follower.accounts.failed(error, reason, None)

    def close(self) -> None:
        """End all searches and studies: the context ends."""
        forget_prepared()
        self.maker.places.close()
        study, self._study = self._study, None
        if study is not None:
            study.abandon()

    # What becomes of a study.

    def _is_new(self, call: Signature) -> bool:
        if self._branches.reason(call) is not None:
            return False
        if self._study is not None and self._study.call == call:
            return True
        if self.maker.is_full and self.maker.outgrown(call) is None:
            return False
        return isinstance(self._follower.choose(call), str) or self._branches.wants(call)

    def _conclude(self, study: Study) -> None:
        """Take over a study's findings, and make a plan once it is complete."""
        if study.broken:
            # The user has been told of the reason.
            self._study = None
            self._branches.settle(study.call, study.broken)
            study.abandon()
            return
        planner = self._planner
        planner.fragments = max(planner.fragments, self._follower.reserved.fragments)
        try:
            problem = study.conclude(planner)
        except NoPlanError as error:
            self._study = None
            self.maker.settle(study.call, str(error))
            return
        except Exception as error:
            # The user's training goes on whatever we stumble over.
            why = str(error) if isinstance(error, OffcertError) else one_line(error)
            self._give_up(study.call, why)
            return
        if self._is_disturbed(study):
            self._study = None
        elif problem is not None:
            whole = study.whole
            self._follower.kinds.vary |= not whole
            if whole or study.tries >= _TRIES:
                self._take_over(study)
        elif study.tries >= _TRIES:
            self._give_up(study.call, "its steps differ, or run no backward pass")

    def _foretold(self, call: Signature) -> bool:
        """Make a plan for a larger step than was studied, and for larger ones; whether it fits."""
        if self._follower.goes_on or repr(call) in self._unforetold:
            return False
        self._unforetold.add(repr(call))
        with suppress(InputError, PlanError):
            problem = foretold(self._captured, call)
            if problem is not None and self._planner.fits(problem):
                self.maker.plan(problem)
                return True
        return False

    def _take_over(self, study: Study) -> None:
        """Make a plan for the step that did most of those that were studied."""
        self._study = None
        assert study.fullest is not None
        plans = self._follower.step_plans
        try:
            made = len(plans)
            self.plan(study.fullest)
            for step_plan in plans[made:]:
                self._follower.kinds.was(step_plan, study.begun)
        except (InputError, PlanError) as error:
            self._give_up(study.call, str(error))

    def _varied(self, problem: Problem) -> tuple[Problem, int | None]:
        """Return the problem that a plan is to be made for, and the number of the one it replaces.

        A step that differs from a known one in sizes alone depends on data: one plan is for both.
        """
        for number, made in enumerate(self.maker.places.made):
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
        plans, here = self._follower.step_plans, self._follower.hooks.parts.device
        known = [each.capture for each in plans if is_covered([each], study.call, here)]
        return not self._branches.studied(study.capture, known)

    def _give_up(self, call: Signature, reason: str) -> None:
        self._study = None
        self._branches.settle(call, f"no plan can be made: {reason}")
        self._follower.accounts.tell("study", f"no plan can be made: {reason}")
