"""Run the fast tests of the runtime and of training with other PyTorches, Pythons and Transformers.

    python benchmarks/versions.py 2.15.0/3.11/5.23.0 -o out/versions.json

A row is a version of torch, of Python (an interpreter ``python3.11`` has to be at hand, or
``--python PATH`` says where) and of transformers. Each gets an environment of its own below
``--folder``, some 6 GB with a CUDA build, which is used again if it is there; ``--remove`` removes
it afterwards. Tests run in one process, since a busy machine has no other.

``-o`` keeps a row a key in a JSON file, and replaces those that were run again: what was installed,
when it ran, how many tests passed, which failed, and how many were skipped for which reason. Then
it prints them as the table of docs/install.md, which ``--write`` puts there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from offcert.core.documents import write_json

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "install.md"
ROOMS = ("tests/facts/runtime", "tests/facts/training")
# What the tests need beside torch and transformers; `pip install '.[torch,dev]'` brings more.
NEEDED = ("accelerate", "matplotlib", "optuna", "pandas", "pyarrow", "pytest", "hypothesis")
BEGIN, END = "<!-- benchmarks/versions.py writes this table -->", "<!-- until here -->"
INSTALLED = (
    "import json, platform; from importlib.metadata import version; print(json.dumps("
    '{"python": platform.python_version()}'
    ' | {name: version(name) for name in ("torch", "transformers", "numpy", "numba")}))'
)


def prepared(row: str, folder: Path, python: str | None) -> Path:
    """Return the interpreter of a row's environment, which is made if need be."""
    torch, series, transformers = row.split("/")
    place = folder / row.replace("/", "-")
    interpreter = place / "bin" / "python"
    if interpreter.exists():
        return interpreter
    print(f"{row}: making {place}", file=sys.stderr)
    subprocess.run([python or f"python{series}", "-m", "venv", place], check=True)
    asked = [f"torch=={torch}", f"transformers=={transformers}", *NEEDED]
    subprocess.run([interpreter, "-m", "pip", "install", "-q", *asked, str(ROOT)], check=True)
    return interpreter


def ran(row: str, interpreter: Path, rooms: list[str]) -> dict[str, Any]:
    """Run the tests with an interpreter; return the row."""
    installed = json.loads(subprocess.check_output([interpreter, "-c", INSTALLED]))
    begun = datetime.now(UTC)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        tests = [*rooms, "-m", "not slow", "-p", "no:cacheprovider", f"--junitxml={report}"]
        found = subprocess.run(
            [interpreter, "-m", "pytest", "--tb=short", *tests],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'lab'}"},
            capture_output=True,
            text=True,
        )
        if not report.exists():
            raise SystemExit(f"{row}: pytest ended with {found.returncode}\n{found.stdout[-4000:]}")
        outcome = counted(report)
    for name in outcome["failed"]:
        print(f"{row}: {name} failed", file=sys.stderr)
    if found.returncode and not outcome["failed"]:
        outcome["failed"] = [f"pytest itself ended with {found.returncode}"]
    about = installed | {"date": f"{begun:%Y-%m-%d}", "rooms": rooms}
    return about | {"seconds": round((datetime.now(UTC) - begun).total_seconds())} | outcome


def counted(report: Path) -> dict[str, Any]:
    """Return how the tests of a report ended."""
    passed, failed, skipped = 0, [], Counter[str]()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        outcomes = {each.tag: each.get("message", "") for each in case}
        if outcomes.keys() & {"failure", "error"}:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif "skipped" in outcomes:
            skipped[outcomes["skipped"]] += 1
        else:
            passed += 1
    return {"passed": passed, "failed": failed, "skipped": dict(skipped.most_common())}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the rows as a table of Markdown, oldest PyTorch first."""
    lines = [
        "| PyTorch | Python | Transformers | tests | failed | skipped | date |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    numbers = {key: [int(part) for part in key.split("/")[0].split(".")] for key in rows}
    for key in sorted(rows, key=lambda key: (numbers[key], key)):
        row = rows[key]
        failed = "; ".join(f"`{name.rpartition('::')[2]}`" for name in row["failed"]) or "none"
        if again := row.get("again"):
            failed += f", {len(again)} passed only when run again"
        tried = f"{row['passed'] + len(row['failed']):,}"
        if row["rooms"] != list(ROOMS):
            tried += f" ({', '.join(room.rpartition('/')[2] for room in row['rooms'])})"
        lines.append(
            f"| {row['torch']} | {row['python']} | {row['transformers']} | {tried} | {failed} | "
            f"{sum(row['skipped'].values())} | {row['date']} |"
        )
    return "\n".join(lines)


def write(text: str) -> None:
    """Put a table into the page."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="*", help="TORCH/PYTHON/TRANSFORMERS; none: only print")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "benchmarks" / "versions.json")
    parser.add_argument("--folder", type=Path, default=ROOT / "out" / "versions")
    parser.add_argument("--python", help="the interpreter that makes environments")
    parser.add_argument("--rooms", nargs="+", default=list(ROOMS), help="the tests to run")
    parser.add_argument("--remove", action="store_true", help="remove environments afterwards")
    parser.add_argument("--write", action="store_true", help="write the table into docs/install.md")
    options = parser.parse_args()
    for row in options.rows:
        interpreter = prepared(row, options.folder, options.python)
        found = ran(row, interpreter, options.rooms)
        # Read anew: others may have run meanwhile.
        rows = json.loads(options.output.read_text()) if options.output.exists() else {}
        write_json(options.output, rows | {row: found})
        if options.remove:
            shutil.rmtree(interpreter.parents[1])
    rows = json.loads(options.output.read_text()) if options.output.exists() else {}
    print(table(rows))
    if options.write:
        write(table(rows))


if __name__ == "__main__":
    main()
