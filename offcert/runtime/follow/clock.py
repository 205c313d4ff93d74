"""The clock of a step under a plan: it hears of the events at which the plan does something.

`IdleRun` is a step under a plan that does nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch

from offcert.runtime.follow.counting import CountedSteps, Reserved
from offcert.runtime.follow.excess import Excess
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.plan.step_table import NONE, EventRow, Turns
from offcert.runtime.watch.events import (
    END,
    OPERATOR,
    OUTPUT,
    UNPACK,
    Event,
    Session,
    gather_tensors,
    watch_gradient,
)
from offcert.runtime.watch.guard import Guard, guarded
from offcert.runtime.watch.hooks import Hooks
from offcert.runtime.watch.operators import is_here, is_recomputing
from offcert.runtime.watch.signature import Signature
from offcert.runtime.watch.tracker import LiveBytes


class StepClock(Session):
    """A step that notices which operation of its plan begins, of those that matter to the plan.

    It hears of all if it is `full`, and something is done around each if they are `counted`. `now`
    is the latest operation that has begun, of those that it hears of; `entered`, if several plans
    may be that of the step, the modules that its forward pass has called.
    """

    def __init__(self, hooks: Hooks, step_plan: StepPlan, *, full: bool, counted: bool) -> None:
        super().__init__(hooks)
        self.step_plan = step_plan
        self.table = step_plan.full_table if full else step_plan.table
        self.now, self.finished = NONE, False
        self.by_operators = step_plan.capture.ticks[0].kind in (OPERATOR, UNPACK)
        self.entered: list[str] | None = None
        self._counted = counted
        self._next = self.table.following[0]
        self._announced: defaultdict[str, int] = defaultdict(int)
        self._entered_calls: defaultdict[str, int] = defaultdict(int)
        self._returned_calls: defaultdict[str, int] = defaultdict(int)

    def deviate(self, what: str) -> None:
        """Take note that the step is not the one that was planned."""
        raise NotImplementedError

    def _out_of_turn(self, what: str) -> None:
        """Take note of an operation that began again, or never did."""
        self.deviate(what)

    def _leave_out(self, end: int) -> None:
        """Take note that the operations before one do not run."""
        self._out_of_turn(f"{self.name(self._next)} never began")

    def _move(self, operation: int) -> None:
        """Make the moves of the plan before an operation."""
        raise NotImplementedError

    def _close(self) -> None:
        """Take note that the operation that runs has ended; called if it is counted."""

    def _opened(self) -> None:
        """Take note that all is done that was to be done before the present operation; likewise."""

    def _is_last(self, end: Event) -> bool:
        """Whether no backward pass comes after the one that has ended."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Take note that the last backward pass has ended."""
        raise NotImplementedError

    def enter(self, path: str, values: Any) -> None:
        """Note that a module is called; nothing is made of it where nothing can tick."""
        if self.entered is not None and not self._backward_runs and not self.backward_passes:
            self.entered.append(path)
        table = self.table
        if path not in table.heard:
            return
        call = self._entered_calls[path]
        self._entered_calls[path] = call + 1
        if path in table.left:
            self._open.setdefault(path, []).append(call)
        if path in table.entering and call in table.entering[path]:
            operation, gradients = table.entering[path][call]
            if operation != NONE:
                self.reach(operation)
            if gradients:
                self._watch_gradients(gradients, values)

    def leave(self, path: str, output: Any) -> None:
        """Note that it returns."""
        table = self.table
        if path in table.heard:
            call = self.close_call(path)
        else:
            call = self._returned_calls[path]
            self._returned_calls[path] = call + 1
        operation, gradients = _NOTHING
        if path in table.leaving and call in table.leaving[path]:
            operation, gradients = table.leaving[path][call]
            if operation != NONE:
                self.reach(operation)
        if gradients or not path:
            self._watch_gradients(gradients, output, every=not path)

    def _watch_gradients(
        self, gradients: Sequence[tuple[int, Turns]], values: Any, *, every: bool = False
    ) -> None:
        """Ask for gradients of tensors; `every`: of all, since they tell of a backward pass."""
        if is_recomputing() or not torch.is_grad_enabled():
            return
        found: list[torch.Tensor] = []
        gather_tensors(values, found)
        rows = [(n, ()) for n in range(len(found))] if every else ()
        for part, operations in (*rows, *gradients):
            for tensor in found[part : part + 1]:
                # Leaves are left alone: a hook would stay on the caller's tensor.
                if tensor.grad_fn is not None:
                    watch_gradient(GradientTurns(self, operations), tensor)

    def tick(self, event: Event) -> None:
        """Begin the operation that begins with the event, if one does that matters."""
        if self.finished:
            return
        operation = self.table.operations.get(event)
        if operation is not None:
            self.reach(operation)
        elif event.kind == END and self._is_last(event):
            self._finish()

    def count(self, kind: str, name: str = "") -> None:
        """Tick at an operator or an unpacking, if the clock is one of operators."""
        if self.by_operators:
            number = self._announced[name]
            self._announced[name] = number + 1
            self.tick(Event(kind, name, number))

    def reach(self, operation: int) -> None:
        """Begin an operation that matters, and make the moves before it."""
        if self.finished:
            return
        if operation == self._next and not self._counted:
            # As almost always.
            self.now = operation
            self._next = self.table.following[operation + 1]
            self._move(operation)
            return
        if operation <= self.now:
            self._out_of_turn(f"{self.name(operation)} began again after {self.name(self.now)}")
            return
        if operation > self._next:
            self._leave_out(operation)
        while self._next <= operation:
            self._close()
            self.now = self._next
            self._next = self.table.following[self.now + 1]
            self._move(self.now)
            self._opened()

    def name(self, operation: int) -> str:
        """Return the name of an operation."""
        return self.step_plan.trace.operations[operation].name if operation >= 0 else "nothing"


