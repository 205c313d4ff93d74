"""A record of training, made by hand."""

from dataclasses import replace
from typing import Any

from offcert.core.platform import Kind
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.training_record import (
    Course,
    HostMemory,
    Moved,
    StepNumbers,
    TrainingRecord,
)

OUT, BACK = Kind.OFFLOAD, Kind.PREFETCH


def course(*transfers: Transfer, late: int = 0, counted: bool = True) -> Course:
    """Return three operations, of which the last begins when its tensor is back."""
    schedule = Schedule([0, 4, 11 + late], [4, 9, 15 + late], transfers)
    return Course(schedule, (2, 8, 6), (6, 4, 0), (8, 9, 12)) if counted else Course(schedule)


def made(**changes: Any) -> TrainingRecord:
    record = TrainingRecord(
        "r",
        "0" * 64,
        "cuda",
        "a device",
        {"torch": "2"},
        False,
        limit=12,
        unplanned_peak=14,
        certified=10,
        operations=("F:a", "F:b", "B:b"),
        moved={0: Moved("x0", 6)},
        planned=course(Transfer(OUT, 0, 4, 6), Transfer(BACK, 0, 9, 11)),
        measured=course(Transfer(OUT, 0, 4, 7), Transfer(BACK, 0, 9, 14), late=3),
        steps=(StepNumbers(99, late_bytes=3, outside_bytes=1), StepNumbers(18, unfreed_bytes=2)),
        shown=1,
        host=HostMemory(6, 6),
    )
    return replace(record, **changes)
