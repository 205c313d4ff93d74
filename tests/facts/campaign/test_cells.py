"""Which computations a grid consists of, and what makes two of them the same."""

import json
from dataclasses import replace

import pytest

from offcert.campaign import cells
from offcert.campaign.cells import Cell, CellSettings, Point, grid
from offcert.campaign.run import execute
from offcert.campaign.selection import Subject
from offcert.certification.methods import METHODS, solve
from offcert.core.errors import InputError, MethodError
from offcert.instances.cnn import cnn_chain
from offcert.instances.library import default_library
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.problem import Recompute

PROBLEM = cnn_chain(8, 0)


def keys(*methods: str, **settings: float) -> set[str]:
    return {cell.key for cell in grid([PROBLEM], methods, None, CellSettings(**settings))}  # type: ignore[arg-type]


def test_every_problem_limit_and_method_once() -> None:
    cells = grid([PROBLEM, cnn_chain(8, 2)], ["greedy", "certify"], ["0%", "50%", 4 * 10**9])
    assert len(cells) == len({cell.key for cell in cells}) == 2 * 3 * 2
    assert {cell.point.problem.platform.memory for cell in cells[:6]} == {
        PROBLEM.trace.least_memory,
        (PROBLEM.trace.least_memory + PROBLEM.trace.peak_memory) // 2,
        4 * 10**9,
    }
    assert all(cell.point.digest == problem_digest(cell.point.problem) for cell in cells)


def test_limits_that_are_one_number_of_bytes_are_one_cell() -> None:
    least = PROBLEM.trace.least_memory
    assert len(grid([PROBLEM], ["greedy"], ["0%", least, "0.000001%"])) == 1


def test_only_settings_that_a_method_reads_change_its_key() -> None:
    assert keys("greedy") == keys("greedy", time_limit=1.0, seed=3, workers=4, target_gap=0.1)
    assert keys("autoswap") == keys("autoswap", time_limit=1.0)
    assert keys("autoswap") != keys("autoswap", seed=1)
    for method in ("certify", "interval-dives"):
        changed = [keys(method, **{name: 0.5}) for name in ("time_limit", "target_gap")]
        changed += [keys(method, **{name: 7}) for name in ("seed", "workers")]
        assert len({frozenset(found) for found in (keys(method), *changed)}) == 5


def test_options_are_part_of_the_method_and_written_in_one_way() -> None:
    texts = ("dynprog:slots=500", "dynprog", "dynprog:slots=2000", "dynprog: slots = 2000")
    cells = grid([PROBLEM], texts)
    assert [cell.method for cell in cells] == ["dynprog", "dynprog:slots=2000"]
    assert len({cell.key for cell in cells}) == 2
    assert all(cell.batchable for cell in cells)
    (cell,) = grid([PROBLEM], ["autoswap:trials=5"], None, CellSettings(seed=3))
    assert cell.settings.read_by(cell.method) == {"seed": 3}
    assert not cell.batchable


def test_a_cell_with_options_does_what_solve_does() -> None:
    problem = PROBLEM.with_memory(PROBLEM.trace.least_memory)
    (cell,) = grid([problem], ["vdnn:variants=half"])
    facts, _ = execute(cell)
    assert facts["makespan"] == solve(problem, "vdnn:variants=half").result.objective
    assert cell.row(facts)["method"] == "vdnn:variants=half"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("certify:slots=2", 'method certify has no options, so not "certify:slots=2"'),
        ("dynprog:slot=2", 'method dynprog has no option "slot", but slots, max_states'),
        ("gredy:x=1", "methods must be of certify, bounds, .*gredy"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(method: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        grid([PROBLEM], ["greedy", method])


def test_problem_method_and_version_change_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = grid([PROBLEM], ["greedy"], ["10%"])[0]
    others = [
        *grid([PROBLEM], ["greedy"], ["11%"]),
        *grid([PROBLEM], ["vdnn"], ["10%"]),
        *grid([cnn_chain(8, 1)], ["greedy"], ["10%"]),
    ]
    monkeypatch.setattr(cells, "__version__", "7.0")
    newer = Cell(cell.point, cell.method)
    assert newer.row({})["version"] == "7.0"
    assert len({cell.key, newer.key, *(other.key for other in others)}) == 5


def test_a_rows_facts_about_the_problem() -> None:
    family = default_library().family("resnet50-224-b32")
    entry = family.entries[-1]
    subject = Subject(family.name, family.problem, {entry.problem.platform.memory: entry.problem})
    [cell] = grid([subject], ["certify"], None, CellSettings(time_limit=3.0, seed=2))
    row = cell.row({"status": "UNKNOWN", "seconds": 0.5})
    trace = family.problem.trace
    assert row["problem"] == "resnet50-224-b32"
    assert row["digest"] == entry.digest
    assert (row["network"], row["image"], row["batch"]) == ("resnet50", 224, 32)
    assert row["minimum_memory"] == trace.least_memory < row["memory"]
    assert (row["peak_memory"], row["compute_time"]) == (trace.peak_memory, trace.compute_time)
    assert json.loads(row["settings"]) == {
        "seed": 2,
        "target_gap": 0.0,
        "time_limit": 3.0,
        "workers": 1,
    }
    assert row["seconds"] == 0.5


def test_no_image_and_batch_where_the_source_says_none() -> None:
    family = default_library().family("gpt-1024-b8")
    row = Cell(Point("gpt", family.problem, ""), "greedy").row({})
    assert (row["network"], row["batch"], row["image"]) == ("gpt", 8, None)
    row = Cell(Point("chain", PROBLEM, ""), "greedy").row({})
    assert (row["network"], row["batch"], row["image"]) == (None, None, None)
    assert row["settings"] == "{}"


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(InputError, match=r'greedy.*, not "gredy"'):
        grid([PROBLEM], ["greedy", "gredy"])


@pytest.mark.parametrize("method", [name for name in METHODS if not METHODS[name].reads])
def test_what_reads_no_settings_finds_the_same_with_any(method: str) -> None:
    for seed in range(3):
        problem = cnn_chain(8, seed)
        if Recompute.NONE not in METHODS[method].recompute:
            problem = replace(problem, recompute=Recompute.ANY, offload=False)
        limited = problem.with_memory((problem.trace.least_memory + problem.trace.peak_memory) // 2)
        found = []
        for settings in ({}, {"time_limit": 1e-9, "seed": 9, "workers": 1, "target_gap": 0.5}):
            try:
                result = solve(limited, method, **settings).result  # type: ignore[arg-type]
                found.append((result.objective, result.lower_bound))
            except MethodError as error:
                found.append((str(error), 0))
        assert found[0] == found[1]
