"""Grade the problems of the hard core by how long `certify` takes: 1 s, 10 s, 60 s, or open.

    python benchmarks/grade_core.py -o out/core.json

Each problem is certified with one thread at limits of 1, 10 and 60 s, one at a time, and gets the
first grade whose limit it keeps with a margin. Its family moves to the group of that grade, its
origin says what was measured, and what the certificates establish goes into the records after
verification. Rows go to the output as they come; started again, it goes on where it stopped. The
grades are those of the machine: nothing else should run on it. On one that is slower or shared,
``--slowdown 4`` gives everything four times as long.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import certify as runs

import offcert
from offcert.core.errors import InputError
from offcert.instances.library import Entry, Family, Library

LIMITS = (1, 10, 60)
OPEN = "core-open"
# What a problem may use of a limit; one that needs more gets the next grade.
MARGIN = 0.8
_GRADED = "; graded: "

Row = dict[str, Any]


def group_of(limit: int) -> str:
    """Return the group of what is solved within a limit."""
    return f"core-{limit}s"


def grade(rows: list[Row], margin: float, slowdown: int = 1) -> tuple[str, str]:
    """Return the group that rows of one problem, by increasing limit, give it, and why."""
    slower = f", {slowdown} times as long for all" if slowdown > 1 else ""
    for row in rows:
        limit = row["time_limit"]
        if row.get("status") == "OPTIMAL" and row["last_news"] <= margin * limit:
            text = f"optimal in {row['last_news']:.1f} s of at most {limit} s{slower}"
            why = f"{text}, one thread, offcert {row['version']}"
            return group_of(limit // slowdown), why
    last = rows[-1]
    if last.get("status") == "OPTIMAL":
        known = f"optimal in {last['last_news']:.1f} s"
    elif last.get("objective"):
        gap = 100 * (last["objective"] - last["lower_bound"]) / last["objective"]
        known = f"gap {gap:.2g} %"
    else:
        known = last.get("failed", "no schedule")
    text = f"{known} after {last['time_limit']} s{slower}"
    return OPEN, f"{text}, one thread, offcert {last['version']}"


class Grading:
    """Measures candidates one after another and writes the grades.

    Parameters
    ----------
    library : Library
        Its folder is written to.
    output : runs.Output
        Where rows are kept.
    margin : float
        What a problem may use of a limit.
    slowdown : int
        By what limits are multiplied.
    """

    def __init__(
        self,
        library: Library,
        output: runs.Output,
        margin: float,
        slowdown: int,
    ) -> None:
        self.library = library
        self.output = output
        self.margin = margin
        self.slowdown = slowdown

    def measure(self, group: str, entry: Entry) -> list[Row]:
        """Certify an entry with growing limits until it keeps one; return the rows."""
        rows: list[Row] = []
        for limit in LIMITS:
            settings = {
                "time_limit": limit * self.slowdown,
                "seed": 0,
                "version": offcert.__version__,
            }
            task = runs.Task(entry, group, settings)
            rows.append(self._known(task) or self._run(task))
            if grade(rows, self.margin, self.slowdown)[0] != OPEN:
                break
        return rows

    def grade(self, family: Family) -> str:
        """Measure a family's problem, store the grade, and return a line for people."""
        entry = family.entries[0]
        group, why = grade(self.measure(family.group, entry), self.margin, self.slowdown)
        with self.library.locked():
            # The records have changed meanwhile, through the library's own way.
            self.library.refresh(entry.name)
            family = self.library.family(family.name)
            origin = family.origin.partition(_GRADED)[0] + _GRADED + why
            if (group, origin) != (family.group, family.origin):
                self.library.write(replace(family, group=group, origin=origin))
        return f"{entry.name}: {group}, {why}"

    def _known(self, task: runs.Task) -> Row | None:
        wanted = runs.key(task.row())
        return next(
            (r for r in self.output.rows if runs.key(r) == wanted and "failed" not in r), None
        )

    def _run(self, task: runs.Task) -> Row:
        # Measured alone, or times would say nothing.
        ((_, facts, verification),) = runs.answers([task], jobs=1)
        if verification is not None:
            runs.update(self.library, verification)
        self.output.put(task.row() | facts)
        return self.output.rows[-1]


def run(options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, int]:
    """Grade the chosen families; return the number of problems of each grade."""
    library = Library(options.folder)
    chosen = [f for f in library.families(group="core-*") if fnmatchcase(f.name, options.only)]
    output = runs.Output(options.output)
    grading = Grading(library, output, options.margin, options.slowdown)
    counts = dict.fromkeys([*map(group_of, LIMITS), OPEN], 0)
    for number, family in enumerate(chosen, start=1):
        say(f"{number}/{len(chosen)} {grading.grade(family)}")
        counts[library.family(family.name).group] += 1
    return counts


def main() -> None:
    """Grade the families that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="*", help="pattern of family names")
    parser.add_argument("--margin", type=float, default=MARGIN, help="(%(default)s)")
    parser.add_argument("--slowdown", type=int, default=1, help="multiply limits (%(default)s)")
    parser.add_argument("--folder", type=Path, help="another library than the package's")
    parser.add_argument("-o", "--output", type=Path, help="rows, to go on from")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        counts = run(options, lambda text: print(text, file=sys.stderr, flush=True))
    except InputError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted; what is graded is stored, and need not be measured again")
    print("\n".join(f"{group}: {count}" for group, count in counts.items()))


if __name__ == "__main__":
    main()
