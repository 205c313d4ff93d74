"""Models in files: other solvers read them and agree with known optima; solutions come back."""

import csv
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import offcert
from offcert.certification.exchange import FORMATS, RETENTION, export, import_schedule
from offcert.cli import export as command
from offcert.cli import main
from offcert.formulations.exported.cells import Cells, Keeps
from offcert.formulations.exported.integer_program import read_solution
from offcert.formulations.exported.interval import Instance
from offcert.instances.cnn import UniformChains
from offcert.instances.library import Library
from support.files_and_solvers import cbc, highs
from support.problems.running_example import EXAMPLE

DUPLEX = replace(EXAMPLE, platform=offcert.Platform(6, 1, link="duplex"))
TWICE = offcert.Problem(
    "twice",
    offcert.Trace(
        [offcert.Operation("o", duration) for duration in (2, 0, 3, 4, 1, 2)],
        [offcert.Tensor("a", 3, (0, 2, 5)), offcert.Tensor("b", 2, (1, 4))],
    ),
    offcert.Platform(5, Fraction(1, 2)),
)


def optimum(problem: offcert.Problem) -> int:
    certificate = offcert.certify(problem, time_limit=10)
    assert certificate.status == offcert.SolveStatus.OPTIMAL
    assert certificate.result.objective is not None
    return certificate.result.objective


@pytest.mark.parametrize("form", ["mps", "lp"])
@pytest.mark.parametrize("solver", [highs, cbc])
@pytest.mark.parametrize(("grid", "least"), [(1, 13), (2, 11), (3, 10)])
def test_the_example_of_the_theory_from_files(
    tmp_path: Path, form: str, solver: Any, grid: int, least: int
) -> None:
    """13 exactly, and the bounds that docs/theory/models.md works out on paper for coarse cells."""
    made = export(EXAMPLE, form, grid=grid)
    (model,) = made.write(tmp_path / f"model.{form}")
    solution = tmp_path / "model.sol"
    assert round(solver(model, solution)) * grid + 1 == least
    found = import_schedule(EXAMPLE, solution)
    if grid == 1:
        assert found.certificate is not None
        assert found.certificate.result.objective == 13


