"""Certify the instance library, or a part of it, in parallel, and say how far every method gets.

    python benchmarks/certify.py --only 'cnn-24-*' --time-limit 60 -o out/library.json

Each problem runs in a process of its own with one solver thread, so that a crash costs one row
only. Rows go to the output as they come; a row that is already there with the same problem, time
limit, seed and version of offcert is not computed again (``--again failed`` repeats failures,
``--again all`` everything). ``--update-library`` stores what improves a record, after verification.
``--group 'duplex-*'`` chooses the networks on a link that runs both ways, ``--only '*_alone'``
those whose directions do not slow each other down. The Markdown table is printed, and written
beside the output.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import library_table

import offcert
from offcert.campaign.pool import Failure, PoolTask, ProcessPool
from offcert.certification.records import improve
from offcert.core.documents import read_json, write_json
from offcert.core.errors import InputError
from offcert.core.threads import cores
from offcert.instances.library import Entry, Library
from offcert.verification.document import Verification

FORMAT = "offcert-library-run"
# Loaded once, in the process that all others are forked from: nobody's time limit pays for it.
PRELOADED = ("offcert.campaign.preload_search",)
# A problem may take this many times its limit, and this many seconds more, to end and be verified.
PATIENCE = 3
GRACE = 120.0

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One problem to certify."""

    entry: Entry
    group: str
    settings: dict[str, Any]

    def row(self) -> Row:
        """Return the columns that identify the row of this task."""
        trace = self.entry.problem.trace
        return {
            "name": self.entry.name,
            "group": self.group,
            "sha256": self.entry.digest,
            "operations": len(trace),
            "compute_time": trace.compute_time,
            **self.settings,
        }


def work(task: Task) -> tuple[Row, Verification]:
    """Certify and verify one problem, and return what came of it."""
    from offcert.certification.ladder import certify
    from offcert.verification.document import verify

    steps: list[tuple[float, str, int | None, int]] = []

    def note(progress: Any) -> None:
        steps.append((progress.seconds, progress.step, progress.objective, progress.lower_bound))

    begun = time.monotonic()
    certificate = certify(
        task.entry.problem,
        time_limit=task.settings["time_limit"],
        seed=task.settings["seed"],
        workers=task.settings["workers"],
        progress=note,
    )
    seconds = time.monotonic() - begun
    verification = verify(certificate.to_json())
    verify_seconds = time.monotonic() - begun - seconds
    facts = result_facts(verification, seconds) | {"verify_seconds": verify_seconds}
    closed = facts.get("status") == "OPTIMAL" and steps
    facts["closed_by"] = steps[-1][1] if closed else None
    # By the clock that the limit is for: loading what is compiled does not count.
    facts["last_news"] = steps[-1][0] if steps else 0.0
    return facts, verification


def result_facts(verification: Verification, seconds: float) -> Row:
    """Return the facts of a row that a verified certificate holds."""
    if not verification.valid:
        return {"failed": f"the certificate does not verify: {verification.reason}"}
    result = verification.certificate.result
    proved = [bound.value for bound in result.bounds if str(bound.evidence) == "proved"]
    bounds: dict[str, int] = {}
    for bound in result.bounds:
        bounds[bound.method] = max(bound.value, bounds.get(bound.method, 0))
    return {
        "status": str(result.status),
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "proved_bound": max(proved, default=0),
        "evidence": str(verification.evidence),
        "bounds": bounds,
        "seconds": seconds,
    }


