"""What a training step under a plan did."""

from __future__ import annotations

from dataclasses import dataclass

from offcert.runtime.predict import Prediction


class OffloadWarning(UserWarning):
    """Training is right, but does not follow its plan."""


@dataclass(frozen=True)
class Unfreed:
    """Bytes that a plan wanted to free, but that someone besides autograd still holds.

    Attributes
    ----------
    tensor : str
        The trace's tensor that the storage belongs to.
    operation : str
        The operation before which it should have left.
    size : int
        Bytes; they stay on the device, and nothing is moved.
    """

    tensor: str
    operation: str
    size: int


@dataclass(frozen=True)
class Unforeseen:
    """Bytes that the forward pass saved, but not when it was captured.

    Attributes
    ----------
    operation : str
        During which they were saved.
    size : int
        Bytes of the storage; they stay on the device.
    dtype : str
        Of the tensor that was saved.
    shape : tuple of int
        Of that tensor.
    """

    operation: str
    size: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class StepReport:
    """What one training step did.

    Attributes
    ----------
    deviation : str or None
        The first thing in which the step was not the one that was planned, from where on nothing
        more leaves the device, or else in what it took more memory than planned, or may have: then
        the plan was followed nevertheless. None if it followed its plan, within the limit.
    finished : bool
        Whether the backward pass has ended.
    prediction : Prediction or None
        What the plan says; None if there is no plan for such a step.
    limit : int
        Bytes that the plan was made for.
    at_begin, at_end, peaks : tuple of int
        Live bytes when each operation began (after its transfers) and ended, and the most while it
        ran; empty unless live bytes are counted.
    unfreed : tuple of Unfreed
        What could not leave.
    unforeseen : tuple of Unforeseen
        What was saved beyond the plan.
    late_bytes : int
        Bytes that came back only when they were asked for.
    offloaded_bytes, prefetched_bytes : int
        What was copied.
    arena_bytes : int
        Of the arena on the host that the plan's copies are laid out in.
    arena_load : int
        Most bytes of them that the plan needs at a time: no arena is smaller.
    outside_entries, outside_bytes : int
        Copies that were not where the layout wants them, since something there was still needed.
    """

    deviation: str | None
    finished: bool
    prediction: Prediction | None = None
    limit: int = 0
    at_begin: tuple[int, ...] = ()
    at_end: tuple[int, ...] = ()
    peaks: tuple[int, ...] = ()
    unfreed: tuple[Unfreed, ...] = ()
    unforeseen: tuple[Unforeseen, ...] = ()
    late_bytes: int = 0
    offloaded_bytes: int = 0
    prefetched_bytes: int = 0
    arena_bytes: int = 0
    arena_load: int = 0
    outside_entries: int = 0
    outside_bytes: int = 0

    @property
    def planned(self) -> bool:
        """Whether the step followed a plan from its beginning to its end."""
        return self.finished and self.prediction is not None and self.deviation is None

    @property
    def peak(self) -> int:
        """The most live bytes at any time; 0 unless they are counted."""
        return max(self.peaks, default=0)

    @property
    def within_limit(self) -> bool:
        """Whether the counted peak is within the limit of the plan."""
        return self.peak <= self.limit

    @property
    def follows_prediction(self) -> bool:
        """Whether live bytes are as predicted at every event and no peak is above its bound.

        The end of the last operation does not count: what the caller keeps outlives the step.
        """
        return (
            self.prediction is not None
            and self.at_begin == self.prediction.at_begin
            and len(self.at_end) == len(self.prediction.at_end)
            and self.at_end[:-1] == self.prediction.at_end[:-1]
            and all(
                peak <= bound for peak, bound in zip(self.peaks, self.prediction.peaks, strict=True)
            )
        )
