"""Small tables of campaigns, made by hand."""

import json
from typing import Any

import pandas as pd

COLUMNS = (
    *("key", "problem", "digest", "network", "image", "batch", "memory", "memory_percent"),
    *("minimum_memory", "peak_memory", "compute_time", "method", "settings", "status", "makespan"),
    *("lower_bound", "proved_bound", "evidence", "seconds", "reason", "certificate", "version"),
)

Found = int | str | dict[str, Any]


def rows(
    problem: str,
    memory: int,
    /,
    *,
    least: int = 100,
    peak: int = 200,
    compute: int = 60,
    network: str | None = "resnet18",
    image: int | None = 224,
    batch: int | None = 8,
    **found: Found | list[Found],
) -> list[dict[str, Any]]:
    """Return the rows of one problem at one limit.

    `found` has, for each method, a makespan, a status without one, or columns; a list has one of
    them for each seed. A makespan alone of ``certify`` is optimal, and its bound is a proved one if
    nothing else is said.
    """
    base: dict[str, Any] = dict.fromkeys(COLUMNS)
    base |= {
        "problem": problem,
        "digest": f"{problem}@{memory}",
        "network": network,
        "image": image,
        "batch": batch,
        "memory": memory,
        "memory_percent": 100.0 * (memory - least) / (peak - least) if peak > least else None,
        "minimum_memory": least,
        "peak_memory": peak,
        "compute_time": compute,
        "seconds": 0.01,
        "version": "0.1.0",
    }
    made = []
    for method, several in found.items():
        for seed, value in enumerate(several if isinstance(several, list) else [several]):
            row = base | {"method": method, "settings": json.dumps({"seed": seed})}
            row["key"] = f"{row['digest']} {method} {seed}"
            made.append(row | _columns(method, value))
    return made


def _columns(method: str, value: Found) -> dict[str, Any]:
    if isinstance(value, str):
        return {"status": value}
    if isinstance(value, int):
        value = {"makespan": value}
        if method == "certify":
            value["lower_bound"] = value["makespan"]
    columns = {"status": "FEASIBLE", **value}
    if method == "certify" and columns.get("lower_bound") is not None:
        columns.setdefault("proved_bound", columns["lower_bound"])
    return columns


def table(*groups: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a table of rows, with the types that a campaign's table has."""
    frame = pd.DataFrame([row for group in groups for row in group], columns=COLUMNS)
    return frame.convert_dtypes()
