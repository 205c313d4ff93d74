"""Calls of segments: who makes a frame for each, and tells the step what becomes of it."""

from __future__ import annotations

from typing import TypeVar

import torch

from offcert.core.errors import InputError
from offcert.runtime.segments.frame import Frame, Now, Walk
from offcert.runtime.segments.keeper import Keeper
from offcert.runtime.segments.resolve import Part
from offcert.runtime.segments.saved import Mode
from offcert.runtime.watch.events import Session
from offcert.runtime.watch.guard import guard_of
from offcert.runtime.watch.hooks import Hooks
from offcert.runtime.watch.proof import SegmentProof, require_same
from offcert.runtime.watch.saved_hooks import is_checkpointed, may_hook

AnyFrame = TypeVar("AnyFrame", bound=Frame)


class Calls:
    """The calls that a model makes while segments are attached; `now` is each thread's walk."""

    def __init__(self, hooks: Hooks | None, rehearsed: bool, verify_every: int | None) -> None:
        self.hooks = hooks
        self.now = Now()
        self._rehearsed = rehearsed
        self._verify_every = verify_every
        self._steps = 0
        # The step is of sizes with which its program has not been followed before.
        self._new_sizes = False
        self._parameters: set[int] = set()

    def frame(self, part: Part, path: str, kind: type[AnyFrame]) -> AnyFrame:
        """Return a frame for a call of a segment."""
        walk = self.now.walk
        assert walk is not None
        keeper = None if walk.frame is None else walk.frame.keeper
        if walk.frame is None and part.kept:
            keeper = Keeper(part.name, part.kept, part.unread, self._parameters)
        return kind(part, self.now, keeper, Teller(self, path), self.mode(part, walk))

    def mode(self, part: Part, walk: Walk) -> Mode:
        """Return how much of a call is compared."""
        # What runs again is compared with its own first run.
        if not self._rehearsed or walk.again is not None:
            return Mode.TRUSTED
        if part.proof.is_doubtful or self._new_sizes:
            return Mode.REHEARSAL
        every = self._verify_every or walk.lookup.segments
        return Mode.ALL if (part.number + self._steps) % every == 0 else Mode.ONE

    def strayed(self, what: str) -> None:
        """Note that the program does not do what a segment was made for."""
        session = self.session
        if session:
            session.strayed(what)

    @property
    def session(self) -> Session | None:
        """The step that the calling thread is in."""
        if self.hooks is None:
            return None
        return self.hooks.local.forward or self.hooks.local.backward

    def runs(self, part: Part) -> bool:
        """Whether a segment is to be checkpointed now."""
        if not torch.is_grad_enabled() or not may_hook():
            return False
        if part.proof.refused is not None:
            self.strayed(f"{part.name} does not run again: {part.proof.refused}")
            return False
        walk = self.now.walk
        assert walk is not None
        if walk.frame is None and is_checkpointed():
            raise InputError(
                f"{part.name} cannot run again by a plan: the program itself checkpoints it"
            )
        return True


class Teller:
    """Tells the step under way what becomes of a call of a segment, by the module that names it."""

    __slots__ = ("_calls", "_path", "guard")

    def __init__(self, calls: Calls, path: str) -> None:
        self._calls = calls
        self._path = path
        self.guard = guard_of(calls.hooks)

    def ran(self, kind: str) -> None:
        """Tell that it begins to run again, or has done so."""
        session = self._calls.session
        if session is not None:
            session.run_again(kind, self._path)

    def may_drop_casts(self) -> bool:
        """Whether the step says that nobody will use weights that autocast has cast."""
        session = self._calls.session
        return session is not None and session.calls_are_over

    def has_room(self, storage: torch.UntypedStorage) -> bool:
        """Whether the step has room on the device for what a rehearsal leaves there."""
        session = self._calls.session
        return session is None or session.has_room(storage)

    def doubts(self, proof: SegmentProof, flag: torch.Tensor) -> None:
        """Let the step look at a flag on a device when its backward pass has ended."""
        session = self._calls.session
        if session is None:
            require_same(proof, flag)
        else:
            session.flags.append((proof, flag))
