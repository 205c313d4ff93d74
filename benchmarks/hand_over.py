"""Hand proved bounds over from links of independent directions to those that slow each other down.

    python benchmarks/hand_over.py

What is proved of a problem ``NAME_alone`` holds for ``NAME`` (docs/theory/slowing-links.md), and
its plan is one of it, timed again. Nothing is searched: `verify` establishes each proof for the
other problem. Prints a line for each problem whose record the library improves.
"""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase
from pathlib import Path

from offcert.certification.records import improve
from offcert.certification.search import Search
from offcert.core.errors import InputError
from offcert.core.result import Evidence
from offcert.instances.library import Entry, Library
from offcert.proofs.any_certificate import Settings
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import verify

ALONE = "_alone"


def hand_over(library: Library, entry: Entry, alone: Entry) -> Entry | None:
    """Return the entry with the better record, or None if the other one's says no more."""
    search = Search(entry.problem, time_limit=0.0)
    search.begin("hand over")
    # Bounds first: a schedule that beats one of them is reported.
    for known in alone.record.bounds:
        if known.bound.evidence is Evidence.PROVED and "omitted" not in known.bound.details:
            search.add(known.bound)
    for record in (alone.record, entry.record):
        if record.plan is not None:
            search.offer(simulate(entry.problem, record.plan))
    try:
        certificate = search.certificate("hand-over", Settings())
        return improve(library, verify(certificate.to_json()))
    except InputError:
        return None


def main() -> None:
    """Hand over what the problems that the command line names can use."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="*", help="pattern of problem names")
    parser.add_argument("--folder", type=Path, help="another library than the package's")
    options = parser.parse_args()
    library = Library(options.folder)
    entries = {entry.name: entry for entry in library.entries()}
    for name, alone in entries.items():
        entry = entries.get(name.removesuffix(ALONE))
        if entry is None or entry is alone or not fnmatchcase(entry.name, options.only):
            continue
        known, more = entry.record, alone.record
        better = (more.proved_bound or 0) > (known.proved_bound or 0)
        if better or (more.value or known.value or 0) < (known.value or 0):
            improved = hand_over(library, entry, alone)
            if improved is not None:
                record = improved.record
                print(f"{entry.name}: {record.value}, proved {record.proved_bound}", flush=True)


if __name__ == "__main__":
    main()
