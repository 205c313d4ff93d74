"""How plans come to be followed: a makeshift at once, the certified one when it has been found."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from offcert.core.errors import InputError, PlanError
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.runtime.follow.follower import Follower
from offcert.runtime.follow.run import StepRun
from offcert.runtime.plan.step_plan import StepPlan, step_plan
from offcert.runtime.watch.signature import Signature, as_if_on, covers, volume
from offcert.runtime.workloads.standard_step import device_of
from offcert.training.feedback import (
    tell_of_end,
    tell_of_makeshift,
    tell_of_plans,
    tell_of_search,
    tell_of_waiting,
)
from offcert.training.growth import Branches, contained
from offcert.training.places import Made, Places, PlanFolder
from offcert.training.planner import Planner, first_call, opaque_modules, price, without
from offcert.training.search import EndedSearch, Order, SearchOutcome, at_once
from offcert.training.study import OperationTimes
from offcert.training.together import Alone, Together

# Plans in the place of others of which something was refused; after so many plans only move
# tensors. Arbitrary.
_MOST_ANEW = 6
# Steps by a makeshift, after which what a search has found so far is followed; and after which it
# is said that nothing has been found. Arbitrary.
_SOON, _LATE = 8, 16
# Part of the time of a followed plan, below which it is worth the while to follow another one.
# Arbitrary.
_WORTH = 0.98


class PlanMaker:
    """Makes a plan for every kind of step, and better ones while it is followed.

    A makeshift evicts just before an operation needs room; it is found at once, and keeps to the
    limit if any plan does that runs nothing again. Times are taken of the steps that follow it, if
    no hardware is named, and a certified plan takes its place when it has been found.
    """

    def __init__(
        self,
        follower: Follower,
        planner: Planner,
        searches: Alone | Together,
        kept: PlanFolder,
        branches: Branches,
    ) -> None:
        self.places = Places(follower)
        # First calls of plans for steps that a larger plan should have done for, but did not.
        self.own: list[Signature] = []
        self._follower, self._planner = follower, planner
        self._searches, self._kept, self._branches = searches, kept, branches
        self._background = planner.options.background
        self._streams = follower.device is not None
        # Modules that must not run again, and why; plans in the place of refused ones.
        self._barred: dict[str, str] = {}
        self._anew = 0

    # From a problem to a plan.

    def plan(self, problem: Problem, same: int | None = None) -> None:
        """Follow a plan for a kind of step, in the place of the one for the same kind, if any."""
        if problem.recompute is not Recompute.NONE:
            self._barred |= opaque_modules(self._follower.root)
        allowed = without(problem, self._barred)
        made = [each.problem for each in self.places.made]
        same = contained(made, problem) if same is None else same
        number = self.outgrown(first_call(problem)) if same is None else same
        known = self._order(problem, allowed, number).known() if self._searches.alone else None
        if known is not None:
            self._arrived(problem, known, number)
            return
        makeshift, trains = self._makeshift(allowed), self._follower.is_open
        if makeshift is None or not (trains or self._planner.hardware is None):
            # There is nothing to follow meanwhile, or nobody trains yet.
            if makeshift is None and trains and allowed.recompute is not Recompute.NONE:
                tell_of_waiting(problem)
            order = self._order(problem, allowed, number)
            tell_of_search(order, None)
            self._arrived(problem, self._find(order), number)
            return
        number = self.places.take(makeshift, number)
        known_of = self.places.know(number, Made(problem))
        if self._planner.hardware is None and not makeshift.is_idle:
            known_of.times = OperationTimes(makeshift)
        else:
            self._search(number, allowed)

    def outgrown(self, call: Signature) -> int | None:
        """Return the number of the plan in whose place one for a larger call is followed, or None.

        It is the one for the largest of the calls that this one covers: if that is more than half
        as large, or no more plans may be made. Plans for calls for which a larger one did not do
        (`own`) stay.
        """
        found = []
        for number, each in enumerate(self._follower.step_plans):
            known = each.capture.calls[0]
            asked = as_if_on(call, each.capture.device, self._follower.hooks.parts.device)
            if volume(known) < volume(asked) and covers(asked, known) and known not in self.own:
                found.append((volume(known), number))
        if not found:
            return None
        size, number = max(found)
        return number if self.is_full or 2 * size > volume(call) else None

    @property
    def is_full(self) -> bool:
        """Whether there are as many plans as there may be."""
        return len(self._follower.step_plans) >= self._planner.options.max_plans

    def _makeshift(self, problem: Problem) -> StepPlan | None:
        """Return a plan that keeps to the limit, found at once; None if there is none."""
        plain = self._planner.limited(replace(problem, recompute=Recompute.NONE))
        found = at_once(plain)
        if found is None:
            return None
        with suppress(InputError, PlanError):
            assert found.result.schedule is not None
            made = step_plan(plain, found.result.schedule, streams=self._streams)
            return self.places.within_host(made, None)
        return None

    # Searches.

    def _search(self, number: int, allowed: Problem) -> None:
        """Search for the plan that takes the place of a makeshift."""
        made = self.places.made[number]
        problem = allowed if made.before is not None else made.problem
        order = self._order(problem, allowed, number)
        tell_of_search(order, self._follower.step_plans[number] if self._background else None)
        made.search = self._searches.begin(order, apart=self._background)
        if not self._background or isinstance(made.search, EndedSearch):
            self._look(number)

    def _find(self, order: Order) -> SearchOutcome:
        """Return the outcome of the search for an order; wait for it."""
        found = self._searches.begin(order, apart=False).poll()
        assert found is not None
        return found

    def _order(self, problem: Problem, allowed: Problem, number: int | None) -> Order:
        planner = self._planner
        plain = None
        if allowed.recompute is not Recompute.NONE:
            plain = planner.limited(replace(allowed, recompute=Recompute.NONE))
        return Order(
            planner.limited(allowed),
            plain,
            planner.options.time_limit,
            self.places.room(number),
            self._streams,
            None if allowed is problem else planner.limited(problem),
            self._kept.find,
        )

    def _look(self, number: int) -> None:
        """Take the plan of a search that has ended, or the best so far of one that takes long."""
        made = self.places.made[number]
        search, made.search = made.search, None
        if search is None:
            return
        try:
            found = search.poll()
            if found is not None:
                found.unbarred = found.unbarred or made.before
                self._found(found, number)
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
        now = self.places.made[number]
        if now.search is None:
            now.search, now.steps = search, made.steps
        else:
            search.close()

    def _found(self, found: SearchOutcome, number: int) -> None:
        """Follow the plan of a search that has ended, unless the followed one is as good."""
        if self._is_better(found, number):
            self._replace(found, number)
        elif found.certificate is not None:
            self._keep(found.certificate, self.places.made[number].problem, number)
            tell_of_end(found.certificate)

    def _is_better(self, found: SearchOutcome, number: int) -> bool:
        """Whether a plan is worth to be followed in the place of a certified one, if there is."""
        known = self.places.made[number].certificate
        if known is None:
            return True
        before = known.result.objective
        now = None if found.certificate is None else found.certificate.result.objective
        return now is not None and before is not None and now < _WORTH * before

    # Plans that were found.

    def _keep(self, certificate: Certificate, problem: Problem, number: int | None) -> None:
        asked = self._planner.limited(without(problem, self._barred))
        self._kept.keep(certificate, asked, self.places.room(number))

    def _replace(self, found: SearchOutcome, number: int) -> None:
        made = self.places.made[number]
        self._arrived(made.problem, found, number)
        if made.certificate is not None:
            self.places.certificates.remove(made.certificate)

    def _arrived(self, problem: Problem, found: SearchOutcome, number: int | None) -> None:
        """Follow a plan that was found."""
        if found.told:
            self._tell("plainly", found.told)
        certificate, places = found.certificate, self.places
        if certificate is None or certificate.result.schedule is None:
            if certificate is not None:
                places.certificates.append(certificate)
            why = found.reason if certificate is None else self._planner.why_none(certificate)
            if number is None:
                self.settle(first_call(problem), why)
            elif places.made[number].certificate is None:
                tell_of_makeshift(problem, why)
            return
        made = self._step_plan(certificate, number)
        places.certificates.append(certificate)
        self._keep(certificate, problem, number)
        if number is not None and places.must_wait(made, number):
            places.know(number, Made(problem, certificate))
        else:
            self._place(made, number, Made(problem, certificate))
        if found.unbarred is not None:
            said = price(self._barred, found.unbarred, certificate)
            if said is not None:
                self._tell("barred", said)

    def _step_plan(self, certificate: Certificate, number: int | None) -> StepPlan:
        """Return the plan of a certificate that holds one, as it is followed."""
        result, problem = certificate.result, certificate.problem
        assert result.schedule is not None
        made = step_plan(problem, result.schedule, result.execution, streams=self._streams)
        return self.places.within_host(made, number)

    def _place(self, made: StepPlan, number: int | None, known: Made) -> None:
        """Follow a certified plan; another one that only moves, if the model cannot follow it."""
        places, certificate = self.places, known.certificate
        assert certificate is not None
        try:
            number = places.take(made, number)
            places.know(number, known)
            folder = self._kept.folder_of(certificate)
            tell_of_plans(self._follower, [(certificate, made)], folder)
        except (InputError, PlanError) as error:
            if not made.segments:
                raise
            places.certificates.remove(certificate)
            self._tell("plainly", f"nothing runs again, plans only move tensors: {error}")
            plain = replace(known.problem, recompute=Recompute.NONE)
            if number is None:
                self._arrived(plain, self._find(self._order(plain, plain, None)), None)
            else:
                places.know(number, Made(plain))
                self._search(number, plain)

    def settle(self, call: Signature, reason: str) -> None:
        """Leave a kind of step without a plan."""
        self._branches.settle(call, f"no plan fits: {reason}")
        self._tell("budget", f"no plan fits: {reason}")

    def _tell(self, kind: str, message: str) -> None:
        self._follower.accounts.tell(kind, message)

    # While steps run.

    def advance(self) -> None:
        """Take the plans of searches that have ended, and begin those whose times are known."""
        for number, made in enumerate(self.places.made):
            if made.times is not None and made.times.complete:
                times, made.times = made.times, None
                device = device_of(self._follower.root)
                made.problem = self._planner.timed(made.problem, times.durations(), device)
                self._search(number, without(made.problem, self._barred))
            else:
                self._look(number)

    def plan_anew(self) -> None:
        """Make another plan in the place of one of which segments have been refused meanwhile."""
        follower = self._follower
        refused = {} if follower.segments is None else follower.segments.refused
        if not refused or follower.goes_on:
            return
        for number, each in enumerate(follower.step_plans):
            proofs = [refused[n] for n in map(str, each.segments.nested()) if n in refused]
            new = {path: str(proof.refused) for proof in proofs for path in proof.paths}
            if new.keys() <= self._barred.keys():
                continue
            self._barred |= new
            self._anew += 1
            follower.close_run("another step began")
            made = self.places.made[number]
            allowed = without(made.problem, self._barred)
            if self._anew > _MOST_ANEW:
                allowed = replace(made.problem, recompute=Recompute.NONE)
            makeshift = self._makeshift(allowed)
            if makeshift is not None:
                self.places.take(makeshift, number)
            self.places.know(number, Made(made.problem, before=made.certificate))
            self._search(number, allowed)

    def ended(self, run: StepRun) -> None:
        """Take stock of a step whose backward pass has ended; a plan may take its place then."""
        for each, followed in zip(self.places.made, self._follower.step_plans, strict=True):
            if each.search is not None and followed is run.step_plan:
                each.steps += 1
                if each.steps == _LATE and each.certificate is None:
                    tell_of_makeshift(each.problem, f"{_LATE} steps by it, and none found")
        self.advance()
        for number, made in self.places.those_that_waited().items():
            self._place(made, number, self.places.made[number])
        # Modules are wrapped before they are called again.
        self.places.unfollowed = 0


def _shown(call: Signature) -> str:
    shapes = ["x".join(map(str, each[1])) for each in call[0] if isinstance(each, list)]
    return f"inputs of {', '.join(shapes) or 'no tensors'}"
