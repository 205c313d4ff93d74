"""Tables of what `benchmarks/certify.py` measured."""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import fmean, median
from typing import Any

Row = dict[str, Any]

# As in the goals of the project: the share of problems with a proved bound this close.
CLOSE = 0.01


def one_line(row: Row) -> str:
    """Return a row for the terminal."""
    if "failed" in row:
        return f"{row['name']}: failed: {row['failed']}"
    gap = f"gap {100 * gap_of(row):.3f} %" if row["objective"] is not None else "no schedule"
    return (
        f"{row['name']}: {row['status']} {row['objective']} bound {row['lower_bound']} "
        f"({row['evidence']}) {gap} in {row['seconds']:.1f} s"
    )


def gap_of(row: Row, bound: str = "lower_bound") -> float:
    """Return ``(objective - bound) / objective``; infinite without a schedule."""
    if row["objective"] is None:
        return float("inf")
    return float((row["objective"] - row[bound]) / max(row["objective"], 1))


def markdown(rows: list[Row]) -> str:
    """Return two tables: what became of each group, and how close each method's bound came."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (_natural(row["group"]), row["name"])):
        groups[row["group"]].append(row)
    lines = [
        "| group | problems | optimal | largest gap | mean gap | proved within 1 % | evidence "
        "| median time | longest | failed |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    lines += [_group_line(name, group) for name, group in groups.items()]
    if len(groups) > 1:
        lines.append(_group_line("**all**", rows))
    lines += ["", *_method_lines(groups), "", *_failures(rows)]
    return "\n".join(lines).rstrip()


def _natural(group: str) -> list[tuple[int, int, str]]:
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in group.split("-")]


def _group_line(name: str, group: list[Row]) -> str:
    good = [row for row in group if "failed" not in row]
    failed = len(group) - len(good)
    if not good:
        return f"| {name} | {len(group)} | – | – | – | – | – | – | – | {failed} |"
    gaps = [gap_of(row) for row in good]
    optimal = sum(row["status"] == "OPTIMAL" for row in good)
    close = sum(gap_of(row, "proved_bound") <= CLOSE for row in good)
    levels = Counter(row["evidence"] for row in good)
    evidence = ", ".join(f"{count} {level}" for level, count in levels.most_common())
    times = [row["seconds"] for row in good]
    return (
        f"| {name} | {len(group)} | {optimal} | {_percent(max(gaps))} | {_percent(fmean(gaps))} "
        f"| {close} = {100 * close / len(group):.0f} % | {evidence} "
        f"| {median(times):.1f} s | {max(times):.1f} s | {failed} |"
    )


def _percent(gap: float) -> str:
    return "∞" if gap == float("inf") else f"{100 * gap:.2g} %"


def _method_lines(groups: dict[str, list[Row]]) -> list[str]:
    """Return the table of bounds by incumbent: the mean, the least, and how many reached 1."""
    ratios: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, group in groups.items():
        for row in group:
            if row.get("objective"):
                for method, value in row["bounds"].items():
                    ratios[name][method].append(value / row["objective"])
    methods = sorted({method for found in ratios.values() for method in found})
    if not methods:
        return []
    lines = [
        "Bound by the best schedule of the same run: mean / least (problems on which it ran).",
        "",
        f"| group | {' | '.join(methods)} |",
        f"| --- |{' ---: |' * len(methods)}",
    ]
    for name, found in ratios.items():
        cells = [
            f"{fmean(found[m]):.4f} / {min(found[m]):.4f} ({len(found[m])})" if m in found else "–"
            for m in methods
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _failures(rows: list[Row]) -> list[str]:
    return [f"- {row['name']}: {row['failed']}" for row in rows if "failed" in row]
