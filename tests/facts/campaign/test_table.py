"""A table that keeps every row, however its campaign ends, and one campaign at a time."""

import json
import multiprocessing
from pathlib import Path

import pytest

from offcert.campaign.cells import grid
from offcert.campaign.storage import Row, read_rows
from offcert.campaign.table import CampaignTable, Journal, read
from offcert.core.errors import InputError
from offcert.instances.cnn import cnn_chain


def rows(count: int) -> list[Row]:
    limits = [f"{percent}%" for percent in range(count)]
    cells = grid([cnn_chain(8, 0)], ["greedy"], limits)
    return [
        cell.row({"status": "FEASIBLE", "seconds": float(index)})
        for index, cell in enumerate(cells)
    ]


def keys(found: list[Row]) -> list[str]:
    return sorted(row["key"] for row in found)


def abandon(table: CampaignTable) -> None:
    """Do what the system does for a process that is killed: only its lock goes."""
    table._lock.release()


def test_rows_are_on_the_disk_before_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    table = CampaignTable(path)
    for number, row in enumerate(rows(5), start=1):
        table.put(row)
        assert len(Journal(path).read()[0]) == number
    assert not path.exists()
    abandon(table)
    with CampaignTable(path) as again:
        assert keys(list(again.rows.values())) == keys(rows(5))
        assert again.damaged == 0
        assert len(read_rows(path)) == 5
    assert {path, path.with_name(f".{path.name}.lock")} == set(tmp_path.iterdir())


def test_the_file_is_written_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    table = CampaignTable(path, seconds_between_writes=0.0)
    for number, row in enumerate(rows(3), start=1):
        table.put(row)
        assert len(read_rows(path)) == number
        assert Journal(path).read() == ([], 0)
    table.close()


@pytest.mark.parametrize("cut", [1, 2, 40, 300])
def test_a_line_that_was_cut_off_loses_no_other(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    table = CampaignTable(path)
    for row in rows(4):
        table.put(row)
    abandon(table)
    journal = path.with_name("table.parquet.journal")
    journal.write_bytes(journal.read_bytes()[:-cut])
    lost = 0 if cut == 1 else 1
    with CampaignTable(path) as again:
        assert (len(again.rows), again.damaged) == (4 - lost, lost)
        # What comes after it is not appended to what is left of the line.
        again.put(rows(6)[5])
        abandon(again)
        with CampaignTable(path) as third:
            assert (len(third.rows), third.damaged) == (5 - lost, 0)


def test_a_damaged_line_in_the_middle_loses_no_other(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    table = CampaignTable(path)
    for row in rows(4):
        table.put(row)
    abandon(table)
    journal = path.with_name("table.csv.journal")
    lines = journal.read_bytes().splitlines(keepends=True)
    for broken in (b"\x00\x00\n", b'{"key": "x"}\n', b"[]\n", b"\xff\xfe\n"):
        journal.write_bytes(b"".join([*lines[:2], broken, *lines[3:]]))
        rows_, damaged = Journal(path).read()
        assert ([row["key"] for row in rows_], damaged) == (
            [json.loads(line)["key"] for line in (*lines[:2], *lines[3:])],
            1,
        )


def test_newer_rows_take_the_place_of_older_ones(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    with CampaignTable(path) as table:
        for row in rows(3):
            table.put(row)
    table = CampaignTable(path)
    table.put(rows(3)[1] | {"seconds": 99.0})
    abandon(table)
    with CampaignTable(path):
        pass
    assert sorted(row["seconds"] for row in read_rows(path)) == [0.0, 2.0, 99.0]


def test_a_table_is_read_whole_while_it_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    with pytest.raises(InputError, match="cannot be read"):
        read(path)
    with CampaignTable(path) as table:
        table.put(rows(3)[2])
        assert read(path)["seconds"].tolist() == [2.0]
        table.write()
        table.put(rows(3)[0])
        table.put(rows(3)[2] | {"seconds": 7.0})
        assert read(path)["seconds"].tolist() == [0.0, 7.0]
    assert read(path)["seconds"].tolist() == [0.0, 7.0]


def test_the_order_of_the_file_is_not_that_of_computing(tmp_path: Path) -> None:
    for name, found in (("a.jsonl", rows(9)), ("b.jsonl", rows(9)[::-1])):
        with CampaignTable(tmp_path / name) as table:
            for row in found:
                table.put(row)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    memories = [row["memory"] for row in read_rows(tmp_path / "a.jsonl")]
    assert memories == sorted(memories)


def test_two_campaigns_do_not_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    other_name = tmp_path / "link.parquet"
    other_name.symlink_to(path)
    with CampaignTable(path) as table:
        for name in (path, other_name):
            with pytest.raises(InputError, match="is being written to by another campaign"):
                CampaignTable(name)
        table.put(rows(1)[0])
    with CampaignTable(other_name) as table:
        assert len(table.rows) == 1
    assert other_name.is_symlink()
    with CampaignTable(tmp_path / "another.parquet"), CampaignTable(tmp_path / "third.parquet"):
        pass


def hold(path: str, ready: object, end: object) -> None:
    table = CampaignTable(path)
    ready.set()  # type: ignore[attr-defined]
    end.wait()  # type: ignore[attr-defined]
    table.close()


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready, end = context.Event(), context.Event()
    path = tmp_path / "table.csv"
    process = context.Process(target=hold, args=(str(path), ready, end), daemon=True)
    process.start()
    assert ready.wait(30)
    with pytest.raises(InputError, match="another campaign"):
        CampaignTable(path)
    process.kill()
    process.join()
    # The file is still there; it is not what locks.
    assert (tmp_path / ".table.csv.lock").exists()
    with CampaignTable(path) as table:
        assert table.rows == {}


def test_a_file_that_is_no_table_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text('{"precious": 1}')
    with pytest.raises(InputError, match="no table of a campaign"):
        CampaignTable(path)
    assert path.read_text() == '{"precious": 1}'
    assert {path, path.with_name(f".{path.name}.lock")} == set(tmp_path.iterdir())


def test_without_a_file_rows_are_in_memory() -> None:
    with CampaignTable() as table:
        for row in rows(3):
            table.put(row)
        assert keys(list(table.rows.values())) == keys(rows(3))
        with pytest.raises(InputError, match="the row: status must be one of"):
            table.put(rows(1)[0] | {"status": ""})
