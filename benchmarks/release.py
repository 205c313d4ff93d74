"""A release of both packages, prepared and tried out: everything but the tag.

    python benchmarks/release.py [--dist out/dist]

Files that say the version agree, and nothing is uncommitted. Then wheel and source distribution of
offcert and of offcert-lab are built, both wheels are installed into an empty environment, and
there, in an empty folder, run the README's commands (but for `make`), its Python, and a command of
the lab. It ends with the tag that is to be set, or with 1 and what is in its way.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from wheel import built, commands, installed, measured

ROOT = Path(__file__).parents[1]
_OF_LAB = ["offcert", "hunt", "solvers", "--problems", "1"]


def versions(root: Path) -> dict[str, str]:
    """Return the version by each file that says it; empty where a file says none."""

    def said(path: str, pattern: str) -> str:
        found = re.search(pattern, (root / path).read_text(encoding="utf-8"), re.MULTILINE)
        return found[1] if found else ""

    lab = tomllib.loads((root / "lab/pyproject.toml").read_text(encoding="utf-8"))["project"]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = next((each for each in lab["dependencies"] if each.startswith("offcert==")), "")
    return {
        "pyproject.toml": project["version"],
        "lab/pyproject.toml": lab["version"],
        "lab/pyproject.toml, dependencies": needed.removeprefix("offcert=="),
        "offcert/_version.py": said("offcert/_version.py", r'^__version__ = "(.+)"$'),
        "CITATION.cff": said("CITATION.cff", r"^version: (.+)$"),
        "CHANGELOG.md, first heading": said("CHANGELOG.md", r"^## (\S+)"),
    }


def in_the_way(root: Path) -> list[str]:
    """Return the obstacles to a release of the tree, a sentence each."""
    status = subprocess.run(
        ["git", "-C", str(root), "status", "--porcelain"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found = [f"not committed: {line[3:]}" for line in status.splitlines()]
    says = versions(root)
    version = says["pyproject.toml"]
    for place, other in says.items():
        if other != version:
            found.append(f"{place}: says version {other or 'nothing'}, pyproject.toml {version}")
    return found


def lab_built(folder: Path) -> Path:
    """Build wheel and source distribution of the lab; return the wheel."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(
            ROOT / "offcert_lab",
            Path(copy, "offcert_lab"),
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        # The lab's folder has links to these.
        shutil.copy(ROOT / "lab/pyproject.toml", copy)
        shutil.copy(ROOT / "LICENSE", copy)
        for kind in ("sdist", "wheel"):
            target = repr(str(folder.resolve()))
            code = f"from setuptools import build_meta; build_meta.build_{kind}({target})"
            command = [sys.executable, "-c", code]
            subprocess.run(command, cwd=copy, check=True, stdout=subprocess.DEVNULL)
    return max(folder.glob("offcert_lab-*.whl"), key=lambda path: path.stat().st_mtime)


def tried(wheel: Path, lab: Path) -> bool:
    """Tell whether the README runs where both are installed into an empty environment."""
    fine = True
    with tempfile.TemporaryDirectory() as place:
        programs = installed(wheel, Path(place, "environment"))
        pip = [str(programs / "python"), "-m", "pip", "install", "-qq", "--no-deps", str(lab)]
        subprocess.run(pip, check=True)
        empty = Path(place, "empty")
        empty.mkdir()
        for command in [*commands(), _OF_LAB]:
            row = measured(command, empty, programs)
            fine = fine and row["code"] == 0
            print(f"{'ended' if row['code'] == 0 else 'FAILED'}  {row['command']}", flush=True)
            if row["code"]:
                print(row["said"], flush=True)
    return fine


def main() -> int:
    """Prepare the release; return 1 if something is in its way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dist", type=Path, default=ROOT / "out" / "dist")
    options = parser.parse_args()
    obstacles = in_the_way(ROOT)
    if obstacles:
        print("\n".join(obstacles))
        return 1
    shutil.rmtree(options.dist, ignore_errors=True)
    # The lab first: what is built last is taken for the wheel of offcert.
    options.dist.mkdir(parents=True)
    lab, wheel = lab_built(options.dist), built(options.dist)
    print("built", *sorted(path.name for path in options.dist.iterdir()))
    if not tried(wheel, lab):
        return 1
    version = versions(ROOT)["pyproject.toml"]
    if f"## {version} (unreleased)" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        print(f"CHANGELOG.md says that {version} is unreleased: give it its date, and commit")
    print(f"then set the tag: git tag -a v{version} -m 'offcert {version}'")
    return 0


if __name__ == "__main__":
    sys.exit(main())
