"""Records of training: what follows from them, and their documents."""

import json
from pathlib import Path
from typing import Any

import pytest

from offcert.core.errors import InputError
from offcert.questions.schedule.schedule import Transfer
from offcert.questions.schedule.training_files import (
    read_training,
    training_from_json,
    training_to_json,
    write_training,
)
from offcert.questions.schedule.training_record import (
    AllocatorPeaks,
    HostMemory,
    StepNumbers,
    TrainingRecord,
)
from support.problems.training_records import BACK, OUT, course, made


def test_one_number_for_each_thing_that_may_be_other_than_planned() -> None:
    record = made()
    assert (record.predicted_time, record.measured_time) == (15, 18)
    assert record.errors() == {
        "time": 3 / 15,
        "time_to_certified": 8 / 10,
        "peak": 0.0,
        "late_bytes": 3,
        "unfreed_bytes": 2,
        "outside_bytes": 1,
    }


def test_without_counting_the_allocator_says_the_peak() -> None:
    measured = course(counted=False)
    record = made(measured=measured, memory=AllocatorPeaks(100, 115, 128))
    assert record.measured_peak == 15
    assert record.errors()["peak"] == 3 / 12
    assert made(measured=measured).errors()["peak"] is None


def test_what_was_not_measured_is_not_known() -> None:
    record = made(measured=None, shown=None, certified=None, steps=(StepNumbers(None),))
    errors = record.errors()
    assert [errors[name] for name in ("time", "time_to_certified", "peak")] == [None] * 3
    assert [each[1] for each in record.pairs()] == [None, None]
    assert training_from_json(json.loads(json.dumps(training_to_json(record)))) == record


def test_stalls_bytes_and_memory_of_a_course_by_hand() -> None:
    found = course(Transfer(OUT, 0, 4, 6), Transfer(BACK, 0, 9, 11), Transfer(BACK, -1, 9, 11))
    assert found.stalls == (0, 0, 2)
    # The copy back begins when the second operation has ended: it is the third's.
    assert found.moved(OUT, {0: 6}) == (0, 6, 0)
    assert found.moved(BACK, {0: 6}) == (0, 0, 6)
    assert list(found.live()) == [(0, 8), (4, 6), (4, 9), (9, 4), (11, 12), (15, 0)]


def test_transfers_are_paired_by_what_they_serve() -> None:
    again, late = Transfer(OUT, 0, 7, 9), Transfer(BACK, -1, 10, 11)
    measured = course(Transfer(OUT, 0, 5, 6), again, late)
    pairs = list(made(measured=measured).pairs())
    assert pairs == [
        (Transfer(OUT, 0, 4, 6), Transfer(OUT, 0, 5, 6)),
        (Transfer(BACK, 0, 9, 11), None),
        (None, again),
        (None, late),
    ]


@pytest.mark.parametrize(
    "record",
    [
        made(),
        made(measured=course(counted=False), memory=AllocatorPeaks(1, 2, 3), duplex=True),
        made(measured=course(Transfer(BACK, -1, 10, 11)), host=HostMemory(9, 6, 4, 5)),
    ],
)
def test_what_is_written_is_read(record: TrainingRecord, tmp_path: Path) -> None:
    write_training(tmp_path / "report.json", record)
    assert read_training(tmp_path / "report.json") == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2 of offcert-training is not known; this program reads 1"),
        ({"format": "offcert-table"}, 'format must be "offcert-training"'),
        ({"speed": 3}, '"speed" is not known'),
        ({"device": "tpu"}, "device must be one of cpu, simulated, cuda"),
        ({"shown": 2}, "shown must be one of 2 steps"),
        ({"operations": []}, "operations must not be empty"),
        ({"times": {"certified": 10, "predicted": 15, "measured": 15}}, "times must be"),
        ({"peaks": {"predicted": 12, "measured": 11}}, "peaks must be"),
        ({"errors": {}}, "errors must be"),
        ({"errors": made().errors() | {"peak": False}}, "errors must be"),
        ({"errors": made().errors() | {"peak": -0.0}}, "errors must be"),
        ({"times": {"certified": 10, "predicted": 15.0, "measured": 18}}, "times must be"),
    ],
)
def test_what_does_not_follow_or_is_not_known_is_refused(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        training_from_json(training_to_json(made()) | change)


def test_a_stall_that_does_not_follow_is_refused() -> None:
    document = training_to_json(made())
    document["operations"][2]["measured"]["stall"] = 0
    with pytest.raises(InputError, match="operations must be"):
        training_from_json(document)
    document["transfers"][0]["planned"] = [1]
    with pytest.raises(InputError, match=r"transfers\[0\].planned must have 2 entries, not 1"):
        training_from_json(document)


@pytest.mark.parametrize("name", ["live_at_begin", "live_at_end", "peak"])
@pytest.mark.parametrize("way", ["planned", "measured"])
def test_counts_that_are_missing_in_part_are_refused(way: str, name: str) -> None:
    document = training_to_json(made())
    document["operations"][1][way][name] = None
    with pytest.raises(InputError, match=r"(operations|peaks) must"):
        training_from_json(document)
