"""Errors of our own in the midst of a user's step: the training goes on without us.

Everything that PyTorch or the user's program calls of ours while a step runs is an *entrance*:
hooks on modules and gradients, what autograd saves and asks for, operators that are watched, the
end of a context. Whatever an entrance raises that is not meant for the user is caught there, told
once, and is the reason why the step has not followed its plan.

Meant for the user are changes in place that would make gradients wrong, segments that have made
something else, what PyTorch's checkpoints find, a CUDA graph that is captured around a step (its
replays would keep to no plan, and nobody would see them), warnings that the user's filters turn
into errors, and whatever is no `Exception`. Bytes that are lost are asked for outside of any guard:
gradients without them would be wrong.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeVar

from torch.utils.checkpoint import CheckpointError

from offcert.core.errors import OffcertError
from offcert.runtime.device.interface import GraphCaptureError
from offcert.runtime.torch_private import FAKES_LOG, StopRecomputation
from offcert.runtime.watch.entries import InPlaceError


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

    Once it is refused, `told` is called with it.
    """

    def __init__(
        self,
        name: str,
        paths: tuple[str, ...] = (),
        told: Callable[[SegmentProof], None] | None = None,
    ) -> None:
        # Of the modules that it calls; of those that stand in the way, once it is refused.
        self.name, self.paths = name, paths
        self.seen = 0  # In how many rehearsals it has made the same again
        # Which of the tensors that it saves is compared in each step, once a rehearsal has chosen.
        self.compared: int | None = None
        # Those that operators save before they have written them.
        self.unwritten: set[int] = set()
        # Shape, data type and need of a gradient of each.
        self.kinds: list[Any] = []
        self.refused: str | None = None  # Why it never runs again from now on
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


class OffloadWarning(UserWarning):
    """Training is right, but does not follow its plan."""


def one_line(error: BaseException) -> str:
    """Return the kind of an error and the first line of its message.

    PyTorch's compiler wraps what went wrong in an error whose first line names the backend alone.
    """
    while isinstance(cause := getattr(error, "inner_exception", None), BaseException):
        error = cause
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Keep fake tensors from logging a failure that is reported in one sentence."""
    log = logging.getLogger(FAKES_LOG)
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)


# PyTorch and we leave by the last two what has been run again as far as it is needed.
_MEANT = (
    InPlaceError, CheckpointError, RecomputeError, Warning, StopRecomputation, StopRunning,
    GraphCaptureError,
)  # fmt: skip

GUARDED: dict[str, Callable[..., Any]] = {}

Method = TypeVar("Method", bound=Callable[..., Any])


# Takes note of what went wrong, in words, and of the step that it happened in, if that is known;
# raises if the user wants to hear of it that way.
Failed = Callable[[Exception, str, Any], None]


class Guard:
    """Decides whether an error that an entrance has raised is reported or passed on.

    `failed` is told of it. Without one the error is raised: there is no training that could go on,
    as in a capture.
    """

    __slots__ = ("_failed",)

    def __init__(self, failed: Failed | None = None) -> None:
        self._failed = failed

    def lets_pass(self, error: Exception) -> bool:
        """Whether an error is to be raised where it has been caught.

        There, and not here: a frame that raises what it was given holds itself.
        """
        return self._failed is None or isinstance(error, _MEANT)

    def caught(self, error: Exception, session: Any = None) -> None:
        """Take an error that does not pass."""
        assert self._failed is not None
        said = str(error) if isinstance(error, OffcertError) else one_line(error)
        self._failed(error, f"offcert has failed: {said}", session)

    @contextmanager
    def end(self, *, failing: bool) -> Iterator[None]:
        """Leave a context of the user's in the block; `failing`: it is left by an exception."""
        try:
            yield
        except Exception as error:
            if self.lets_pass(error):
                raise
            # The user's error is not hidden by one that strictness raises.
            with suppress(OffcertError) if failing else nullcontext():
                self.caught(error)


RAISING = Guard()


def guarded(otherwise: Callable[..., Any] | None = None) -> Callable[[Method], Method]:
    """Mark a method as an entrance: the guard of its object gets the errors that it raises.

    The object has the guard as its ``guard``, and perhaps the step as its ``session``. `otherwise`
    is called with what the method was called with, after it has failed; without one, None is
    returned.
    """

    def mark(function: Method) -> Method:
        @functools.wraps(function)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return function(self, *args, **kwargs)
            except Exception as error:
                if self.guard.lets_pass(error):
                    raise
                self.guard.caught(error, getattr(self, "session", None))
            return None if otherwise is None else otherwise(self, *args, **kwargs)

        GUARDED[f"{function.__module__}.{function.__qualname__}"] = call
        return call  # type: ignore[return-value]

    return mark


@guarded()
def _any(self: Any) -> None:
    """Stand for what is guarded."""


# What is called around every entrance: the code of all these functions is one.
GUARDED_CALL = GUARDED.pop(f"{__name__}._any")
