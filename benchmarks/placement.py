"""Addresses: time, pool and bound of a folder of CSV files, or of certificates' schedules.

    python benchmarks/placement.py FOLDER [--capacity BYTES] [--time-limit S] [--only A,B]
        [--shorten] [--core]

A file is MiniMalloc's (id, lower, upper, size) or, with the ending ``.json``, a certificate with a
schedule. With a capacity any placement within it will do; otherwise pools are to be as small as
possible. Seconds are those of a core. Loads are those of schedules as they are given, whether or
not they are shortened before they are placed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcert.certification.placement_methods import warm_placement
from offcert.certification.placing import place
from offcert.proofs.certificate import Certificate, read_certificate
from offcert.proofs.placement_certificate import PlacementCertificate
from offcert.questions.placement.files import read_placement_csv
from offcert.questions.placement.problem import PlacementProblem, placement_faults
from offcert.questions.schedule.residences import placement_problem
from offcert.questions.schedule.schedule import Schedule

Problem = PlacementProblem | Certificate


@dataclass(frozen=True)
class Row:
    """Time, pool and bound of one problem; bytes, and seconds of a core."""

    name: str
    residences: int
    load: int
    pool: int | None
    bound: int
    seconds: float
    status: str


def problems(folder: Path, only: Sequence[str]) -> Iterator[tuple[str, Problem]]:
    """Yield the problems and certificates in a folder by name, or those that `only` names."""
    for path in sorted(folder.iterdir()):
        name = path.name.split(".")[0]
        if path.suffix not in (".csv", ".json") or (only and name not in only):
            continue
        if path.suffix == ".csv":
            yield name, read_placement_csv(path)[0]
            continue
        certificate = read_certificate(path)
        if certificate.result.schedule is not None:
            yield name, certificate


def measure(name: str, what: Problem, method: str | None = None, **asked: Any) -> Row:
    """Place one problem, as `place` is asked to, and check what was found.

    Raises
    ------
    RuntimeError
        If it is not valid.
    """
    given = what
    if isinstance(what, Certificate):
        assert isinstance(what.result.schedule, Schedule)
        given = placement_problem(what.executed, what.result.schedule)
    assert isinstance(given, PlacementProblem)
    began = time.process_time()
    placed = place(what, method, **asked)
    spent = time.process_time() - began
    alone = placed.placement if isinstance(placed, Certificate) else placed
    assert isinstance(alone, PlacementCertificate)
    result = alone.result
    faults = [] if result.placement is None else placement_faults(alone.problem, result.placement)
    if isinstance(placed, Certificate) and placed.result.objective != what.result.objective:
        faults.append("the schedule takes another time")
    if faults:
        raise RuntimeError(f"{name}: {faults[0]}")
    return Row(
        name,
        len(given.residences),
        given.load,
        result.pool,
        result.lower_bound,
        spent,
        str(result.status),
    )


def table(rows: Sequence[Row]) -> str:
    """Return the measurements as a table."""
    lines = [
        "| problem | residences | load | pool | bound | pool / load | s | status |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        pool = "–" if row.pool is None else f"{row.pool:,}"
        part = "–" if row.pool is None or row.load == 0 else f"{row.pool / row.load:.4f}"
        lines.append(
            f"| {row.name} | {row.residences} | {row.load:,} | {pool} | {row.bound:,} | {part} "
            f"| {row.seconds:.1f} | {row.status} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure a folder, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--capacity", type=int, help="bytes within which any placement will do")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds a problem")
    parser.add_argument(
        "--core", action="store_true", help="count the seconds of a core, on a busy machine"
    )
    parser.add_argument(
        "--shorten", action="store_true", help="shorten the schedules of certificates first"
    )
    parser.add_argument("--method", help="one method instead of all")
    parser.add_argument("--only", default="", help="names, separated by commas")
    chosen = parser.parse_args(arguments)
    only = [name for name in chosen.only.split(",") if name]
    warm_placement()
    if chosen.core:
        # What searches looks at this clock, by this name.
        time.monotonic = time.process_time
    asked: dict[str, Any] = {"capacity": chosen.capacity, "time_limit": chosen.time_limit}
    rows = []
    for name, what in problems(chosen.folder, only):
        short = {"shorten": True} if chosen.shorten and isinstance(what, Certificate) else {}
        rows.append(measure(name, what, chosen.method, **asked, **short))
        print(f"{name} took {rows[-1].seconds:.1f} s", file=sys.stderr)
    print(table(rows))


if __name__ == "__main__":
    main()
