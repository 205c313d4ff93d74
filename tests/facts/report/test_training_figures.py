"""Pictures of training records, and their traces by hand."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from offcert.core.errors import InputError
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.training_record import Course, StepNumbers
from offcert.report.bars import LOOKS
from offcert.report.training_figure import (
    looks_by_name,
    plot_training_memory,
    plot_training_rows,
    said_of_times,
    save_training,
)
from offcert.report.training_trace import trace_of
from support.problems.training_records import BACK, OUT, course, made


def bars(ax: object) -> dict[float, list[tuple[float, float]]]:
    """Return start and end of all bars, by the heights of their rows."""
    found: dict[float, list[tuple[float, float]]] = {}
    for collection in ax.collections:  # type: ignore[attr-defined]
        for path in collection.get_paths():
            box = path.get_extents()
            found.setdefault(round(box.y0, 2), []).append((round(box.x0, 2), round(box.x1, 2)))
    return {height: sorted(times) for height, times in found.items()}


def test_planned_and_measured_are_one_above_the_other() -> None:
    ax = plot_training_rows(made(), Figure().subplots())
    # Device: planned, measured with a longer wait; link likewise. Times are in nanoseconds.
    assert bars(ax) == {
        3.5: [(0, 4), (4, 9), (9, 11), (11, 15)],
        2.5: [(0, 4), (4, 9), (9, 14), (14, 18)],
        1.1: [(4, 6), (9, 11)],
        0.1: [(4, 7), (9, 14)],
    }
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert labels == ["device planned", "device measured", "link planned", "link measured"]
    assert {text.get_text() for text in ax.texts} == {"F:a", "F:b", "B:b"}
    both = plot_training_rows(made(duplex=True), Figure().subplots())
    assert len(bars(both)) == 6


def test_memory_is_drawn_over_each_other_with_the_limit() -> None:
    record = made()
    ax = plot_training_memory(record, Figure().subplots())
    planned, measured, limit = ax.lines
    for line, drawn in ((planned, record.planned), (measured, record.measured)):
        assert drawn is not None
        points = zip(line.get_xdata(), line.get_ydata(), strict=True)
        assert [(x, y) for x, y in points] == list(drawn.live())
    assert set(limit.get_ydata()) == {12}
    alone = plot_training_memory(made(measured=course(counted=False)), Figure().subplots())
    assert [line.get_label() for line in alone.lines] == ["planned", "limit"]


def test_steps_of_very_different_length_are_drawn_alike_and_it_is_said() -> None:
    slow = Course(Schedule([0, 40, 110], [40, 90, 150], [Transfer(OUT, 0, 40, 60)]))
    record = made(measured=slow, steps=(StepNumbers(150),), shown=0)
    ax = plot_training_rows(record, Figure().subplots())
    found = bars(ax)
    assert found[3.5] == found[2.5] == [(0, 40), (40, 90), (90, 110), (110, 150)]
    said = "planned 15 ns (drawn 10 times as long), measured 150 ns on a device"
    assert said_of_times(record) == said
    assert said_of_times(made()) == "planned 15 ns, measured 18 ns (+20.00 %) on a device"
    assert said_of_times(made(measured=None, shown=None)) == "planned 15 ns, not measured"


@pytest.mark.slow
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
