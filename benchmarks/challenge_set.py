"""Twenty problems of the library as a challenge set for solvers: MiniZinc, pseudo-Boolean, MIP.

``python benchmarks/challenge_set.py -o out/challenge`` writes for each the interval model
(``.mzn``, ``.dzn``) and the time-indexed program (``.mps``, ``.opb``), on a grid that is rounded so
that a bound stays one, and ``index.csv``: what is known of each. It prints the table that stands in
docs/library.md.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from offcert.certification.exchange import Exported, export
from offcert.formulations.common.time_grid import common_divisor
from offcert.instances.library import Entry, Library

# What each is for, in the order of the table.
CHOSEN = {
    "three-partition-2-100-no": "strongly NP-hard kernel, answer no",
    "three-partition-2-100-yes": "the same, answer yes: a schedule without any waiting exists",
    "three-partition-4-1000-no": "four triples: refuting is what is hard",
    "three-partition-6-1000-yes": "six triples: finding is what is hard",
    "two-partition-8-no-atomic": "a weakly NP-hard kernel with whole transfers",
    "two-partition-16-no-atomic": "sixteen numbers up to a million: horizons are long",
    "cnn-8-0-m0": "a chain of eight, the least memory: small enough for every model",
    "cnn-12-0-m10": "a chain of twelve: the optimum is not what the heuristics find",
    "cnn-24-0-m5": "a chain of twenty-four",
    "cnn-50-0-m0": "a chain of fifty",
    "cnn-152-0-m0": "a long chain; open by less than a hundredth of a per cent",
    "core-narrow-8-0": "eight stages at the memory and bandwidth where proving takes longest",
    "core-narrow-16-0": "sixteen of that kind: a minute for our own proofs",
    "core-uniform-28-0": "twenty-eight of that kind",
    "core-narrow-spiky-40-0": "forty of that kind; open",
    "uniform-36-0-m0": "evenly drawn numbers; open",
    "transformer-6-0-m0": "several objects made by one operation",
    "unet-4-0-m25": "long gaps around short ones",
    "unet-3-0-free-m0": "objects with several gaps each: one copy out, several returns",
    "alexnet-224-b32-m0": "a network's step in nanoseconds: what a coarse grid is for",
}
# Variables of the largest program that is written. Arbitrary.
LARGEST = 60_000


def made(entry: Entry, form: str, grid: int) -> Exported:
    """Return a problem as a model, with its record as the horizon."""
    horizon = entry.record.value
    assert horizon is not None
    return export(entry.problem, form, grid=grid, horizon=horizon)


def coarse(entry: Entry) -> int:
    """Return ticks of a cell that leave a program of moderate size: 1, 2 or 5 times powers of ten.

    If all durations have a common divisor, a multiple of it.
    """
    assert entry.record.value is not None
    unit = common_divisor(entry.problem)
    items = len(entry.problem.trace) + 2 * len(entry.problem.trace.gaps)
    power = 1
    while True:
        for step in (1, 2, 5):
            grid = unit * step * power
            if entry.record.value // grid * items <= LARGEST:
                return grid
        power *= 10


def main() -> None:
    """Write the files and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", default="", help="beginning of the names to write")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    library = Library()
    rows = []
    for name, why in CHOSEN.items():
        if not name.startswith(options.only):
            continue
        entry = library.entry(name)
        grid = coarse(entry)
        for form in ("mps", "opb", "mzn"):
            exported = made(entry, form, grid)
            exported.write(options.output / f"{name}.{form}")
        record = entry.record
        gaps = len(entry.problem.trace.gaps)
        rows.append([name, gaps, record.value, record.proved_bound, grid, exported.exact, why])
    header = ["problem", "gaps", "value", "proved bound", "grid", "exact", "why"]
    with (options.output / "index.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    print("| problem | gaps | value | proved bound | grid | what for |")
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    for name, gaps, value, bound, grid, exact, why in rows:
        shown = f"{grid} (exact)" if exact else str(grid)
        print(f"| `{name}` | {gaps} | {value} | {bound} | {shown} | {why} |")


if __name__ == "__main__":
    main()
