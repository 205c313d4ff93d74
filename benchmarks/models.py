"""Run every exact model of atomic transfers on the same small problems, one after the other.

    python benchmarks/models.py --time-limit 60 -o out/models.json

Each is run as ``offcert solve`` runs it, on one thread: the time-indexed models begin with
annealing, the others with the plainest plan. A row says whether value and bound met, what the model
itself claimed (nothing where the bounds that every method gets met the schedule first), how long it
took, and that as a ratio to the quickest that closed the problem in the same run. What is compiled
is compiled before. Prints a Markdown table of seconds and ratios, or of the gap that was left, and
one of the longest times by pattern of names; ``--again FILE`` prints both from what was written.
"""

from __future__ import annotations

import argparse
import time
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from offcert.certification.methods import solve
from offcert.core.documents import read_json, write_json
from offcert.core.result import SolveStatus
from offcert.instances.library import Entry, Library
from offcert.questions.schedule.problem import Problem

FORMAT = "offcert-models-run"
PROBLEMS = "three-partition-2-*,three-partition-3-*,cnn-12-*"
MODELS = "pivot,interval-cpsat,time-indexed-cpsat,time-indexed-milp,stage-milp"


def measure(problem: Problem, model: str, time_limit: float) -> dict[str, Any]:
    """Return a model's objective and bounds on a problem, and its seconds."""
    begun = time.monotonic()
    certificate = solve(problem, model, time_limit=time_limit, workers=1)
    seconds = time.monotonic() - begun
    result = certificate.result
    own = [bound.value for bound in result.bounds if bound.method == model]
    return {
        "closed": result.status is SolveStatus.OPTIMAL,
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "claim": max(own, default=None),
        "gap": result.gap,
        "seconds": seconds,
        "failed": dict(certificate.notes.failed),
    }


def row(entry: Entry, models: list[str], time_limit: float) -> dict[str, Any]:
    """Return all models' results on a problem; those that close it agree on its value."""
    found = {model: measure(entry.problem, model, time_limit) for model in models}
    closed = [answer for answer in found.values() if answer["closed"]]
    assert {answer["objective"] for answer in closed} <= {entry.record.value}, entry.name
    quickest = min((answer["seconds"] for answer in closed), default=None)
    for answer in closed:
        answer["ratio"] = answer["seconds"] / quickest
    return {"name": entry.name, "sha256": entry.digest, "quickest": quickest, "models": found}


def cell(answer: dict[str, Any]) -> str:
    """Return how a model did: seconds and ratio, or the gap that it left."""
    if not answer["closed"]:
        return f"gap {100 * answer['gap']:.2g} %"
    how = "" if answer["claim"] is not None else ", by the bounds"
    return f"{answer['seconds']:.2g} s, {answer['ratio']:.2g} ×{how}"


def summary(rows: list[dict[str, Any]], patterns: list[str], models: list[str]) -> list[str]:
    """Return a table of the longest time of each model, and how many it closed if not all."""
    lines = [f"| problems | {' | '.join(models)} |", f"| --- |{' ---: |' * len(models)}"]
    for pattern in patterns:
        group = [each["models"] for each in rows if fnmatchcase(each["name"], pattern)]
        cells = []
        for model in models:
            times = [each[model]["seconds"] for each in group if each[model]["closed"]]
            few = "" if len(times) == len(group) else f"{len(times)} closed"
            cells.append("; ".join(filter(None, [few, f"{max(times):.2g} s" if times else ""])))
        if group:
            lines.append(f"| {len(group)} of `{pattern}` | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Run the command line's choices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default=PROBLEMS, help="patterns of names in the library")
    parser.add_argument("--models", default=MODELS)
    parser.add_argument(
        "--time-limit", type=float, default=60.0, help="seconds a problem and model"
    )
    parser.add_argument("--again", type=Path, help="print what such a file says; run nothing")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    models = options.models.split(",")
    patterns = options.only.split(",")
    if options.again is not None:
        show(read_json(options.again)["rows"], patterns)
        return
    entries = [e for e in Library().entries() if any(fnmatchcase(e.name, p) for p in patterns)]
    for model in models:
        solve(entries[0].problem, model, time_limit=10.0, workers=1)
    rows = []
    for entry in entries:
        rows.append(row(entry, models, options.time_limit))
        if options.output is not None:
            document = {"format": FORMAT, "time_limit": options.time_limit, "rows": rows}
            write_json(options.output, document)
    show(rows, patterns)


def show(rows: list[dict[str, Any]], patterns: list[str]) -> None:
    """Print both tables."""
    models = list(rows[0]["models"])
    print(f"| problem | {' | '.join(models)} |\n| --- |{' ---: |' * len(models)}")
    for each in rows:
        cells = [cell(each["models"][model]) for model in models]
        print(f"| `{each['name']}` | {' | '.join(cells)} |")
    print()
    print("\n".join(summary(rows, patterns, models)))


if __name__ == "__main__":
    main()
