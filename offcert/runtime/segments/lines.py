"""Lines that run again: calls that the program makes itself, one after another.

A line begins when its first module is called and ends when its last one returns; in between, the
user's own code runs. What autograd saves in the calls belongs to one checkpoint, whose hooks are
there in the calls only: what is saved between them would not be computed again. So a line that the
program does not go on with holds nothing that would have to be closed, and what has been called so
far runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from offcert.core.carried.ranges import Called
from offcert.runtime.segments.arguments import Handed
from offcert.runtime.segments.frame import SegmentFrame
from offcert.runtime.segments.keeping import Keep
from offcert.runtime.segments.resolve import LineMember, LinePart
from offcert.runtime.segments.settings import GeneratorStates
from offcert.runtime.segments.state import Before
from offcert.runtime.segments.walk import Calls, ForwardWalk
from offcert.runtime.torch_private import top_saved_hooks
from offcert.runtime.watch.events import Session
from offcert.runtime.watch.guard import guarded


@dataclass(slots=True)
class _LineCall:
    """A call of a line, and the state in which it began: the user's code may change it between."""

    member: LineMember
    before: Before
    generators: GeneratorStates


class LineFrame(SegmentFrame):
    """A line that runs, or has run: the calls that were made."""

    def begin(self, value: torch.Tensor) -> None:
        """Begin its first run with what its first call is given: calls note changes themselves."""
        self.made: list[_LineCall] = []
        self.take((value,), {})
        self.before = self.begins(self.states)
        self.ended(self.states, self.before)
        # What has been called so far runs again, whether or not the rest follows.
        self.completed = True

    def body(self) -> Callable[..., Any]:
        """Return the function that runs again."""
        return self._replay

    def _replay(self, value: torch.Tensor) -> None:
        """Make the calls that were made again, one after another."""
        for made in self.made:
            with made.member.states.again(made.before) as self._restored:
                made.generators.put()
                value = made.member.module(value)


class _OpenLine:
    """A line of which calls have been made, and others are expected."""

    def __init__(self, frame: LineFrame, part: LinePart, value: torch.Tensor) -> None:
        frame.begin(value)
        self.frame, self.part = frame, part
        # The saved-tensor hooks that are active.
        self.outer = top_saved_hooks(True)
        walk = frame.now.walk
        assert walk is not None
        keeps = frame.keeper is not None and walk.watch is None
        self.watch = Keep(frame.keeper) if keeps and frame.keeper is not None else None
        self.handed: Handed | None = None

    def stray(self, key: Called, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Return in what a call is not the next one of the line, or None."""
        expected = self.next
        if key != (expected.path, expected.call):
            return f"{key[0]} is called before {expected.path}"
        if self.handed is None or len(args) != 1 or kwargs or not self.handed.is_(args[0]):
            return f"{expected.path} is given something else than what was returned before it"
        if self.outer != top_saved_hooks(True):
            return f"{expected.path} is called under other saved-tensor hooks"
        return None

    @contextmanager
    def call(self, walk: ForwardWalk, device: torch.device) -> Iterator[None]:
        """Make the next call in the block."""
        member = self.next
        made = _LineCall(member, self.frame.begins(member.states), GeneratorStates.of([device]))
        # Even if it fails: something may have been saved in it.
        self.frame.made.append(made)
        frame = self.frame
        with frame.rehearsal() if frame.rehearses else nullcontext():
            outer, walk.frame = walk.frame, frame
            if self.watch is not None:
                walk.watch = self.watch
            try:
                with torch.autograd.graph.saved_tensors_hooks(frame.pack, frame.unpack):
                    yield
            finally:
                walk.frame = outer
                if self.watch is not None:
                    self.watch.suspend()
                    walk.watch = None
        frame.end()
        frame.ended(member.states, made.before)

    def check(self) -> None:
        """Raise an `InputError` if something kept in it has been changed in place since."""
        if self.watch is not None:
            self.watch.keeper.check()

    @property
    def next(self) -> LineMember:
        """The call that is to be made next."""
        return self.part.members[len(self.frame.made)]

    @property
    def complete(self) -> bool:
        """Whether its last call has been made."""
        return len(self.frame.made) == len(self.part.members)


class LineCall:
    """A call of a module that is one of a line, or may be, by the module's path and its number."""

    def __init__(self, segments: Calls, walk: ForwardWalk, key: Called) -> None:
        self.segments, self.walk, self.key = segments, walk, key
        self.guard = segments.guard

    def run(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make it as the next one of the lines that are open, and of those that begin with it."""
        walk = self.walk
        with ExitStack() as stack:
            self._begin(stack, args, kwargs)
            # What is called in the call is no matter of the lines.
            walk.calling = bool(walk.lines)
            try:
                result = function(*args, **kwargs)
            except BaseException:
                self._close(0, f"{self.key[0]} raises an exception")
                raise
            finally:
                walk.calling = False
        self._returned(result)
        return result

    @property
    def session(self) -> Session | None:
        """The step that the line is in."""
        return self.segments.session

    def _leave(self, stack: ExitStack, *given: Any) -> None:
        stack.close()
        self._close(0, f"a call of {self.key[0]} could not be made a part of them")

    @guarded(_leave)
    def _begin(self, stack: ExitStack, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Enter the lines that the call is a part of."""
        walk = self.walk
        for place, line in enumerate(walk.lines):
            reason = line.stray(self.key, args, kwargs)
            if reason is not None:
                self._close(place, reason)
                break
            stack.enter_context(line.call(walk, args[0].device))
        for part in walk.lookup.lines.get(self.key, ()):
            if part.depth > walk.depth and self._fits(part, args, kwargs):
                frame = self._frame(part)
                walk.lines.append(_OpenLine(frame, part, args[0]))
                stack.enter_context(walk.lines[-1].call(walk, args[0].device))

    def _fits(self, part: LinePart, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if not self.segments.runs(part):
            return False
        if len(args) == 1 and not kwargs and isinstance(args[0], torch.Tensor):
            return True
        self.segments.strayed(f"{part.name} do not run again: they are not given one tensor")
        return False

    def _frame(self, part: LinePart) -> LineFrame:
        """Return a frame for a line whose first module is being called."""
        path, call = self.key
        frame = LineFrame(part, self.segments, path)
        # The call of the first module is made again, too.
        frame.calls[f"call {path}"] = call
        return frame

    def _returned(self, result: Any) -> None:
        walk = self.walk
        complete = [line for line in walk.lines if line.complete]
        walk.lines[:] = [line for line in walk.lines if not line.complete]
        for line in complete:
            line.check()
        if not isinstance(result, torch.Tensor):
            self._close(0, f"{self.key[0]} returns no tensor")
        for line in walk.lines:
            line.handed = Handed(result)

    def _close(self, place: int, reason: str) -> None:
        closed = self.walk.lines[place:]
        del self.walk.lines[place:]
        # What runs again is left as soon as nothing more of it is needed.
        if closed and self.walk.again is None:
            self.segments.strayed(f"{closed[0].part.name} run again only in part: {reason}")


def encloses(walk: ForwardWalk, path: str) -> bool:
    """Whether the next call of an open line may be made in a call of a module.

    That is none of the line itself: it calls others, and computes nothing beside.
    """
    above = f"{path}." if path else ""
    return any(line.next.path.startswith(above) for line in walk.lines)


def end_lines(segments: Calls, walk: ForwardWalk) -> None:
    """Note that nothing more is called in a walk."""
    lines, walk.lines = walk.lines, []
    if lines:
        segments.strayed(f"{lines[0].part.name} run again only in part: the model has returned")
