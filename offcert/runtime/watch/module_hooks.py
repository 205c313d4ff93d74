"""The hooks of modules: of the model itself, which begin and end steps, and of those inside."""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

import torch
from torch import compiler, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from offcert.runtime.torch_private import CALL_CODE, COMPILER_COUNTS
from offcert.runtime.watch.events import Local, Session, Threads, Watching
from offcert.runtime.watch.guard import RAISING, Guard, guarded
from offcert.runtime.watch.saved_hooks import leave_saving
from offcert.runtime.watch.sharded import Parts


class StepKeeper(Protocol):
    """The object that decides when a step begins: told when the root is called and returns."""

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Return the session of the step that a call of the root begins or goes on with."""

    def left(self, session: Session, output: Any) -> None:
        """The call of the root has returned, or raised: then `output` is None."""


class Hooked(Watching, Protocol):
    """The part of `offcert.runtime.watch.hooks.Hooks` that the hooks of modules know."""

    steps: StepKeeper
    unseen: Unseen | None


class UncopiedHook:
    """A hook that a copy of the model does not inherit: the copy is not the model of the plan."""

    __slots__ = ("function", "guard", "otherwise")

    def __init__(
        self,
        function: Callable[..., None],
        guard: Guard = RAISING,
        otherwise: Callable[..., None] | None = None,
    ) -> None:
        self.function, self.guard, self.otherwise = function, guard, otherwise

    def __call__(self, *arguments: Any) -> None:
        """Call the function, unless the compiler only looks at the module."""
        if not (compiler.is_dynamo_compiling() or compiler._is_compiling_flag):
            self._tell(*arguments)

    def _instead(self, *arguments: Any) -> None:
        if self.otherwise is not None:
            self.otherwise()

    @guarded(_instead)
    def _tell(self, *arguments: Any) -> None:
        self.function(*arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> UncopiedHook:
        return UncopiedHook(_ignore)

    def __reduce__(self) -> tuple[Any, ...]:
        return UncopiedHook, (_ignore,)


def _ignore(*arguments: Any) -> None:
    """Do nothing."""


class Unseen:
    """Waits for gradients of a model that has not been called; closed once it has been.

    `told` is called once, with what is to be said.
    """

    def __init__(self, root: nn.Module, told: Callable[[str], None], guard: Guard) -> None:
        self.guard, self.root = guard, root
        self._told: Callable[[str], None] | None = told
        self._undo = ExitStack()
        _watch_compiler(self)
        trained = [each for each in Parts(root).parameters if each.requires_grad and each.is_leaf]
        self._trained = {id(each) for each in trained}
        # More of them would take time, and a backward pass through the model comes by both.
        trains, stepped = UncopiedHook(self._trains, guard), UncopiedHook(self._stepped, guard)
        for parameter in {id(each): each for each in (*trained[:1], *trained[-1:])}.values():
            handle = parameter.register_post_accumulate_grad_hook(trains)
            self._undo.callback(handle.remove)
        self._undo.callback(register_optimizer_step_post_hook(stepped).remove)

    def close(self) -> None:
        """Wait no more."""
        self._told = None
        _leave_compiler(self)
        self._undo.close()

    def tell(self, message: str | None = None) -> None:
        """Say that the model trains, but is not called; or that it will, as a message says."""
        told, self._told = self._told, None
        if told is not None:
            told(message or _message())

    def _trains(self, parameter: torch.Tensor) -> None:
        self.tell()

    def _stepped(self, optimiser: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Take note that an optimiser, whichever, has made a step, perhaps with our gradients."""
        held = (each for group in optimiser.param_groups for each in group["params"])
        if any(each.grad is not None and id(each) in self._trained for each in held):
            self.tell()


# The contexts whose models have not been called yet, and `torch.compile` as it was before them.
_WAITING: weakref.WeakSet[Unseen] = weakref.WeakSet()
_COMPILES: list[Callable[..., Any]] = []


def _watch_compiler(unseen: Unseen) -> None:
    """Hear of calls of `torch.compile` while a model waits to be called."""
    _WAITING.add(unseen)
    if _COMPILES:
        return
    compiles = torch.compile
    _COMPILES.append(compiles)

    @functools.wraps(compiles)
    def heard(*args: Any, **kwargs: Any) -> Any:
        model = args[0] if args else kwargs.get("model")
        # `nn.Module.compile` hands over a method.
        model = getattr(model, "__self__", model)
        if getattr(kwargs.get("backend"), "__name__", None) != "offcert":
            for each in [one for one in _WAITING if one.root is model]:
                each.tell(
                    "torch.compile makes code of the whole model, whose calls and saved tensors no "
                    "plan sees: compile modules inside of it, or leave this context away and call "
                    "torch.compile(model, backend=offcert.backend(certificate))"
                )
        return compiles(*args, **kwargs)

    torch.compile = heard


