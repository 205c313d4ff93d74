"""The walks of CONTRIBUTING.md, step by step, with the lines at which things are defined.

    python benchmarks/walks.py

prints ``path:line name`` for every ``path:name`` of the section, as editors open them. It ends with
1 if a name is not defined where the section says.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_STEP = re.compile(r"`([\w/]+\.py)(?::([\w.]+))?`")


@cache
def definitions(path: Path) -> dict[str, int]:
    """Return the lines at which a file defines its functions, classes and their methods."""
    found: dict[str, int] = {}
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, kinds):
            found.setdefault(node.name, node.lineno)
        if isinstance(node, ast.ClassDef):
            inside = (each for each in node.body if isinstance(each, kinds))
            found |= {f"{node.name}.{each.name}": each.lineno for each in inside}
    return found


def walks(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return, by title, the steps of each walk: paths, and names that are defined there."""
    section = text.partition("\n## Three walks\n")[2].partition("\n## ")[0]
    titled = re.split(r"^\*\*(.+?)\*\*", section, flags=re.MULTILINE)[1:]
    return {
        title: _STEP.findall(steps) for title, steps in zip(titled[::2], titled[1::2], strict=True)
    }


def line_of(path: str, name: str, root: Path = ROOT) -> int | None:
    """Return the line of a definition; of a file alone the first; None if there is none."""
    file = root / path
    if not file.is_file():
        return None
    return definitions(file).get(name) if name else 1


def main() -> int:
    """Print the walks."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    lacking = 0
    for title, steps in walks((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")).items():
        print(title)
        for path, name in steps:
            line = line_of(path, name)
            lacking += line is None
            print(f"  {path}:{'NOT FOUND' if line is None else line} {name}".rstrip())
    return int(lacking > 0)


if __name__ == "__main__":
    sys.exit(main())
