"""Addresses: time, pool and bound of a folder of CSV files, or of certificates' schedules.

    python benchmarks/placement.py FOLDER [--capacity BYTES] [--time-limit S] [--only A,B]

A file is MiniMalloc's (id, lower, upper, size) or, with the ending ``.json``, a certificate with a
schedule. With a capacity any placement within it will do; otherwise pools are to be as small as
possible. Seconds are those of a core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from offcert.certify.placing import place
from offcert.certify.warm import warm_placement
from offcert.core.placement import PlacementProblem
from offcert.core.placement_files import read_placement_csv
from offcert.core.residences import placement_problem
from offcert.proofs.certificate import read_certificate
from offcert.verify.placement.overlap import placement_faults


@dataclass(frozen=True)
class Row:
    """What one problem took; bytes, and seconds of a core."""

    name: str
    residences: int
    load: int
    pool: int | None
    bound: int
    seconds: float
    status: str


def problems(
    folder: Path, only: Sequence[str], capacity: int | None
) -> Iterator[tuple[str, PlacementProblem]]:
    """Yield the problems of a folder, by name; those whose name begins as one of `only` does."""
    for path in sorted(folder.iterdir()):
        name = path.name.split(".")[0]
        if path.suffix not in (".csv", ".json") or (only and name not in only):
            continue
        if path.suffix == ".csv":
            problem, _ = read_placement_csv(path)
        else:
            certificate = read_certificate(path)
            if certificate.result.schedule is None:
                continue
            problem = placement_problem(certificate.executed, certificate.result.schedule)
        yield name, problem.with_capacity(capacity)


def measure(name: str, problem: PlacementProblem, seconds: float, method: str | None) -> Row:
    """Place one problem, and check what was found.

    Raises
    ------
    RuntimeError
        If residences overlap.
    """
    began = time.process_time()
    result = place(problem, method, time_limit=seconds).result
    spent = time.process_time() - began
    if result.placement is not None:
        faults = placement_faults(problem, result.placement)
        if faults:
            raise RuntimeError(f"{name}: {faults[0]}")
    return Row(
        name,
        len(problem.residences),
        problem.load,
        result.pool,
        result.lower_bound,
        spent,
        str(result.status),
    )


def table(rows: Sequence[Row]) -> str:
    """Return what was measured, as a table."""
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
    parser.add_argument("--method", help="one method instead of all")
    parser.add_argument("--only", default="", help="names, separated by commas")
    chosen = parser.parse_args(arguments)
    only = [name for name in chosen.only.split(",") if name]
    warm_placement()
    rows = [
        measure(name, problem, chosen.time_limit, chosen.method)
        for name, problem in problems(chosen.folder, only, chosen.capacity)
    ]
    print(table(rows))


if __name__ == "__main__":
    main()
