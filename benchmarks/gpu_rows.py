"""Rows of `make gpu`: a line of a file each, written at once; and what they say about its goals.

This file uses the standard library alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

# How much more than is forecast a step may take: by the device's times alone, and with the host's.
FORECAST, HOSTED = 1.05, 1.02
# How far the operations of a profile, with the host's part, may be from a plain step: 2 %.
SUMS = 0.02
# Steps of plain training that the first step of a plan may take, beside pinning.
FIRST = 3.0
CHECKPOINTED, PLAIN, MOVING, JOINT = "checkpointing", "plain", "moving", "joint"
# The parts that have the rows of ways without a plan, and of problems.
WAYS, PROFILES = "ways", "profiles"


@dataclass(frozen=True)
class Row:
    """One way to train one network, as it went on one device.

    Attributes
    ----------
    part, network, way : str
        Together they name the row.
    device : str
        Name of the card; ``"simulated"``, or ``"cpu"`` where the host's clock told the time.
    limit : int or None
        Bytes that a plan was made for, or that a way was to keep to.
    forecast_ms, hosted_ms : float or None
        What the certificate says of a step: by the device's times alone, and where no operation
        ends before the host has handed it over.
    bound_ms : float or None
        No plan takes less, as proved.
    measured_ms, host_ms : float or None
        Medians: by the device's events, and until the host had handed everything over.
    first_ms, start_ms : float or None
        The first step by a clock on the wall, and what had to be made before it.
    pinning_ms : float or None
        What pinning the plan's memory of the host takes at the rate that a small piece had.
    peak_allocated, peak_reserved : int or None
        Bytes beyond those that were there before the step; None where nobody tells.
    bitwise : bool or None
        Whether gradients are those of the same step without the way, under deterministic kernels.
    planned, steps : int
        How many steps followed the plan, of how many.
    note : str
        What else is to be said.
    failed : bool
        Whether there is no figure because something went wrong; such a row is measured again.
    """

    part: str
    network: str
    way: str
    device: str = ""
    limit: int | None = None
    forecast_ms: float | None = None
    hosted_ms: float | None = None
    bound_ms: float | None = None
    measured_ms: float | None = None
    host_ms: float | None = None
    first_ms: float | None = None
    start_ms: float | None = None
    pinning_ms: float | None = None
    peak_allocated: int | None = None
    peak_reserved: int | None = None
    bitwise: bool | None = None
    planned: int = 0
    steps: int = 0
    note: str = ""
    failed: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """The name of the row."""
        return self.part, self.network, self.way


class Rows:
    """A file of rows, of which the latest of each name counts.

    Parameters
    ----------
    path : Path
        Each row is on the disk before the next one is measured. What an interruption has left
        half-written is left out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, row: Row) -> None:
        """Write a row."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # A line of its own, also behind one that an interruption has cut off.
        written = self.path.read_bytes() if self.path.exists() else b""
        torn = written and not written.endswith(b"\n")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("\n" if torn else "") + json.dumps(asdict(row)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def __iter__(self) -> Iterator[Row]:
        """Yield the latest row of each name."""
        found: dict[tuple[str, str, str], Row] = {}
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        for line in lines:
            try:
                row = Row(**json.loads(line))
            except (ValueError, TypeError):
                continue
            found[row.key] = row
        yield from found.values()

    def find(self, part: str, network: str, way: str) -> Row | None:
        """Return a row by its name, if it is there and has not failed."""
        found = (row for row in self if row.key == (part, network, way) and not row.failed)
        return next(found, None)


def outside(row: Row) -> list[str]:
    """Return in which respects a row is outside of what its certificate says; none: it holds."""
    took = row.measured_ms
    if took is None or row.forecast_ms is None:
        return []
    faults = []
    if row.bound_ms is not None and took < row.bound_ms:
        faults.append(f"{took:.1f} ms are less than the bound of {row.bound_ms:.1f}")
    if took > FORECAST * row.forecast_ms:
        faults.append(f"{took / row.forecast_ms:.2f} x the forecast of {row.forecast_ms:.1f} ms")
    return faults


def goals(rows: Iterable[Row]) -> list[tuple[str, str, list[str]]]:
    """Return network, way, and in which respects it misses a goal, of each row that has one."""
    rows = list(rows)
    others = {(row.network, row.way): row.measured_ms for row in rows if row.part == WAYS}
    found = []
    for row in rows:
        plain = others.get((row.network, PLAIN))
        if row.part == PROFILES and row.measured_ms is not None and plain is not None:
            whole = row.measured_ms if row.hosted_ms is None else row.hosted_ms
            off = abs(whole / plain - 1) > SUMS
            said = f"operations add up to {whole:.1f} ms, a plain step took {plain:.1f}"
            found.append((row.network, row.way, [said] if off else []))
        if row.forecast_ms is None or row.measured_ms is None:
            continue
        took, missed = row.measured_ms, outside(row)
        checkpointed = others.get((row.network, CHECKPOINTED))
        if row.way == JOINT and checkpointed is not None:
            missed += _above("checkpointing", took, checkpointed)
        if row.hosted_ms is not None:
            missed += _above("the forecast with the host", took, HOSTED * row.hosted_ms)
        if row.planned < row.steps:
            missed.append(f"{row.planned} of {row.steps} steps were planned")
        if row.bitwise is False:
            missed.append("gradients differ")
        if row.first_ms is not None and plain is not None:
            most = FIRST * plain + (row.pinning_ms or 0)
            missed += _above(f"{FIRST:g} plain steps and pinning in the first", row.first_ms, most)
        found.append((row.network, row.way, missed))
    return found


def _above(what: str, took: float, most: float) -> list[str]:
    return [] if took <= most else [f"{took:.1f} ms are above {what}: {most:.1f}"]


COLUMNS = (
    "part", "way", "limit MiB", "bound", "forecast", "with host", "measured", "host", "first",
    "allocated MiB", "reserved MiB", "bitwise", "planned", "note",
)  # fmt: skip


def table(rows: Iterable[Row]) -> list[str]:
    """Return the lines of a Markdown table a network; times in milliseconds."""
    by_network: dict[str, list[Row]] = {}
    for row in rows:
        by_network.setdefault(row.network, []).append(row)
    lines = []
    for network, group in by_network.items():
        lines += [f"{network}:", "", "| " + " | ".join(COLUMNS) + " |"]
        lines += ["|" + " --- |" * len(COLUMNS)]
        lines += ["| " + " | ".join(_cells(row)) + " |" for row in group]
        lines += [""]
    return lines


def _cells(row: Row) -> list[str]:
    times = (
        row.bound_ms, row.forecast_ms, row.hosted_ms, row.measured_ms, row.host_ms, row.first_ms,
    )  # fmt: skip
    bitwise = {None: "", True: "yes", False: "no"}[row.bitwise]
    return [
        row.part,
        row.way,
        _mib(row.limit),
        *("" if time is None else f"{time:.1f}" for time in times),
        _mib(row.peak_allocated),
        _mib(row.peak_reserved),
        bitwise,
        f"{row.planned} of {row.steps}" if row.steps else "",
        row.note,
    ]


def _mib(size: int | None) -> str:
    return "" if size is None else f"{size / 2**20:,.{0 if size >= 2**24 else 2}f}"
