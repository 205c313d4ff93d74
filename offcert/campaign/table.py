"""The table of a campaign: rows by key, in a file that is always complete up to the last row."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from offcert.campaign.storage import (
    COLUMNS,
    Row,
    dump_row,
    read_rows,
    require_row,
    require_suffix,
    write_rows,
)
from offcert.core.documents import make_folder, require_writable
from offcert.core.errors import InputError

if TYPE_CHECKING:
    import pandas


class Journal:
    """Rows in lines of JSON, each on the disk before the next one is computed.

    Parameters
    ----------
    path : Path
        Path of the table's file; the journal stands beside it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f"{path.name}.journal")
        self._file: IO[bytes] | None = None

    def read(self) -> tuple[list[Row], int]:
        """Return the rows of all whole lines, and how many lines are damaged.

        A line may be damaged because whoever wrote it was killed meanwhile.
        """
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return [], 0
        rows, damaged = [], 0
        for number, line in enumerate(lines):
            if not line:
                continue
            try:
                rows.append(require_row(json.loads(line), f"{self.path}, line {number + 1}"))
            except (ValueError, AttributeError):
                damaged += 1
        return rows, damaged

    def append(self, row: Row) -> None:
        """Add a row; it is on the disk when this returns."""
        if self._file is None:
            self._file = self.path.open("ab")
        self._file.write(dump_row(row).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def remove(self) -> None:
        """Forget all rows: they are in the table's file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self.path.unlink(missing_ok=True)


# Seconds between two writes of the table: a file of many rows takes long to write, and the journal
# has all rows since. Arbitrary.
_SECONDS_BETWEEN_WRITES = 60.0


class CampaignTable:
    """Rows by key; a context manager that writes the file at its end, however it is left.

    Parameters
    ----------
    path : str or Path, optional
        Of the file, by suffix ``.parquet``, ``.csv``, ``.json`` or ``.jsonl``. What is there is
        kept. Without a path, rows are in memory only.
    seconds_between_writes : float
        Of the whole file, while rows are put; the journal has those since.

    Attributes
    ----------
    rows : dict of str to dict
        By key; read only.
    damaged : int
        Lines of the journal that were lost when a campaign was killed while it wrote them.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        seconds_between_writes: float = _SECONDS_BETWEEN_WRITES,
    ) -> None:
        self.path = None if path is None else Path(path)
        self._seconds_between_writes = seconds_between_writes
        self.rows: dict[str, Row] = {}
        self.damaged = 0
        if self.path is None:
            return
        require_suffix(self.path)
        require_writable(self.path)
        # The file behind a symbolic link is the one that is written, so it is the one protected.
        target = self.path.resolve()
        make_folder(target.parent)
        # It ends with this process, however that ends.
        self._lock = FileLock(
            target.with_name(f".{target.name}.lock"), timeout=0, thread_local=False
        )
        try:
            self._lock.acquire()
        except Timeout:
            raise InputError(
                f"{target} is being written to by another campaign; wait for its end, or choose "
                "another output"
            ) from None
        try:
            self._journal = Journal(target)
            self._merge(target)
        except BaseException:
            self._lock.release()
            raise

    def _merge(self, target: Path) -> None:
        known = read_rows(target) if target.exists() else []
        newer, self.damaged = self._journal.read()
        self.rows = {row["key"]: row for row in (*known, *newer)}
        self._written = time.monotonic()
        if newer or self.damaged:
            self.write()

    def put(self, row: Row) -> None:
        """Add a row in the place of an older one of the same key; it is safe when this returns."""
        complete = require_row(row, "the row")
        self.rows[complete["key"]] = complete
        if self.path is None:
            return
        self._journal.append(complete)
        if time.monotonic() - self._written > self._seconds_between_writes:
            self.write()

    def write(self) -> None:
        """Write the file; then the journal has nothing more to say."""
        if self.path is not None:
            write_rows(self.path, ordered(self.rows.values()))
            self._journal.remove()
            self._written = time.monotonic()

    def close(self) -> None:
        """Write the file and let others write to it."""
        if self.path is not None:
            try:
                self.write()
            finally:
                self._lock.release()

    def __enter__(self) -> CampaignTable:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Return rows by problem, memory, method and settings, as in the file."""
    names = ("problem", "memory", "method", "settings", "version", "key")
    return sorted(rows, key=lambda row: tuple(row[name] for name in names))


def read(path: str | Path) -> pandas.DataFrame:
    """Return the table in a file, with the rows that a campaign has not written to it yet.

    It does not matter whether that campaign still runs or was killed.

    Returns
    -------
    pandas.DataFrame
        With the columns of `offcert.campaign.storage.COLUMNS`, of the nullable types ``string``,
        ``Int64`` and ``Float64``.
    """
    target = Path(path).resolve()
    # In this order: a row leaves the journal only when it is in the file.
    newer, _ = Journal(target).read()
    known = [] if newer and not target.exists() else read_rows(Path(path))
    return frame(ordered({row["key"]: row for row in (*known, *newer)}.values()))


def frame(rows: list[Row]) -> pandas.DataFrame:
    """Return rows as `read` returns them."""
    try:
        import pandas
    except ImportError:
        raise InputError("tables need pandas: pip install '.[compare]'") from None
    kinds: dict[type, Any] = {str: "string", int: "Int64", float: "Float64"}
    return pandas.DataFrame(
        {
            column.name: pandas.array([row[column.name] for row in rows], dtype=kinds[column.kind])
            for column in COLUMNS
        }
    )
