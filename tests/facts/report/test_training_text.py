"""What a training report says to people."""

from typing import Any

from offcert.core.units import Units
from offcert.report.training import describe_host, describe_training

UNITS = Units("ns", "B")


def step(**changes: Any) -> dict[str, Any]:
    return {
        "plain_loss": 1.5,
        "planned_loss": 1.5,
        "differences": [],
        "deviations": [],
        "peak": 2048,
        "unfreed_bytes": 0,
        "offloaded_bytes": 64,
        "prefetched_bytes": 64,
        "plain_seconds": 0.25,
        "planned_seconds": 0.5,
        "deviation": None,
        "unforeseen_bytes": 0,
        "outside_bytes": 0,
    } | changes


def report(operations: int, *steps: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "name": "net",
        "limit": 4096,
        "unplanned_peak": 8192,
        "steps": steps,
        "operations": [f"o{index}" for index in range(operations)],
        "counted_end": [10 * index % 7919 for index in range(operations)],
        "predicted_end": [10 * index % 7919 for index in range(operations)],
        "bitwise_equal": True,
        "follows_prediction": True,
        "counted": True,
        "peak": 2048,
        "arena_bytes": 0,
        "arena_load": 0,
    } | changes


def test_all_is_well() -> None:
    lines = describe_training(report(3, step()), UNITS).splitlines()
    assert "     1      1.500000     yes      2.00 KiB     0.25 s     0.50 s" in lines
    assert "  live bytes as predicted at all 6 events: yes" in lines
    assert "  peak 2.00 KiB, limit 4.00 KiB, without a plan 8.00 KiB" in lines
    assert len([line for line in lines if line.strip().startswith("o")]) == 3
    assert "host buffer" not in "\n".join(lines)


def test_the_arena_on_the_host_is_said_with_what_is_needed_of_it() -> None:
    text = describe_training(report(3, step(), arena_bytes=3072, arena_load=2048), UNITS)
    assert "  host buffer 3.00 KiB, of which 2.00 KiB are needed at a time\n" in text
    changes = {"device": "cuda", "pinned_bytes": 3072, "pinned_seconds": 1.25}
    text = describe_host(report(3, step(), arena_bytes=3072, arena_load=2048, **changes), UNITS)
    assert "are needed at a time; 3.00 KiB pinned in 1.2 s" in text


def test_whatever_is_wrong_is_said_and_long_lists_are_cut() -> None:
    wrong = step(
        planned_loss=None,
        differences=["loss", "random state"],
        deviation="F:a never began",
        unfreed_bytes=12,
        unforeseen_bytes=13,
        outside_bytes=14,
        deviations=[
            {"event": "end", "operation": f"F:{index}", "counted": 5, "predicted": 4}
            for index in range(25)
        ],
    )
    text = describe_training(report(1, wrong, bitwise_equal=False, follows_prediction=False), UNITS)
    assert "     1             -      NO" in text
    for part in (
        "differs: random state",
        "not as planned: F:a never began",
        "end of F:9: 5 B live, 4 B predicted, +1 B",
        "and 15 more",
        "12 B could not be freed",
        "13 B were saved that were not foreseen",
        "14 B were copied outside of the host buffer",
        "bitwise equal: NO",
        "events: NO",
    ):
        assert part in text
    assert "F:10" not in text


def test_long_traces_are_drawn_in_stretches_with_their_highest_points() -> None:
    made = report(1000, step())
    made["counted_end"][500] = made["predicted_end"][500] = 8000
    lines = describe_training(made, UNITS).splitlines()
    assert "  most live bytes at the ends of 21 operations at a time (predicted):" in lines
    rows = [line.split() for line in lines if line.strip().startswith("o")]
    assert len(rows) == 48
    assert ["o500", "7.81", "KiB"] in [row[:3] for row in rows]
    assert max(float(row[1]) for row in rows if row[2] == "KiB") == 7.81


def test_without_counting_nothing_is_claimed_of_bytes() -> None:
    text = describe_training(report(3, step(peak=0), counted=False, counted_end=[]), UNITS)
    assert "live bytes were not counted" in text
    assert "every step as planned: yes" in text
    assert "peak 0" not in text
    assert "as predicted" not in text


def test_what_the_allocator_held_is_said_beside_what_it_gave_out() -> None:
    errors = dict.fromkeys(("time", "peak"), 0.0) | dict.fromkeys(
        ("late_bytes", "unfreed_bytes", "outside_bytes"), 0
    )
    times = {"certified": None, "predicted": 10, "measured": 10}
    peaks = {"before": 0, "allocated": 3072, "reserved": 4096, "fragmentation_ppm": 250_000}
    made = report(3, step(), device="simulated", times=times, errors=errors, allocator=peaks)
    said = "  allocator: at most 3.00 KiB given out and 4.00 KiB held, 25.00 % in fragments"
    assert said in describe_training(made, UNITS).splitlines()


def hosted(**changes: Any) -> dict[str, Any]:
    step = {"time": 1500, "host": 1200, "python": 700, "operators": 1500}
    found = {"plain": step | {"host": 600}, "planned": step, "alone": 1300, "forecast": None}
    return found | {"launch": 3, "recorded": False, "idle": 200} | changes


def lines_behind(**changes: Any) -> list[str]:
    times = {"certified": None, "predicted": 1300, "measured": 1300}
    errors = dict.fromkeys(("time", "peak", "late_bytes", "unfreed_bytes", "outside_bytes"), 0)
    on = {"device": "simulated", "times": times, "errors": errors}
    text = describe_training(report(3, step(), hosted=hosted(**changes), **on), UNITS)
    first = text.splitlines().index(next(x for x in text.splitlines() if "behind" in x))
    return text.splitlines()[first : first + 2]


def test_a_device_that_waits_for_its_host_is_said_to() -> None:
    assert lines_behind() == [
        "  behind the host at hand: host-bound: 200 ns of 1.500 µs idle",
        "  it takes 1.200 µs to hand the step over, 600 ns without a plan; of that 3 ns for each "
        "of 1,500 operators, as is assumed",
    ]
    said, whose = lines_behind(idle=0, forecast=1450, recorded=True)
    assert said == "  behind the host at hand: 1.500 µs, never idle for it, forecast 1.450 µs"
    assert whose.endswith("as was recorded")
