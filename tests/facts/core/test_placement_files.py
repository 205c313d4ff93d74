"""Placement problems as files: our format, and the tables that MiniMalloc reads and writes."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcert.core.documents import write_json
from offcert.core.errors import InputError
from offcert.core.units import Units
from offcert.questions.placement.files import (
    placement_problem_from_json,
    placement_problem_to_json,
    read_placement_csv,
    read_placement_problem,
    write_placement_csv,
)
from offcert.questions.placement.problem import Placement, PlacementProblem, Residence
from support.problems.placements import random_placement_problem

TABLE = """id,lower,upper,size,offset
b1,0,3,4,8
"b,2",3,9,4,8

b3,-2,9,4,4
"""
BUFFERS = [Residence("b1", 4, 0, 3), Residence("b,2", 4, 3, 9), Residence("b3", 4, -2, 9)]


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_is_read_with_its_offsets(tmp_path: Path) -> None:
    problem, placement = read_placement_csv(table(tmp_path, TABLE), 12)
    assert problem == PlacementProblem("t", BUFFERS, 12)
    assert placement == Placement([8, 8, 4])
    assert read_placement_problem(tmp_path / "t.csv") == problem.with_capacity(None)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_spreadsheets_separate_in_other_ways(tmp_path: Path, separator: str) -> None:
    text = "id,lower,upper,size,offset\nx,1,3,4,8\n".replace(",", separator)
    problem, placement = read_placement_csv(table(tmp_path, text))
    assert problem.residences == (Residence("x", 4, 1, 3),)
    assert placement == Placement([8])


@pytest.mark.parametrize(
    ("heading", "end"),
    [("buffer,start,end,size", 2), ("buffer_id,begin,upper,size", 3), ("size,id,upper,lower", 3)],
)
def test_other_names_of_columns_in_any_order(tmp_path: Path, heading: str, end: int) -> None:
    values = {"size": "4", "id": "x", "buffer": "x", "buffer_id": "x", "end": "2", "upper": "3"}
    row = ",".join(values.get(name, "1") for name in heading.split(","))
    problem, placement = read_placement_csv(table(tmp_path, f"{heading}\r\n{row}\r\n"))
    # What is called "end" still belongs to the buffer.
    assert problem.residences == (Residence("x", 4, 1, 3),)
    assert placement is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the table is empty"),
        ("id,lower,upper\n", 'the column "size" is missing'),
        ("id,lower,upper,size,what\n", 'columns must be among id, .*, not "what"'),
        ("id,lower,start,upper,size\n", "the column lower is there twice"),
        ("id,lower,upper,size\na,1,2\n", "line 2 has 3 entries, but there are 4 columns"),
        ("id,lower,upper,size\na,1,2,x\n", 'line 2: size must be an integer, not "x"'),
        ("id,lower,upper,size\na,1,2,1_0\n", "line 2: size must be an integer"),
        ("id,lower,upper,size\na,1,2," + "9" * 5000, "line 2: size must be an integer"),
        ("id,lower,upper,size\na,1,2,-4\n", r"residences\[0\].size must be at least 0, not -4"),
        ("id,lower,upper,size\n\na,2,2,4\n", "line 3: buffer a ends before it begins"),
        ("id,lower,upper,size,gaps\na,0,9,4,2-3\n", "line 2 has gaps"),
        (
            "id,lower,upper,size,alignment\na,0,9,4,2\nb,0,9,4,8\n",
            "alignment must be the same in all lines, but there are 2 and 8",
        ),
    ],
)
def test_tables_that_are_none_are_refused_by_line(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=rf"t\.csv: {sentence}") as caught:
        read_placement_csv(table(tmp_path, text))
    assert len(str(caught.value)) < 500


def test_no_table_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_placement_csv(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="it is not UTF-8 text"):
        read_placement_csv(tmp_path / "binary.csv")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_problems_round_trip(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    problem = random_placement_problem(seed, capacity=seed % 50 if seed % 3 else None)
    folder = tmp_path_factory.getbasetemp()
    write_json(folder / "p.json", placement_problem_to_json(problem))
    assert read_placement_problem(folder / "p.json") == problem
    placement = Placement(range(len(problem.residences)))
    write_placement_csv(folder / f"{problem.name}.csv", problem, placement)
    read, addresses = read_placement_csv(folder / f"{problem.name}.csv", problem.capacity)
    assert (read, addresses) == (problem, placement)
    assert placement_problem_from_json(placement_problem_to_json(problem)) == problem


def test_what_is_written_is_what_minimalloc_reads(tmp_path: Path) -> None:
    problem = PlacementProblem("t", BUFFERS, None, 4, Units("ns", "B"))
    write_placement_csv(tmp_path / "t.csv", problem, Placement([8, 8, 4]))
    assert (tmp_path / "t.csv").read_text() == (
        'id,lower,upper,size,alignment,offset\nb1,0,3,4,4,8\n"b,2",3,9,4,4,8\nb3,-2,9,4,4,4\n'
    )
    write_placement_csv(tmp_path / "t.csv", problem.with_alignment(1))
    assert (tmp_path / "t.csv").read_text().startswith("id,lower,upper,size\nb1,0,3,4\n")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 2}, "version 2 of offcert-placement-problem is not known"),
        ({"capacity": -1}, "capacity must be at least 0, not -1"),
        ({"capacity": "x"}, "capacity must be an integer or null"),
        ({"alignment": 0}, "alignment must be at least 1, not 0"),
        ({"residences": [{"name": "a", "size": 1, "start": 2, "end": 2}]}, r"residences\[0\].end"),
        ({"residences": [{"name": "a", "size": 1, "start": 2}]}, '"residences.0..end" is missing'),
        ({"x": 1}, 'the field "x" is not known'),
    ],
)
def test_documents_that_are_none_are_refused_by_field(
    change: dict[str, object], sentence: str
) -> None:
    document = placement_problem_to_json(PlacementProblem("t", BUFFERS)) | change
    with pytest.raises(InputError, match=sentence):
        placement_problem_from_json(document)
