"""The report of a training step under a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offcert.core.messages import cut
from offcert.runtime.device.interface import MemoryReading, Pinning
from offcert.runtime.plan.predict import Prediction
from offcert.runtime.segments.placed import PlacedSegment


@dataclass(frozen=True)
class Unfreed:
    """Bytes that a plan wanted to free before an operation, but that someone else still holds.

    They stay on the device, and nothing is moved.
    """

    tensor: str
    operation: str
    size: int


@dataclass(frozen=True)
class Unforeseen:
    """Bytes that the forward pass saved during an operation, but not when it was captured.

    They stay on the device; `dtype` and `shape` are those of the tensor that was saved.
    """

    operation: str
    size: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class StepReport:
    """The report of one training step."""

    # The first thing in which the step was not the one that was planned, from where on nothing more
    # leaves the device, or else in what it took more memory than planned, or may have: then the
    # plan was followed nevertheless. None if it followed its plan, within the limit.
    deviation: str | None
    finished: bool  # Whether the backward pass has ended
    # Bytes that the plan predicts (None if there is no plan for such a step), and was made for.
    prediction: Prediction | None = None
    limit: int = 0
    # Live bytes when each operation began (after its transfers) and ended, and the most while it
    # ran; empty unless live bytes are counted.
    at_begin: tuple[int, ...] = ()
    at_end: tuple[int, ...] = ()
    peaks: tuple[int, ...] = ()
    # Storages that could not leave, and tensors that were saved beyond the plan.
    unfreed: tuple[Unfreed, ...] = ()
    unforeseen: tuple[Unforeseen, ...] = ()
    late_bytes: int = 0  # Bytes that came back only when asked for
    # Bytes that were copied to the host and back.
    offloaded_bytes: int = 0
    prefetched_bytes: int = 0
    # Of the arena on the host that the plan's copies are laid out in, and the most of it that the
    # plan needs at a time: no arena is smaller.
    arena_bytes: int = 0
    arena_load: int = 0
    # Copies that were not where the layout wants them, since something there was still needed.
    outside_entries: int = 0
    outside_bytes: int = 0
    # Segments that the plan lets run again, and those that do not any more, and why.
    again: tuple[PlacedSegment, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    # The most bytes at a time of copies of buffers and the like for what runs again, which finds
    # them as they were. They are on the device, and in no count of live bytes.
    state_bytes: int = 0
    beside_bytes: int = 0  # What rehearsals have left on the device beside what the plan puts there
    # What the device's allocator had given out and reserved when the step ended, with peaks since
    # they were last reset (None on the CPU, and before the end); and the limit for that, if given.
    memory: MemoryReading | None = None
    reserved_limit: int | None = None
    # How far the arena has been registered with the device, and the seconds that it took; None on
    # the CPU, and if nothing moves.
    pinning: Pinning | None = None

    def __repr__(self) -> str:
        text = f"<StepReport: {self.what}"
        if self.prediction is not None:
            text += f"; {_mib(self.prediction.peak)} predicted of {_mib(self.limit)}"
            text += f", {_mib(self.offloaded_bytes)} left"
        return f"{text}>"

    @property
    def said(self) -> str:
        """A line with the measured peak beside the predicted one."""
        if self.prediction is None:
            return self.what
        measured = "not counted"
        if self.peaks:
            measured = f"{_mib(self.peak)} counted"
        elif self.memory is not None:
            measured = f"{_mib(self.memory.peak_allocated)} given out by the allocator"
        text = f"{self.what}, peak {measured}, {_mib(self.prediction.peak)} predicted"
        return f"{text}, limit {_mib(self.limit)}; {_mib(self.offloaded_bytes)} left the device"

    def __str__(self) -> str:
        """Say in some ten lines what happened, for people."""
        rows = [("step", self.what)]
        if self.prediction is not None:
            rows += self._memory_rows(self.prediction.peak) + self._moved_rows()
        return "\n".join(f"{name:<12}{text}" for name, text in rows)

    @property
    def what(self) -> str:
        """Whether the step followed its plan, or why not, in words."""
        if self.deviation is None:
            return "planned" if self.planned else "under way: its backward pass has not ended"
        if self.prediction is None:
            return self.deviation
        return f"did not follow its plan: {self.deviation}"

    def _memory_rows(self, predicted: int) -> list[tuple[str, str]]:
        counted = f"counted {_mib(self.peak)}" if self.peaks else "not counted"
        rows = [("memory", f"{_mib(predicted)} predicted of {_mib(self.limit)}, {counted}")]
        if self.memory is not None:
            given, held = self.memory.peak_allocated, self.memory.peak_reserved
            limited = "" if self.reserved_limit is None else f" of {_mib(self.reserved_limit)}"
            rows.append(("device", f"{_mib(given)} allocated, {_mib(held)} reserved{limited}"))
        return rows

    def _moved_rows(self) -> list[tuple[str, str]]:
        late = f"{_mib(self.late_bytes)} came back only when asked for" if self.late_bytes else ""
        arena = f"{_mib(self.arena_bytes)} on the host, {_mib(self.arena_load)} of it at a time"
        if self.pinning is not None:
            arena += f"; {_mib(self.pinning.registered)} pinned in {self.pinning.seconds:.1f} s"
        if self.outside_bytes:
            arena += f"; {self.outside_entries} copies outside of it, {_mib(self.outside_bytes)}"
        again = listed([str(each) for each in self.again])
        if self.state_bytes:
            again += f"; {_mib(self.state_bytes)} of state copied for it"
        out, back = _mib(self.offloaded_bytes), _mib(self.prefetched_bytes)
        return [
            ("moved", f"{out} left, {back} came back"),
            ("late", late or "nothing"),
            ("not freed", _sized([(each.tensor, each.size) for each in self.unfreed])),
            ("unforeseen", _sized([(each.operation, each.size) for each in self.unforeseen])),
            ("copies", arena),
            ("runs again", again),
            *(("refused", f"{name}: {reason}") for name, reason in self.refused),
        ]

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

        The end of the last operation does not count: what the caller keeps outlives the step. What
        a rehearsal leaves beside the plan may come on top.
        """
        planned = self.prediction
        if planned is None or len(self.at_end) != len(planned.at_end):
            return False
        pairs = [
            *zip(self.at_begin, planned.at_begin, strict=True),
            *zip(self.at_end[:-1], planned.at_end[:-1], strict=True),
        ]
        return all(0 <= found - asked <= self.beside_bytes for found, asked in pairs) and all(
            peak <= bound + self.beside_bytes
            for peak, bound in zip(self.peaks, planned.peaks, strict=True)
        )


def _mib(size: int) -> str:
    return f"{size / 2**20:.2f} MiB"


def listed(names: Sequence[str]) -> str:
    """Return the first three names in words, and how many more there are."""
    unlike = list(dict.fromkeys(names))
    if not unlike:
        return "nothing"
    more = f" and {len(unlike) - 3} more" if len(unlike) > 3 else ""
    return ", ".join(cut(name, 40) for name in unlike[:3]) + more


def _sized(rows: Sequence[tuple[str, int]]) -> str:
    """Return how many bytes some have together, and which."""
    if not rows:
        return "nothing"
    return f"{_mib(sum(size for _, size in rows))}: {listed([name for name, _ in rows])}"
