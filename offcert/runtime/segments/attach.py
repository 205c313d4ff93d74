"""`Segments`: a user's modules, as long as parts of them run under checkpointing.

They are on from a call of the model that begins or continues a step to its return.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from torch.nn.parameter import is_lazy

from offcert.core.errors import InputError
from offcert.runtime.segments.frame import SegmentFrame, run_frame
from offcert.runtime.segments.lines import LineCall, encloses, end_lines
from offcert.runtime.segments.placed import PlacedProgram
from offcert.runtime.segments.resolve import Lookup, Part, resolve
from offcert.runtime.segments.walk import Calls, ForwardWalk, Now
from offcert.runtime.watch.events import Session
from offcert.runtime.watch.guard import OffloadWarning, SegmentProof, guarded
from offcert.runtime.watch.hooks import Hooks
from offcert.runtime.watch.module_hooks import StepKeeper, UncopiedHook


class _Wrapped:
    """Called instead of a method of a module; copies of the module have their own method."""

    method = ""

    def __init__(self, segments: Calls, path: str, module: nn.Module) -> None:
        self.segments, self.path, self.module = segments, path, module
        own = module.__dict__.get(self.method)
        self.original = own or getattr(type(module), self.method).__get__(module)
        self.guard = segments.guard

    @guarded()
    def frame(self, part: Part) -> SegmentFrame | None:
        """Return a frame for a call of a segment, if it is to run again."""
        runs = self.segments.runs(part)
        return SegmentFrame(part, self.segments, self.path) if runs else None

    def __reduce__(self) -> tuple[Any, ...]:
        # What is made of a copy of the model is no matter of the plan.
        return _original, (self.module, self.method)


def _original(module: nn.Module, method: str) -> Any:
    return MethodType(getattr(type(module), method), module)


class ModuleCall(_Wrapped):
    """A call of a module with its hooks."""

    method = "_call_impl"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make the call, or run it as a segment."""
        walk = self.segments.now.walk
        if walk is None:
            return self.original(*args, **kwargs)
        key = self.path, walk.count(f"call {self.path}")
        begins = key in walk.lookup.lines
        if not walk.calling and (begins or (walk.lines and not encloses(walk, self.path))):
            once = partial(self._once, walk, key)
            return LineCall(self.segments, walk, key).run(once, args, kwargs)
        return self._once(walk, key, *args, **kwargs)

    def _once(self, walk: ForwardWalk, key: tuple[str, int], /, *args: Any, **kwargs: Any) -> Any:
        part = walk.lookup.calls.get(key)
        frame = None if part is None else self.frame(part)
        if frame is None:
            return self.original(*args, **kwargs)
        return run_frame(frame, self.original, args, kwargs)


