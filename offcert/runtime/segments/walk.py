"""Where forward passes have got to, and what the calls of segments ask of the step under way."""

from __future__ import annotations

import threading
from typing import Any

import torch

from offcert.core.errors import InputError
from offcert.runtime.segments.keeper import Operators, Watch
from offcert.runtime.segments.resolve import Part
from offcert.runtime.segments.saved import ComparisonMode
from offcert.runtime.torch_private import may_save_by_hooks
from offcert.runtime.watch.events import Session
from offcert.runtime.watch.guard import RAISING
from offcert.runtime.watch.hooks import Hooks
from offcert.runtime.watch.saved_hooks import is_checkpointed


class ForwardWalk:
    """Where a forward pass has got to, or a segment that runs `again`.

    It follows the program of a `lookup`; `calls` says how often each module has been called in the
    step. `frame` is the innermost segment that runs, `watch` that of kept results, `lines` are
    those that are open, from the outermost to the innermost, of which a call may be being made
    (`calling`). `operators` are watched in the outermost segment that is rehearsed.
    """

    __slots__ = (
        "again", "calling", "calls", "frame", "lines", "lookup", "opened", "operators", "watch",
    )  # fmt: skip

    def __init__(self, lookup: Any, calls: dict[str, int], again: Any = None) -> None:
        self.lookup, self.calls = lookup, calls
        self.opened: dict[str, list[int]] = {}
        self.frame: Any = again
        self.again: Any = again
        self.watch: Watch | None = None
        self.lines: list[Any] = []
        self.calling = False
        self.operators: Operators | None = None

    @property
    def depth(self) -> int:
        """How many segments the one that runs again lies in; -1 if none runs again."""
        return -1 if self.again is None else self.again.depth

    def count(self, key: str) -> int:
        """Return the number of the call that begins."""
        call = self.calls.get(key, 0)
        self.calls[key] = call + 1
        return call


class Now(threading.local):
    """The walk that is under way in a thread, if any."""

    walk: ForwardWalk | None = None


class Calls:
    """The calls that a model makes while segments are attached; `now` is each thread's walk."""

    def __init__(self, hooks: Hooks | None, rehearsed: bool, verify_every: int | None) -> None:
        self.hooks = hooks
        self.guard = RAISING if hooks is None else hooks.guard
        self.now = Now()
        self.parameters: set[int] = set()
        self._rehearsed, self._verify_every = rehearsed, verify_every
        self._steps = 0
        # The step is of sizes with which its program has not been followed before.
        self._new_sizes = False

    def mode(self, part: Part, walk: ForwardWalk) -> ComparisonMode:
        """Return how much of a call is compared."""
        # What runs again is compared with its own first run.
        if not self._rehearsed or walk.again is not None:
            return ComparisonMode.TRUSTED
        if part.proof.is_doubtful or self._new_sizes:
            return ComparisonMode.REHEARSAL
        every = self._verify_every or walk.lookup.segments
        return (
            ComparisonMode.ALL if (part.number + self._steps) % every == 0 else ComparisonMode.ONE
        )

    @property
    def session(self) -> Session | None:
        """The step that the calling thread is in."""
        if self.hooks is None:
            return None
        return self.hooks.local.forward or self.hooks.local.backward

    def strayed(self, what: str) -> None:
        """Tell the step that the program does not do what a segment was made for."""
        session = self.session
        if session:
            session.strayed(what)

    def ran(self, kind: str, path: str) -> None:
        """Tell the step that a segment begins to run again, or has done so."""
        session = self.session
        if session is not None:
            session.run_again(kind, path)

    def runs(self, part: Part) -> bool:
        """Whether a segment is to be checkpointed now."""
        if not torch.is_grad_enabled() or not may_save_by_hooks():
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
