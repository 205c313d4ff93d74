"""`offload`: the user's own training loop, under a plan."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, Protocol

import torch
from torch import nn

from offcert.core.errors import InputError, PlanError
from offcert.core.fluid_schedule import FluidSchedule
from offcert.core.plan import Plan
from offcert.core.problem import Problem
from offcert.core.result import Result
from offcert.core.schedule import Schedule
from offcert.runtime.events import OPERATOR, Session
from offcert.runtime.hooks import Hooks, unwrap
from offcert.runtime.program import Program, program
from offcert.runtime.reports import OffloadWarning, StepReport
from offcert.runtime.run import StepRun
from offcert.runtime.saved_storages import owned_storages
from offcert.runtime.signature import Signature, difference, signature
from offcert.runtime.store import HostStore
from offcert.runtime.tracker import LiveBytes


class Certificate(Protocol):
    """What training needs of a certificate (`offcert.certify.certificate.Certificate`)."""

    @property
    def problem(self) -> Problem:
        """What was planned."""

    @property
    def result(self) -> Result:
        """The schedule, among other things."""


AnyPlan = Certificate | Plan | Schedule | FluidSchedule


def offload(
    model: nn.Module,
    plan: AnyPlan | Sequence[Certificate],
    problem: Problem | None = None,
    *,
    strict: bool = False,
    count: bool = False,
    directory: str | None = None,
) -> Offload:
    """Prepare to train `model` under a plan.

    The result is a context manager around a training loop, which stays the user's::

        with offload(model, certificate):
            for inputs, labels in batches:
                loss = criterion(model(inputs), labels)
                loss.backward()
                optimiser.step()
                optimiser.zero_grad()

    The model's own forward runs; hooks on its modules are the clock, and hooks on what autograd
    saves move it. Losses, gradients, parameters and buffers are bitwise those of plain training. A
    step that is not the captured one (another batch size, another branch, evaluation) keeps its
    tensors; that is reported, and warned of once.

    Parameters
    ----------
    model : nn.Module
        The network that was captured, on the CPU; it may be wrapped by DistributedDataParallel.
    plan : Certificate, Plan or Schedule, or a sequence of certificates
        When tensors leave and come back. Of several certificates each step follows the one that was
        captured with inputs like its own.
    problem : Problem, optional
        What a plan or schedule was made for; a certificate brings its own.
    strict : bool
        Raise a `PlanError` where a step does not follow its plan.
    count : bool
        Count live bytes at every operation. It costs 20 to 40 microseconds an operator.
    directory : str, optional
        Where the temporary file with the offloaded bytes is made.

    Returns
    -------
    Offload
        A context manager, which can be entered again and again.

    Raises
    ------
    InputError
        If a problem was not captured with a clock that training can follow, the model is not on
        the CPU, or a plan is a schedule that moves tensors in pieces.
    PlanError
        If a plan does not make sense, or exceeds its problem's memory.
    """
    programs = [program(*pair) for pair in _pairs(plan, problem)]
    return Offload(model, programs, strict=strict, count=count, directory=directory)


def _pairs(
    plan: AnyPlan | Sequence[Certificate], problem: Problem | None
) -> list[tuple[Problem, Plan | Schedule | FluidSchedule]]:
    if isinstance(plan, Plan | Schedule | FluidSchedule):
        if problem is None:
            raise InputError("problem must be given with a plan that is no certificate")
        return [(problem, plan)]
    if problem is not None:
        raise InputError("problem must not be given with a certificate, which brings its own")
    pairs = []
    for certificate in plan if isinstance(plan, list | tuple) else [plan]:
        if not hasattr(certificate, "problem") or not hasattr(certificate, "result"):
            kind = type(certificate).__name__
            raise InputError(f"plan must be a certificate, a plan or a schedule, not {kind}")
        schedule = certificate.result.schedule
        if schedule is None:
            raise InputError(
                f"the certificate of {certificate.problem.name} holds no schedule: its status is "
                f"{certificate.result.status}"
            )
        pairs.append((certificate.problem, schedule))
    return pairs


class Offload(AbstractContextManager["Offload"]):
    """A model that trains under plans; see `offload`.

    Attributes
    ----------
    steps : Counter
        How many steps were ``"planned"`` (followed their plan to the end), ``"deviating"``,
        ``"unplanned"`` (there is no plan for such a step) or ``"unfinished"``.
    """

    def __init__(
        self,
        model: nn.Module,
        programs: Sequence[Program],
        *,
        strict: bool = False,
        count: bool = False,
        directory: str | None = None,
    ) -> None:
        self._root = unwrap(model)
        require_cpu(self._root)
        self.programs = list(programs)
        self.steps: Counter[str] = Counter()
        self._strict = strict
        self._count = count
        self._directory = directory
        self._stores: dict[int, tuple[HostStore, weakref.ref[StepRun]]] = {}
        self._hooks = Hooks(self._root, self)
        self._run: StepRun | None = None
        self._counter: LiveBytes | None = None
        self._report = StepReport("no step has been run", False)
        self._moved_bytes = 0
        self._warned: set[str] = set()
        self._open: ExitStack | None = None
        self._thread: int | None = None

    # The context.

    def __enter__(self) -> Offload:
        """Hook the model."""
        if self._open is not None:
            raise InputError("this offload context has been entered already")
        self.steps.clear()
        self._moved_bytes = 0
        with ExitStack() as stack:
            stack.callback(self._detach)
            self._attach()
            if self._count or any(_by_operators(each) for each in self.programs):
                self._start_counting(stack)
            self._open = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the hooks; warn if no step has moved anything although it should have."""
        stack, self._open = self._open, None
        if stack is not None:
            stack.close()
        if kind is None:
            self._warn_if_nothing_moved()

    def _attach(self) -> None:
        paths = {event.path for each in self._watched() for event in each.capture.ticks}
        self._hooks.attach(paths.__contains__)

    def _watched(self) -> list[Program]:
        """Return the programs whose clock has to tick."""
        return [each for each in self.programs if self._count or not each.moves_nothing]

    def _detach(self) -> None:
        self._thread = None
        self._leave_hooks()
        self._hooks.detach()
        self._close_run()
        self._counter = None
        self._stores.clear()

    def _start_counting(self, stack: ExitStack) -> None:
        self._counter = LiveBytes()
        self._counter.announcer = self._announce
        for parameter in self._root.parameters():
            if parameter.requires_grad:
                hook = parameter.register_post_accumulate_grad_hook(self._exclude_gradient)
                stack.callback(hook.remove)
        stack.enter_context(self._counter)

    def _announce(self, func: Any, args: Any, kwargs: Any) -> None:
        if self._run is not None:
            self._run.count(OPERATOR, str(func))

    def _exclude_gradient(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None and self._counter is not None:
            self._counter.exclude([parameter.grad])

    # Steps.

    @property
    def report(self) -> StepReport:
        """What the latest step has done so far; complete after its backward pass."""
        return self._report if self._run is None else self._run.report()

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Begin a step at a call of the model, or go on with the one under way."""
        if not torch.is_grad_enabled():
            return None
        if self._thread not in (None, threading.get_ident()):
            self._tell("another thread is in the middle of a forward pass")
            return None
        call = signature(self._root, args, kwargs)
        run = self._run
        if run is None or not run.accepts(call):
            if torch._C._current_graph_task_id() == -1:
                self._hooks.local.backward = None
            run = self._begin_step(call)
        if run is not None:
            self._thread = threading.get_ident()
            if run.hooks_saved:
                self._enter_hooks(run)
        return run

    def left(self, session: Session, output: Any) -> None:
        """Leave the saved-tensor hooks with the model."""
        self._thread = None
        self._leave_hooks()

    def _begin_step(self, call: Signature) -> StepRun | None:
        self._close_run()
        chosen = next((p for p in self.programs if p.capture.calls[0] == call), None)
        if chosen is None:
            self._without_plan(call)
            return None
        if chosen.moves_nothing and not self._count:
            self.steps["planned"] += 1
            self._report = StepReport(None, True, chosen.prediction, chosen.limit)
            return None
        if self._counter is not None:
            self._counter.start()
        run = self._run = StepRun(
            self._hooks,
            chosen,
            self._free_store(chosen),
            owned_storages(self._root),
            self._counter,
            self._strict,
        )
        if run.store is not None:
            self._stores[id(chosen)] = run.store, weakref.ref(run)
        assert run.accepts(call)
        return run

    def _without_plan(self, call: Signature) -> None:
        self.steps["unplanned"] += 1
        reasons = [difference(each.capture.calls[0], call) for each in self.programs]
        reason = reasons[0] if reasons and reasons[0] else "there is no plan"
        message = f"there is no plan for this step: {reason}"
        self._report = StepReport(message, True)
        if self._strict:
            raise PlanError(message)
        self._tell(message)

    def _tell(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(
                f"{message}; training goes on with the tensors on the device",
                OffloadWarning,
                stacklevel=2,
            )

    def _close_run(self) -> None:
        """Take stock of the latest step: another one begins, or the context ends."""
        run, self._run = self._run, None
        if run is None:
            return
        report = self._report = run.report()
        self._moved_bytes += report.offloaded_bytes
        if report.deviation is not None:
            self.steps["deviating"] += 1
            # A strict step has raised it.
            if not self._strict:
                self._tell(f"a step did not follow its plan: {report.deviation}")
        else:
            self.steps["planned" if report.finished else "unfinished"] += 1

    def _warn_if_nothing_moved(self) -> None:
        wanted = any(not each.moves_nothing for each in self.programs)
        if wanted and self._moved_bytes == 0:
            done = ", ".join(f"{n} {kind}" for kind, n in self.steps.items()) or "none"
            reason = self._report.deviation or "none of them ran a backward pass"
            warnings.warn(
                f"nothing was moved under the plan (steps: {done}): {reason}",
                OffloadWarning,
                stacklevel=3,
            )

    # Saved tensors.

    def _enter_hooks(self, run: StepRun) -> None:
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            run.deviate("other saved-tensor hooks are active around the model")
            return
        stack = ExitStack()
        try:
            stack.enter_context(run.storages.hooks())
        except RuntimeError as error:
            run.deviate(f"saved-tensor hooks are not allowed here: {error}")
            return
        self._hooks.local.saving = stack

    def _leave_hooks(self) -> None:
        stack, self._hooks.local.saving = self._hooks.local.saving, None
        if stack is not None:
            stack.close()

    def _free_store(self, chosen: Program) -> HostStore | None:
        """Return room on the host that no other step needs any more."""
        if chosen.moves_nothing:
            return None
        store, reference = self._stores.get(id(chosen), (None, None))
        last = None if reference is None else reference()
        if store is None or (last is not None and last.uses_store):
            return HostStore(chosen.host_bytes, self._directory)
        return store


def _by_operators(chosen: Program) -> bool:
    return not chosen.moves_nothing and chosen.capture.clock == "operators"


def require_cpu(model: nn.Module) -> None:
    """Raise an `InputError` if a parameter is not on the CPU."""
    for name, parameter in model.named_parameters():
        if parameter.device.type != "cpu":
            raise InputError(f"the model must be on the CPU, but {name} is on {parameter.device}")