class Output:
    """The rows, in a file that is complete after every row."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: list[Row] = []
        if path is not None and not path.parent.is_dir():
            # Before anything is computed.
            raise InputError(f"{path} cannot be written: there is no folder {path.parent}")
        if path is not None and path.exists():
            document = read_json(path)
            if not isinstance(document, dict) or document.get("format") != FORMAT:
                raise InputError(f"{path} is no file of {FORMAT}: choose another output")
            self.rows = document["rows"]

    def done(self, again: str) -> set[tuple[Any, ...]]:
        """Return the keys of the rows that need not be computed again."""
        if again == "all":
            return set()
        return {key(row) for row in self.rows if again != "failed" or "failed" not in row}

    def put(self, row: Row) -> None:
        """Add a row in the place of an older one of the same key, and write the file."""
        self.rows = [other for other in self.rows if key(other) != key(row)] + [row]
        if self.path is not None:
            write_json(self.path, {"format": FORMAT, "rows": self.rows})


def key(row: Row) -> tuple[Any, ...]:
    """Return a key that two rows share if they are the same computation."""
    # Rows of before there were several threads a problem say nothing of them.
    threads = row.get("workers", 1)
    return row["sha256"], row["time_limit"], row["seed"], row["version"], threads


def update(library: Library, verification: Verification) -> str:
    """Store a solution that improves a record; return a sentence about it."""
    try:
        entry = improve(library, verification)
    except InputError:
        return "no better than the record"
    return f"record now {entry.record.value}, bound {entry.record.lower_bound}"


def chosen_tasks(library: Library, options: argparse.Namespace) -> list[Task]:
    """Return the tasks that pass the filters, small problems first."""
    settings = {
        "time_limit": options.time_limit,
        # What is not taken by other problems.
        "workers": max(1, cores() // options.jobs),
        "seed": options.seed,
        "version": offcert.__version__,
    }
    tasks = [
        Task(entry, family.group, settings)
        for family in library.families()
        for entry in family.entries
        if fnmatchcase(entry.name, options.only)
        and fnmatchcase(family.group, options.group)
        and not (options.open and entry.record.status == "OPTIMAL")
    ]
    return sorted(tasks, key=lambda task: (len(task.entry.problem.trace), task.entry.name))


def answers(
    tasks: list[Task], jobs: int, most_bytes: int = 0
) -> Iterator[tuple[Task, Row, Verification | None]]:
    """Run tasks, each in a process of its own; yield each with its facts once it has ended."""
    pool = ProcessPool(work, jobs, most_bytes=most_bytes, preload=PRELOADED)
    timed = (PoolTask((task,), PATIENCE * task.settings["time_limit"] + GRACE) for task in tasks)
    for task, answer in pool.run(timed):
        if isinstance(answer, Failure):
            yield task, {"failed": answer.reason}, None
        else:
            yield task, *answer


def run(options: argparse.Namespace, say: Callable[[str], None]) -> list[Row]:
    """Run the tasks that are missing and return the rows of all chosen ones."""
    library = Library(options.folder)
    output = Output(options.output)
    tasks = chosen_tasks(library, options)
    done = output.done(options.again)
    missing = [task for task in tasks if key(task.row()) not in done]
    say(f"{len(tasks)} problems, {len(tasks) - len(missing)} of them already there")
    ended = answers(missing, options.jobs, options.memory_gib * 2**30)
    for number, (task, facts, verification) in enumerate(ended, start=1):
        output.put(task.row() | facts)
        news = ""
        if options.update_library and verification is not None and verification.valid:
            news = f"; {update(library, verification)}"
        say(f"{number}/{len(missing)} {library_table.one_line(output.rows[-1])}{news}")
    wanted = {key(task.row()) for task in tasks}
    return [row for row in output.rows if key(row) in wanted]


def main() -> None:
    """Run the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="*", help="pattern of problem names")
    parser.add_argument("--group", default="*", help="pattern of groups")
    parser.add_argument("--open", action="store_true", help="only what is not known to be optimal")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--memory-gib", type=int, default=0, help="per process; 0: no limit")
    parser.add_argument("--again", choices=("no", "failed", "all"), default="no")
    parser.add_argument("--folder", type=Path, help="another library than the package's")
    parser.add_argument("--update-library", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        rows = run(options, lambda text: print(text, file=sys.stderr, flush=True))
    except InputError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted; what is finished is in the output, and need not be computed again")
    text = library_table.markdown(rows)
    print(text)
    if options.output is not None:
        options.output.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
        print(json.dumps({"rows": len(rows), "written": str(options.output)}), file=sys.stderr)


if __name__ == "__main__":
    main()
