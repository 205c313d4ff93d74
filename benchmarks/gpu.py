"""Everything that needs a GPU, in one command, in parts of at most four minutes: `make gpu`.

    python3 benchmarks/gpu.py
    python3 benchmarks/gpu.py --part train --network gpt2-medium --minutes 4
    python3 benchmarks/gpu.py --part certificates        (where there is no card)

Parts, the most valuable first: measured `profiles`; what others do (`ways`); `certificates`, which
need no card; what training under them takes (`train`); the same `compiled`; a card made `small`;
two cards (`distributed`); and `tests` that are marked for CUDA. Each row is on the disk before the
next one begins, in rows.jsonl of the folder out/gpu/<device>, and is not measured again unless
`--again` says so: a call goes on where the last one ended. To make certificates elsewhere, that
folder is copied there and back, and named by `-o`.

The rows, and what of the goals they miss, are in benchmarks/gpu/<device>.json, which is to be
committed. Where there is no GPU the same parts run on the simulated device with tiny networks, and
the document is out/gpu/simulated.json; it says so.

Nothing has to be installed: of the Python that runs this, that of .venv, and python3 the first is
taken whose PyTorch sees a GPU, else the first that has PyTorch. What it lacks may lie as wheels in
out/wheels (`make gpu-wheels` fetches them). Each part is a process of its own with a limit of time.
This file uses the standard library alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpu_rows import Row, Rows, goals, table

ROOT = Path(__file__).resolve().parent.parent
WHEELS = ROOT / "out/wheels"
PARTS = (
    "profiles", "ways", "certificates", "train", "compiled", "small", "distributed", "tests",
    "bracket",
)  # fmt: skip
# Seconds of a part at most; of these, a row is begun within the first part.
SECONDS, BEGIN = 240.0, 0.7
# Beside those that are marked for CUDA: what a machine without a GPU runs in their place.
SIMULATED = (
    "tests/facts/runtime/device",
    "tests/facts/runtime/simulated",
    "tests/facts/runtime/streaming",
    "tests/oracles/runtime/simulated",
)

_PROBE = """
import json, platform
found = {"python": platform.python_version(), "torch": None, "cuda": False, "missing": []}
try:
    import torch
    found["torch"], found["cuda"] = torch.__version__, torch.cuda.is_available()
    if found["cuda"]:
        found["device"] = torch.cuda.get_device_name()
        found["cuda_version"] = torch.version.cuda
except ImportError as error:
    found["missing"].append(str(error))
for name in ("pytest", "offcert.runtime.profiling.profile", "offcert.runtime.follow.offload"):
    try:
        __import__(name)
    except Exception as error:
        found["missing"].append(f"{name}: {error}")
import importlib.util
found["xdist"] = importlib.util.find_spec("xdist") is not None
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python, and what it has."""

    path: str
    found: dict[str, Any]

    @property
    def cuda(self) -> bool:
        """Whether its PyTorch sees a GPU."""
        return bool(self.found["cuda"])


def environment() -> dict[str, str]:
    """Return the variables of a part: the package is found where it lies, wheels behind it."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", ""), str(WHEELS / "unpacked")]
    path = os.pathsep.join(each for each in paths if each)
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def unpack(folder: Path) -> None:
    """Unpack the wheels of a folder, once: what they hold need not be installed to be found."""
    target = folder / "unpacked"
    for wheel in sorted(folder.glob("*.whl")):
        done = target / f".{wheel.name}"
        if not done.exists():
            with zipfile.ZipFile(wheel) as packed:
                packed.extractall(target)
            done.touch()


