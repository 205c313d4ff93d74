"""The clock of a training step: events at the boundaries of modules, forward and backward.

An event is identified by what can be found again in another step of the same program: its kind, the
path of the module, which call of that module in the step, and which of the tensors.

A `Session` is one step under way: it numbers the calls and asks for gradients to be watched. The
hooks on the modules (`offcert.runtime.watch.hooks`) find the session of their thread and tell it.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from offcert.runtime.torch_private import queue_callback
from offcert.runtime.watch.guard import Guard, guarded, require_same
from offcert.runtime.watch.operators import is_recomputing
from offcert.runtime.watch.saved_hooks import SavedStorages
from offcert.runtime.watch.sharded import Parts

ENTER = "enter"  # the module is called
LEAVE = "leave"  # it returns
OUTPUT = "output"  # the gradient of one of its outputs is complete
INPUT = "input"  # the gradient of one of its inputs is complete
END = "end"  # the backward pass has ended
AGAIN = "again"  # a segment begins to run again
RESUME = "resume"  # a segment has run again, and the backward pass goes on
UNPACK = "unpack"  # autograd asks for something that the forward pass has saved
OPERATOR = "operator"  # an operator is called; only where a dispatch mode watches


class Event(NamedTuple):
    """Something that happens in a step.

    It is of a kind, one of the constants of this module, and tells the path of a module, as in
    ``model.named_modules()`` (of an operator, its name), and which `call` of it in this step it
    was; of an unpacking, how many came before it; of an end, which backward pass it was. `part` is
    a number among the call's tensors, `again` how many times the gradient of that was complete
    before: a second backward pass comes by once more.
    """

    kind: str
    path: str
    call: int
    part: int = 0
    again: int = 0


def gather_tensors(values: Any, found: list[torch.Tensor]) -> None:
    """Add the tensors in nested tuples, lists, dictionaries and dataclasses to a list, in order."""
    # Whatever there is a lot of is told by its type alone, which takes the least time.
    kind = type(values)
    if kind is torch.Tensor:
        found.append(values)
    elif kind in _WITHOUT_TENSORS:
        return
    elif kind is tuple or kind is list or isinstance(values, list | tuple):
        for value in values:
            if type(value) is torch.Tensor:
                found.append(value)
            elif value is not None:
                gather_tensors(value, found)
    elif kind is dict or isinstance(values, Mapping):
        for value in values.values():
            if value is not None:
                gather_tensors(value, found)
    elif isinstance(values, torch.Tensor):
        found.append(values)
    elif is_dataclass(values) and not isinstance(values, type):
        for item in fields(values):
            gather_tensors(getattr(values, item.name, None), found)


_WITHOUT_TENSORS = frozenset((bool, int, float, str, type(None)))


def watch_gradient(hook: Callable[[torch.Tensor], None], tensor: torch.Tensor) -> None:
    """Let a hook be called with the gradient of a tensor that is no leaf.

    As its `register_hook` does, which makes a handle besides, and takes several times as long.
    """
    hooks = tensor._backward_hooks if type(tensor) is torch.Tensor else None
    if type(tensor) is not torch.Tensor:
        tensor.register_hook(hook)
    elif hooks is None:
        made: Any = OrderedDict({hook: hook})
        tensor._backward_hooks = made
        tensor.grad_fn._register_hook_dict(tensor)  # type: ignore[union-attr]
    else:
        hooks[hook] = hook  # type: ignore[index]


@dataclass(slots=True, eq=False)
class Local:
    """The sessions of a thread: of the forward pass that runs in it, and of the backward pass.

    A backward pass on a CUDA device runs in a thread of autograd's, and may end in yet another one,
    which then has to change what the first one knows.
    """

    forward: Session | None = None
    backward: Session | None = None
    depth: int = 0
    error: BaseException | None = None  # That was being handled when the root was called
    saving: SavedStorages | None = None  # Left when the forward pass is

    @property
    def failing(self) -> bool:
        """Whether a call is left by an exception: hooks are called while it is handled."""
        return sys.exception() is not self.error


class Threads(threading.local):
    """The sessions of each thread."""

    def __init__(self) -> None:
        self.local = Local()


class Watching(Protocol):
    """The part of `offcert.runtime.watch.hooks.Hooks` that a step under way knows."""

    root: nn.Module
    guard: Guard
    parts: Parts
    compiled: set[str]

    threads: Threads

    @property
    def local(self) -> Local:
        """The sessions of the calling thread."""


class Session:
    """One step under way; it has `failed` if a call of the model has ended with an exception.

    A subclass says what an event does (`tick`) and which gradients it wants to hear of (`wants`);
    without one nothing is done.
    It must not hold tensors of the step: hooks in the autograd graph hold the session.
    """

    def __init__(self, hooks: Watching) -> None:
        self.hooks, self.guard = hooks, hooks.guard
        self._calls: dict[str, int] = {}
        self._open: dict[str, list[int]] = {}
        self.failed = False
        # Proofs of segments that have run again, with flags that devices are to set.
        self.flags: list[tuple[Any, torch.Tensor]] = []
        self._backward_runs = False
        # The threads that run the backward pass, and the sessions theirs is nested in.
        self._within: list[tuple[Local, Session | None]] = []
        self.backward_passes = 0  # Those through the step that have ended

    @property
    def session(self) -> Session:
        """The step that its guard is told of."""
        return self

    @property
    def sizes(self) -> str:
        """The arguments of the model, where they are smaller than the captured ones."""
        return ""

    @property
    def calls_are_over(self) -> bool:
        """Whether the model is not called any more before the backward passes have ended."""
        return False

    def tick(self, event: Event) -> None:
        """Take note of an event."""

    def wants(self, event: Event) -> bool:
        """Whether `tick` should be called when that gradient is complete."""
        return False

    def enter(self, path: str, values: Any) -> None:
        """Note that a module is called with `values`."""
        call = self.open_call(path)
        self.tick(Event(ENTER, path, call))
        self.watch(INPUT, path, call, values)

    def leave(self, path: str, output: Any) -> None:
        """Note that a module returns `output`."""
        call = self.close_call(path)
        if call is not None:
            self.tick(Event(LEAVE, path, call))
            self.watch(OUTPUT, path, call, output)

    def open_call(self, path: str) -> int:
        """Return the number of the call that begins."""
        call = self._calls.get(path, 0)
        self._calls[path] = call + 1
        self._open.setdefault(path, []).append(call)
        return call

    def close_call(self, path: str) -> int | None:
        """Return the number of the call that ends, or None if its beginning was not seen."""
        calls = self._open.get(path)
        return calls.pop() if calls else None

    @guarded()
    def run_again(self, kind: str, path: str) -> None:
        """Note that a segment, which is named by a module, begins to run again, or has done so."""
        key = f"{kind} {path}"
        call = self._calls.get(key, 0)
        self._calls[key] = call + 1
        self.tick(Event(kind, path, call))

    def returned(self) -> None:
        """Note that a call of the model has returned."""

    def has_room(self, storage: torch.UntypedStorage) -> bool:
        """Whether a storage may stay on the device although the plan does not know of it."""
        return True

    def strayed(self, what: str) -> None:
        """Note that the program does not call modules as a segment that runs again was made for."""

    def watch(self, kind: str, path: str, call: int, values: Any) -> None:
        """Ask for the gradients of those tensors that `tick` wants to hear of."""
        # What runs again gives results only: gradients go through the graph of the first run.
        if not torch.is_grad_enabled() or is_recomputing():
            return
        found: list[torch.Tensor] = []
        gather_tensors(values, found)
        for index, tensor in enumerate(found):
            # Leaves are left alone: a hook would stay on the caller's tensor.
            if tensor.grad_fn is not None:
                event = Event(kind, path, call, index)
                if self.wants(event):
                    tensor.register_hook(_GradientTick(self, event))

    def gradient(self, event: Event) -> None:
        """Note that a gradient is complete."""
        self.runs_backward()
        self.tick(event)

    def runs_backward(self) -> None:
        """Note that a backward pass through the step runs in the calling thread."""
        local = self.hooks.threads.local
        if local.backward is not self and all(each is not local for each, _ in self._within):
            # Checkpointing calls modules again while the backward pass runs.
            self._within.append((local, local.backward))
            local.backward = self
        if not self._backward_runs:
            self._backward_runs = True
            # That the backward pass has ended shows nowhere but in the engine.
            queue_callback(_Ending(self))
            self.begin_backward()

    def begin_backward(self) -> None:
        """Take note that a backward pass through the step has reached the model."""

    def end_backward(self) -> None:
        """Take note that it has ended."""

    def leave_backward(self) -> None:
        """Note that the backward pass is over, or has failed."""
        self._backward_runs = False
        while self._within:
            local, outer = self._within.pop()
            if local.backward is self:
                local.backward = outer

    def ended(self) -> None:
        """Note that the backward pass has come to its end."""
        self.leave_backward()
        flags, self.flags = self.flags, []
        for proof, flag in flags:
            require_same(proof, flag)
        event = Event(END, "", self.backward_passes)
        self.backward_passes += 1
        self.tick(event)
        self.end_backward()


class _Ending:
    """Called by the engine at the end of a backward pass; only dropped if that has failed."""

    __slots__ = ("guard", "session")

    def __init__(self, session: Session) -> None:
        self.session: Session | None = session
        self.guard = session.hooks.guard

    def _left_anyway(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.leave_backward()

    @guarded(_left_anyway)
    def __call__(self) -> None:
        if self.session is not None:
            self.session.ended()
            self.session = None

    @guarded()
    def __del__(self) -> None:
        self._left_anyway()


class _GradientTick:
    """A hook on a tensor that tells the session of its gradient."""

    __slots__ = ("_again", "_event", "guard", "session")

    def __init__(self, session: Session, event: Event) -> None:
        self.session, self.guard = session, session.guard
        self._event, self._again = event, 0

    @guarded()
    def __call__(self, gradient: torch.Tensor) -> None:
        again, self._again = self._again, self._again + 1
        self.session.gradient(self._event._replace(again=again) if again else self._event)
