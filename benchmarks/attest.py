"""Have two solvers attest what the library's records say, small problems first.

    python benchmarks/attest.py --most-gaps 30 --time-limit 20 --update-library -o out/attest.json

A record that is optimal is asked of CP-SAT and of HiGHS, each with a model of its own, told the
record's schedule and no bound. If both find that nothing is shorter, the record keeps both claims
beside the proof. Left out is what the models are not for (transfers that may pause, computations
that may run again), what nobody knows to be optimal, what is cross-attested already, and problems
whose value is the computing time: there is nothing to ask. Prints how many of each.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from offcert.certification.records import improve
from offcert.core.documents import write_json
from offcert.core.result import SolveStatus
from offcert.instances.library import Entry, Library
from offcert.questions.schedule.problem import Recompute, Transfers
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import verify
from papers.attest import attest

FORMAT = "offcert-attestation-run"


def left_out(entry: Entry, most_gaps: int) -> str | None:
    """Return why a problem is not asked about, or None."""
    problem, record = entry.problem, entry.record
    if problem.transfers is not Transfers.ATOMIC or problem.recompute is not Recompute.NONE:
        return "of another kind"
    if record.status is not SolveStatus.OPTIMAL or record.plan is None:
        return "not known to be optimal"
    if record.cross_attested_bound == record.value:
        return "cross-attested already"
    if record.value == problem.trace.compute_time:
        return "as short as the computing"
    return "too large" if len(problem.trace.gaps) > most_gaps else None


def ask(entry: Entry, time_limit: float, library: Library | None) -> dict[str, Any]:
    """Return the solvers' claims about a problem, with seconds; store them if they attest it."""
    assert entry.record.plan is not None
    schedule = simulate(entry.problem, entry.record.plan)
    begun = time.monotonic()
    certificate = attest(entry.problem, schedule, time_limit=time_limit)
    seconds = time.monotonic() - begun
    bounds = certificate.result.bounds
    row = {
        "name": entry.name,
        "sha256": entry.digest,
        "gaps": len(entry.problem.trace.gaps),
        "value": entry.record.value,
        "claims": {bound.method: bound.value for bound in bounds},
        "attested": len(bounds) == 2 and {bound.value for bound in bounds} == {entry.record.value},
        "failed": dict(certificate.notes.failed),
        "seconds": seconds,
    }
    if row["attested"] and library is not None:
        improve(library, verify(certificate.to_json()))
    return row


def main() -> None:
    """Ask about what the command line asks for, until its time is over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="*", help="pattern of problem names")
    parser.add_argument("--most-gaps", type=int, default=30)
    parser.add_argument("--time-limit", type=float, default=20.0, help="a problem")
    parser.add_argument("--seconds", type=float, default=1200.0, help="all together")
    parser.add_argument("--folder", type=Path, help="another library than the package's")
    parser.add_argument("--update-library", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    library = Library(options.folder)
    entries = [e for e in library.entries() if fnmatchcase(e.name, options.only)]
    reasons = {entry.name: left_out(entry, options.most_gaps) for entry in entries}
    asked = [entry for entry in entries if reasons[entry.name] is None]
    asked.sort(key=lambda entry: (len(entry.problem.trace.gaps), entry.name))
    counts = Counter(reason for reason in reasons.values() if reason is not None)
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + options.seconds
    for entry in asked:
        if time.monotonic() > end:
            counts["no time left"] += 1
            continue
        rows.append(ask(entry, options.time_limit, library if options.update_library else None))
        counts["cross-attested" if rows[-1]["attested"] else "asked in vain"] += 1
        print(f"{entry.name}: {rows[-1]['claims']}, {rows[-1]['seconds']:.1f} s", flush=True)
        if options.output is not None:
            write_json(options.output, {"format": FORMAT, "rows": rows})
    print(", ".join(f"{reason}: {count}" for reason, count in counts.items()))


if __name__ == "__main__":
    main()
