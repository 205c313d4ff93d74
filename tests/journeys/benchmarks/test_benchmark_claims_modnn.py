"""What docs/claims.md says about moDNN follows from the figures that are published."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from types import ModuleType

import pytest

from offcert.core.documents import read_json
from offcert.core.errors import InputError
from papers.claims.judge import Outcome
from papers.claims.modnn import HEADING, modnn_section, written
from papers.claims.modnn_cases import CASES
from papers.claims.modnn_claims import Numbers
from papers.claims.modnn_list import NUMBERS
from papers.claims.modnn_rows import GB, ModnnRows, rows_from_json, rows_to_json
from papers.claims.tolerance import Agreement
from papers.sub_batch import select_sub_batch

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
ROWS = rows_from_json(read_json(ROOT / "docs" / "claims-modnn.json"))
BY_KEY = {claim.key: claim for claim in (*NUMBERS, *CASES)}


@pytest.fixture(name="benchmark_module")
def _benchmark_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("claims_modnn")


def test_the_published_section_is_written_again(benchmark_module: ModuleType) -> None:
    certificates = benchmark_module.certificates(ROOT / "docs")
    section = modnn_section(ROWS, benchmark_module.FIGURE, certificates)
    sections = importlib.import_module("claims_sections")
    assert sections.section_of(PAGE, HEADING) == section
    for key in BY_KEY:
        assert f"### {key}\n" in section
    assert len(BY_KEY) == len(NUMBERS) + len(CASES)


def test_published_figures_are_possible() -> None:
    for row in ROWS.times:
        names = ("modnn", "plus", "dynamic", "whole", "vdnn")
        times = [getattr(row, f"{name}_time") for name in names]
        assert row.ideal_time <= row.bound <= row.best_time
        assert row.best_time <= min(time for time in times if time is not None)
        if row.whole_bound is not None:
            wholes = [time for time in (row.whole_time, row.vdnn_time) if time is not None]
            assert row.bound <= row.whole_bound <= min(wholes, default=row.whole_bound)
        # More memory is never a disadvantage.
        for other in ROWS.times:
            if other.network == row.network and other.memory > row.memory:
                assert other.bound <= row.best_time
                assert other.modnn_size >= row.modnn_size
    for row in ROWS.memory:
        assert row.least_weights < row.least < row.sub_batches < row.algorithms < row.ideal
        assert row.least < row.offloading < row.live < row.ideal
        assert row.least < row.whole_least <= row.offloading
        assert row.whole_least <= row.vdnn_least < row.live
        assert row.ideal_time <= row.offloading_bound <= row.offloading_best <= row.offloading_time
        # What leaves the least room takes longest; both bounds are below the paper's way.
        for suffix in ("", "_weights"):
            best, bound = (getattr(row, f"least_{what}{suffix}") for what in ("time", "bound"))
            assert row.ideal_time < bound <= best <= getattr(row, f"least_modnn{suffix}")
    cores = {row.network: row for row in ROWS.case("3 GB, 20 cores")}
    for each in ROWS.case("3 GB"):
        assert cores[each.network].lower_bound <= each.makespan


def test_the_best_that_is_known_is_no_worse_than_any_method(benchmark_module: ModuleType) -> None:
    found = {"modnn_time": 7, "modnn_size": 4, "plus_time": 6, "plus_size": 2}
    row = {**found, "dynamic_time": None, "dynamic_size": 1, "whole_time": 9, "vdnn_time": None}
    best = [benchmark_module.best_known(row, 8, (ticks, 1)) for ticks in (5, 6, 7)]
    assert [(each["best_time"], each["best_size"]) for each in best] == [(5, 1), (6, 1), (6, 2)]
    row["whole_time"] = 5
    assert benchmark_module.best_known(row, 8, (6, 1)) == {"best_time": 5, "best_size": 8}


@pytest.mark.parametrize("network", ["vgg16", "resnet34"])
def test_published_figures_are_those_of_the_model(
    network: str, benchmark_module: ModuleType
) -> None:
    (published,) = [row for row in ROWS.memory if row.network == network]
    (row,) = [row for row in ROWS.at(6 * GB) if row.network == network]
    case = benchmark_module.Case(network, row.memory, False, 224)
    assert row.ideal_time == published.ideal_time == case.ideal
    methods = {
        "modnn": benchmark_module._modnn,
        "plus": benchmark_module._vdnn,
        "dynamic": benchmark_module._dynamic,
    }
    for name, method in methods.items():
        size = getattr(row, f"{name}_size")
        found = benchmark_module.measured(case, size, name, method)
        assert found == {key: getattr(row, key) for key in found}
    whole, one = case.profile(case.batch), case.profile(1)
    fastest = whole.chosen(whole.menu.fastest())
    assert benchmark_module.placed_apart(fastest) == published.ideal
    assert fastest.peak_memory == published.live
    assert benchmark_module.kept(case, fastest, 24 * GB) is published.kept_24
    assert one.chosen(one.menu.leanest()).least_memory == published.least
    assert whole.chosen(whole.menu.leanest()).least_memory == published.whole_least
    assert select_sub_batch(case.profile, case.batch, 6 * GB).size == row.modnn_size


@pytest.mark.parametrize(
    ("larger", "certified", "out"),
    [
        (True, (3, 4), False),
        (True, (2, 3), True),
        (False, (5, 6), True),
        (False, (3, 6), False),
    ],
)
def test_what_is_certified_puts_numbers_out_of_reach(
    larger: bool, certified: tuple[int, int], out: bool
) -> None:
    numbers = Numbers({"a": Fraction(3)}, (Fraction(certified[0]), Fraction(certified[1])))
    claim = replace(NUMBERS[0], paper=Fraction(4), numbers=lambda _: numbers, larger=larger)
    assert claim.out_of_reach(ROWS) is out
    uncertified = replace(claim, numbers=lambda _: Numbers({"a": Fraction(3)}))
    assert not uncertified.out_of_reach(ROWS)


def test_factors_are_written_and_rounded() -> None:
    assert written(Fraction(3716, 1000), "times", floor) == "3.71×"
    assert written(Fraction(3716, 1000), "times", ceil) == "3.72×"
    assert written(Fraction(12305, 10), "times") == "1230×"
    assert written(Fraction(1031, 1000), "more") == "3.1 %"
    assert written(Fraction(20, 17), "less") == "15 %"


def cases(key: str, rows: ModnnRows) -> Iterator[tuple[str, Outcome]]:
    for claim in CASES:
        if claim.key == key:
            for case in claim.cases(rows):
                yield case.label, case.outcome


@pytest.mark.parametrize(
    ("host", "naive", "expected"),
    [
        ((90, 80), (100, 95), Outcome.HOLDS),
        ((95, 80), (100, 95), Outcome.OPEN),
        ((110, 99), (100, 95), Outcome.OPEN),
        ((110, 100), (100, 95), Outcome.FAILS),
    ],
)
def test_the_host_is_better_if_that_is_proved(
    host: tuple[int, int], naive: tuple[int, int], expected: Outcome
) -> None:
    devices = tuple(
        replace(row, makespan=pair[0], lower_bound=pair[1])
        for name, pair in (("6 GB", host), ("6 GB, naive", naive))
        for row in ROWS.case(name)[:1]
    )
    found = dict(cases("modnn-host-better", replace(ROWS, devices=devices)))
    assert list(found.values()) == [expected]


def test_cases_follow_from_the_rows() -> None:
    row = replace(ROWS.memory[0], ideal=13 * GB, live=13 * GB, kept_12=False, least_modnn=None)
    rows = replace(ROWS, memory=(row,))
    assert dict(cases("modnn-too-large", rows)) == {"vgg16 in 12 GB": Outcome.HOLDS}
    free = replace(rows, memory=(replace(row, live=11 * GB),))
    assert dict(cases("modnn-too-large", free)) == {"vgg16 in 12 GB": Outcome.OPEN}
    kept = replace(rows, memory=(replace(row, live=11 * GB, kept_12=True),))
    assert dict(cases("modnn-too-large", kept)) == {"vgg16 in 12 GB": Outcome.FAILS}
    assert dict(cases("modnn-any-budget", rows)) == {
        "vgg16": Outcome.FAILS,
        "vgg16, weights leave": Outcome.HOLDS,
    }
    time = replace(ROWS.at(12 * GB)[0], modnn_time=5, plus_time=5)
    for plus, expected in ((5, Outcome.FAILS), (6, Outcome.HOLDS)):
        rows = replace(ROWS, times=(replace(time, plus_time=plus),))
        assert [each for _, each in cases("modnn-always-better", rows)] == [expected]


def test_bytes_that_everybody_loads_are_moved() -> None:
    (claim,) = [claim for claim in NUMBERS if claim.key == "modnn-transfers"]
    memory = replace(ROWS.memory[0], loaded=10)
    time = replace(ROWS.at(12 * GB)[0], vdnn_moved=3770, modnn_moved=0)
    rows = replace(ROWS, memory=(memory,), times=(time,))
    assert claim.numbers(rows).ours == {"vgg16": 378}
    assert claim.agreement(rows) is Agreement.CONFIRMED
    # A network on which something leaves counts for as much as the others.
    more = replace(rows, times=(replace(time, modnn_moved=368),))
    assert claim.numbers(more).ours == {"vgg16": 10}
    assert claim.agreement(more) is Agreement.NOT
    assert claim.numbers(replace(rows, times=(replace(time, vdnn_moved=None),))).ours == {}


def test_sub_batches_of_one_network_are_printed() -> None:
    (time,) = [row for row in ROWS.at(12 * GB) if row.network == "resnet34"]
    sizes = {6: 256, 5: 192, 4: 256, 3: 128}
    times = [replace(time, memory=gb * GB, modnn_size=size) for gb, size in sizes.items()]
    rows = replace(ROWS, times=tuple(times))
    fails, holds = Outcome.FAILS, Outcome.HOLDS
    found = dict(cases("modnn-whole-batch", rows))
    assert found == {"6 GB": holds, "5 GB": fails, "4 GB": fails, "3 GB": holds}
    still = replace(
        rows, times=tuple(replace(row, modnn_moved=row.memory - 5 * GB) for row in times)
    )
    assert dict(cases("modnn-more-moved", still)) == {"6 GB": holds, "5 GB": fails}


def test_memory_is_compared_with_vdnn_and_between_networks_of_a_kind() -> None:
    small, large = ROWS.memory[:2]
    for least, expected in ((9, Outcome.HOLDS), (10, Outcome.FAILS)):
        row = replace(small, least=least, vdnn_least=100)
        rows = replace(ROWS, memory=(row,))
        assert [each for _, each in cases("modnn-less-than-vdnn", rows)] == [expected]
    for ideal, expected in ((31, Outcome.HOLDS), (30, Outcome.FAILS)):
        pair = (replace(small, ideal=30, least=2), replace(large, ideal=ideal, least=2))
        rows = replace(ROWS, memory=pair)
        found = dict(cases("modnn-scale", rows))
        assert found["vgg16 and vgg19"] is expected
        assert len(found) == 2


def test_less_memory_is_slower_if_no_time_is_shorter() -> None:
    time = ROWS.at(12 * GB)[0]
    for less, expected in ((100, Outcome.HOLDS), (99, Outcome.FAILS)):
        pair = (replace(time, modnn_time=100), replace(time, memory=GB, modnn_time=less))
        rows = replace(ROWS, times=pair)
        assert [each for _, each in cases("modnn-slower-with-less", rows)] == [expected]


@pytest.mark.parametrize(
    ("eight", "expected"),
    [
        # A network takes 100 alone and 30 to 32 on four: at most 100/(4·30) of what is possible.
        ((16, 17), Outcome.OPEN),
        ((17, 18), Outcome.HOLDS),
        ((14, 15), Outcome.FAILS),
    ],
)
def test_more_devices_do_poorer_if_that_is_proved(
    eight: tuple[int, int], expected: Outcome
) -> None:
    four = replace(ROWS.case("12 GB")[0], one_gpu=100, lower_bound=30, makespan=32)
    more = replace(four, case="8 GPUs, 12 GB", devices=8, lower_bound=eight[0], makespan=eight[1])
    rows = replace(ROWS, devices=(four, more))
    assert list(dict(cases("modnn-more-gpus", rows)).values()) == [expected]


def test_rows_are_read_as_they_are_written() -> None:
    document = json.loads(json.dumps(rows_to_json(ROWS)))
    assert rows_from_json(document) == ROWS
    document["times"][0]["bound"] = document["times"][0]["best_time"] + 1
    with pytest.raises(InputError, match="below its bound"):
        rows_from_json(document)
    del document["times"][0]["bound"]
    with pytest.raises(InputError, match="bound"):
        rows_from_json(document)


def test_a_section_is_measured(tmp_path: Path, benchmark_module: ModuleType) -> None:
    devices = [
        {**row, "valid": True}
        for row in rows_to_json(ROWS)["devices"]
        if row["network"] == "resnet34"
    ]
    (tmp_path / "devices.json").write_text(json.dumps({"rows": devices}))
    (tmp_path / "claims.md").write_text("# Claims\n\nText\n\n## Last\n\nMore\n")
    arguments = ["measure", "--networks", "resnet34", "--memory", "12", "--image", "32"]
    arguments += ["--time-limit", "0.3", "--docs", str(tmp_path)]
    benchmark_module.main([*arguments, "--devices", str(tmp_path / "devices.json")])
    found = rows_from_json(read_json(tmp_path / "claims-modnn.json"))
    assert found.networks == ("resnet34",)
    assert [row.memory for row in found.times] == [12 * GB]
    assert found.memory[0].below_infeasible
    assert found.memory[0].kept_12
    assert (tmp_path / "claims-modnn.png").stat().st_size > 10_000
    page = (tmp_path / "claims.md").read_text()
    assert (
        page == f"# Claims\n\nText\n\n## Last\n\nMore\n\n{modnn_section(found, 'claims-modnn.png')}"
    )
    devices[0]["valid"] = False
    (tmp_path / "devices.json").write_text(json.dumps({"rows": devices}))
    with pytest.raises(SystemExit, match="not valid"):
        benchmark_module.devices_rows(tmp_path / "devices.json")