_NOTHING = EventRow(NONE, ())


class GradientTurns:
    """A hook on a tensor: each time its gradient arrives, an operation may begin."""

    __slots__ = ("_again", "_operations", "guard", "session")

    def __init__(self, session: StepClock, operations: Turns) -> None:
        self.session = session
        self.guard: Guard = session.hooks.guard
        self._operations, self._again = operations, 0

    @guarded()
    def __call__(self, gradient: torch.Tensor) -> None:
        """Begin the operation."""
        session, again = self.session, self._again
        self._again = again + 1
        session.runs_backward()
        for operation in self._operations[again : again + 1]:
            if operation != NONE:
                session.reach(operation)


class IdleRun(Session):
    """A step whose plan changes nothing: it runs as it would without offcert."""

    def __init__(
        self,
        hooks: Hooks,
        step_plan: StepPlan,
        call: Signature,
        exceeds: Callable[[str], None],
        reserved: Reserved,
        known: CountedSteps,
        counter: LiveBytes | None,
    ) -> None:
        super().__init__(hooks)
        # Of several calls each is taken for a step: none is counted from beginning to end.
        self._counter = counter if len(step_plan.capture.calls) == 1 else None
        self._excess = Excess(step_plan, hooks.parts, known)
        self._excess.begin_call(call)
        self._exceeds, self._reserved = exceeds, reserved
        self._seen = True
        self._told = self._over = False
        looks = self._counter is not None or reserved.reads or self._excess.keeps_casts
        self._looks_at_the_end = looks

    def enter(self, path: str, values: Any) -> None:
        """Take no note of a module that is called."""

    def leave(self, path: str, output: Any) -> None:
        """Watch for the backward pass where it matters when it begins or ends."""
        if not path and self._looks_at_the_end:
            self.watch(OUTPUT, path, 0, output)

    def tick(self, event: Event) -> None:
        """Look at the end of the backward pass what the step has taken."""
        if event.kind == END and not self._over:
            self._over = True
            self._end()

    def wants(self, event: Event) -> bool:
        """Every event is wanted: only tensors that were asked for are watched."""
        return True

    def returned(self) -> None:
        """Look whether the call of the model did more than the captured one."""
        self._excess.end_call(0)
        if not self._looks_at_the_end:
            self._tell(self._excess.at_end(None))

    def begin_backward(self) -> None:
        """Look whether it keeps more than the captured one."""
        self._seen = self._counter is None or is_here(self._counter)
        self._excess.begin_backward()

    def _end(self) -> None:
        counter = self._counter
        if counter is not None:
            counter.stop()
        peaks = None if counter is None or not self._seen else [counter.peak]
        self._tell(self._excess.at_end(peaks))
        self._tell(self._reserved.exceeded(self._reserved.read(), self._excess.step_plan))

    def _tell(self, what: str | None) -> None:
        if what is not None and not self._told:
            self._told = True
            self._exceeds(what)