@pytest.mark.parametrize(
    ("solver", "name"),
    [
        (highs, "cnn-8-0-m0"),
        (highs, "three-partition-2-100-no"),
        (highs, "duplex"),
        (highs, "twice"),
        (cbc, "cnn-8-0-m0"),
        (cbc, "duplex"),
        (cbc, "twice"),
    ],
)
def test_known_optima(tmp_path: Path, solver: Any, name: str) -> None:
    own = {"duplex": DUPLEX, "twice": TWICE}
    library = Library()
    if name in own:
        problem, best, grid = own[name], optimum(own[name]), 1
    else:
        problem, record = library.load(name), library.record(name)
        assert record.value == record.proved_bound
        assert record.value is not None
        best = record.value
        grid = None if name.startswith("three") else max(1, best // 25)
    made = export(problem, "mps", grid=grid)
    (model,) = made.write(tmp_path / "model.mps")
    value = round(solver(model, tmp_path / "model.sol"))
    value = value * made.cells.grid + problem.trace.durations[-1]
    found = import_schedule(problem, tmp_path / "model.sol")
    if made.exact:
        assert value == best
        assert found.certificate is not None
        assert found.certificate.result.objective == best
    else:
        assert 0.7 * best < value <= best


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_rounded_down_bounds_and_rounded_up_is_legal(tmp_path: Path, seed: int) -> None:
    base = UniformChains(stages=2).problem(seed)
    problem = base.with_memory("20%")
    best = optimum(problem)
    for grid, keep in itertools.product((1, 3, 7), Keeps):
        made = export(problem, "lp", grid=grid, keeps=keep)
        (model,) = made.write(tmp_path / "model.lp")
        value = round(highs(model, tmp_path / "model.sol")) * grid + problem.trace.durations[-1]
        # Cells of one tick round nothing, either way.
        assert grid > 1 or value == best
        if keep is Keeps.BOUND:
            assert value <= best
            continue
        found = import_schedule(problem, tmp_path / "model.sol")
        assert found.certificate is not None
        assert found.certificate.result.objective is not None
        # What is rounded up is legal as it is; followed anew, it can only be shorter.
        assert best <= found.certificate.result.objective <= value + grid


def opb_least(text: str) -> int:
    """Return the least objective over all assignments that satisfy a pseudo-Boolean problem."""
    lines = [line for line in text.splitlines() if not line.startswith("*")]
    objective, *rows = [
        [(int(c), int(x)) for c, x in re.findall(r"([+-]\d+) x(\d+)", line)] for line in lines
    ]
    limits = [int(re.findall(r">= (-?\d+)", line)[0]) for line in lines[1:]]
    count = max(x for row in rows for _, x in row)
    best = None
    for values in itertools.product((0, 1), repeat=count):
        if all(
            sum(c * values[x - 1] for c, x in row) >= limit
            for row, limit in zip(rows, limits, strict=True)
        ):
            value = sum(c * values[x - 1] for c, x in objective)
            best = value if best is None else min(best, value)
    assert best is not None
    return best


def test_pseudo_boolean_by_brute_force() -> None:
    """Cells of 4 ticks leave so few variables that all assignments are tried."""
    made = export(EXAMPLE, "opb", grid=4)
    text = made.files[".opb"]
    assert made.variables is not None
    assert made.variables < 22
    assert re.match(rf"\* #variable= {made.variables} #constraint= \d+\n", text)
    count = sum(1 for line in text.splitlines() if line.endswith(";")) - 1
    assert f"#constraint= {count}\n" in text
    assert opb_least(text) * 4 + 1 == 9


def interval_optimum(numbers: dict[str, Any]) -> int:
    """Return the least start of the last operation by the sentences of the page, by trying all.

    Storage is looked at wherever something takes it: at every start of an operation or a return.
    """
    gaps = list(zip(numbers["tensor"], numbers["before"], numbers["after"], strict=True))
    duration, horizon = numbers["duration"], numbers["horizon"]
    out, back = numbers["out_duration"], numbers["back_duration"]

    def starts(after: int, o: int) -> Iterator[tuple[int, ...]]:
        if o == len(duration):
            yield ()
            return
        for first in range(after, horizon + 1):
            for rest in starts(first + duration[o], o + 1):
                yield (first, *rest)

    def fits(start: tuple[int, ...], times: dict[int, tuple[int, int]]) -> bool:
        ends = [0, *(s + d for s, d in zip(start, duration, strict=True))]
        moments = {*start, *(back_at for _, back_at in times.values()), 0}
        for at in moments:
            o = next((o for o, end in enumerate(ends[1:]) if at < end), None)
            if o is None:
                continue
            idle = at < start[o]
            stored = numbers["held_idle" if idle else "held"][o]
            for g, (tensor, before, after) in enumerate(gaps):
                around = before < o + 1 <= after if idle else before < o + 1 < after
                away = g in times and times[g][0] <= at < times[g][1]
                if around and not away:
                    stored += numbers["size"][tensor - 1]
            if stored > numbers["capacity"]:
                return False
        return True

    best = horizon + 1
    for start in starts(0, 0):
        if start[-1] >= best:
            continue
        ends = [0, *(s + d for s, d in zip(start, duration, strict=True))]
        for chosen in itertools.product((False, True), repeat=len(gaps)):
            evicted = [g for g, yes in enumerate(chosen) if yes]
            if any(gaps[a][0] == gaps[b][0] for a, b in itertools.combinations(evicted, 2)):
                continue
            windows = []
            for g in evicted:
                tensor, before, after = gaps[g]
                written = ends[numbers["writer"][tensor - 1]]
                windows.append(
                    [
                        (z, r)
                        for z in range(written, start[after - 1])
                        for r in range(z + out[tensor - 1], start[after - 1])
                        if r >= ends[before] and r + back[tensor - 1] <= start[after - 1]
                    ]
                )
            for times in itertools.product(*windows):
                moves = [
                    (at, at + length[gaps[g][0] - 1])
                    for g, pair in zip(evicted, times, strict=True)
                    for at, length in zip(pair, (out, back), strict=True)
                ]
                if any(a < d and c < b for (a, b), (c, d) in itertools.combinations(moves, 2)):
                    continue
                released = {
                    g: (max(z + out[gaps[g][0] - 1], ends[gaps[g][1]]), r)
                    for g, (z, r) in zip(evicted, times, strict=True)
                }
                if fits(start, released):
                    best = min(best, start[-1])
    return best


def test_numbers_of_the_interval_model_are_those_of_the_problem() -> None:
    """What the page says of the tables, tried out on all times, has the optimum of the problem."""
    trace = offcert.Trace(
        [offcert.Operation(f"o{o}", 1) for o in range(4)],
        [offcert.Tensor("b", 2, (0, 3)), offcert.Tensor("c", 2, (1, 2))],
    )
    problem = offcert.Problem("small", trace, offcert.Platform(2, 1))
    assert optimum(problem) == 8
    numbers = dict(Instance.of(problem, Cells(1, Keeps.BOUND, 8)).numbers)
    assert interval_optimum(numbers) + numbers["last_ticks"] == 8
    assert numbers["held"] == [2, 2, 2, 2]
    assert numbers["held_idle"] == [0, 0, 2, 0]


def test_a_table_of_minizinc_comes_back(tmp_path: Path) -> None:
    """As MiniZinc prints it: comments, and one solution after the other; here cells of 3 ticks."""
    rows = ["compute,0,0", "compute,1,9", "compute,2,12", "compute,3,15", "compute,4,24"]
    text = "kind,name,start\n" + "\n".join(rows)
    worse = f"% objective 31 ticks\n{text}\noffload,1,3\nprefetch,1,21\n----------\n"
    better = f"% objective 25 ticks\n{text}\noffload,1,3\nprefetch,1,18\n----------\n==========\n"
    path = tmp_path / "schedule.csv"
    path.write_text(worse.replace("compute,4,24", "compute,4,30") + better)
    for decisions, length in ((False, 25), (True, 13)):
        found = import_schedule(EXAMPLE, path, decisions=decisions)
        assert found.certificate is not None
        assert found.certificate.result.objective == length


def test_tables_and_data_say_the_same(tmp_path: Path) -> None:
    made = export(EXAMPLE, "csv", grid=1)
    assert [path.name for path in made.write(tmp_path / "tables")] == [
        "platform.csv",
        "operations.csv",
        "tensors.csv",
        "gaps.csv",
    ]
    with (tmp_path / "tables" / "tensors.csv").open() as file:
        sizes = [row["size"] for row in csv.DictReader(file)]
    assert sizes == ["2", "4", "3"]
    data = export(EXAMPLE, "mzn", grid=1)
    assert "size = [2, 4, 3];" in data.files[".dzn"]
    assert {path.suffix for path in data.write(tmp_path / "model.mzn")} == {".mzn", ".dzn"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"form": "xls"}, "format must be one of mps, lp, opb, mzn, csv"),
        ({"form": "mps", "model": "interval"}, "format mps is for the model time-indexed"),
        ({"form": "mps", "keeps": "both"}, "what stays valid must be bound or schedule"),
        ({"form": "mps", "grid": 0}, "grid must be at least 1"),
        ({"form": "mps", "horizon": 6}, "no schedule fits into the horizon of 6 ticks"),
    ],
)
def test_what_cannot_be_asked_for(change: dict[str, Any], message: str) -> None:
    with pytest.raises(offcert.InputError, match=message):
        export(EXAMPLE, **change)


