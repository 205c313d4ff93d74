"""Kinds of steps that begin with the same call: which one a step will be is learnt.

A model takes another branch because one of its attributes says so, a loop takes turns, or a coin is
tossed. The plan for a step has to be chosen when it begins, by what comes before: attributes of
modules that have always told the kinds apart, or else what came after the latest two steps before.
A wrong guess is a step that deviates, and keeps its tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import nn

from offcert.runtime.follow.run import StepRun
from offcert.runtime.hardware.model import MATH
from offcert.runtime.plan.step_plan import StepPlan, plans_for
from offcert.runtime.watch.events import ENTER, INPUT, OUTPUT
from offcert.runtime.watch.signature import Signature

# An attribute by which no kind can be told: it was not the same in all of its steps.
_VARIES = object()

# Smaller steps of the same sizes that deviate before none is taken for the captured one any more.
# Arbitrary.
_UNLIKE = 2

_PLAIN = (bool, int, str, float, type(None))

Attributes = dict[tuple[int, str], Any]


class Kinds:
    """The choice among several plans: the one that a step will follow.

    `vary`: steps leave something out, or have deviated; then all their operations are heard of.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.modules, self.vary = modules, False
        self._attributes: dict[int, Attributes] = {}
        self._next: dict[tuple[int, ...], int] = {}
        self._latest: tuple[int, ...] = ()
        self._begun: Attributes = {}
        # Plans for other kernels than there are here, that a step could not follow.
        self._foreign: dict[int, str] = {}
        # How often smaller steps have turned out not to be like the one that was captured.
        self._unlike: Counter[tuple[int, str]] = Counter()

    def plans_for(
        self, step_plans: Sequence[StepPlan], call: Signature, here: str
    ) -> list[StepPlan] | str:
        """Return the plans for a step, the one to follow first; or why there is none."""
        if self._foreign:
            left = [each for each in step_plans if id(each) not in self._foreign]
            if step_plans and not left:
                return self._foreign[id(step_plans[0])]
            step_plans = left
        if self._unlike:
            shown = repr(call)
            step_plans = [p for p in step_plans if self._unlike[id(p), shown] < _UNLIKE]
        found = plans_for(step_plans, call, here)
        if len(found) > 1 and not isinstance(found, str):
            chosen = self.choose(found)
            return [chosen, *(each for each in found if each is not chosen)]
        return found

    def tell_apart(self, step_plans: Sequence[StepPlan]) -> bool:
        """Whether steps are told apart by all that they do: they vary, or begin alike."""
        calls = [each.capture.calls[0] for each in step_plans]
        return self.vary or any(call in calls[:number] for number, call in enumerate(calls))

    def forget(self, step_plan: StepPlan) -> None:
        """Know nothing any more of a plan that no step follows from now on."""
        self._attributes.pop(id(step_plan), None)
        self._foreign.pop(id(step_plan), None)
        for key in [each for each in self._unlike if each[0] == id(step_plan)]:
            del self._unlike[key]

    def choose(self, step_plans: Sequence[StepPlan]) -> StepPlan:
        """Return the one of several plans that a step will follow which begins now."""
        self._begun = self.now()
        found = [each for each in step_plans if self._fits(each, step_plans)]
        if len(found) != 1:
            found = found or list(step_plans)
            guess = self._next.get(self._latest, self._latest[-1] if self._latest else None)
            found.sort(key=lambda each: id(each) != guess)
        return found[0]

    def was(self, step_plan: StepPlan, begun: Attributes) -> None:
        """Take note of the plan that a step should have followed, and of how it had begun."""
        kind = id(step_plan)
        if len(self._latest) == 2:
            self._next[self._latest] = kind
        self._latest = (*self._latest, kind)[-2:]
        known = self._attributes.get(kind)
        if known is None:
            self._attributes[kind] = dict(begun)
            return
        for key, value in known.items():
            if value is not _VARIES and not _same(begun.get(key, _VARIES), value):
                known[key] = _VARIES

    def ended(self, run: StepRun) -> None:
        """Learn from a step: whether it was like the captured one, and which of several kinds."""
        if not run.finished:
            return
        self.vary |= bool(run.left_out) or (run.deviation is not None and not run.broken)
        if is_smaller(run) and run.deviation is not None and not run.broken:
            self._unlike[id(run.step_plan), repr(run.smaller)] += 1
        said = foreign_kernels(run.step_plan, run.hooks.parts.device)
        if said is not None and run.deviation is not None and not run.broken:
            self._foreign[id(run.step_plan)] = said
        if run.entered is None:
            return
        orders = [_entered(each) for each in run.alternatives]
        told = {path for order in orders for path in order}
        entered = [path for path in run.entered if path in told]
        found = [e for e, order in zip(run.alternatives, orders, strict=True) if order == entered]
        # One that has left something out may have done just what another plan is for.
        other = len(found) == 1 and found[0] is not run.step_plan
        if other and (run.deviation is not None or run.left_out):
            self.was(found[0], self._begun)
        elif run.deviation is None:
            self.was(run.step_plan, self._begun)

    def now(self) -> Attributes:
        """Return the attributes that may tell what a step will be which begins now."""
        return {
            (number, name): value
            for number, module in enumerate(self.modules)
            for name, value in module.__dict__.items()
            if type(value) in _PLAIN
        }

    def _fits(self, step_plan: StepPlan, step_plans: Sequence[StepPlan]) -> bool:
        """Whether the attributes are those of a plan's steps, as far as they tell any apart."""
        own, told = self._attributes.get(id(step_plan)), False
        for other in step_plans if own is not None else ():
            theirs = self._attributes.get(id(other))
            if theirs is None or other is step_plan:
                continue
            assert own is not None
            for key in own.keys() & theirs.keys():
                here, there = own[key], theirs[key]
                if here is _VARIES or there is _VARIES or _same(here, there):
                    continue
                told = True
                if not _same(self._begun.get(key, _VARIES), here):
                    return False
        return told


def is_smaller(run: StepRun) -> bool:
    """Whether a step was called with less than its plan was made for."""
    plan = run.step_plan
    varied = (plan.problem.source or {}).get("varied", False)
    return run.smaller is not None and not (varied and run.smaller == plan.capture.calls[0])


def foreign_kernels(step_plan: StepPlan, here: str) -> str | None:
    """Return in words that a step was captured for kernels of a card, and runs on the CPU.

    Products are none: the CPU computes attention by them, too, where it has no kernel.
    """
    by_products = (step_plan.problem.source or {}).get("attention") == MATH
    return None if by_products else step_plan.said_of_attention(here)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _entered(step_plan: StepPlan) -> list[str]:
    """Return the modules that the forward pass of a plan's steps calls, as far as they tick."""
    found = []
    for event in step_plan.capture.ticks:
        if event.kind in (INPUT, OUTPUT):
            break
        if event.kind == ENTER:
            found.append(event.path)
    return found
