"""The table of a campaign, read as points: a problem at one memory limit and what methods found.

Curves and claims start from here. Whatever is compared later is exact: makespans and bounds are
integers, the bound of Proposition 3 a rational.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from offcert.core.documents import parse_rational
from offcert.core.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

CERTIFY = "certify"
FAILED = "FAILED"
INFEASIBLE = "INFEASIBLE"
RECOMPUTE, BOTH = "recompute", "both"
_TEXTS = ("problem", "digest", "method", "status")
_NUMBERS = ("memory", "minimum_memory", "peak_memory", "compute_time")
_ORIGIN = ("network", "image", "batch", "memory_percent", "settings")
_FOUND = ("makespan", "lower_bound", "proved_bound", "seconds", "certificate")
COLUMNS = (*_TEXTS, *_NUMBERS, *_ORIGIN, *_FOUND)


@dataclass(frozen=True)
class MethodOutcome:
    """The outcome of one method on a problem at one memory limit: a row of the table."""

    status: str  # As in the table; ``NO_PLAN`` and ``FAILED`` have no makespan.
    # Ticks.
    makespan: int | None = None
    lower_bound: int | None = None
    proved_bound: int | None = None
    seconds: float = 0.0  # Time it took.
    seed: int = 0  # From the settings; 0 where they have none.
    # Path of the certificate's file, relative to the table's folder.
    certificate: str | None = None


@dataclass(frozen=True)
class Point:
    """A problem at one memory limit."""

    # Its name without the limit, and the hash with it.
    problem: str
    digest: str
    network: str | None  # Name in the zoo.
    # Pixels a side, and images a step.
    image: int | None
    batch: int | None
    # Bytes: the limit, the least with which anything runs, and what no offloading needs.
    memory: int
    minimum: int
    peak: int
    percent: float  # Of the way from `minimum` to `peak`.
    compute: int  # Ticks of all operations.
    rates: tuple[Fraction, Fraction]  # Bytes per tick from the device to the host, and back.
    # By method; several if the table has several settings, by increasing seed.
    cells: Mapping[str, tuple[MethodOutcome, ...]]
    # ``"recompute"``, ``"both"`` or ``"nothing"``; empty where offloading alone is open.
    means: str = ""

    @property
    def title(self) -> str:
        """The problem's name, and what may be done in it if that is not offloading alone."""
        return f"{self.problem} ({self.means})" if self.means else self.problem

    @property
    def label(self) -> str:
        """Name and limit, for people."""
        return f"{self.title} at {self.percent:.4g} %"

    @property
    def binding(self) -> bool:
        """Whether something has to leave, and a schedule exists."""
        return self.minimum <= self.memory < self.peak and not self.infeasible

    @property
    def certified(self) -> bool:
        """Whether ``certify`` was run: only then is much known of the optimum."""
        return CERTIFY in self.cells

    @property
    def infeasible(self) -> bool:
        """Whether there is no schedule."""
        found = any(cell.status == INFEASIBLE for cell in self.cells.get(CERTIFY, ()))
        return found or self.memory < self.minimum

    @cached_property
    def prop3(self) -> Fraction:
        """The bound of Proposition 3 of the offloading paper, in ticks and not rounded.

        Where computations may run again it says nothing about what has to move: what is left of it
        is the computing time.
        """
        if self.means in (BOTH, RECOMPUTE):
            return Fraction(self.compute)
        excess = max(0, self.peak - self.memory)
        return max(Fraction(self.compute), excess / self.rates[0] + excess / self.rates[1])

    @cached_property
    def best(self) -> int | None:
        """The least makespan that any method found."""
        found = [cell.makespan for cells in self.cells.values() for cell in cells]
        return min((makespan for makespan in found if makespan is not None), default=None)

    @cached_property
    def lower(self) -> int:
        """The best lower bound, of whatever evidence."""
        certified = (cell.lower_bound or 0 for cell in self.cells.get(CERTIFY, ()))
        return max(self.proved, *certified, 0)

    @cached_property
    def proved(self) -> int:
        """The best proved lower bound; Proposition 3 needs no further proof."""
        certified = (cell.proved_bound or 0 for cell in self.cells.get(CERTIFY, ()))
        return max(math.ceil(self.prop3), *certified, 0)

    @property
    def optimum(self) -> int | None:
        """The least makespan, where it is proved; a solver's word is no proof."""
        return self.best if self.best == self.proved else None

    def cell(self, method: str) -> MethodOutcome | None:
        """Return a method's row with the least seed, or None."""
        return next(iter(self.cells.get(method, ())), None)

    def makespan(self, method: str) -> int | None:
        """Return a method's makespan with the least seed, or None where it has no plan."""
        cell = self.cell(method)
        return None if cell is None else cell.makespan


