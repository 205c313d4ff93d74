"""Check a placement that is kept: addresses for one of MiniMalloc's instances.

    python benchmarks/placement_record.py FOLDER [benchmarks/minimalloc_d.json]

The folder holds MiniMalloc's files, the record an address for each line of one of them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from offcert.questions.placement.check import placement_faults
from offcert.questions.placement.files import read_placement_csv
from offcert.questions.placement.problem import Placement

RECORD = Path(__file__).parent / "minimalloc_d.json"


def faults_of(folder: Path, record: Path) -> tuple[str, list[str]]:
    """Return pool and load of a record in a sentence, and the faults of its addresses."""
    kept = json.loads(record.read_text(encoding="utf-8"))
    problem, _ = read_placement_csv(folder / kept["instance"])
    placement = Placement(kept["addresses"])
    faults = placement_faults(problem.with_capacity(kept["pool"]), placement)
    said = f"{kept['instance']}: pool {placement.pool(problem)}, load {problem.load} bytes"
    return said, faults


def main() -> None:
    """Print the pool of a record; fail if residences overlap or the pool is larger than it says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("record", type=Path, nargs="?", default=RECORD)
    arguments = parser.parse_args()
    said, faults = faults_of(arguments.folder, arguments.record)
    print(said)
    raise SystemExit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
