"""Rows in files of every suffix, and files that are no tables."""

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from offcert.campaign.cells import CellSettings, grid
from offcert.campaign.storage import (
    COLUMNS,
    NAMES,
    SUFFIXES,
    Row,
    read_rows,
    require_row,
    write_rows,
)
from offcert.campaign.table import read
from offcert.core.errors import InputError
from offcert.instances.cnn import cnn_chain


def some_rows() -> list[Row]:
    """Rows with every column filled in one of them and every optional one null in another."""
    first, second = grid([cnn_chain(5, 0)], ["certify", "greedy"], ["50%"], CellSettings(seed=1))
    empty = first.row({"status": "NO_PLAN", "seconds": 0.25})
    full = second.row({"status": "FEASIBLE", "seconds": 1e-3})
    for column in COLUMNS:
        if full.get(column.name) is None:
            full[column.name] = {str: 'a "b", ü\nc', int: 2**62 + 1, float: 0.1}[column.kind]
        if not column.required:
            empty[column.name] = None
    return [require_row(empty, "empty"), require_row(full, "full")]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"table{suffix}"
    rows = some_rows()
    write_rows(path, rows)
    assert read_rows(path) == rows
    assert [list(row) for row in read_rows(path)] == [list(NAMES)] * 2
    frame = read(path)
    kinds = {str: "string", int: "Int64", float: "Float64"}
    assert [str(kind) for kind in frame.dtypes] == [kinds[column.kind] for column in COLUMNS]
    # Numbers beyond what a float can hold exactly stay themselves beside nulls.
    assert frame["makespan"][1] == 2**62 + 1
    assert frame["makespan"].isna().tolist() == [True, False]
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_table_without_rows(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"table{suffix}"
    write_rows(path, [])
    assert read_rows(path) == []
    assert list(read(path).columns) == list(NAMES)


def test_pandas_reads_the_parquet_file_itself(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    write_rows(path, some_rows())
    frame = pandas.read_parquet(path, dtype_backend="numpy_nullable")
    assert frame["makespan"][1] == 2**62 + 1
    # And what pandas writes is a table too.
    frame.to_parquet(path)
    assert read_rows(path) == some_rows()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": None}, 'the column "key" must have a value'),
        ({"makespan": 1.5}, "makespan must be an integer, not 1.5"),
        ({"makespan": True}, "makespan must be an integer, not true"),
        ({"memory": 2**63}, "memory must fit into 64 bits"),
        ({"seconds": float("inf")}, "seconds must be a finite number"),
        ({"reason": 3}, "reason must be text, not 3"),
        ({"status": "GREAT"}, 'status must be one of OPTIMAL, .*, FAILED, not "GREAT"'),
        ({"colour": "red"}, 'the column "colour" is not known'),
    ],
)
def test_rows_that_are_none(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"the row: {message}"):
        require_row(some_rows()[1] | change, "the row")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("table.parquet", b"precious"),
        ("table.csv", b"a,b\n1,2\n"),
        ("table.json", b'{"precious": 1}'),
        ("table.json", b'{"format": "offcert-campaign", "version": 2, "rows": []}'),
        ("table.json", b'{"format": "offcert-campaign", "version": 1, "rows": [3]}'),
        ("table.jsonl", b"precious\n"),
        ("table.jsonl", b'{"a": 1}\n'),
    ],
)
def test_files_that_are_no_tables(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=str(path)):
        read_rows(path)


def test_another_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pandas.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(InputError, match='no table of a campaign: it lacks the column "key"'):
        read_rows(path)
    pandas.DataFrame(some_rows()).assign(extra=1).to_parquet(path)
    with pytest.raises(InputError, match='it has the column "extra"'):
        read_rows(path)


def test_the_suffix_says_the_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end with one of \.parquet, \.csv, \.json, \.jsonl"):
        write_rows(tmp_path / "table.xlsx", [])


def test_json_is_for_people_too(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    write_rows(path, some_rows())
    assert json.loads(path.read_text())["rows"] == some_rows()
    assert len(path.read_text().splitlines()) == 4
