"""Proved bounds as VIPR certificates, checked by `viprchk`, a program that others wrote.

``python benchmarks/vipr.py --viprchk PATH`` prints a line a bound: size of its program, steps of
its proof, and what the program says. Bounds are those of the library whose proofs are stored, and
some that are found anew. The program is built from one C++ file of ambros-gleixner/VIPR; without
``--viprchk`` it is looked for in ``$VIPRCHK`` and on the path.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import offcert
from offcert.core.errors import InputError
from offcert.core.result import Bound
from offcert.instances.library import Library
from offcert_lab.checkers.bounds import METHOD, export_bound

# Problems of the library, whose bounds of these kinds are found anew. Arbitrary.
ANEW = (
    "checkpoint-chain-8-0-m20",
    "checkpoint-chain-held-8-0-m70",
    "recompute-network-4-0-m20",
)


def bounds(library: Library, seconds: float) -> Iterator[tuple[str, offcert.Problem, Bound]]:
    """Yield bounds that are stored with their proofs, and then bounds that are found."""
    for name in library.names():
        for known in library.record(name).bounds:
            if known.bound.method == METHOD and "proof" in known.bound.details:
                yield name, library.load(name), known.bound
    for name in ANEW:
        problem = library.load(name)
        found = offcert.solve(problem, METHOD, time_limit=seconds).result.bounds
        best = [bound for bound in found if bound.method == METHOD and "proof" in bound.details]
        if best:
            yield f"{name}, anew", problem, max(best, key=lambda bound: bound.value)


def verdict(program: str, problem: offcert.Problem, bound: Bound, every: bool) -> tuple[str, bool]:
    """Return a line about a bound, and whether the program accepts its certificate."""
    try:
        made = export_bound(problem, [bound], "vipr", every=every)
    except InputError as error:
        return str(error), False
    with tempfile.TemporaryDirectory() as folder:
        (path,) = made.write(Path(folder, "bound.vipr"))
        done = subprocess.run([program, str(path)], capture_output=True, text=True, check=False)
    valid = f"Successfully verified optimal value range [{bound.value}, inf)" in done.stdout
    word = "valid" if valid else "REFUSED"
    sizes = f"{made.variables:9} {made.rows:6} {made.derivations:6}"
    return f"{bound.method:10} {bound.value:9} {sizes}  {word}", valid


def main() -> int:
    """Export, check, print, and return whether a certificate was refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viprchk", default=os.environ.get("VIPRCHK", "viprchk"))
    parser.add_argument("--every-fact", action="store_true", help="programs with every fact")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds to find a bound")
    options = parser.parse_args()
    program = shutil.which(options.viprchk)
    if program is None:
        print(f"{options.viprchk} is not installed: nothing is checked", file=sys.stderr)
        return 2
    print(f"{'problem':40} {'bound':10} {'ticks':>9} {'variables':>9} {'rows':>6} {'steps':>6}")
    count = refused = 0
    for name, problem, bound in bounds(Library(), options.time_limit):
        line, valid = verdict(program, problem, bound, options.every_fact)
        print(f"{name:40} {line}", flush=True)
        count, refused = count + 1, refused + (not valid)
    print(f"{count} certificates, {refused} refused")
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
