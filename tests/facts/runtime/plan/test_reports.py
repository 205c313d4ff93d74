"""What people read of a step: some ten lines, or one."""

from dataclasses import replace

from offcert.runtime.device.interface import MemoryReading
from offcert.runtime.plan.predict import Prediction
from offcert.runtime.plan.reports import StepReport, Unforeseen, Unfreed
from offcert.runtime.segments.placed import PlacedSegment

MIB = 2**20
PREDICTION = Prediction(((),), ((),), (0,), (0,), (3 * MIB,))
PLANNED = StepReport(None, True, PREDICTION, 4 * MIB, offloaded_bytes=MIB, prefetched_bytes=MIB)


def test_a_report_is_read_in_ten_lines() -> None:
    full = replace(
        PLANNED,
        peaks=(MIB, 7 * MIB // 2),
        unfreed=(Unfreed("fc1", "F:fc2", MIB),) * 2,
        unforeseen=tuple(Unforeseen(f"F:{n}", MIB // 4, "float32", (2,)) for n in range(5)),
        late_bytes=MIB // 2,
        arena_bytes=2 * MIB,
        arena_load=MIB,
        outside_entries=3,
        outside_bytes=MIB,
        again=(PlacedSegment("blocks.0"), PlacedSegment("blocks.1", 1)),
        state_bytes=MIB,
        memory=MemoryReading(0, 0, 5 * MIB, 6 * MIB),
        reserved_limit=8 * MIB,
    )
    assert str(full).splitlines() == [
        "step        planned",
        "memory      3.00 MiB predicted of 4.00 MiB, counted 3.50 MiB",
        "device      5.00 MiB allocated, 6.00 MiB reserved of 8.00 MiB",
        "moved       1.00 MiB left, 1.00 MiB came back",
        "late        0.50 MiB came back only when asked for",
        "not freed   2.00 MiB: fc1",
        "unforeseen  1.25 MiB: F:0, F:1, F:2 and 2 more",
        "copies      2.00 MiB on the host, 1.00 MiB of it at a time; 3 copies outside of it, "
        "1.00 MiB",
        "runs again  blocks.0, call 2 of blocks.1; 1.00 MiB of state copied for it",
    ]
    quiet = str(PLANNED).splitlines()
    assert quiet[1].endswith("not counted")
    assert [row.split()[-1] for row in quiet if "nothing" in row] == ["nothing"] * 4


def test_why_a_step_was_not_planned_comes_first() -> None:
    assert str(StepReport("no step has been run", False)) == "step        no step has been run"
    strayed = replace(PLANNED, deviation="fc2 never began")
    assert str(strayed).startswith("step        did not follow its plan: fc2 never began\n")
    assert str(replace(PLANNED, finished=False)).startswith("step        under way: its backward")


def test_a_report_shows_itself_in_one_line() -> None:
    assert repr(PLANNED) == ("<StepReport: planned; 3.00 MiB predicted of 4.00 MiB, 1.00 MiB left>")
    assert repr(StepReport("no step has been run", False)) == "<StepReport: no step has been run>"
