"""Try to separate every pair of bounds, and of plans, by searching for the worst chain.

    python benchmarks/separations.py [--steps 300] [--seed 0] [--document docs/separations.md]

Each cell is the worst ratio of its row's value to its column's that a search of so many small
chains finds. A cell without a ratio is either impossible, for a reason that the document gives, or
was not found, which proves nothing. Transfers are atomic.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from offcert.core.documents import write_json
from offcert_lab.hunts.adversarial.chains import AdversarialChains
from offcert_lab.hunts.adversarial.hunt import Hunt
from offcert_lab.hunts.adversarial.values import BOUNDS, EXACT_DYNPROG, OPTIMUM

Row = dict[str, Any]
Pair = tuple[str, str]

PLANS = ("sequential", "greedy", "dynprog", EXACT_DYNPROG, "vdnn", "vdnn-all", "tflms")
LOCAL_SEARCH = "local-search"
# A search asks the slow ones this often only.
_SLOW_STEPS = 100
# Who is never more than whom, each with the reason; what follows from two of them is left out.
NEVER_MORE: dict[Pair, str] = {
    ("prop3", "fractional"): "the bytes that Prop. 3 counts are moved by head and tail of their "
    "operation, one after the other",
    ("prop3", "prop3-subset-sum"): "amounts are rounded up",
    ("fractional", "fractional-subset-sum"): "amounts are rounded up",
    ("prop3-subset-sum", "fractional-subset-sum"): "as without rounding",
    ("fractional-subset-sum", "fluid-milp"): "with what is rounded up as workspace, the fluid "
    "model's linear program is its optimum (Theorem 2)",
    ("fluid-milp", "pivot"): "the pivot program is exact",
    ("atomic-heads", "pivot"): "the pivot program is exact",
    ("stage-milp", "pivot"): "the pivot program is exact",
}


def never_more() -> set[Pair]:
    """Return all pairs whose first is never more than its second, by any number of steps."""
    pairs = set(NEVER_MORE)
    while True:
        more = {(a, d) for a, b in pairs for c, d in pairs if b == c and a != d} - pairs
        if not more:
            return pairs
        pairs |= more


def separate(over: str, under: str, steps: int, seed: int) -> Row:
    """Return the worst ratio of two values, and the numbers that show it."""
    bounds = under in BOUNDS
    # A bound looks bad by what is above it, a plan by what is below.
    against, by = (under, over) if bounds else (over, under)
    terms = AdversarialChains(against=against, by=by, steps=steps).terms()
    hunt = Hunt(terms, seed, steps=steps)
    for _ in hunt.improvements():
        pass
    row: Row = {"over": over, "under": under, "ratio": float(hunt.ratio), "steps": hunt.steps}
    if hunt.best is not None:
        score = hunt.best.score
        row |= {"values": [score.over, score.under], "numbers": str(hunt.best.numbers)}
    return row


def pairs() -> list[Pair]:
    """Return pairs to be separated: bounds by bounds, plans by plans, and both by the optimum."""
    impossible = never_more()
    found = [(a, b) for a in BOUNDS for b in BOUNDS if a != b and (a, b) not in impossible]
    found += [(a, b) for a in PLANS for b in (*PLANS, OPTIMUM) if a != b]
    return [*found, (LOCAL_SEARCH, OPTIMUM)]


def table(rows: list[Row], names: list[str], columns: list[str]) -> str:
    """Return the ratios as a Markdown table; "≤" is impossible, a dash was not found."""
    ratios = {(row["over"], row["under"]): row["ratio"] for row in rows}
    impossible = never_more()
    lines = ["| over \\ under | " + " | ".join(columns) + " |"]
    lines.append("| --- |" + " ---: |" * len(columns))
    for name in names:
        cells = []
        for column in columns:
            ratio = ratios.get((name, column), 1.0)
            shown = f"{ratio:.2f}" if ratio >= 1.005 else f"{ratio:.4f}" if ratio > 1 else "–"
            blank = "≤" if (name, column) in impossible else ""
            cells.append(shown if (name, column) in ratios else blank)
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def document(rows: list[Row], command: str) -> str:
    """Return the page that says what separates what."""
    bounds = list(BOUNDS)
    plans = [*PLANS, LOCAL_SEARCH]
    reasons = [f"| `{a}` | `{b}` | {why} |" for (a, b), why in NEVER_MORE.items()]
    shown = [
        f"| `{row['over']}` | `{row['under']}` | {row['values'][0]} / {row['values'][1]} | "
        f"{row['numbers']} |"
        for row in rows
        if row["ratio"] > 1
    ]
    return "\n".join(
        [
            "# What separates what",
            "",
            f"Made by `{command}`. Each number is the worst ratio of its row to its column that a",
            'search among chains of 4 to 6 stages found, with atomic transfers; "≤" is a pair of',
            "which the row is never more than the column, for a reason below; a dash is a pair",
            "that was not separated, which proves nothing. `pivot` is exact, so its column and",
            "row are those of the optimum.",
            "",
            "## Bounds",
            "",
            table(rows, bounds, bounds),
            "",
            "## Makespans of plans",
            "",
            table(rows, plans, [*PLANS, OPTIMUM]),
            "",
            "Problems on which a method finds no plan do not count. `local-search` was asked on",
            f"{_SLOW_STEPS} chains only.",
            "",
            "## What cannot be separated",
            "",
            "| never more | than | because |",
            "| --- | --- | --- |",
            *reasons,
            "",
            'What follows from two of these is "≤" too.',
            "",
            "## The chains",
            "",
            "| over | under | values | numbers |",
            "| --- | --- | ---: | --- |",
            *shown,
            "",
        ]
    )


def main() -> None:
    """Search for every pair, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=300, help="problems a pair (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, help="rows with numbers, as JSON")
    parser.add_argument("--document", type=Path, help="page with tables, as Markdown")
    options = parser.parse_args()
    rows = []
    for over, under in pairs():
        steps = min(options.steps, _SLOW_STEPS) if over == LOCAL_SEARCH else options.steps
        rows.append(separate(over, under, steps, options.seed))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if options.output is not None:
        write_json(options.output, rows)
    command = f"python benchmarks/separations.py --steps {options.steps} --seed {options.seed}"
    page = document(rows, command)
    if options.document is not None:
        options.document.write_text(page)
    else:
        print(page)


if __name__ == "__main__":
    main()
