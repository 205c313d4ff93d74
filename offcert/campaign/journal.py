"""What is computed and not yet in the table's file: lines that survive any way of being killed."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO

from offcert.campaign.schema import Row, require_row
from offcert.campaign.storage import dump_row
from offcert.core.errors import InputError


class Lock:
    """Keeps others from writing to a file as long as this process lives, however it ends.

    Parameters
    ----------
    path : Path
        Of the file that is protected; the lock stands beside it.

    Raises
    ------
    InputError
        If another process holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f".{path.name}.lock")
        while True:
            self._file = self.path.open("w")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.close()
                raise InputError(
                    f"{path} is being written to by another campaign; wait for its end, or choose "
                    "another output"
                ) from None
            # Whoever held it may have removed the file that this lock is on.
            if self._is_current():
                return
            self._file.close()

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others write."""
        self.path.unlink(missing_ok=True)
        self._file.close()


class Journal:
    """Rows in lines of JSON, each on the disk before the next one is computed.

    Parameters
    ----------
    path : Path
        Of the table's file; the journal stands beside it.
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
