"""Plans of one training: those that are followed in turn, and those that lie in a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from offcert.certification.kept_plans import KeptPlans
from offcert.core.errors import InputError
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem
from offcert.runtime.follow.counting import host_memory_of
from offcert.runtime.follow.follower import Follower
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.segments.placed import NOTHING_AGAIN
from offcert.training.search import Search, SearchOutcome
from offcert.training.study import OperationTimes


class PlanFolder:
    """Plans that are kept in a folder, if there is one, and which of those followed come from it.

    `tell` is told in a sentence why a plan is not used, or not kept.
    """

    def __init__(self, plans: KeptPlans | None, tell: Callable[[str], None]) -> None:
        self._plans, self._tell = plans, tell
        self._found: list[Certificate] = []

    def find(self, problem: Problem, room: int | None) -> SearchOutcome | None:
        """Return a plan for a problem, or None; parameters as for `KeptPlans.digest`."""
        if self._plans is None:
            return None
        certificate = self._plans.find(problem, room, self._tell)
        if certificate is None:
            return None
        self._found.append(certificate)
        return SearchOutcome(certificate)

    def keep(self, certificate: Certificate, asked: Problem, room: int | None) -> None:
        """Keep a plan that was searched for, under what was asked; `room` as for `find`."""
        if self._plans is None or self.folder_of(certificate) is not None:
            return
        try:
            problem = replace(certificate.problem, recompute=asked.recompute)
            self._plans.keep(certificate, problem, room)
        except InputError as error:
            self._tell(f"the plan is not kept: {error}")

    def folder_of(self, certificate: Certificate | None) -> Path | None:
        """Return the folder in which a certificate was found; None if it was searched for."""
        if self._plans is None or not any(each is certificate for each in self._found):
            return None
        return self._plans.folder


@dataclass
class Made:
    """A plan's problem, in which everything may run again, and how its search stands.

    The plan is a makeshift as long as there is no certificate. Before a better one is searched for,
    times are taken of its steps; `steps` have followed it since the search began. If something was
    refused of another plan in whose place it is, `before` is the certificate of that.
    """

    problem: Problem
    certificate: Certificate | None = None
    times: OperationTimes | None = None
    search: Search | None = None
    before: Certificate | None = None
    steps: int = 0


class Places:
    """The plans of a `Follower` that come one after the other, each by its number."""

    def __init__(self, follower: Follower) -> None:
        assert follower.segments is not None
        self.made: list[Made] = []  # One a plan
        self.certificates: list[Certificate] = []  # Of the plans made so far
        # Calls of the model that are still to be made in the step in which modules were wrapped.
        self.unfollowed = 0
        self._follower, self._segments = follower, follower.segments
        # Plans that wait for the end of a step, as modules are wrapped for them.
        self._waiting: dict[int, StepPlan] = {}

    def left(self, number: int | None = None) -> int | None:
        """Return the host's bytes that no plan but the numbered one takes; None for any number."""
        limit = self._follower.options.host_limit
        if limit is None:
            return None
        others = [each for n, each in enumerate(self._follower.step_plans) if n != number]
        return limit - host_memory_of(others).held

    def room(self, number: int | None) -> int | None:
        """Return the host's bytes for a plan: what is too much may go into a file, if it spills."""
        return None if self._follower.options.spills else self.left(number)

    def within_host(self, made: StepPlan, number: int | None) -> StepPlan:
        """Return a plan that keeps to what the host has left for it."""
        left = self.left(number)
        return made if left is None else made.within_host(left, self._follower.options.spills)

    def must_wait(self, made: StepPlan, number: int) -> bool:
        """Take note of a plan for which modules are wrapped: the call under way cannot follow it.

        It need not wait for a step in which nothing moves: nobody says when such a step has ended.
        Returns whether it waits, for `those_that_waited`.
        """
        before = self._follower.step_plans[number]
        wraps = bool(made.segments or before.segments)
        waits = self._follower.is_open and wraps and not before.is_idle
        if waits:
            self._waiting[number] = made
        return waits

    def those_that_waited(self) -> dict[int, StepPlan]:
        """Return the plans that have waited, by their numbers, as a step has ended."""
        waiting, self._waiting = self._waiting, {}
        return waiting

    def know(self, number: int, made: Made) -> Made:
        """Take note of what a plan was made for; no search goes on for what was there before."""
        before, self.made[number] = self.made[number], made
        if before.search is not None and before is not made:
            before.search.close()
        return made

    def take(self, made: StepPlan, number: int | None = None) -> int:
        """Follow one more plan from the next step on, or from this one if no module changes.

        With a number it takes the place of another one. Returns the number.
        """
        follower = self._follower
        before = NOTHING_AGAIN if number is None else follower.step_plans[number].segments
        if not follower.is_open or not (made.segments or before):
            return self._put(made, number)
        wrapped = any(each.segments for each in follower.step_plans)
        if not wrapped:
            # Refused before anything is changed.
            number = self._put(made, number)
        # The call that has just begun is one of the model as it was: it runs as it is. As in the
        # beginning, what runs again is attached before the clock.
        follower.hooks.detach()
        self._segments.detach()
        try:
            if wrapped:
                number = self._put(made, number)
        finally:
            self.unfollowed = len(made.capture.calls)
            try:
                self._segments.attach()
            finally:
                follower.hooks.attach()
        assert number is not None
        return number

    def _put(self, made: StepPlan, number: int | None) -> int:
        follower, plans = self._follower, self._follower.step_plans
        if number is None:
            self._segments.add(made.segments)
            plans.append(made)
            self.made.append(Made(made.problem))
            return len(plans) - 1
        self._segments.replace(number, made.segments)
        follower.kinds.forget(plans[number])
        follower.mover_maker.forget(plans[number], instead=made)
        follower.counting.forget(plans[number])
        plans[number] = made
        return number

    def close(self) -> None:
        """End all searches that are under way, and what was begun for plans."""
        self.unfollowed = 0
        for made in self.made:
            search, made.search = made.search, None
            if search is not None:
                search.close()
