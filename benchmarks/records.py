"""Print the table of docs/library.md: the library's records, group by group.

python benchmarks/records.py

Computes nothing: a gap is (best value known - best bound known) / value, and an optimum counts as
proved if a proved bound attains the value, as attested if two solvers claim it with two models.
Problems of which no schedule is known are counted as such, and in nothing else.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

from offcert.certification.search import chooses_execution
from offcert.instances.library import Library
from offcert.instances.records import Record


def gaps(record: Record) -> tuple[float, float, float]:
    """Return the gaps to the best bound, to the best proved and the best cross-attested one."""
    assert record.value is not None
    bounds = record.lower_bound or 0, record.proved_bound or 0, record.cross_attested_bound or 0
    return tuple((record.value - bound) / record.value for bound in bounds)  # type: ignore[return-value]


def line(group: str, rows: list[tuple[float, float, float]]) -> str:
    """Return one line of the table."""
    if not rows:
        return f"| {group} | no records yet |  |  |  |  |  |  |"
    left = [gap for gap, _, _ in rows]
    return (
        f"| {group} | {len(rows)} | {left.count(0)} | {[p for _, p, _ in rows].count(0)} "
        f"| {[a for _, _, a in rows].count(0)} "
        f"| {100 * max(left):.2g} % | {100 * sum(left) / len(rows):.2g} % "
        f"| {sum(proved <= 0.01 for _, proved, _ in rows)} |"
    )


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    groups: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    once: list[tuple[float, float, float]] = []
    for family in Library().families():
        for entry in family.entries:
            alone = family.problem.platform.slows and not entry.problem.platform.slows
            rows = groups[f"`{family.group}`" + ", rates alone" * alone]
            if entry.record.value is not None:
                rows.append(gaps(entry.record))
                if not chooses_execution(family.problem):
                    once.append(rows[-1])
    print(
        "| group | problems | optimal | proved | attested twice | largest gap | mean gap "
        "| proved within 1 % |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for group, rows in groups.items():
        print(line(group, rows))
    print(line("**everything runs once**", once))
    print(line("**all**", [row for rows in groups.values() for row in rows]))


if __name__ == "__main__":
    main()
