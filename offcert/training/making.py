"""How plans come to be followed: a makeshift at once, the certified one when it has been found."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from offcert.certify.kept_plans import KeptPlans
from offcert.core.errors import InputError, PlanError
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime.follow.run import StepRun
from offcert.runtime.plan.step_plan import StepPlan, step_plan
from offcert.runtime.watch.signature import Signature
from offcert.training.barred import opaque_modules, price, without
from offcert.training.branches import Branches
from offcert.training.feedback import (
    tell_of_end,
    tell_of_makeshift,
    tell_of_plans,
    tell_of_search,
    tell_of_waiting,
)
from offcert.training.growth import contained, outgrown
from offcert.training.places import Made, Placing
from offcert.training.plan_folder import PlanFolder
from offcert.training.planner import Planner, first_call
from offcert.training.search import Done, Found, Order, at_once
from offcert.training.study import Times
from offcert.training.together import searches_for

# Plans in the place of others of which something was refused; after so many plans only move
# tensors. Arbitrary.
_MOST_ANEW = 6
# Steps by a makeshift, after which what a search has found so far is followed; and after which it
# is said that nothing has been found. Arbitrary.
_SOON, _LATE = 8, 16
# Part of the time of a followed plan, below which it is worth the while to follow another one.
# Arbitrary.
_WORTH = 0.98


class Making(Placing):
    """A model that is trained under plans that are made meanwhile.

    A makeshift evicts just before an operation needs room; it is found at once, and keeps to the
    limit if any plan does that runs nothing again. Times are taken of the steps that follow it, if
    no hardware is named, and a certified plan takes its place when it has been found.

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
        background: bool = True,
        plans: KeptPlans | None = None,
        **following: Any,
    ) -> None:
        super().__init__(model, host_memory, **following)
        self.certificates: list[Certificate] = []
        self._planner = planner
        self._max_plans = max_plans
        self._spills = spills
        self._background = background
        self._searches = searches_for(self._root)
        self._kept = PlanFolder(plans, lambda why: self._tell("kept", why))
        # First calls of plans for steps that a larger plan should have done for, but did not.
        self._own: list[Signature] = []
        # Kinds of steps that are left without a plan, and why.
        self._settled: list[Signature] = []
        self._reasons: list[str] = []
        self._branches = Branches()
        # Modules that must not run again, and why; plans in the place of refused ones.
        self._barred: dict[str, str] = {}
        self._anew = 0
        # Programs that wait for the end of a step, as modules are wrapped for them.
        self._waiting: dict[int, StepPlan] = {}

    # From a problem to a plan.

    def _plan(self, problem: Problem, same: int | None = None) -> None:
        """Follow a plan for a kind of step, in the place of the one for the same kind, if any."""
        if problem.recompute is not Recompute.NONE:
            self._barred |= opaque_modules(self._root)
        allowed = without(problem, self._barred)
        same = contained([e.problem for e in self._made], problem) if same is None else same
        number = self._outgrown(first_call(problem)) if same is None else same
        known = self._order(problem, allowed, number).known() if self._searches.alone else None
        if known is not None:
            self._arrived(problem, known, number)
            return
        makeshift = self._makeshift(allowed)
        if makeshift is None or (self._open is None and self._planner.hardware is not None):
            # There is nothing to follow meanwhile, or nobody trains yet.
            joint = allowed.recompute is not Recompute.NONE
            if joint and makeshift is None and self._open is not None:
                tell_of_waiting(problem)
            order = self._order(problem, allowed, number)
            tell_of_search(order, None)
            self._arrived(problem, self._find(order), number)
            return
        number = self._take(makeshift, number)
        made = self._know(number, Made(problem))
        if self._planner.hardware is None and not makeshift.is_idle:
            made.times = Times(makeshift)
        else:
            self._search(number, allowed)

    def _makeshift(self, problem: Problem) -> StepPlan | None:
        """Return a plan that keeps to the limit, found at once; None if there is none."""
        plain = self._planner.limited(replace(problem, recompute=Recompute.NONE))
        found = at_once(plain)
        if found is None:
            return None
        with suppress(InputError, PlanError):
            assert found.result.schedule is not None
            made = step_plan(plain, found.result.schedule, streams=self._device is not None)
            left = self._left
            return made if left is None else made.within_host(left, self._spills)
        return None

    def _search(self, number: int, allowed: Problem) -> None:
        """Search for the plan that takes the place of a makeshift."""
        made = self._made[number]
        problem = allowed if made.before is not None else made.problem
        order = self._order(problem, allowed, number)
        tell_of_search(order, self.step_plans[number] if self._background else None)
        made.search = self._searches.begin(order, apart=self._background)
        if not self._background or isinstance(made.search, Done):
            self._look(number)

    def _find(self, order: Order) -> Found:
        """Return the outcome of the search for an order; wait for it."""
        found = self._searches.begin(order, apart=False).poll()
        assert found is not None
        return found

    def _know(self, number: int, made: Made) -> Made:
        """Take note of what a plan was made for; no search goes on for what was there before."""
        before, self._made[number] = self._made[number], made
        if before.search is not None and before is not made:
            before.search.close()
        return made

    def _order(self, problem: Problem, allowed: Problem, number: int | None) -> Order:
        planner = self._planner
        plain = None
        if allowed.recompute is not Recompute.NONE:
            plain = planner.limited(replace(allowed, recompute=Recompute.NONE))
        return Order(
            planner.limited(allowed),
            plain,
            planner.time_limit,
            self._room(number),
            self._device is not None,
            None if allowed is problem else planner.limited(problem),
            self._kept.find,
        )

    def _room(self, number: int | None) -> int | None:
        """Return the host's bytes for a plan: what is too much may go into a file, if it spills."""
        return None if self._spills else self._left_without(number)

    def _look(self, number: int) -> None:
        """Take the plan of a search that has ended, or the best so far of one that takes long."""
        made = self._made[number]
        search, made.search = made.search, None
        if search is None:
            return
        try:
            found = search.poll()
            if found is not None:
                found.unbarred = found.unbarred or made.before
                self._ended(found, number)
                return
        except (InputError, PlanError) as error:
            search.close()
            call = first_call(made.problem)
            self._tell("study", f"no better plan can be made for {_shown(call)}: {error}")
            return
        if made.steps >= _SOON and (made.certificate is None or made.steps.bit_count() == 1):
            found = search.so_far()
            # One that cannot be followed is none; another one may come.
            with suppress(InputError, PlanError):
                if found is not None and self._is_better(found, number):
                    self._replace(found, number)
        # Another search may have begun for what could not be followed.
        now = self._made[number]
        if now.search is None:
            now.search, now.steps = search, made.steps
        else:
            search.close()

    def _ended(self, found: Found, number: int) -> None:
        """Follow the plan of a search that has ended, unless the followed one is as good."""
        if self._is_better(found, number):
            self._replace(found, number)
        elif found.certificate is not None:
            asked = self._planner.limited(without(self._made[number].problem, self._barred))
            self._kept.keep(found.certificate, asked, self._room(number))
            tell_of_end(found.certificate)

    def _is_better(self, found: Found, number: int) -> bool:
        """Whether a plan is worth to be followed in the place of a certified one, if there is."""
        known = self._made[number].certificate
        if known is None:
            return True
        before = known.result.objective
        now = None if found.certificate is None else found.certificate.result.objective
        return now is not None and before is not None and now < _WORTH * before

    def _replace(self, found: Found, number: int) -> None:
        made = self._made[number]
        self._arrived(made.problem, found, number)
        if made.certificate is not None:
            self.certificates.remove(made.certificate)

    def _arrived(self, problem: Problem, found: Found, number: int | None) -> None:
        """Follow a plan that was found."""
        if found.told:
            self._tell("plainly", found.told)
        certificate = found.certificate
        if certificate is None or certificate.result.schedule is None:
            if certificate is not None:
                self.certificates.append(certificate)
            why = found.reason if certificate is None else self._planner.why_none(certificate)
            if number is None:
                self._settle(first_call(problem), why)
            elif self._made[number].certificate is None:
                tell_of_makeshift(problem, why)
            return
        made = self._step_plan(certificate, number)
        self.certificates.append(certificate)
        asked = self._planner.limited(without(problem, self._barred))
        self._kept.keep(certificate, asked, self._room(number))
        if number is not None and self._must_wait(made, number):
            self._waiting[number] = made
            self._know(number, Made(problem, certificate))
        else:
            self._place(made, number, Made(problem, certificate))
        if found.unbarred is not None:
            said = price(self._barred, found.unbarred, certificate)
            if said is not None:
                self._tell("barred", said)

    def _step_plan(self, certificate: Certificate, number: int | None) -> StepPlan:
        """Return the plan of a certificate that holds one, as it is followed."""
        result, left = certificate.result, self._left_without(number)
        assert result.schedule is not None
        streams = self._device is not None
        made = step_plan(certificate.problem, result.schedule, result.execution, streams=streams)
        return made if left is None else made.within_host(left, self._spills)

    def _place(self, made: StepPlan, number: int | None, known: Made) -> None:
        """Follow a certified plan; another one that only moves, if the model cannot follow it."""
        try:
            number = self._take(made, number)
            self._know(number, known)
            folder = self._kept.folder_of(known.certificate)
            tell_of_plans(self, [(known.certificate, made)], folder)
        except (InputError, PlanError) as error:
            if not made.segments:
                raise
            self.certificates.remove(known.certificate)  # type: ignore[arg-type]
            self._tell("plainly", f"nothing runs again, plans only move tensors: {error}")
            plain = replace(known.problem, recompute=Recompute.NONE)
            if number is None:
                self._arrived(plain, self._find(self._order(plain, plain, None)), None)
            else:
                self._know(number, Made(plain))
                self._search(number, plain)

    def _settle(self, call: Signature, reason: str) -> None:
        """Leave a kind of step without a plan."""
        self._settled.append(call)
        self._reasons.append(f"no plan fits: {reason}")
        self._branches.stop(call)
        self._tell("budget", self._reasons[-1])

    # While steps run.

    def _advance(self) -> None:
        """Take the plans of searches that have ended, and begin those whose times are known."""
        for number, made in enumerate(self._made):
            if made.times is not None and made.times.complete:
                times, made.times = made.times, None
                device = next((p.device for p in self._root.parameters()), torch.device("cpu"))
                made.problem = self._planner.timed(made.problem, times.durations(), device)
                self._search(number, without(made.problem, self._barred))
            else:
                self._look(number)

    def _plan_anew(self) -> None:
        """Make another plan in the place of one of which segments have been refused meanwhile."""
        assert self._segments is not None
        refused = self._segments.refused
        if not refused or (self._run is not None and not self._run.finished):
            return
        for number, each in enumerate(self.step_plans):
            proofs = [refused[n] for n in map(str, each.segments.nested()) if n in refused]
            new = {path: str(proof.refused) for proof in proofs for path in proof.paths}
            if new.keys() <= self._barred.keys():
                continue
            self._barred |= new
            self._anew += 1
            self._close_run("another step began")
            problem, before = self._made[number].problem, self._made[number].certificate
            allowed = without(problem, self._barred)
            if self._anew > _MOST_ANEW:
                allowed = replace(problem, recompute=Recompute.NONE)
            makeshift = self._makeshift(allowed)
            if makeshift is not None:
                self._take(makeshift, number)
            self._know(number, Made(problem, before=before))
            self._search(number, allowed)

    def ended(self, run: StepRun) -> None:
        """Take stock of a step whose backward pass has ended; a plan may take its place then."""
        super().ended(run)
        for each, followed in zip(self._made, self.step_plans, strict=True):
            if each.search is not None and followed is run.step_plan:
                each.steps += 1
                if each.steps == _LATE and each.certificate is None:
                    tell_of_makeshift(each.problem, f"{_LATE} steps by it, and none found")
        self._advance()
        waiting, self._waiting = self._waiting, {}
        for number, made in waiting.items():
            self._place(made, number, self._made[number])
        # Modules are wrapped before they are called again.
        self._unfollowed = 0

    # Programs.

    def _outgrown(self, call: Signature) -> int | None:
        """Return the number of the plan in whose place one for a larger call is followed."""
        full = len(self.step_plans) >= self._max_plans
        return outgrown(self.step_plans, call, self._hooks.parts.device, self._own, full=full)

    def _forget_searches(self) -> None:
        """End all searches that are under way."""
        for made in self._made:
            search, made.search = made.search, None
            if search is not None:
                search.close()


def _shown(call: Signature) -> str:
    shapes = ["x".join(map(str, each[1])) for each in call[0] if isinstance(each, list)]
    return f"inputs of {', '.join(shapes) or 'no tensors'}"
