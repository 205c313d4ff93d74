"""Search, for every pair of bounds, for chains on which one is far above the other.

    python benchmarks/separations.py [--steps 300] [--seed 0] [-o out/separations.json]

Each cell is the worst ratio, row by column, that a search of so many small chains finds; it shows
what is possible, and an empty cell proves nothing. The last row is the optimum. A Markdown table is
printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from offcert.certify.adversarial.chains import AdversarialChains
from offcert.certify.adversarial.hunt import Hunt
from offcert.certify.adversarial.values import BOUNDS, OPTIMUM
from offcert.core.documents import write_json

Row = dict[str, Any]


def separate(weaker: str, stronger: str, steps: int, seed: int) -> Row:
    """Return the worst ratio of `stronger` by `weaker`, and the numbers that show it."""
    terms = AdversarialChains(against=weaker, by=stronger, steps=steps).terms()
    hunt = Hunt(terms, seed, steps=steps)
    for _ in hunt.improvements():
        pass
    row: Row = {"against": weaker, "by": stronger, "ratio": float(hunt.ratio)}
    if hunt.best is not None:
        row |= {"over": hunt.best.score.over, "under": hunt.best.score.under}
        row["numbers"] = str(hunt.best.numbers)
    return row


def table(rows: list[Row]) -> str:
    """Return the ratios as a Markdown table; a dash is a pair that was not separated."""
    columns = list(dict.fromkeys(row["against"] for row in rows))
    ratios = {(row["by"], row["against"]): row["ratio"] for row in rows}
    lines = ["| by \\ against | " + " | ".join(columns) + " |"]
    lines.append("| --- |" + " ---: |" * len(columns))
    for name in dict.fromkeys(row["by"] for row in rows):
        cells = [ratios.get((name, column), 1.0) for column in columns]
        shown = [f"{ratio:.2f}" if ratio > 1 else "–" for ratio in cells]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main() -> None:
    """Search for every pair that the command line leaves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=300, help="problems a pair (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, help="rows with numbers, as JSON")
    options = parser.parse_args()
    # The pivot program is exact: it is the optimum here.
    names = [name for name in BOUNDS if name != "pivot"]
    rows = []
    for stronger in (*names, OPTIMUM):
        for weaker in names:
            if weaker != stronger:
                rows.append(separate(weaker, stronger, options.steps, options.seed))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if options.output is not None:
        write_json(options.output, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
