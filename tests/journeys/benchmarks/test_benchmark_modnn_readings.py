"""Readings of moDNN's Eq. 8: the first is the library's, and few agree with what is printed."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from offcert.core.trace import Operation, Tensor, Trace
from offcert_lab.modnn.networks import modnn_network
from offcert_lab.modnn.tasks import step_round
from papers.claims.modnn import written
from papers.claims.tolerance import Agreement
from papers.sub_batch import select_sub_batch, window_memory, workspaces

ROOT = Path(__file__).parents[3]


@pytest.fixture(name="readings")
def _readings(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("modnn_readings")


@pytest.mark.parametrize("network", ["vgg16", "resnet34"])
def test_the_first_reading_is_the_library(network: str, readings: ModuleType) -> None:
    selector = readings.Selector(network, 64, readings.READINGS[0])
    for images in (1, 3, 64):
        found = selector.profile(images)
        spaces = workspaces(found)
        assert selector.asks(images, spaces) == window_memory(found.trace, spaces)
    batch = readings.NETWORKS[network].batch
    for memory in (2, 1):
        size = select_sub_batch(selector.profile, batch, memory * 2**30).size
        assert selector.size(memory) == size


def test_what_readings_count_by_hand(readings: ModuleType) -> None:
    # x is written, read at once, and read again after the window; y is used up within it.
    tensors = [Tensor("x", 4, (0, 1, 4)), Tensor("y", 2, (1, 2)), Tensor("z", 1, (2, 3))]
    names = ("FP a", "FP b", "BP1 b", "BP2 b", "BP1 a")
    trace = Trace([Operation(name, 1) for name in names], tensors)
    eq8 = readings.eq8
    using = eq8.users(trace)
    found = {data: eq8.data_memory(using, range(4), data) for data in eq8.DATA}
    # Room: x and y, then x, y and z. Each: x once as it is both written and read, y and z likewise.
    assert found == {eq8.ROOM: 7, eq8.ONCE: 7, eq8.EACH: 7}
    found = {data: eq8.data_memory(using, range(1, 4), data) for data in eq8.DATA}
    assert found == {eq8.ROOM: 7, eq8.ONCE: 7, eq8.EACH: 7}
    later = Trace(trace.operations, [*tensors, Tensor("u", 8, (3, 4))])
    using = eq8.users(later)
    # u is made when y is gone; x is read twice.
    found = {data: eq8.data_memory(using, range(1, 5), data) for data in eq8.DATA}
    assert found == {eq8.ROOM: 13, eq8.ONCE: 15, eq8.EACH: 19}
    half = replace(readings.Reading(), alpha=Fraction(1, 2))
    widths = {
        count: [len(window) for window in eq8.windows(later, replace(half, count=count))]
        for count in eq8.COUNTS
    }
    # Of five tasks and an update; of five; of four, one of which is two; of two layers.
    assert widths == {
        eq8.UPDATES: [3, 3, 3],
        eq8.DRAWN: [3, 3, 3],
        eq8.PAIRS: [2, 3, 3],
        eq8.LAYERS: [1, 1, 1, 1, 1],
    }


def test_only_readings_in_which_room_is_used_again_agree_with_the_paper(
    readings: ModuleType,
) -> None:
    rows = {(row["data"], row["tasks"], row["kept"]): row for row in readings.search(224)}
    eq8 = readings.eq8
    assert len(rows) == 24
    # Whatever the unit, the rounding and the workspaces.
    best = [key for key, row in rows.items() if 10 * row["agree"] >= 9 * row["of"]]
    assert best == [(eq8.ROOM, eq8.UPDATES, True), (eq8.ROOM, eq8.DRAWN, True)]
    # What the library did at first agrees in no variant.
    assert rows[eq8.ONCE, eq8.DRAWN, False]["agree"] == 0
    assert rows[eq8.ONCE, eq8.DRAWN, True]["agree"] == 0


def test_numbers_are_those_of_the_networks(readings: ModuleType) -> None:
    numbers = readings.Numbers(readings.Reading(), 32)
    printed = {each.label: each for each in readings.PRINTED}
    one = step_round(modnn_network("vgg16", 32), 1)
    assert numbers.least("vgg16") == one.chosen(one.menu.leanest()).least_memory
    (each,) = printed["ideal by least memory"].each
    found = [each(numbers, name) for name in readings.NETWORKS]
    assert found[0] == Fraction(numbers.ideal("vgg16"), numbers.least("vgg16"))
    text, _ = printed["ideal by least memory"].figure(numbers)
    assert text == written(sum(found) / 6, "times")
    # Small images need little: the whole batch is kept at 6, 5 and 4 GB, against the paper.
    (kept,) = [figure for _, label, _, figure in readings.STATEMENTS if "at 6, 5, 4" in label]
    assert kept(numbers) == ("256 256 256", Agreement.NOT)


def test_tables_mark_what_agrees(readings: ModuleType) -> None:
    count = len(readings.STATEMENTS) + len(readings.PRINTED)
    figures = [{"text": "7", "agreement": str(how)} for how in Agreement] * count
    rows = [{"reading": "one", "figures": figures[:count]}]
    lines = list(readings.table(rows))
    assert lines[:2] == ["1. one", ""]
    assert [line.rpartition("| ")[2] for line in lines[4:7]] == ["**7** |", "7 |", "~~7~~ |"]
    assert lines[-3:] == [
        f"| | {how} | | {figures[:count].count(f)} |"
        for how, f in zip(Agreement, figures, strict=False)
    ]


def test_the_command_prints_both_tables(
    readings: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = len(readings.STATEMENTS) + len(readings.PRINTED)

    def measure(reading: Any, image: int) -> dict[str, Any]:
        figures = [{"text": f"{image}", "agreement": "confirmed"}] * count
        return {"reading": reading.name, "figures": figures, "sub_batches": {}}

    monkeypatch.setattr(readings, "measure", measure)
    output = tmp_path / "readings.json"
    readings.main(["--image", "32", "--readings", "1", "12", "--output", str(output)])
    found = json.loads(output.read_text())
    assert [row["reading"] for row in found["readings"]] == ["as here", "GB are 10⁹ bytes"]
    # With small images there is room for everything at 4 GB, in every reading.
    assert [row["agree"] for row in found["search"]] == [0] * 24
    text = capsys.readouterr().out
    assert "| Fig. 11 | bytes of vDNN by moDNN's | 378× | **32** | **32** |" in text
    assert "1. as here\n2. GB are 10⁹ bytes\n" in text


def test_sub_batches_for_which_there_is_no_room_have_no_speed_up(readings: ModuleType) -> None:
    numbers = importlib.import_module("modnn_numbers")
    found = [
        numbers.speed_up("resnet34", 32, memory, 64, numbers.NAIVE) for memory in (10**6, 10**10)
    ]
    assert found[0] is None
    assert 0 < found[1] < 4