def interpreters() -> list[Interpreter]:
    """Return the Pythons at hand that have PyTorch, the ones that see a GPU first."""
    paths = [sys.executable, str(ROOT / ".venv/bin/python"), shutil.which("python3") or ""]
    known = []
    for path in dict.fromkeys(path for path in paths if path and os.access(path, os.X_OK)):
        try:
            done = subprocess.run(
                [path, "-c", _PROBE],
                capture_output=True,
                text=True,
                timeout=90,
                check=True,
                env=environment(),
                cwd=ROOT,
            )
            found = json.loads(done.stdout.splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            continue
        if found["torch"] is not None:
            known.append(Interpreter(path, found))
    return sorted(known, key=lambda each: (not each.cuda, bool(each.found["missing"])))


def run(command: list[str], seconds: float, log: Path) -> dict[str, Any]:
    """Run a part for at most so long; return how it ended, with the end of what it said."""
    begun = time.monotonic()
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=environment(),
            start_new_session=True,
        )
        try:
            status: int | str = process.wait(timeout=max(1.0, seconds))
        except subprocess.TimeoutExpired:
            status = "out of time"
        finally:
            _end(process)
    text = log.read_text(errors="replace")
    return {
        "status": status,
        "seconds": round(time.monotonic() - begun, 1),
        "said": text.splitlines()[-8:],
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a part and all that it has started, which may hold the GPU; first ask it to."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
    # What it has started may still run, also after it has ended by itself.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tests(python: Interpreter, folder: Path, seconds: float) -> dict[str, Any]:
    """Run the tests of the devices: those for CUDA, and those on the simulated one.

    Kernels of the searches are compiled meanwhile, which later parts, that measure times, need.
    """
    compiling = subprocess.Popen(
        [python.path, "-m", "offcert", "compile"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=environment(),
        start_new_session=True,
    )
    until = time.monotonic() + seconds
    try:
        found = _tests(python, folder, seconds)
        compiling.wait(max(1.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        found["compiling"] = "out of time"
    finally:
        _end(compiling)
    return found


def _tests(python: Interpreter, folder: Path, seconds: float) -> dict[str, Any]:
    until = time.monotonic() + seconds
    marked = _marked(ROOT / "tests")
    # One after the other: they share the GPU, and some fill it.
    found = {"cuda": _pytest(python, folder, "cuda", ["-m", "cuda", *marked], seconds)}
    given = ["-m", "not cuda", *SIMULATED]
    if python.found.get("xdist"):
        given += ["-n", str(min(8, os.cpu_count() or 1))]
    found["simulated"] = _pytest(python, folder, "simulated", given, until - time.monotonic())
    statuses = [done["status"] for done in found.values()]
    said = [line for done in found.values() for line in done.pop("said")[-2:]]
    return {
        "status": next((status for status in statuses if status != 0), 0),
        "failed": sum(done.get("failed", 0) for done in found.values()),
        "said": said,
        **found,
    }


def _marked(folder: Path) -> list[str]:
    """Return the files with tests for CUDA, and the folders whose conftest.py marks some."""
    named = [path for path in folder.rglob("*.py") if "pytest.mark.cuda" in path.read_text()]
    whole = [path.parent for path in named if path.name == "conftest.py"]
    files = [
        path
        for path in named
        if path.name.startswith("test_") and not any(each in path.parents for each in whole)
    ]
    return sorted(str(path.relative_to(folder.parent)) for path in [*whole, *files])


def _pytest(
    python: Interpreter, folder: Path, name: str, given: list[str], seconds: float
) -> dict[str, Any]:
    report = folder / f"tests-{name}.xml"
    report.unlink(missing_ok=True)
    command = [python.path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs"]
    command += ["--continue-on-collection-errors"]
    command += [f"--junitxml={report}", *given]
    done = run(command, seconds, folder / f"tests-{name}.log")
    return {**done, **_counts(report)}


def _counts(report: Path) -> dict[str, Any]:
    """Return how many tests passed, and what the others said."""
    if not report.exists():
        return {}
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failures, reasons = [], set()
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        broken = next((each for each in case if each.tag in ("failure", "error")), None)
        skipped = case.find("skipped")
        if broken is not None:
            counts["failed"] += 1
            failures.append(f"{name}: {(broken.get('message') or '')[:300]}")
        elif skipped is not None:
            counts["skipped"] += 1
            reasons.add(skipped.get("message") or "")
        else:
            counts["passed"] += 1
    return {**counts, "failures": failures, "skipped_because": sorted(reasons)}


def measured(
    part: str, python: Interpreter, folder: Path, seconds: float, chosen: Sequence[str]
) -> dict[str, Any]:
    """Run a part that writes rows."""
    command = [python.path, str(ROOT / "benchmarks/gpu_parts.py"), part, "--folder", str(folder)]
    command += ["--seconds", str(round(BEGIN * seconds)), *chosen]
    found = run(command, seconds, folder / f"{part}.log")
    found["failed"] = sum(row.failed for row in Rows(folder / "rows.jsonl") if row.part == part)
    return found


def _commit() -> str | None:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _chosen() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="folder of rows and of the document")
    parser.add_argument("--minutes", type=float, default=14.0, help="for everything (default: 14)")
    parser.add_argument("--part", choices=PARTS, action="append", help="may be repeated")
    parser.add_argument("--network", action="append", help="of the rows; may be repeated")
    parser.add_argument("--search-seconds", type=float, default=20.0, help="for each certificate")
    parser.add_argument("--documents", type=Path, help="folder of another machine's, for bracket")
    parser.add_argument("--again", action="store_true", help="measure rows that are there already")
    return parser.parse_args()


def main() -> int:
    """Run the parts; return 0 if all ended well."""
    options = _chosen()
    until = time.monotonic() + 60 * options.minutes
    unpack(WHEELS)
    known = interpreters()
    if not known:
        print("no Python here has PyTorch: make setup installs it", file=sys.stderr)
        return 2
    python = known[0]
    name = python.found.get("device", "simulated")
    print(f"== {name}, torch {python.found['torch']}, {python.path}", flush=True)
    if not python.cuda:
        print("== no CUDA device here: everything runs on the simulated one, CUDA is not seen")
    for missing in python.found["missing"]:
        print(f"== missing: {missing}", flush=True)
    work = options.output or ROOT / "out/gpu" / slug(name)
    work = work.resolve()
    kept = options.output or ROOT / ("benchmarks/gpu" if python.cuda else "out/gpu")
    for each in (kept, work):
        each.mkdir(parents=True, exist_ok=True)
    chosen = ["--networks", ",".join(options.network)] if options.network else []
    chosen += ["--again"] if options.again else []
    chosen += ["--search-seconds", str(options.search_seconds)]
    if options.documents is not None:
        chosen += ["--documents", str(options.documents.resolve())]
    document: dict[str, Any] = {}
    done = True
    for part in options.part or PARTS:
        seconds = min(SECONDS, until - time.monotonic())
        print(f"== {part}: at most {seconds:.0f} s", flush=True)
        if seconds <= 0:
            found: dict[str, Any] = {"status": "no time was left"}
        elif part == "tests":
            found = tests(python, work, seconds)
        else:
            found = measured(part, python, work, seconds, chosen)
        document = write(kept, name, list(Rows(work / "rows.jsonl")), python, {part: found})
        for line in found.get("said", []):
            print(f"   {line}")
        print(f"== {part} ended with {found['status']}", flush=True)
        done &= found["status"] == 0 and not found.get("failed")
    say(list(Rows(work / "rows.jsonl")))
    target = kept / f"{slug(document['device'])}.json"
    if (work / "card.toml").exists() and python.cuda:
        # For --hardware, on machines without the card.
        shutil.copy(work / "card.toml", target.with_suffix(".toml"))
    print(f"== {target}")
    return 0 if done else 1


def slug(name: str) -> str:
    """Return a device's name as that of a file."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def write(
    folder: Path, name: str, rows: list[Row], python: Interpreter, ended: dict[str, Any]
) -> dict[str, Any]:
    """Write the document of a device, with the parts of earlier calls; return it.

    Rows that were measured on a card, and were brought along, are of that card.
    """
    brought = {row.device for row in rows} - {"", "cpu", "simulated"}
    if not python.cuda and len(brought) == 1:
        [name] = brought
    target = folder / f"{slug(name)}.json"
    parts: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, KeyError):
        parts = json.loads(target.read_text())["parts"]
    document = {
        "device": name,
        "simulated": name == "simulated",
        "interpreter": {key: found for key, found in python.found.items() if key != "missing"},
        "commit": _commit(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "parts": parts | ended,
        "rows": [asdict(row) for row in rows],
        "missed": [list(each) for each in goals(rows) if each[2]],
    }
    target.write_text(json.dumps(document, indent=2) + "\n")
    return document


def say(rows: list[Row]) -> None:
    """Print all rows, and the goals that they miss."""
    print("\n".join(table(rows)))
    for network, way, missed in goals(rows):
        print(f"{network}, {way}: {'; '.join(missed) or 'as it should be'}")


if __name__ == "__main__":
    raise SystemExit(main())
