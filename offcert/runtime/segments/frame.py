"""One call of a segment: its first run, and those in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from offcert.runtime.segments.arguments import Arguments
from offcert.runtime.segments.checkpoint import Again, Checkpoint
from offcert.runtime.segments.keeper import Keeper, Operators
from offcert.runtime.segments.keeping import Give, Keep
from offcert.runtime.segments.resolve import Part
from offcert.runtime.segments.restored import Restored
from offcert.runtime.segments.saved import ComparisonMode
from offcert.runtime.segments.settings import Casts, GeneratorStates
from offcert.runtime.segments.state import Before, ModuleStates
from offcert.runtime.segments.walk import Calls, ForwardWalk
from offcert.runtime.torch_private import backward_keeps_graph, backward_number
from offcert.runtime.watch.events import AGAIN, RESUME
from offcert.runtime.watch.guard import StopRunning, guarded
from offcert.runtime.watch.operators import recomputing


class SegmentFrame(Checkpoint):
    """A call of a segment: what it is given, and the state in which it runs again.

    Autograd's hooks hold it as long as they may still need it. The step under way is told what
    becomes of it by the `path` of a module. The keeper is that of the outermost segment around it.
    """

    def __init__(self, part: Part, segments: Calls, path: str) -> None:
        walk = segments.now.walk
        assert walk is not None
        super().__init__(part.proof, segments, segments.mode(part, walk))
        self.name, self.states, self.depth = part.name, part.states, part.depth
        self.guard, self.now, self.path = segments.guard, segments.now, path
        self.keeper: Keeper | None = None if walk.frame is None else walk.frame.keeper
        if walk.frame is None and part.kept:
            self.keeper = Keeper(part.name, part.kept, segments.parameters)
        self.lookup, self.calls = walk.lookup, dict(walk.calls)
        self.before: Before | None = None
        self._restored: Restored | None = None

    @property
    def rehearses(self) -> bool:
        """Whether the tensors of its first run stay, and are compared with those of another."""
        return self.mode is ComparisonMode.REHEARSAL

    @guarded()
    def start(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool | None:
        """Take down what the segment is given, and its state; return None on failure."""
        self.function = function
        self.take(args, kwargs)
        self.before = self.begins(self.states)
        return True

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take down what is given; tensors are handed to the hooks around the segment."""
        self.given = Arguments(self.name, args, kwargs)
        devices = {tensor.device for tensor in self.given.tensors()}
        self.generators = GeneratorStates.of(devices)
        self.casts = Casts.now()
        self.arguments = self.given.pack()
        if self.keeper is not None:
            self.kept = self.keeper.storages

    def body(self) -> Callable[..., Any]:
        """Return the function that runs again."""
        return self.function

    def begins(self, states: ModuleStates) -> Before:
        """Take down the state in which the segment, or a call of it, begins."""
        before = states.begin(
            self.given.others, rehearses=self.rehearses, verifies=self.mode is ComparisonMode.ALL
        )
        self.held = self.held | states.storages if self.held else states.storages
        return before

    def ended(self, states: ModuleStates, before: Before) -> None:
        """Take note of the first run's changes; one may forbid that the segment runs again."""
        if states.is_new:
            states.is_new = False
            self.proof.doubt()
        for doubt in states.end(before)[:1]:
            blamed = states.module_of(doubt.name)
            if doubt.lasting or not self.rehearses:
                self.proof.refuse(doubt.reason, blamed)
            else:
                # A cache may have been filled for the first time.
                self.proof.changes(doubt.reason, blamed)
                self.rest()

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Watch the operators of the block, in which the segment runs first, or a call of it."""
        walk = self.now.walk
        assert walk is not None
        if walk.operators is None and walk.watch is None:
            with Operators() as walk.operators:
                try:
                    with self.watched(walk.operators):
                        yield
                finally:
                    walk.operators = None
        elif walk.operators is not None:
            with self.watched(walk.operators):
                yield
        else:
            # Modes are left in order. Around it is a segment that was watched in its own rehearsal.
            yield

    def run(self, again: Again) -> None:
        """Run the segment again, from the state in which it began."""
        assert self.before is not None
        walk = ForwardWalk(self.lookup, dict(self.calls), self)
        if self.keeper is not None:
            last = partial(self._is_last, walk)
            walk.watch = Give(self.keeper, last, self.proof)
        outer, self.now.walk = self.now.walk, walk
        try:
            with recomputing(), self.restored(), self.casts.again():
                self.segments.ran(AGAIN, self.path)
                try:
                    with self.generators.again():
                        self.given.call(self.body())
                except StopRunning as stop:
                    if stop.run is not again:
                        raise
                if walk.watch is not None:
                    walk.watch.release()
                # What the calls that were left held is free now.
                self.segments.ran(RESUME, self.path)
        finally:
            self.now.walk = outer
            if walk.watch is not None:
                walk.watch.leave()
                # The watch refers to the walk, which must not live on because of that.
                walk.watch = None
            session = self.segments.session
            if outer is None and session is not None and session.calls_are_over:
                # Within an autocast of the user's, the weights that were cast would stay until that
                # ends. To switch the cache off instead would cast again what is in it already.
                torch.clear_autocast_cache()
        if self.rehearses:
            self.given.require_unchanged()
            for doubt in self.states.changed_outside(self.before):
                self.proof.refuse(doubt.reason, self.states.module_of(doubt.name))

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Put back the state in which the segment began, for the block."""
        assert self.before is not None
        with self.states.again(self.before) as self._restored:
            try:
                yield
            finally:
                self._restored = None

    def may_stop(self) -> bool:
        """Whether the run may be left: the user's code is not in the midst of a change."""
        restored = self._restored
        return super().may_stop() and (restored is None or restored.is_clean)

    def _is_last(self, walk: ForwardWalk) -> bool:
        """Return whether what is handed out now will not be asked for again."""
        return walk.frame is self and not _keeps_graph()


def _keeps_graph() -> bool:
    """Whether the backward pass that runs may be followed by another one through the same graph."""
    if backward_number() == -1:
        return True
    return bool(backward_keeps_graph())


def run_frame(
    frame: SegmentFrame, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a function so that what it saves for the backward pass is computed again there.

    Tensors anywhere in its arguments are handed to the saved-tensor hooks that are active; the same
    tensor given twice is one.
    """
    if frame.start(function, args, kwargs) is None:
        return function(*args, **kwargs)
    if frame.rehearses:
        with frame.rehearsal():
            result = _first_run(frame, function, args, kwargs)
    else:
        result = _first_run(frame, function, args, kwargs)
    assert frame.before is not None
    # The result is held here: nothing that lies in it is to stay because of a rehearsal.
    frame.end()
    frame.ended(frame.states, frame.before)
    return result


def _first_run(
    frame: SegmentFrame, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    walk, keeper = frame.now.walk, frame.keeper
    assert walk is not None
    outer, walk.frame = walk.frame, frame
    watch = None if keeper is None or walk.watch is not None else Keep(keeper)
    if watch is not None:
        walk.watch = watch
    try:
        with torch.autograd.graph.saved_tensors_hooks(frame.pack, frame.unpack):
            result = function(*args, **kwargs)
    finally:
        walk.frame = outer
        if watch is not None:
            watch.leave()
            walk.watch = None
    if watch is not None:
        watch.keeper.check()
    return result
