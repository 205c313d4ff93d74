"""Findings of training with and without a plan, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from offcert.core.trace import Trace
from offcert.questions.schedule.training_record import TrainingRecord
from offcert.runtime.pairs.train_device import Hosted
from offcert.runtime.plan.predict import Prediction


@dataclass(frozen=True)
class Deviation:
    """An event at which live bytes were not as predicted.

    It is the ``"begin"`` or ``"end"`` of an operation, or its ``"peak"``, which only counts if it
    is above its bound.
    """

    event: str
    operation: str
    predicted: int
    counted: int


@dataclass(frozen=True)
class PairStep:
    """One optimiser step of two copies, of which one follows a plan."""

    # None if the step does not return them.
    plain_loss: float | None
    planned_loss: float | None
    # What was not bitwise equal: ``"loss"``, ``"random state"``, ``"gradient of conv1.weight"``,
    # ``"parameter …"``, ``"buffer …"``.
    differences: tuple[str, ...]
    # Of forward and backward pass; the planned ones include counting and copying.
    plain_seconds: float
    planned_seconds: float


@dataclass(frozen=True)
class StepComparison(PairStep):
    """One optimiser step, plain and planned, and how the plan was followed in it."""

    deviations: tuple[Deviation, ...]  # Where live bytes were not as predicted
    peak: int  # The most live bytes
    unfreed_bytes: int  # Bytes that were to leave and could not
    offloaded_bytes: int
    prefetched_bytes: int
    deviation: str | None = None  # The first thing in which the step was not the planned one
    unforeseen_bytes: int = 0  # Bytes that were saved, but not when it was captured
    outside_bytes: int = 0  # Bytes that had no room in the arena
    late_bytes: int = 0  # Bytes that came back only when they were asked for
    time: int | None = None  # Nanoseconds of the device's clock, if it was timed to its end


@dataclass(frozen=True)
class TrainReport:
    """The findings of `train`."""

    name: str  # Name of the problem
    # Bytes: the problem's memory, what the step needs without a plan, and with it at most.
    limit: int
    unplanned_peak: int
    predicted_peak: int
    steps: tuple[StepComparison, ...]  # One for each optimiser step
    operations: tuple[str, ...]  # Their names, for the curves
    # Live bytes when each operation begins and ends, and the most while it ran: as the plan
    # predicts, and as counted in the last step; empty if live bytes were not counted.
    predicted_begin: tuple[int, ...]
    predicted_end: tuple[int, ...]
    counted_begin: tuple[int, ...]
    counted_end: tuple[int, ...]
    counted_peaks: tuple[int, ...]
    # Of the arena on the host, and the most of it that the plan needs at a time.
    arena_bytes: int
    arena_load: int
    device: str  # ``"cpu"``, ``"simulated"`` or ``"cuda"``
    record: TrainingRecord  # The plan beside what was measured
    # Of the arena what was registered with the device when the last step ended, and how long that
    # has taken, in the background but for its first part.
    pinned_bytes: int = 0
    pinned_seconds: float = 0.0
    # Further steps on a simulated device behind the host at hand, if they were asked for.
    hosted: Hosted | None = None

    @property
    def bitwise_equal(self) -> bool:
        """Whether losses, gradients, parameters, buffers and random state never differed."""
        return not any(step.differences for step in self.steps)

    @property
    def follows_prediction(self) -> bool:
        """Whether every step was the planned one, with the live bytes that were predicted.

        Where live bytes were not counted, only the former.
        """
        return not any(step.deviations or step.deviation for step in self.steps)

    @property
    def counted(self) -> bool:
        """Whether live bytes were counted."""
        return bool(self.counted_begin)

    @property
    def peak(self) -> int:
        """The most live bytes in any step."""
        return max((step.peak for step in self.steps), default=0)

    @property
    def ok(self) -> bool:
        """Whether everything held: equality, prediction, limit, and all bytes freed."""
        return (
            self.bitwise_equal
            and self.follows_prediction
            and self.peak <= self.limit
            and not any(step.unfreed_bytes for step in self.steps)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values, with the verdicts spelled out."""
        record = self.record
        document = {
            each.name: getattr(self, each.name) for each in fields(self) if each.name != "record"
        }
        document["steps"] = [asdict(each) for each in self.steps]
        if self.hosted is None:
            del document["hosted"]
        else:
            document["hosted"] = asdict(self.hosted) | {"idle": self.hosted.idle}
        document["times"] = {
            "certified": record.certified,
            "predicted": record.predicted_time,
            "measured": record.measured_time,
        }
        document["errors"] = record.errors()
        document["host"] = asdict(record.host)
        if record.memory is not None:
            # Beside no limit: the allocator counts gradients, too, which the plan's does not.
            document["allocator"] = {
                **asdict(record.memory),
                "fragmentation_ppm": round(record.memory.fragmentation * 10**6),
            }
        return document | {
            "bitwise_equal": self.bitwise_equal,
            "follows_prediction": self.follows_prediction,
            "counted": self.counted,
            "peak": self.peak,
            "ok": self.ok,
        }


def deviations(
    trace: Trace,
    prediction: Prediction,
    at_begin: Sequence[int],
    at_end: Sequence[int],
    peaks: Sequence[int],
    *,
    exactly: bool = True,
    beside: int = 0,
) -> tuple[Deviation, ...]:
    """Return every event of a step at which live bytes were not as predicted.

    An event that never came counts as one with -1 bytes. If not `exactly`, there may be fewer bytes
    at any event than predicted: where parts of a step run again, autograd holds less meanwhile.
    `beside` is how many bytes a rehearsal has left there on top.
    """
    found = []
    for index, operation in enumerate(trace.operations):
        for event, predicted, counted in (
            ("begin", prediction.at_begin, at_begin),
            ("end", prediction.at_end, at_end),
            ("peak", prediction.peaks, peaks),
        ):
            value = counted[index] if index < len(counted) else -1
            low = (event == "peak" or not exactly) and value >= 0
            most = predicted[index] + beside
            wrong = value > most if low else value != predicted[index]
            if wrong:
                found.append(Deviation(event, operation.name, predicted[index], value))
    return tuple(found)
