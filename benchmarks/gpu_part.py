"""A part of `make gpu`: its folder, its rows, and the time that is left."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpu_rows import Row, Rows


class Part:
    """A part that runs, of which each row is written as soon as it is there.

    Parameters
    ----------
    name : str
        The part.
    folder : Path
        Of rows, problems and certificates.
    seconds : float
        After which no other row is begun.
    networks : sequence of str
        In this order.
    again : bool
        Whether rows are measured that are there already.
    search_seconds : float
        For each certificate.
    documents : Path, optional
        Folder of what was measured on another machine.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        seconds: float,
        networks: Sequence[str],
        *,
        again: bool = False,
        search_seconds: float = 20.0,
        documents: Path | None = None,
    ) -> None:
        self.name, self.folder, self.networks = name, folder, tuple(networks)
        self.again, self.search_seconds, self.documents = again, search_seconds, documents
        self.rows = Rows(folder / "rows.jsonl")
        self._until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return self._until - time.monotonic()

    def problem(self, network: str) -> Path:
        """Return where the measured problem of a network is."""
        return self.folder / "problems" / f"{network}.json"

    def certificate(self, network: str, kind: str) -> Path:
        """Return where a certificate is."""
        return self.folder / "certificates" / f"{network}-{kind}.json"

    def missing(self, network: str, ways: Collection[str]) -> list[str]:
        """Return the ways of a network whose rows are to be measured."""
        found = (way for way in ways if self.again or not self._has(network, way))
        return list(found)

    def _has(self, network: str, way: str) -> bool:
        return self.rows.find(self.name, network, way) is not None

    def wanted(self, *ways: str) -> Iterator[str]:
        """Yield networks that lack a row of some ways, as long as time is left."""
        for network in self.networks:
            if not self.missing(network, ways):
                continue
            if self.left <= 0:
                print(f"{network}: left for the next call of this part", flush=True)
                continue
            yield network

    @contextmanager
    def row(self, network: str, way: str) -> Iterator[dict[str, Any]]:
        """Let a block fill in the columns of a row, and write it, also if something went wrong."""
        found: dict[str, Any] = {}
        begun = time.monotonic()
        try:
            yield found
        except Exception as error:
            # Whatever it was: the other rows are worth as much without it.
            text = " ".join(str(error).split())[:300]
            found |= {"failed": True, "note": f"{type(error).__name__}: {text}"}
        self.rows.add(Row(self.name, network, way, **found))
        took = found.get("measured_ms") or found.get("forecast_ms")
        said = found.get("note", "") if took is None else f"{took:.3f} ms {found.get('note', '')}"
        print(f"{network}, {way}: {said} ({time.monotonic() - begun:.0f} s)", flush=True)
