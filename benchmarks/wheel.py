"""The README, run from a wheel that has been installed into an empty environment.

    python benchmarks/wheel.py -o out/wheel.json

builds wheel and source distribution, makes a virtual environment with the wheel and what
it needs, and executes there, in an empty folder, the README's commands (but for `make`) and its
Python. Kernels have never been compiled there: how long each command takes says whether a first
search keeps to its limit. It ends with 1 if anything fails.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from offcert.core.documents import write_json

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# What distributions are built from.
SOURCES = ("offcert", "pyproject.toml", "README.md", "LICENSE", "setup.cfg")


def built(folder: Path) -> Path:
    """Build wheel and source distribution from a copy of the sources; return the wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    target = repr(str(folder.resolve()))
    with tempfile.TemporaryDirectory() as copy:
        for name in SOURCES:
            source = ROOT / name
            if source.is_dir():
                leave = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, Path(copy, name), ignore=leave)
            elif source.exists():
                shutil.copy(source, copy)
        for kind in ("sdist", "wheel"):
            code = f"from setuptools import build_meta; build_meta.build_{kind}({target})"
            command = [sys.executable, "-c", code]
            subprocess.run(command, cwd=copy, check=True, stdout=subprocess.DEVNULL)
    return max(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime)


def installed(wheel: Path, folder: Path) -> Path:
    """Make an environment with the wheel and what it needs; return its folder of commands."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-qq"]
    constraints = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, *constraints, f"{wheel.resolve()}[torch]"], check=True)
    return folder / "bin"


def commands() -> list[list[str]]:
    """Return the README's commands and then its Python, each as a program and its arguments."""
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    lines = [line for kind, text in blocks if kind == "sh" for line in text.splitlines()]
    typed = [line.split() for line in lines if line.strip() and not line.startswith("make")]
    return [*typed, ["python", "-c", "\n".join(text for kind, text in blocks if kind == "python")]]


def measured(command: list[str], folder: Path, programs: Path) -> dict[str, Any]:
    """Run a command in a folder, and return how it ended and the time that it took."""
    environment = {
        # The checkout must not be found, nor kernels that it has compiled.
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "NUMBA_CACHE_DIR", "OFFCERT_COMPILE")
    } | {"HOME": str(folder), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    arguments = [str(programs / command[0]), *command[1:]]
    ran = subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    name = "the README's Python" if command[0] == "python" else " ".join(command)
    return {
        "command": name,
        "code": ran.returncode,
        "wall_seconds": round(time.monotonic() - begun, 1),
        "cpu_seconds": round(used, 1),
        "said": ran.stdout if ran.returncode == 0 else ran.stdout + ran.stderr,
    }


def main() -> int:
    """Run all, and print a line a command; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dist", type=Path, default=ROOT / "out" / "dist")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    wheel = built(options.dist)
    print(f"built {wheel.name}, {wheel.stat().st_size / 2**20:.1f} MiB", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as place:
        programs = installed(wheel, Path(place, "environment"))
        empty = Path(place, "empty")
        empty.mkdir()
        for command in commands():
            rows.append(measured(command, empty, programs))
            row = rows[-1]
            times = f"{row['wall_seconds']:7.1f} s  {row['cpu_seconds']:7.1f} s of a core"
            print(f"{'ended' if row['code'] == 0 else 'FAILED'}  {times}  {row['command']}")
            if row["code"]:
                print(row["said"], flush=True)
    if options.output is not None:
        write_json(options.output, rows)
    return int(any(row["code"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
