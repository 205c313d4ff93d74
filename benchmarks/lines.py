"""Modules and lines of each room, and of each folder in it, with the lines of their tests.

    python benchmarks/lines.py [--least 1000]

prints a Markdown table: first each package, then its rooms, then their folders of so many lines.
Lines of tests are those of files in folders of the same names, in all layers of ``tests/``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("offcert", "offcert_lab")


def sizes(folder: Path) -> tuple[int, int]:
    """Return the number of modules below a folder, and of their lines."""
    files = list(folder.rglob("*.py"))
    return len(files), sum(path.read_text(encoding="utf-8").count("\n") for path in files)


def tests_of(inside: Path) -> int:
    """Return the lines of the tests of a folder, which is given by its path in the package."""
    return sum(sizes(layer / inside)[1] for layer in sorted((ROOT / "tests").iterdir()))


def folders(above: Path) -> list[Path]:
    """Return the packages in a folder, those of most lines first."""
    found = [path.parent for path in above.glob("*/__init__.py")]
    return sorted(found, key=lambda path: -sizes(path)[1])


def rows(least: int) -> list[tuple[str, int, int, int]]:
    """Return path, modules, lines and lines of tests of all that the table shows."""
    found = []
    for package in (ROOT / name for name in PACKAGES):
        found.append((package.name, *sizes(package), 0))
        for room in folders(package):
            below = [each for each in folders(room) if sizes(each)[1] >= least]
            for path in (room, *below):
                name = path.relative_to(ROOT).as_posix()
                found.append((name, *sizes(path), tests_of(path.relative_to(package))))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--least", type=int, default=1000, help="lines of a folder that is shown")
    options = parser.parse_args(arguments)
    print("| | modules | lines | lines of tests |\n| --- | ---: | ---: | ---: |")
    for name, modules, lines, tests in rows(options.least):
        print(f"| {name} | {modules} | {lines:,} | {f'{tests:,}' if tests else ''} |")


if __name__ == "__main__":
    main()
