"""Put what the combined paper says about memory to the test: a section of docs/claims.md.

    python benchmarks/claims_combined.py out/combined.json out/combined-500.json
    python benchmarks/claims_combined.py

Takes what ``benchmarks/certify_joint.py --overhead 20%`` has written, keeps its figures in
``docs/claims-combined.json``, and writes the section; without files, from the figures there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from claims_sections import replaced

from offcert.core.documents import read_json, write_atomically, write_json
from offcert.report.claims.combined import (
    HEADING,
    CombinedRow,
    combined_section,
    rows_from_json,
    rows_to_json,
)

DOCS = Path(__file__).parent.parent / "docs"
ROWS = "claims-combined.json"


def measured(files: Sequence[Path]) -> list[CombinedRow]:
    """Return the rows that runs of the other benchmark have written; later ones replace others."""
    found = {}
    for row in (row for file in files for row in read_json(file)):
        network, means = row["network"], row["means"]
        if row["objective"] is None:
            sys.exit(f"no plan is known for {network}")
        figures = row["peak"], row["objective"], row["lower_bound"]
        found[network, means] = CombinedRow(network, means, *figures, row["time_limit"])
    return list(found.values())


def main(arguments: Iterable[str] | None = None) -> None:
    """Write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--docs", type=Path, default=DOCS)
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.files:
        write_json(options.docs / ROWS, rows_to_json(measured(options.files)))
    section = combined_section(rows_from_json(read_json(options.docs / ROWS)))
    path = options.docs / "claims.md"
    text = replaced(path.read_text(encoding="utf-8"), HEADING, section)
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))
    print(f"wrote the section about both together of {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
