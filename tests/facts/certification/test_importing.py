"""Schedules from elsewhere: tables with names and times, and what is said of them."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import offcert
from offcert.certification.exchange import import_schedule
from offcert.certification.schedule_tables import read_schedule
from offcert.cli import main
from offcert.instances.checkpoint_instances import CheckpointChains
from offcert.instances.library import Library
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.verification.document import verify
from support.problems.running_example import EXAMPLE

HEADING = "kind,name,start\n"
# b leaves from 1 to 5; 9 bytes less 4 fit until o3 has run, and b comes back from 8 to 12.
BEST = "compute,o0,0\ncompute,o1,5\ncompute,o2,6\ncompute,o3,7\ncompute,o4,12\n"
MOVES = "offload,b,1\nprefetch,b,8\n"


def rows_of(certificate: offcert.Certificate) -> list[list[Any]]:
    document = certificate.to_json()["schedule"]
    rows = [["compute", each["name"], each["start"]] for each in document["operations"]]
    return rows + [[each["kind"], each["name"], each["start"]] for each in document["transfers"]]


def written(folder: Path, text: str, name: str = "schedule.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_gaps_ends_and_hashes_are_filled_in(tmp_path: Path) -> None:
    """Without a search the bound is one tick short of the optimum; a search closes that."""
    path = written(tmp_path, HEADING + MOVES + BEST)
    for seconds, bound in ((None, 12), (2.0, 13)):
        found = import_schedule(EXAMPLE, path, time_limit=seconds)
        assert found.faults == ()
        assert found.certificate is not None
        assert found.certificate.result.objective == 13
        assert found.certificate.result.lower_bound == bound
    document = found.certificate.to_json()
    assert verify(document).valid
    assert document["schedule"]["transfers"][0] == {
        "kind": "offload",
        "tensor": 1,
        "name": "b",
        "gap": [0, 4],
        "start": 1,
        "end": 5,
    }


def test_json_in_three_shapes(tmp_path: Path) -> None:
    found = import_schedule(EXAMPLE, written(tmp_path, HEADING + MOVES + BEST))
    assert found.certificate is not None
    document = found.certificate.to_json()
    names = ("kind", "name", "start")
    rows = [dict(zip(names, row, strict=True)) for row in rows_of(found.certificate)]
    for value in (document, document["schedule"], rows):
        path = written(tmp_path, json.dumps(value), "schedule.json")
        assert read_schedule(EXAMPLE, path) == (None, found.certificate.result.schedule)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (BEST, r"memory at operation 1 \(o1\) at 5 holds 9, 3 over the limit of 6"),
        (MOVES + BEST.replace("o4,12", "o4,11"), "the prefetch of b .* ends at 12, after .* 11"),
        (MOVES + BEST.replace("o2,6", "o2,5"), "operation 2 .* starts at 5, before operation 1"),
        ("offload,b,0\nprefetch,b,8\n" + BEST, "starts at 0, before its tensor is written at 1"),
        ("prefetch,b,8\n" + BEST, r"the prefetch of b \(gap 1\) has no offload"),
        ("offload,b,1\n" + BEST, "does not name its tensor's first evicted gap"),
    ],
)
def test_the_first_fault_in_words(tmp_path: Path, text: str, fault: str) -> None:
    found = import_schedule(EXAMPLE, written(tmp_path, HEADING + text))
    assert found.certificate is None
    assert re.search(fault, found.faults[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the table is empty, but its first line must name the columns"),
        (HEADING + "compute,o0\n", "line 2 has 2 entries instead of 3"),
        (
            "kind,name,begin\ncompute,o0,0\n",
            'line 1: columns are kind, name, start, end, not "begin"',
        ),
        ("kind;name;start\ncompute;o0\n", "line 2 has 2 entries instead of 3"),
        (HEADING + "compute,o0,\n", "line 2: start is missing"),
        (HEADING + "copy,b,1\n", 'line 2: kind must be compute, offload or prefetch, not "copy"'),
        (HEADING + "compute,o0,0.5\n", "line 2: start must be an integer number of ticks"),
        (HEADING + "compute,p0,0\n", 'line 2: there is no operation "p0"'),
        (HEADING + "compute,5,0\n", 'line 2: there is no operation "5"'),
        (HEADING + "compute,o0,0\ncompute,0,1\n", "line 2: operation o0 runs twice"),
        (HEADING + "compute,o0,0\n", r"there is no row for operation 1 \(o1\)"),
        (HEADING + BEST + "offload,d,1\n", 'line 7: there is no tensor "d"'),
    ],
)
def test_tables_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(offcert.InputError, match=message) as caught:
        import_schedule(EXAMPLE, path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"rows": []}, 'the field "rows" is not known in a schedule'),
        ({"operations": {}}, r"operations must be a list, not \{\}"),
        ([1], r"rows\[0\] must be an object, not 1"),
        ([{"kind": "compute", "name": "o0", "start": True}], "must be an integer number of ticks"),
    ],
)
def test_json_that_is_none(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(offcert.InputError, match=message):
        import_schedule(EXAMPLE, written(tmp_path, json.dumps(value), "schedule.json"))


def test_a_name_that_several_have_needs_its_number(tmp_path: Path) -> None:
    operations = [offcert.Operation("relu", 1), offcert.Operation("relu", 1)]
    problem = Problem("two", offcert.Trace(operations, []), offcert.Platform(1, 1))
    rows = "compute,relu,0\ncompute,relu,1\n"
    with pytest.raises(offcert.InputError, match="2 operations are called relu; say its number"):
        import_schedule(problem, written(tmp_path, HEADING + rows))
    found = import_schedule(problem, written(tmp_path, HEADING + "compute,0,0\ncompute,1,1\n"))
    assert found.certificate is not None
    assert found.certificate.status == offcert.SolveStatus.OPTIMAL


def test_a_record_of_the_library_stands_beside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = Library().load("cnn-12-0-m10")
    record = Library().record(problem.name)
    certificate = offcert.solve(problem, "greedy")
    path = tmp_path / "schedule.csv"
    with path.open("w") as file:
        csv.writer(file).writerows([HEADING.strip().split(","), *rows_of(certificate)])
    offcert.write_problem(tmp_path / "problem.json", problem)
    target = tmp_path / "certificate.json"
    arguments = ["import", str(tmp_path / "problem.json"), str(path)]
    assert main([*arguments, "-o", str(target)]) == 0
    assert "record       20353: this is 3.43 % above it" in capsys.readouterr().out
    assert offcert.verify(offcert.read_certificate(target)).valid
    assert main([*arguments, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["objective"] == certificate.result.objective
    assert said["record"] == {"value": record.value, "proved_bound": record.proved_bound}
    assert said["lower_bound"] == record.proved_bound
    # With less memory it is legal no more, and the library has no record of that problem.
    assert main([*arguments, "--memory", "0%", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["legal"], said["record"]["value"]) == (False, None)
    assert "over the limit" in said["faults"][0]
    assert main(["import", str(tmp_path / "problem.json"), str(target.with_suffix(".txt"))]) == 2


@pytest.mark.parametrize("minimise", list(Minimise))
def test_what_runs_again_comes_back(tmp_path: Path, minimise: Minimise) -> None:
    """A schedule of ours, reduced to names and times, is the same schedule again."""
    base = CheckpointChains(stages=4).problem(0)
    problem = replace(base, recompute=Recompute.ANY, minimise=minimise, offload=False)
    if minimise is Minimise.TIME:
        problem = problem.with_memory("60%")
    certificate = offcert.certify(problem, time_limit=1)
    execution = certificate.result.execution
    assert execution is not None
    assert execution.repeated > 0
    path = tmp_path / "schedule.csv"
    with path.open("w") as file:
        csv.writer(file).writerows([HEADING.strip().split(","), *rows_of(certificate)])
    found = import_schedule(problem, path)
    assert found.certificate is not None
    assert found.certificate.result.objective == certificate.result.objective
    assert verify(found.certificate.to_json()).valid
