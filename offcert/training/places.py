"""Plans that are followed in the place of others while a model is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem
from offcert.runtime.follow.memory import host_memory_of
from offcert.runtime.follow.offload import Offload
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.segments.placed import NOTHING_AGAIN
from offcert.training.study import Times
from offcert.training.together import Searching


@dataclass
class Made:
    """A plan's problem and certificate, and the search for a better one.

    Attributes
    ----------
    problem : Problem
        A problem in which everything may run again.
    certificate : Certificate or None
        The certificate of the plan; None as long as it is a makeshift.
    times : Times or None
        Taken of its steps, before a better plan is searched for.
    search : Searching or None
        The search that is under way.
    before : Certificate or None
        Of the plan of which something was refused, in whose place this one is.
    steps : int
        Steps that have followed it since the search began.
    """

    problem: Problem
    certificate: Certificate | None = None
    times: Times | None = None
    search: Searching | None = None
    before: Certificate | None = None
    steps: int = 0


class Placing(Offload):
    """A model under plans that come one after the other.

    Parameters
    ----------
    model : nn.Module
        The model.
    host_memory : int or None
        Bytes of the host that all plans may take together.
    **following
        As for `offcert.runtime.follow.offload.Offload`.
    """

    def __init__(self, model: nn.Module, host_memory: int | None, **following: Any) -> None:
        super().__init__(model, (), **following)
        self._host_memory = host_memory
        # One a plan.
        self._made: list[Made] = []
        # Calls of the model that are still to be made in the step in which modules were wrapped.
        self._unfollowed = 0

    @property
    def _left(self) -> int | None:
        return self._left_without(None)

    def _left_without(self, number: int | None) -> int | None:
        """Bytes of the host's memory that no plan takes; None if there may be any number."""
        if self._host_memory is None:
            return None
        others = [each for n, each in enumerate(self.step_plans) if n != number]
        return self._host_memory - host_memory_of(others).held

    def _must_wait(self, made: StepPlan, number: int) -> bool:
        """Whether modules are wrapped for a plan, which the call under way cannot follow.

        It need not wait for a step in which nothing moves: nobody says when such a step has ended.
        """
        before = self.step_plans[number]
        wraps = bool(made.segments or before.segments)
        return self._open is not None and wraps and not before.is_idle

    def _take(self, made: StepPlan, number: int | None = None) -> int:
        """Follow one more plan from the next step on, or from this one if no module changes.

        With a number it takes the place of another one. Returns the number.
        """
        assert self._segments is not None
        before = NOTHING_AGAIN if number is None else self.step_plans[number].segments
        if self._open is None or not (made.segments or before):
            return self._put(made, number)
        wrapped = any(each.segments for each in self.step_plans)
        if not wrapped:
            # Refused before anything is changed.
            number = self._put(made, number)
        # The call that has just begun is one of the model as it was: it runs as it is. As in the
        # beginning, what runs again is attached before the clock.
        self._hooks.detach()
        self._segments.detach()
        try:
            if wrapped:
                number = self._put(made, number)
        finally:
            self._unfollowed = len(made.capture.calls)
            try:
                self._segments.attach()
            finally:
                self._hooks.attach()
        assert number is not None
        return number

    def _put(self, made: StepPlan, number: int | None) -> int:
        assert self._segments is not None
        if number is None:
            self._segments.add(made.segments)
            self.step_plans.append(made)
            self._made.append(Made(made.problem))
            return len(self.step_plans) - 1
        self._segments.replace(number, made.segments)
        self._kinds.forget(self.step_plans[number])
        self._mover_maker.forget(self.step_plans[number], instead=made)
        self._counting.forget(self.step_plans[number])
        self.step_plans[number] = made
        return number
