"""Who is told what becomes of a call of a segment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from offcert.runtime.guard import guard_of
from offcert.runtime.segments.proof import Proof, require_same

if TYPE_CHECKING:
    from offcert.runtime.segments.attach import Segments


class Teller:
    """Tells the step under way what becomes of a call of a segment.

    Parameters
    ----------
    segments : Segments
        Whose segment it is.
    path : str
        Of the module that names it.
    """

    __slots__ = ("_path", "_segments", "guard")

    def __init__(self, segments: Segments, path: str) -> None:
        self._segments = segments
        self._path = path
        self.guard = guard_of(segments.hooks)

    def ran(self, kind: str) -> None:
        """Tell that it begins to run again, or has done so."""
        session = self._segments.session
        if session is not None:
            session.run_again(kind, self._path)

    def may_drop_casts(self) -> bool:
        """Whether the step says that nobody will use weights that autocast has cast."""
        session = self._segments.session
        return session is not None and session.calls_are_over

    def doubts(self, proof: Proof, flag: torch.Tensor) -> None:
        """Let the step look at a flag on a device when its backward pass has ended."""
        session = self._segments.session
        if session is None:
            require_same(proof, flag)
        else:
            session.flags.append((proof, flag))