def points_of(frame: DataFrame, bandwidth: Fraction | None = None) -> list[Point]:
    """Return the points of a campaign's table, by problem and memory.

    Parameters
    ----------
    frame : DataFrame
        One row a cell. The columns ``bandwidth`` and ``prefetch_bandwidth`` (bytes per tick, as
        ``"61/5"``) are used where there are any.
    bandwidth : Fraction, optional
        Bytes per tick, both ways, for rows that say nothing about it.

    Raises
    ------
    InputError
        If a column is missing, a value does not fit, nothing says the bandwidth, rows of one
        problem contradict each other, or a lower bound exceeds a makespan.
    """
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        raise InputError(f'the table has no column "{missing[0]}"')
    groups: dict[str, list[dict[str, Any]]] = {}
    for number, row in enumerate(plain_rows(frame), start=1):
        _require_complete(row, number)
        groups.setdefault(row["digest"], []).append(row)
    points = [_point(rows, _rates(rows[0], bandwidth)) for rows in groups.values()]
    _require_one_problem_a_name(points)
    return sorted(points, key=lambda point: (_natural(point.title), point.memory, point.digest))


def _require_one_problem_a_name(points: Iterable[Point]) -> None:
    known: dict[tuple[str, int], str] = {}
    for point in points:
        other = known.setdefault((point.title, point.memory), point.digest)
        if other != point.digest:
            raise InputError(
                f'the table has two problems called "{point.title}" with {point.memory} bytes: '
                f"digests {other} and {point.digest}"
            )


def by_problem(points: Iterable[Point]) -> dict[str, list[Point]]:
    """Return the points of each problem, by increasing memory; apart if other means are open."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(point.title, []).append(point)
    return groups


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sort resnet50 before resnet101."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def plain_rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows as plain Python values, with None for missing ones."""
    plain = frame.astype(object)
    names = list(plain.columns)
    return [dict(zip(names, row, strict=True)) for row in plain.where(plain.notna(), None).values]


def _require_complete(row: Mapping[str, Any], number: int) -> None:
    for name in _TEXTS + _NUMBERS:
        if row[name] is None:
            raise InputError(f'row {number} of the table has no value in column "{name}"')


def _rates(row: Mapping[str, Any], given: Fraction | None) -> tuple[Fraction, Fraction]:
    """Return bytes per tick from the device to the host, and back."""
    if row.get("bandwidth") is not None:
        out = parse_rational(str(row["bandwidth"]), "bandwidth")
        back = row.get("prefetch_bandwidth")
        return out, out if back is None else parse_rational(str(back), "prefetch_bandwidth")
    if given is None:
        raise InputError(
            f'the table does not say the bandwidth of the link of "{row["problem"]}": say it with '
            "--bandwidth"
        )
    return given, given


def _point(rows: list[dict[str, Any]], rates: tuple[Fraction, Fraction]) -> Point:
    first = rows[0]
    for row in rows:
        for name in ("problem", *_NUMBERS):
            if row[name] != first[name]:
                raise InputError(
                    f'rows with digest "{first["digest"]}" disagree on {name}: '
                    f"{first[name]} and {row[name]}"
                )
    cells: dict[str, list[MethodOutcome]] = {}
    for row in rows:
        cells.setdefault(row["method"], []).append(_cell(row))
    memory, least, peak = (int(first[name]) for name in _NUMBERS[:3])
    point = Point(
        problem=first["problem"],
        digest=first["digest"],
        network=first["network"],
        image=_whole(first["image"]),
        batch=_whole(first["batch"]),
        memory=memory,
        minimum=least,
        peak=peak,
        percent=_percent(first["memory_percent"], memory, least, peak),
        compute=int(first["compute_time"]),
        rates=rates,
        cells={
            name: tuple(sorted(found, key=lambda cell: cell.seed)) for name, found in cells.items()
        },
        means=_means(first),
    )
    if point.best is not None and point.best < point.lower:
        raise InputError(
            f"{point.label}: a lower bound of {point.lower} contradicts a makespan of "
            f"{point.best}; is the bandwidth the problem's?"
        )
    return point


def _means(row: Mapping[str, Any]) -> str:
    """Return the means that a row allows; tables from before recomputation have no such columns."""
    again = row.get("recompute") not in (None, "none")
    if row.get("offload") == "no":
        return RECOMPUTE if again else "nothing"
    return BOTH if again else ""


def _percent(stated: float | None, memory: int, least: int, peak: int) -> float:
    if stated is not None:
        return float(stated)
    return 100 * (memory - least) / (peak - least) if peak > least else 100.0


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _cell(row: Mapping[str, Any]) -> MethodOutcome:
    settings = json.loads(row["settings"]) if row["settings"] else {}
    return MethodOutcome(
        status=row["status"],
        makespan=_whole(row["makespan"]),
        lower_bound=_whole(row["lower_bound"]),
        proved_bound=_whole(row["proved_bound"]),
        seconds=float(row["seconds"] or 0.0),
        seed=int(settings.get("seed", 0)),
        certificate=row["certificate"],
    )
