"""Time and memory of `offcert certify` beside its limit, loading and writing included.

    python benchmarks/limits.py --time-limit 10 -o out/limits.json
    python benchmarks/limits.py --only 'inception_v3-*' captured.json

Each problem, of the library or a file, is certified by the command line in a process of its own,
one after the other. A row says how long that took from its start to its end, how much longer than
the limit that is, and the seconds of processor time; other work on the same machine makes the
former longer. Where a step ends more than a second after the search's time is over, it is named.
Kernels have to be compiled before (`offcert compile`): compiling does not count as searching.
``--parts 2%,7%`` asks for limits on the memory instead of those of the problems.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from offcert.core.documents import write_json
from offcert.instances.library import default_library
from offcert.questions.schedule.files import problem_to_json

FORMAT = "offcert-limits-run"
# What a search may take beside its limit, in seconds: what issue 31 asks for.
GOAL = 2.0
PATTERNS = "inception_v3-*,densenet201-*,resnet152-*,decoder-*,recompute-*"

Row = dict[str, Any]


def measure(path: Path, name: str, time_limit: float, more: list[str]) -> Row:
    """Certify a problem; return its row."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "certificate.json"
        command = [sys.executable, "-m", "offcert", "certify", str(path), *more]
        command += ["--time-limit", str(time_limit), "-o", str(output), "--json"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wall = time.monotonic() - begun
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
    said = json.loads(done.stdout) if done.returncode == 0 else {}
    return {
        "name": name,
        "limit": time_limit,
        "wall": wall,
        "processor": used,
        "status": said.get("status", f"exit code {done.returncode}"),
        "gap": said.get("gap"),
        "failed": said.get("failed", {}),
    }


def table(rows: list[Row]) -> str:
    """Return the rows as a Markdown table, the latest first, and how many are within the goal."""
    lines = [
        "| problem | limit | wall | beside the limit | processor | status | gap |",
        "| --- | ---: | ---: | ---: | ---: | --- | ---: |",
    ]
    for row in sorted(rows, key=lambda row: row["limit"] - row["wall"]):
        gap = "–" if row["gap"] is None else f"{100 * row['gap']:.3f} %"
        lines.append(
            f"| {row['name']} | {row['limit']:g} s | {row['wall']:.1f} s "
            f"| {row['wall'] - row['limit']:.1f} s | {row['processor']:.1f} s "
            f"| {row['status']} | {gap} |"
        )
    within = sum(row["wall"] <= row["limit"] + GOAL for row in rows)
    return "\n".join([*lines, "", f"{within} of {len(rows)} within {GOAL:g} s of their limits."])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line's choices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path, help="problems beside those of the library")
    parser.add_argument("--only", default=PATTERNS, help="patterns of names in the library")
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--parts", default="", help="limits on the memory, such as 2%%,7%%")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    patterns = options.only.split(",")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [(path, path.stem) for path in options.files]
        for entry in default_library().entries():
            if any(fnmatchcase(entry.name, pattern) for pattern in patterns):
                path = Path(folder) / f"{entry.name}.json"
                write_json(path, problem_to_json(entry.problem))
                paths.append((path, entry.name))
        for path, name in paths:
            for part in options.parts.split(","):
                more = ["--memory", part] if part else []
                rows.append(measure(path, f"{name} {part}".strip(), options.time_limit, more))
                print(table(rows[-1:]).splitlines()[2], flush=True)
                if options.output is not None:
                    write_json(options.output, {"format": FORMAT, "rows": rows})
    print(table(rows))


if __name__ == "__main__":
    main()
