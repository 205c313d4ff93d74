"""`SegmentProof`: what has been seen of a segment that runs again, and what forbids it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offcert.core.errors import OffcertError


class RecomputeError(OffcertError, RuntimeError):
    """A segment has not made, or cannot make, the same again; gradients would have been wrong."""


class StopRunning(Exception):  # noqa: N818
    """A segment has run again as far as that is needed; runs around it go on."""

    def __init__(self, run: Any) -> None:
        super().__init__()
        self.run = run


class SegmentProof:
    """Whether a segment has been seen to make the same again, and to leave nothing else behind.

    In a rehearsal what the segment makes first stays, and is used; the segment runs again beside
    it, and both are compared. See the rules of `offcert.runtime.segments.checkpoint`.

    Attributes
    ----------
    paths : tuple of str
        Paths of the modules that it calls; of those that stand in the way, once it is refused.
    seen : int
        In how many rehearsals it has made the same again.
    compared : int or None
        Which of the tensors that it saves is compared in each step, once a rehearsal has chosen it.
    kinds, unwritten : list, set of int
        Shape, data type and need of a gradient of each of them, and those that operators save
        before they have written them.
    refused : str or None
        Why it never runs again from now on; then `told` is called with the proof.
    """

    def __init__(
        self,
        name: str,
        paths: tuple[str, ...] = (),
        told: Callable[[SegmentProof], None] | None = None,
    ) -> None:
        self.name = name
        self.paths = paths
        self.seen = 0
        self.compared: int | None = None
        self.unwritten: set[int] = set()
        self.kinds: list[Any] = []
        self.refused: str | None = None
        self._changed, self._has_changed = 0, False
        self._told = told

    @property
    def is_doubtful(self) -> bool:
        """Whether it has not made the same again yet, or has changed something since."""
        return not self.seen or self._has_changed

    def accept(self) -> None:
        """Take note that the segment has made the same again."""
        self.seen += 1
        self._has_changed = False

    def doubt(self) -> None:
        """Rehearse the segment anew: something else runs than in the rehearsal."""
        self._has_changed = True

    def changes(self, reason: str, blamed: tuple[str, ...] = ()) -> None:
        """Take note of a change in a rehearsal: a second one forbids that it ever runs again."""
        self._changed, self._has_changed = self._changed + 1, True
        if self._changed > 1:
            self.refuse(reason, blamed)

    def refuse(self, reason: str, blamed: tuple[str, ...] = ()) -> None:
        """Take note of why the segment must not run again; only the first reason counts.

        `blamed` are paths of the modules that stand in the way, if it is known that others do not.
        """
        if self.refused is None:
            self.refused = reason
            self.paths = blamed or self.paths
            if self._told is not None:
                self._told(self)


def require_same(proof: SegmentProof, flag: Any) -> None:
    """Raise a `RecomputeError` if a flag on a device says that a segment has made something else.

    Waits for the device.
    """
    if not bool(flag):
        proof.refuse("a tensor comes out different")
        raise RecomputeError(
            f"{proof.name} was run again for the backward pass, and a tensor came out different: "
            "the gradients of this step are wrong, do not use them. From the next step on it does "
            "not run again"
        )
