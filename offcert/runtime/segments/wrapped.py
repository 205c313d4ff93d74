"""Functions that are called instead of modules and containers while segments are attached."""

from __future__ import annotations

from functools import partial
from types import MethodType
from typing import Any

from torch import nn

from offcert.runtime.segments.calls import Calls
from offcert.runtime.segments.frame import Frame, Walk, run_frame
from offcert.runtime.segments.lines import LineCall, encloses
from offcert.runtime.segments.resolve import Part
from offcert.runtime.watch.guard import guard_of, guarded
from offcert.runtime.watch.hooks import UncopiedHook


class _Wrapped:
    """Called instead of a method of a module; copies of the module have their own method."""

    method = ""

    def __init__(self, segments: Calls, path: str, module: nn.Module) -> None:
        self.segments = segments
        self.path = path
        self.module = module
        own = module.__dict__.get(self.method)
        self.original = own or getattr(type(module), self.method).__get__(module)
        self.guard = guard_of(segments.hooks)

    @guarded()
    def frame(self, part: Part) -> Frame | None:
        """Return a frame for a call of a segment, if it is to run again."""
        runs = self.segments.runs(part)
        return self.segments.frame(part, self.path, Frame) if runs else None

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
        begins = key in walk.program.lines
        if not walk.calling and (begins or (walk.lines and not encloses(walk, self.path))):
            once = partial(self._once, walk, key)
            return LineCall(self.segments, walk, key).run(once, args, kwargs)
        return self._once(walk, key, *args, **kwargs)

    def _once(self, walk: Walk, key: tuple[str, int], /, *args: Any, **kwargs: Any) -> Any:
        part = walk.program.calls.get(key)
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
        parts = walk.program.runs.get((self.path, walk.count(f"forward {self.path}")))
        if not parts or len(args) != 1 or kwargs:
            return self.original(*args, **kwargs)
        assert isinstance(self.module, nn.Sequential)
        return self._children(args[0], 0, len(self.module) - 1, parts)

    def _children(self, value: Any, first: int, last: int, parts: list[Part]) -> Any:
        """Call children one after another, those of each part as a segment."""
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
                value = run_frame(frame, _Children(self, part), (cell,), {})
                at = part.last + 1
            else:
                child = children[at]
                assert child is not None
                value = child(value)
                at += 1
        return value


class _Children:
    """The children of a part, as a function."""

    def __init__(self, run: ContainerRun, part: Part) -> None:
        self.run = run
        self.part = part

    def __call__(self, cell: list[Any]) -> Any:
        part = self.part
        return self.run._children(cell.pop(), part.first, part.last, part.inner)


class TickHook:
    """The events of a module in which, or after which, something may be kept."""

    def __init__(self, segments: Calls, path: str) -> None:
        self.segments = segments
        self.path = path
        guard = guard_of(segments.hooks)
        self.enter, self.leave = UncopiedHook(self._enter, guard), UncopiedHook(self._leave, guard)

    def _enter(self, module: nn.Module, args: Any) -> None:
        walk = self.segments.now.walk
        if walk is not None:
            call = walk.count(self.path)
            walk.opened.setdefault(self.path, []).append(call)
            walk.tick(("enter", self.path, call))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        walk = self.segments.now.walk
        if walk is not None and walk.opened.get(self.path):
            walk.tick(("leave", self.path, walk.opened[self.path].pop()))
