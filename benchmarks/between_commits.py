"""A table of what a change costs: the tree beside a tag or another commit, in counts.

    python benchmarks/between_commits.py [COMMIT] [--time-limit 5] [-o out/between-commits.json]

By default the commit is the latest tag, or HEAD where there is none. The commit is checked out
beside the tree for as long as this takes. Lines and modules, optima that the library knows, calls
of functions in a training step and bytes on the host under fixed plans are exact. How many of a few
problems of the library are closed within a limit depends on the machine, and is found on both in
turn. What a version cannot say is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lines import PACKAGES, sizes

ROOT = Path(__file__).parents[1]
# One of each kind: networks, hard cores, chains, graphs, tensors alike, recomputation, reductions.
SAMPLE = (
    "resnet101-1000-b8-m25",
    "core-cnn-spiky-40-3",
    "cnn-36-1-m5",
    "unet-4-0-m25",
    "transformer-24-alike-m25",
    "uniform-36-0-m0",
    "recompute-network-4-0-m40",
    "three-partition-4-1000-yes",
)
Figures = dict[str, int]


def git(*arguments: str) -> str:
    """Return the output of a command of git."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def latest() -> str:
    """Return the latest tag, or HEAD."""
    return git("tag", "--list", "--merged", "HEAD", "--sort=-creatordate").partition("\n")[0] or (
        "HEAD"
    )


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Give the folder of another commit, as long as the context lasts."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "commit")
        git("worktree", "add", "--detach", str(folder), commit)
        # Kernels are found by what their code says: those that are the same need not be compiled.
        kernels = Path("offcert", "__pycache__", "kernels")
        if (ROOT / kernels).is_dir():
            shutil.copytree(ROOT / kernels, folder / kernels)
        try:
            yield folder
        finally:
            git("worktree", "remove", "--force", str(folder))


def ran(folder: Path, *arguments: str) -> str | None:
    """Return the output of Python with the packages of a folder; None if it fails there."""
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else None


def of_sources(folder: Path) -> Figures:
    """Return modules and lines of each package."""
    found = {}
    for package in PACKAGES:
        if (folder / package).is_dir():
            modules, lines = sizes(folder / package)
            found |= {f"{package}: modules": modules, f"{package}: lines": lines}
    return found


def of_library(folder: Path) -> Figures:
    """Return how many problems the library has, and for how many it knows the optimum."""
    said = ran(folder, "-m", "offcert", "library", "list", "--json")
    if said is None:
        return {}
    known = [each["status"] == "OPTIMAL" for each in json.loads(said)["problems"]]
    return {"library: problems": len(known), "library: optima known": sum(known)}


def of_steps(folder: Path) -> Figures:
    """Return the calls in a step of each way of training, and its bytes on the host."""
    with tempfile.TemporaryDirectory() as place:
        rows = Path(place, "rows.json")
        # The tree's script says more; an older version may not have what it imports.
        for root in (ROOT, folder):
            script = str(root / "benchmarks" / "host_time.py")
            if ran(folder, script, "resnet50", "--steps", "1", "--json", str(rows)) is not None:
                break
        else:
            return {}
        found = {}
        for row in json.loads(rows.read_text())["rows"]:
            found[f"{row['way']}: calls a step"] = row["calls"]
            if row.get("host_bytes"):
                found[f"{row['way']}: bytes on the host"] = row["host_bytes"]
        return found


def of_searches(folder: Path, seconds: float) -> Figures:
    """Return how many problems of the sample are closed, with a proof, within a limit."""
    closed = 0
    with tempfile.TemporaryDirectory() as place:
        for name in SAMPLE:
            file = str(Path(place, f"{name}.json"))
            limit = ("--time-limit", str(seconds), "--workers", "1")
            if ran(folder, "-m", "offcert", "library", "get", name, "-o", file) is None:
                continue
            said = ran(folder, "-m", "offcert", "certify", file, *limit, "--json")
            if said is not None:
                found: dict[str, Any] = json.loads(said)
                closed += found["status"] == "OPTIMAL" and found["evidence"] == "proved"
    return {f"closed in {seconds:g} s, of {len(SAMPLE)}": closed}


def figures(folder: Path, seconds: float) -> Figures:
    """Return all figures of the version in a folder; no searches without `seconds`."""
    found = of_sources(folder) | of_library(folder) | of_steps(folder)
    return found | of_searches(folder, seconds) if seconds else found


def table(commit: str, before: Figures, after: Figures) -> str:
    """Return the figures of two versions, and by how much they differ, as a Markdown table."""
    lines = [f"| | {commit} | the tree | difference |", "| --- | ---: | ---: | ---: |"]
    for name in after | before:
        old, new = before.get(name), after.get(name)
        shown = [f"{each:,}" if each is not None else "-" for each in (old, new)]
        changed = f"{new - old:+,}" if old is not None and new is not None and new != old else ""
        lines.append(f"| {name} | {shown[0]} | {shown[1]} | {changed} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "commit", nargs="?", help="tag or commit (default: the latest tag, or HEAD)"
    )
    parser.add_argument("--time-limit", type=float, default=5, help="seconds a search; 0: none")
    parser.add_argument("-o", "--output", type=Path, help="file for the figures")
    options = parser.parse_args()
    commit = options.commit or latest()
    try:
        git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except subprocess.CalledProcessError:
        print(f"commit: git knows no {commit}", file=sys.stderr)
        return 2
    with checked_out(commit) as folder:
        before = figures(folder, options.time_limit)
    after = figures(ROOT, options.time_limit)
    print(table(commit, before, after))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps({commit: before, "tree": after}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
