"""Pictures of training records, and their traces by hand."""

from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from offcert.core.errors import InputError
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.training_record import Course, StepNumbers, TrainingRecord
from offcert.report.bars import LOOKS
from offcert.report.training_figure import (
    looks_by_name,
    said_of_times,
    save_training,
    trace_of,
    training_svg,
)
from support.problems.training_records import BACK, OUT, course, made

SPAN, LEFT, WIDTH = 18, 84, 1100 - 84 - 28


def bars(root: Element, span: int = SPAN) -> dict[str, list[tuple[int, int]]]:
    """Return start and end of all bars in ticks, by the names of their rows, from the top."""
    found: dict[str, list[tuple[int, int]]] = {}
    heights = []
    for group in root.iter("g"):
        if group.get("class", "").startswith("row"):
            rects = list(group.iter("rect"))
            heights.append(float(next(group.iter("text")).get("y", "")))
            lefts = [float(rect.get("x", "")) - LEFT for rect in rects]
            widths = [float(rect.get("width", "")) for rect in rects]
            times = [
                (round(left / WIDTH * span), round((left + width) / WIDTH * span))
                for left, width in zip(lefts, widths, strict=True)
            ]
            found[group.get("class", "")] = sorted(times)
    assert len(set(heights)) == len(heights)
    return found


def test_planned_and_measured_are_one_above_the_other() -> None:
    root = training_svg(made())
    # Device: planned, measured with a longer wait; link likewise. Times are in nanoseconds.
    assert bars(root) == {
        "row device planned": [(0, 4), (4, 9), (9, 11), (11, 15)],
        "row device measured": [(0, 4), (4, 9), (9, 14), (14, 18)],
        "row link planned": [(4, 6), (9, 11)],
        "row link measured": [(4, 7), (9, 14)],
    }
    texts = {text.text for text in root.iter("text")}
    assert {"F:a", "F:b", "B:b", "waits", "device", "link", "measured"} <= texts
    titles = {title.text for title in root.iter("title")}
    assert {"planned: F:a: 0 ns to 4 ns", "measured: waits: 9 ns to 14 ns"} <= titles
    assert len(bars(training_svg(made(duplex=True)))) == 6


def test_memory_is_drawn_over_each_other_with_the_limit() -> None:
    record = made()

    def curves(record: TrainingRecord) -> dict[str, str]:
        (group,) = (g for g in training_svg(record).iter("g") if g.get("class") == "memory")
        lines = ((path.findtext("title"), path.get("d", "")) for path in group)
        return {name: d for name, d in lines if name}

    found = curves(record)
    assert list(found) == ["planned", "measured", "limit 12 B"]
    at_limit = float(found["limit 12 B"].split(",")[1].split()[0])
    for name, drawn in (("planned", record.planned), ("measured", record.measured)):
        assert drawn is not None
        corners = [tuple(map(float, pair.split(","))) for pair in found[name][1:].split("L")]
        # The most bytes, 12, reach the limit, and no corner is above it.
        assert drawn.peak == 12
        assert min(y for _, y in corners) == at_limit
        end = max(time for time, _ in drawn.live())
        assert max(x for x, _ in corners) == pytest.approx(LEFT + end / SPAN * WIDTH, abs=0.01)
    alone = made(measured=course(counted=False))
    assert list(curves(alone)) == ["planned", "limit 12 B"]


def test_steps_of_very_different_length_are_drawn_alike_and_it_is_said() -> None:
    slow = Course(Schedule([0, 40, 110], [40, 90, 150], [Transfer(OUT, 0, 40, 60)]))
    record = made(measured=slow, steps=(StepNumbers(150),), shown=0)
    found = bars(training_svg(record), 150)
    same = [(0, 40), (40, 90), (90, 110), (110, 150)]
    assert found["row device planned"] == found["row device measured"] == same
    said = "planned 15 ns (drawn 10 times as long), measured 150 ns on a device"
    assert said_of_times(record) == said
    assert said_of_times(made()) == "planned 15 ns, measured 18 ns (+20.00 %) on a device"
    assert said_of_times(made(measured=None, shown=None)) == "planned 15 ns, not measured"


def test_a_picture_is_the_same_every_time_or_not_there(tmp_path: Path) -> None:
    record = made(name="<$x$ & \x00")
    with pytest.raises(InputError, match=r"must end in \.png or \.svg"):
        save_training(record, tmp_path / "a.pdf")
    assert list(tmp_path.iterdir()) == []
    for name in ("a.svg", "b.svg"):
        save_training(record, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_names_tell_what_runs_in_which_pass_and_again() -> None:
    found = looks_by_name(("F:a", "F:b", "F:a (run 2)", "B:b", "F:b (run 2)", "B:a"))
    assert found == ["forward", "forward", "again", "backward", "again", "backward"]
    assert set(found) <= set(LOOKS)


def test_a_trace_by_hand() -> None:
    measured = course(Transfer(OUT, 0, 4, 7), Transfer(BACK, -1, 9, 14), late=3)
    trace = trace_of(made(measured=measured))
    events = trace["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {names[pid, 1] for pid in (1, 2)} == {"compute"}
    assert (names[2, 2], names[2, 3]) == ("to host", "to device")
    slices = [
        (names[e["pid"], e["tid"]], e["name"], e["ts"], e["dur"])
        for e in events
        if e["ph"] == "X" and e["pid"] == 2
    ]
    assert slices == [
        ("compute", "F:a", 0, 0.004),
        ("compute", "F:b", 0.004, 0.005),
        ("compute", "stall", 0.009, 0.005),
        ("compute", "B:b", 0.014, 0.004),
        ("to host", "x0", 0.004, 0.003),
        ("to device", "late", 0.009, 0.005),
    ]
    assert trace["otherData"]["error: late_bytes"] == 3
    assert {e["pid"] for e in trace_of(made(measured=None, shown=None))["traceEvents"]} == {1}
