"""A campaign's table for people: ratios to what `certify` found, and what the campaign did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from offcert.campaign.cells import CERTIFY
from offcert.campaign.run import Summary
from offcert.campaign.storage import FAILED, NO_PLAN, Row
from offcert.core.messages import aligned
from offcert.core.result import SolveStatus
from offcert.core.units import Units, format_size, format_time


def summary_to_json(summary: Summary) -> dict[str, Any]:
    """Return the counts and seconds of a campaign, without its rows."""
    names = ("cells", "kept", "computed", "failed", "damaged", "seconds")
    return {name: getattr(summary, name) for name in names}


def describe_rows(rows: Sequence[Row], units: Mapping[str, Units] | None = None) -> str:
    """Return a line for every problem and limit: ratios to the makespan that certify found.

    Where there is none, makespans.

    Parameters
    ----------
    rows : sequence of dict
        As in the table, which does not say in what units its numbers are.
    units : mapping, optional
        Of the problems, by their hashes; numbers of others are printed as they are.
    """
    known = units or {}
    points: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        points.setdefault((row["problem"], row["digest"]), {})[row["method"]] = row
    methods = list(dict.fromkeys(row["method"] for row in rows if row["method"] != CERTIFY))
    certified = any(row["method"] == CERTIFY for row in rows)
    # The same bytes are other percentages where other means are open.
    several = any(row["recompute"] is not None for row in rows)
    header = ["problem", *(["allowed"] if several else []), "memory"]
    header += [*(["makespan", "gap"] if certified else []), *methods]
    lines = [header]
    for (name, _), found in points.items():
        best = found.get(CERTIFY)
        first = next(iter(found.values()))
        unit = known.get(first["digest"], Units())
        line = [name, _memory(first, unit)]
        if several:
            line = [name, allowed(first), format_size(first["memory"], unit)]
        if certified:
            line += ["", ""] if best is None else [_value(best, None, unit), _gap(best)]
        reference = None if best is None else best["makespan"]
        line += [_value(found[m], reference, unit) if m in found else "" for m in methods]
        lines.append(line)
    return aligned(lines)


def allowed(row: Row) -> str:
    """Return the means that a row's problem allows: to offload, to recompute, or both."""
    again = row["recompute"] not in (None, "none")
    if row["offload"] == "no":
        return "recompute" if again else "nothing"
    return "both" if again else "offload"


def describe_outcome(summary: Summary) -> str:
    """Return the counts of a campaign, and the failures in it, for people."""
    return "\n".join([_did(summary), *_failures(summary.rows)])


def _did(summary: Summary) -> str:
    text = f"{summary.cells} cells: {summary.computed} computed, {summary.kept} there before"
    if summary.failed:
        text += f", {summary.failed} failed"
    if summary.damaged:
        text += f"; {summary.damaged} lines of the journal were cut off, their cells computed again"
    return text


def _failures(rows: Iterable[Row]) -> list[str]:
    return [
        f"failed: {row['problem']}, {_memory(row, Units())}, {row['method']}: {row['reason']}"
        for row in rows
        if row["status"] == FAILED
    ]


def _memory(row: Row, units: Units) -> str:
    percent = row["memory_percent"]
    if percent is not None and 0 <= percent <= 100:
        return f"{percent:.4g} %"
    return format_size(row["memory"], units)


def _value(row: Row, reference: int | None, units: Units) -> str:
    if row["status"] in (NO_PLAN, FAILED, SolveStatus.INFEASIBLE):
        return str(row["status"]).lower().replace("_", " ")
    makespan, bound = row["makespan"], row["lower_bound"]
    if makespan is not None:
        return f"{makespan / reference:.3f}" if reference else format_time(makespan, units)
    if bound is None:
        return "-"
    # Rounded down: a bound must not be said to be more than it is.
    if reference:
        return f"≥ {1000 * bound // reference / 1000:.3f}"
    return f"≥ {format_time(bound, units)}"


def _gap(row: Row) -> str:
    if row["makespan"] is None or row["lower_bound"] is None:
        return "-"
    gap = f"{100 * (1 - row['lower_bound'] / max(row['makespan'], 1)):.3g} %"
    # A gap that rests on a solver's word says so.
    return gap if row["evidence"] == "proved" else f"{gap} ({row['evidence']})"