def test_problems_of_another_kind_are_refused() -> None:
    for field, value, message in (
        ("transfers", "fractional", "for atomic transfers, not fractional ones"),
        ("platform", offcert.Platform(5, 1), "memory must be at least 6"),
    ):
        with pytest.raises(offcert.InputError, match=message):
            export(replace(EXAMPLE, **{field: value}), "mps")  # type: ignore[arg-type]


def test_what_is_no_solution(tmp_path: Path) -> None:
    path = tmp_path / "model.sol"
    path.write_text("x 1\n")
    with pytest.raises(offcert.InputError, match="no variable grid_"):
        import_schedule(EXAMPLE, path)
    # Everything at its latest, and nothing leaves.
    path.write_text("grid_1_bound_13 1\n")
    assert "cannot be followed" in import_schedule(EXAMPLE, path).faults[0]
    cells, values = read_solution("grid_7_schedule_20 1\n 3 op_0_by_4  1 0\nback_2_by_5 1e0")
    assert cells == Cells(7, Keeps.SCHEDULE, 20)
    assert values == {"grid_7_schedule_20": 1.0, "op_0_by_4": 1.0, "back_2_by_5": 1.0}


@pytest.mark.parametrize("style", [0, 1, 3, 4])
def test_solutions_come_back_in_whatever_style(style: int, tmp_path: Path) -> None:
    (model,) = export(EXAMPLE, "mps").write(tmp_path / "model.mps")
    highs(model, tmp_path / "model.sol", style)
    found = import_schedule(EXAMPLE, tmp_path / "model.sol")
    assert found.faults == ()
    assert found.certificate is not None
    assert found.certificate.result.objective == 13


def test_a_solution_without_names_says_how_to_write_them(tmp_path: Path) -> None:
    (model,) = export(EXAMPLE, "mps").write(tmp_path / "model.mps")
    highs(model, tmp_path / "model.sol", 2)
    with pytest.raises(offcert.InputError, match="numbers its variables"):
        import_schedule(EXAMPLE, tmp_path / "model.sol")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offcert.write_problem(tmp_path / "problem.json", EXAMPLE)
    base = ["export", str(tmp_path / "problem.json"), "--format", "lp", "-o"]
    assert main([*base, str(tmp_path / "model.lp"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["grid"], document["exact"], document["horizon"]) == (1, True, 15)
    highs(tmp_path / "model.lp", tmp_path / "model.sol")
    arguments = ["import", str(tmp_path / "problem.json"), str(tmp_path / "model.sol")]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["objective"] == 13
    assert main([*base, str(tmp_path / "model.txt")]) == 2
    assert "must end in .lp" in capsys.readouterr().err


def test_the_command_knows_the_formats() -> None:
    assert tuple(FORMATS) == command.FORMATS
    assert (*dict.fromkeys(FORMATS.values()), RETENTION) == command.MODELS