def _leave_compiler(unseen: Unseen) -> None:
    _WAITING.discard(unseen)
    if not _WAITING and _COMPILES:
        torch.compile = _COMPILES.pop()


def _message() -> str:
    said = (
        "the model trains, but no call of it has been seen, so no plan is followed: call the model "
        "itself, as model(...), not its forward method nor a module inside of it"
    )
    dynamo: Any = sys.modules.get(COMPILER_COUNTS)
    if dynamo is None or not dynamo.counters["frames"]["total"]:
        # The compiler has not been at work in this process.
        return said
    return (
        f"{said}; what torch.compile makes of it hides when it is called: compile it with the plan "
        "instead, torch.compile(model, backend=offcert.backend(certificate))"
    )


class _ModuleHook(UncopiedHook):
    """A hook of a module that tells the session of the calling thread."""

    __slots__ = ("hooks", "path")

    def __init__(self, hooks: Hooked, path: str) -> None:
        super().__init__(_ignore, hooks.guard)
        self.hooks, self.path = hooks, path


class EnterHook(_ModuleHook):
    """The hook that is called when a module is called."""

    __slots__ = ()

    @guarded()
    def _tell(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> None:
        # Called without keyword arguments if another thread has just removed the hook.
        local = self.hooks.threads.local
        session = local.forward or local.backward
        if session is not None:
            session.enter(self.path, (args, kwargs) if kwargs else args)


class LeaveHook(_ModuleHook):
    """The hook that is called when a module returns, or raises."""

    __slots__ = ()

    @guarded()
    def _tell(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        local = self.hooks.threads.local
        if local.forward is not None:
            if not local.failing:
                local.forward.leave(self.path, output)
        elif local.backward is not None:
            local.backward.leave(self.path, output)


class RootHook:
    """The two hooks of the model itself, which begin a step.

    `last` is the handle of the second one, if it is to be removed when the call under way has
    returned.
    """

    def __init__(self, hooks: Hooked, module: nn.Module) -> None:
        self.hooks, self.module = hooks, module
        self.enter = UncopiedHook(self._enter, hooks.guard)
        self.leave = UncopiedHook(self._leave, hooks.guard, self._left_anyway)
        self.last: Any = None
        self._threads = hooks.threads
        # What is known of each thread that makes a call, by its number.
        self._within: dict[int, Local] = {}

    def forget(self) -> None:
        """Let nothing be kept alive by what is called no more."""
        self.enter.function = self.leave.function = _ignore
        self.leave.otherwise = None
        self._threads = Threads()

    def goes_on(self) -> bool:
        """Whether a thread makes a call now; an interrupt may have ended one without a word."""
        for thread, local in list(self._within.items()):
            if not calls_of(self.module, thread):
                del self._within[thread]
                if thread == threading.get_ident():
                    leave_saving(local)
        return bool(self._within)

    def _enter(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> None:
        local = self._threads.local
        if local.depth and calls_of(module, threading.get_ident()) < 2:
            # An interrupt ended an earlier call without a word.
            local.depth = 0
            self._end(local, None, failed=True)
        local.depth += 1
        if local.depth == 1:
            self._within[threading.get_ident()] = local
            local.error = sys.exception()
            if self.hooks.unseen is not None and torch.is_grad_enabled():
                self.hooks.unseen.close()
                self.hooks.unseen = None
            local.forward = self.hooks.steps.begin(args, kwargs or {})
        session = local.forward or local.backward
        if session is not None:
            session.enter("", (args, kwargs) if kwargs else args)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        local = self._threads.local
        if local.depth == 0:
            return
        if local.forward is not None:
            if not local.failing:
                local.forward.leave("", output)
        elif local.backward is not None:
            local.backward.leave("", output)
        local.depth -= 1
        if local.depth == 0:
            failed, local.error = local.failing, None
            self._end(local, output, failed)

    def _left_anyway(self) -> None:
        """End the call, which has returned, and nobody has been told."""
        local = self._threads.local
        if local.depth:
            local.depth, local.error = 0, None
            self._end(local, None, failed=True)

    def _end(self, local: Local, output: Any, failed: bool) -> None:
        self._within.pop(threading.get_ident(), None)
        session, local.forward = local.forward, None
        try:
            if session is not None:
                session.failed |= failed
                self.hooks.steps.left(session, output)
        finally:
            # Also where nobody has heard of it, as the context has ended.
            leave_saving(local)
            if self.last is not None and not self._within:
                self.last.remove()
                self.forget()


def calls_of(module: nn.Module, thread: int) -> int:
    """Return how many calls of a module a thread is making now, at most two, one in another."""
    calls = 0
    # Nothing is left here that holds the frames, this one among them.
    frame = sys._current_frames().get(thread)
    while frame is not None and calls < 2:
        if frame.f_code is CALL_CODE and frame.f_locals.get("self") is module:
            calls += 1
        frame = frame.f_back
    return calls