class ContainerRun(_Wrapped):
    """The forward pass of an `nn.Sequential`."""

    method = "forward"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make the call, or run it as a segment."""
        walk = self.segments.now.walk
        if walk is None:
            return self.original(*args, **kwargs)
        parts = walk.lookup.runs.get((self.path, walk.count(f"forward {self.path}")))
        if not parts or len(args) != 1 or kwargs:
            return self.original(*args, **kwargs)
        assert isinstance(self.module, nn.Sequential)
        return self._children(0, len(self.module) - 1, parts, [args[0]])

    def _children(self, first: int, last: int, parts: list[Part], cell: list[Any]) -> Any:
        """Call children one after another, those of each part as a segment.

        The input comes in a list of its own: the stack of a caller may hold an argument as long as
        the call runs (CPython does where a compiler has put its own evaluator of frames in place).
        """
        value = cell.pop()
        children = list(self.module._modules.values())
        starts = {part.first: part for part in parts}
        at = first
        while at <= last:
            part = starts.get(at)
            frame = None if part is None else self.frame(part)
            if part is not None and frame is not None:
                # Nobody but the segment is to hold its input.
                cell = [value]
                del value
                run = partial(self._children, part.first, part.last, part.inner)
                value = run_frame(frame, run, (cell,), {})
                at = part.last + 1
            else:
                child = children[at]
                assert child is not None
                value = child(value)
                at += 1
        return value


class TickHook:
    """Hooks that tell of the calls of a module in which, or after which, something is kept."""

    def __init__(self, segments: Calls, path: str) -> None:
        self.segments, self.path = segments, path
        self.enter = UncopiedHook(self._enter, segments.guard)
        self.leave = UncopiedHook(self._leave, segments.guard)

    def _enter(self, module: nn.Module, args: Any) -> None:
        walk = self.segments.now.walk
        if walk is not None:
            call = walk.count(self.path)
            walk.opened.setdefault(self.path, []).append(call)
            if walk.watch is not None:
                walk.watch.tick(("enter", self.path, call))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        walk = self.segments.now.walk
        opened = None if walk is None else walk.opened.get(self.path)
        if walk is not None and opened:
            call = opened.pop()
            if walk.watch is not None:
                walk.watch.tick(("leave", self.path, call))


def replaced(module: nn.Module, name: str, value: Any) -> Callable[[], None]:
    """Set an attribute of a module; return a function that restores the one before."""
    attributes = module.__dict__
    before = attributes.get(name)
    attributes[name] = value

    def undo() -> None:
        undone, back = _UNDONE.setdefault(module, {}), before
        if attributes.get(name) is not value:
            # Another has been put over it, and finds out when it is undone.
            undone[id(value)] = value, before
            return
        while id(back) in undone:
            back = undone.pop(id(back))[1]
        if back is None:
            del attributes[name]
        else:
            attributes[name] = back

    return undo


# Of what was undone while another lay over it, by identity: itself, and what had been there before.
_UNDONE: WeakKeyDictionary[nn.Module, dict[int, tuple[Any, Any]]] = WeakKeyDictionary()


class Segments(Calls):
    """Segments of a model's forward passes that run again when the backward pass needs them.

    Each runs under non-reentrant `torch.utils.checkpoint.checkpoint`: states of PyTorch's random
    generators and autocast are kept, recomputation stops early, segments inside of segments are
    checkpoints inside of checkpoints. Forward hooks that the user has put on modules in a segment,
    and on the module that is one, are called again when it runs again. What modules remember is as
    in plain training: see `ModuleStates`. Kept results are handed to the saved-tensor hooks that
    are active around the segment, like what autograd itself saves; they may leave the device.

    One of the `programs` is followed in each step; what cannot be carried out on the model is an
    `InputError`. Sessions of `hooks` are told when a segment has run again. `rehearsed`: segments
    are seen to make the same again before they are relied on (`SegmentProof`); not while a step is
    captured. Each is verified in full after `verify_every` steps, by default as many as there are
    segments. Those that do not run again any more are `refused`, by name; their proofs say why.
    """

    def __init__(
        self,
        root: nn.Module,
        programs: list[PlacedProgram],
        hooks: Hooks | None = None,
        *,
        rehearsed: bool = True,
        verify_every: int | None = None,
    ) -> None:
        super().__init__(hooks, rehearsed, verify_every)
        self.root = root
        self.refused: dict[str, SegmentProof] = {}
        self.lookups: list[Lookup] = []
        for program in programs:
            self.add(program)
        self._undo: list[Callable[[], None]] = []
        self._known_sizes: set[tuple[int, str]] = set()

    def add(self, program: PlacedProgram) -> None:
        """Take one more program; modules are wrapped for it when they are next attached."""
        self.lookups.append(resolve(self.root, program, self._refuse))

    def _refuse(self, proof: SegmentProof) -> None:
        self.refused[proof.name] = proof
        message = f"{proof.name} does not run again any more: {proof.refused}"
        warnings.warn(
            f"{message}; training goes on with what it computes on the device",
            OffloadWarning,
            stacklevel=2,
        )
        self.strayed(message)

    def replace(self, number: int, program: PlacedProgram) -> None:
        """Follow another program instead of one, from when modules are next attached."""
        self.lookups[number] = resolve(self.root, program, self._refuse)
        self._known_sizes = {each for each in self._known_sizes if each[0] != number}

    def attach(self) -> None:
        """Wrap the modules; whoever attaches detaches."""
        if self._undo:
            raise InputError("these segments have been attached already")
        trained = [each for each in self.root.parameters() if not is_lazy(each)]
        self.parameters = {each.untyped_storage()._cdata for each in trained}
        modules = {path: each for one in self.lookups for path, each in one.modules.items()}
        containers = {path: each for one in self.lookups for path, each in one.containers.items()}
        watched = {path: each for one in self.lookups for path, each in one.watched.items()}
        try:
            for path, module in modules.items():
                self._replace(module, "_call_impl", ModuleCall(self, path, module))
            for path, container in containers.items():
                self._replace(container, "forward", ContainerRun(self, path, container))
            for path, module in watched.items():
                self._hook(path, module)
        except BaseException:
            self.detach()
            raise

    def detach(self) -> None:
        """Leave the modules as they were."""
        while self._undo:
            self._undo.pop()()
        self.now = Now()

    def _replace(self, module: nn.Module, name: str, value: Any) -> None:
        self._undo.append(replaced(module, name, value))

    def _hook(self, path: str, module: nn.Module) -> None:
        hook = TickHook(self, path)
        handles = [
            module.register_forward_pre_hook(hook.enter),
            module.register_forward_hook(hook.leave, always_call=True),
        ]
        self._undo.extend(handle.remove for handle in handles)

    # Steps.

    def begin_call(self, number: int, calls: dict[str, int], sizes: str = "") -> None:
        """Begin a call of the model in this thread, in a step that follows the numbered program.

        `calls` says how often each module has been called in the step; it is empty at its first
        call. `sizes` are those of what the model is called with, if not the captured ones: where
        they are new, segments are rehearsed anew, since programs may do something else then.
        """
        if not calls:
            self._steps += 1
            self._new_sizes = bool(sizes) and (number, sizes) not in self._known_sizes
            self._known_sizes.add((number, sizes))
        self.now.walk = ForwardWalk(self.lookups[number], calls)

    def end_call(self) -> None:
        """End it."""
        walk, self.now.walk = self.now.walk, None
        if walk is not None:
            end_lines(self, walk)


class SegmentedSteps:
    """Steps in which attached segments run under checkpointing.

    `plan_number` gives the number of the plan that a session follows, or None if nothing runs again
    in it; by default the first.
    """

    def __init__(
        self,
        steps: StepKeeper,
        segments: Segments,
        plan_number: Callable[[Session], int | None] = lambda session: 0,
    ) -> None:
        self._steps, self._segments, self._plan_number = steps, segments, plan_number
        self._session: weakref.ref[Session] | None = None
        self._calls: dict[str, int] = {}

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Session | None:
        """Begin a step at a call of the model, or go on with the one under way."""
        session = self._steps.begin(args, kwargs)
        number = None if session is None else self._plan_number(session)
        if session is not None and number is not None:
            if self._session is None or self._session() is not session:
                self._session = weakref.ref(session)
                self._calls = {}
            self._segments.begin_call(number, self._calls, session.sizes)
        return session

    def left(self, session: Session, output: Any) -> None:
        """The call of the model has returned, or raised."""
        self._segments.end_call()
        self._steps.left(session, output)
