"""Attack the library's records with CP-SAT: better schedules near the ones that are known.

    python benchmarks/attack_records.py --only 'core-*' --cpu-seconds 60

A problem of whole transfers in which everything runs once, and whose best value is above its best
bound, is given to the interval model with the record's schedule as hint; CP-SAT searches nothing
but neighbourhoods of its best schedule, for so many seconds of processor time. Prints a line a
problem, and writes JSON; records that are improved are taken into the library.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from offcert.certification.records import improve
from offcert.certification.search import Search
from offcert.core.documents import write_json
from offcert.core.result import SolveStatus
from offcert.formulations.models.interval_cpsat import solve
from offcert.instances.library import Entry, Library
from offcert.proofs.any_certificate import Settings
from offcert.questions.schedule.problem import Recompute, Transfers
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import verify

# Seconds on the clock for a second of the processor, on a machine that is shared. Assumed.
_SHARED = 20.0


def open_entries(library: Library, only: str, most_gaps: int) -> Iterator[Entry]:
    """Yield the problems of whole transfers whose record is not known to be optimal."""
    for entry in library.entries():
        problem, record = entry.problem, entry.record
        fits = problem.transfers is Transfers.ATOMIC and problem.recompute is Recompute.NONE
        known = record.plan is not None and record.status is not SolveStatus.OPTIMAL
        small = len(problem.trace.gaps) <= most_gaps
        if fits and known and small and fnmatchcase(entry.name, only):
            yield entry


def attack(entry: Entry, seconds: float, workers: int, seed: int, library: Library) -> Any:
    """Return values before and after for one problem; the library takes a better one in."""
    problem, record = entry.problem, entry.record
    assert record.plan is not None
    search, begun = Search(problem, _SHARED * seconds), time.process_time()
    search.begin("interval CP-SAT, neighbourhoods")
    search.offer(simulate(problem, record.plan))
    outcome = solve(
        problem,
        time_limit=_SHARED * seconds,
        workers=workers,
        seed=seed,
        hint=search.schedule,
        lower_bound=record.proved_bound or 0,
        near=True,
        stop=lambda: time.process_time() - begun > seconds,
    )
    assert outcome.schedule is not None
    if search.offer(outcome.schedule):
        settings = Settings(time_limit=seconds, workers=workers, seed=seed)
        certificate = search.certificate("interval-neighbourhoods", settings)
        improve(library, verify(certificate.to_json()))
    return {
        "name": entry.name,
        "before": record.value,
        "value": search.objective,
        "bound": record.lower_bound,
        "cpu_seconds": round(time.process_time() - begun, 1),
        "error": outcome.error,
    }


def main() -> None:
    """Attack the records that the command line names, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="*", help="pattern of problem names")
    parser.add_argument("--most-gaps", type=int, default=200)
    parser.add_argument("--cpu-seconds", type=float, default=60.0, help="a problem")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="another library than the package's")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    library = Library(options.folder)
    rows = []
    for entry in list(open_entries(library, options.only, options.most_gaps)):
        how = options.cpu_seconds, options.workers, options.seed
        rows.append(attack(entry, *how, library))
        print(rows[-1], flush=True)
        if options.output is not None:
            write_json(options.output, rows)


if __name__ == "__main__":
    main()
