"""Everything that needs a GPU, in one command and in under nine minutes: `make gpu`.

    python3 benchmarks/gpu.py
    python3 benchmarks/gpu.py -o FOLDER --minutes 5 --only profiles

Runs the tests that are marked for CUDA beside those of the simulated device, the measured profiles,
and benchmarks/runtime.py, and leaves one JSON document with the device's name and versions:
benchmarks/gpu/<device>.json, which is to be committed. Where there is no GPU the same parts run on
the simulated device, and the document is out/gpu/simulated.json; it says so.

Nothing has to be installed: of the Python that runs this, that of .venv, and python3 the first is
taken whose PyTorch sees a GPU, else the first that has PyTorch. Each part is a process of its own
with a limit of time, and what was done by then is kept. This file uses the standard library alone.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("tests", "profiles", "runtime")
# What a part may take of the time that is left when it begins.
SHARES = {"tests": 0.4, "profiles": 0.45, "runtime": 1.0}
# Of the benchmark, one process each.
NETWORKS = {True: ("gpt", "resnet50", "densenet121"), False: ("gpt-tiny",)}
# Plans that the benchmark makes for each network.
PLANS = 8
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
    """Return the variables of a part: the package is found where it lies."""
    known = os.environ.get("PYTHONPATH")
    path = str(ROOT) if not known else os.pathsep.join((str(ROOT), known))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


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


def profiles(python: Interpreter, folder: Path, seconds: float) -> dict[str, Any]:
    """Measure networks of the zoo."""
    # It writes as it goes, and ends by itself before its time is up.
    script = [str(ROOT / "benchmarks/gpu_profiles.py"), "--seconds", str(round(seconds * 0.8))]
    return _script(python, folder, "profiles", script, seconds)


def runtime(python: Interpreter, folder: Path, seconds: float) -> dict[str, Any]:
    """Run the benchmark of the runtime, network by network, as far as the time goes."""
    script = ROOT / "benchmarks/runtime.py"
    names = NETWORKS[python.cuda]
    until = time.monotonic() + seconds
    found: dict[str, Any] = {"status": 0, "networks": {}, "said": []}
    for number, name in enumerate(names):
        left = (until - time.monotonic()) / (len(names) - number)
        command = [str(script), "--device", "cuda" if python.cuda else "simulated"]
        # Half of the time for plans, the other half for steps.
        limit = max(1, round(left / 2 / PLANS))
        command += ["--networks", name, "--time-limit", str(limit)]
        done = _script(python, folder, f"runtime-{name}", command, left)
        found["networks"][name] = done
        found["said"] = done["said"]
        if done["status"] != 0:
            found["status"] = f"{name}: {done['status']}"
    return found


def _script(
    python: Interpreter, folder: Path, name: str, command: list[str], seconds: float
) -> dict[str, Any]:
    """Run a script that writes a document."""
    output = folder / f"{name}.json"
    output.unlink(missing_ok=True)
    done = run([python.path, *command, "-o", str(output)], seconds, folder / f"{name}.log")
    try:
        return {**done, "result": json.loads(output.read_text())}
    except (OSError, ValueError):
        return done


def _commit() -> str | None:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def main() -> int:
    """Run the parts; return 0 if all ended well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, help="folder (default: benchmarks/gpu)")
    parser.add_argument("--minutes", type=float, default=8.5, help="for everything (default: 8.5)")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; may be repeated")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
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
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    folder = options.output or ROOT / ("benchmarks/gpu" if python.cuda else "out/gpu")
    work = ROOT / "out/gpu" if options.output is None else folder
    for each in (folder, work):
        each.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "device": name,
        "simulated": not python.cuda,
        "interpreter": python.found,
        "commit": _commit(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "parts": {},
    }
    target = folder / f"{slug}.json"
    done = True
    for part in options.only or PARTS:
        left = until - time.monotonic()
        print(f"== {part}: at most {left * SHARES[part]:.0f} s", flush=True)
        found = globals()[part](python, work, left * SHARES[part])
        document["parts"][part] = found
        target.write_text(json.dumps(document, indent=2) + "\n")
        if part == "profiles" and (work / "card.toml").exists():
            # For --hardware, on machines without the card.
            shutil.copy(work / "card.toml", target.with_suffix(".toml"))
        for line in found.get("said", [])[-4:]:
            print(f"   {line}")
        print(f"== {part} ended with {found['status']}", flush=True)
        done &= found["status"] == 0 and not found.get("failed")
    print(f"== {target}")
    return 0 if done else 1


if __name__ == "__main__":
    raise SystemExit(main())
