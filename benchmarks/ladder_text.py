"""Texts of the benchmark of the ladder: rungs, their contributions, the outcome of a fit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from ladder_fit import Comparison, Fit, Fitted, proposals
from ladder_records import RAN, Event, Run, all_ladders

from offcert.certification.ladders.joint import JOINT_LADDERS
from offcert.certification.rung import Rung
from offcert.core.messages import cut

# Characters of a reason in the table.
LONGEST = 90


def rung_document(position: int, rung: Rung) -> dict[str, Any]:
    """Return a rung as a JSON value."""
    return {
        "position": position,
        "step": rung.name,
        "share": rung.share,
        "at_least": rung.at_least,
        "at_most": None if math.isinf(rung.at_most) else rung.at_most,
        "always": rung.always,
        "fallback": rung.fallback,
        "conditions": rung.conditions,
        "reason": rung.reason,
    }


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Return a table of which some columns end at the same place, and the others begin at one."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def printed(rungs: Sequence[Rung]) -> str:
    """Return the rungs of a ladder as a table for people."""
    rows = [("", "step", "share", "seconds", "conditions", "reason")]
    for position, rung in enumerate(rungs, start=1):
        bounds = [f">= {rung.at_least:g}"] if rung.at_least else []
        bounds += [f"<= {rung.at_most:g}"] if rung.at_most < math.inf else []
        late = ["even when the time is over"] if rung.always else []
        late += ["even without time, as long as there is no plan"] if rung.fallback else []
        conditions = [*late, *rung.conditions]
        numbers = str(position), rung.name, f"{rung.share:g}", ", ".join(bounds)
        rows.append((*numbers, "; ".join(conditions), rung.reason))
    return aligned(rows, right=(0, 2))


def said(event: Event) -> str:
    """Return in words why a rung did not run to its end."""
    return event.outcome if event.why is None else f"{event.outcome}: {event.why}"


def summary(position: int, events: Sequence[Event]) -> dict[str, Any]:
    """Return counts, seconds and gains of a rung in all searches whose ladder it is on."""
    begun = [event for event in events if event.begun]
    ran = [event for event in begun if event.outcome == RAN]
    return {
        "position": position,
        "step": events[0].step,
        "searches": len(events),
        "outcomes": dict(Counter(event.outcome for event in events)),
        "why_not": dict(Counter(said(event) for event in events if event.outcome != RAN)),
        "seconds": sum(event.seconds for event in begun),
        "cpu_seconds": sum(event.cpu_seconds for event in begun),
        "better_schedule": sum(event.better_schedule for event in begun),
        "better_bound": sum(event.better_bound for event in begun),
        "part_closed": fmean(event.part_closed for event in ran) if ran else None,
        "closed": sum(event.closed for event in begun),
    }


def summaries(runs: Sequence[Run]) -> dict[str, list[dict[str, Any]]]:
    """Return the summary of every rung, by ladder."""
    found = {}
    for name in all_ladders():
        columns = zip(*(run.events for run in runs if run.ladder == name), strict=True)
        found[name] = [summary(place, events) for place, events in enumerate(columns, start=1)]
    return {name: rows for name, rows in found.items() if rows}


def contributions(rows: Sequence[dict[str, Any]]) -> str:
    """Return the summaries of a ladder as a table for people."""
    head = ("", "step", "ran", "s", "core s", "schedule", "bound", "of gap", "closed", "not run")
    table: list[tuple[str, ...]] = [head]
    for row in rows:
        ran = row["outcomes"].get(RAN, 0)
        part = "" if row["part_closed"] is None else f"{100 * row['part_closed']:.0f} %"
        counts = (row["better_schedule"], row["better_bound"], part, row["closed"])
        rest = "; ".join(f"{count} {cut(why, LONGEST)}" for why, count in row["why_not"].items())
        seconds = (f"{row[key]:.1f}" for key in ("seconds", "cpu_seconds"))
        place = str(row["position"]), row["step"], f"{ran}/{row['searches']}"
        table.append((*place, *seconds, *map(str, counts), rest))
    return aligned(table, right=(0, *range(2, 9)))


def fitted_text(ladder: str, fitted: Fitted, fit: Fit) -> str:
    """Return the outcome of a fit, for people."""

    def numbers(found: Comparison | None) -> tuple[str, ...]:
        if found is None:
            return "", "", "not tried"
        return f"{found.ratio:.4f}", f"{found.noise_ratio:.4f}", found.verdict

    table: list[tuple[str, ...]] = [("", "step", "time", "ratio", "noise", "difference")]
    for tried in fitted.tried:
        place = str(tried.position), tried.step, f"x {tried.factor:g}"
        table.append((*place, *numbers(tried.comparison)))
    lines = [
        f"{ladder}: {len(fit.problems)} problem(s), {fit.repetitions} repetition(s), a seed each",
        aligned(table, right=(0, 3, 4)),
        "A ratio below 1 is better. The noise is the most by which the ladder differed from itself",
        f"in {fit.repetitions} comparison(s): what differs by no more is no difference.",
        "Not tried is what does not run on these problems, ends by itself, or has all of the time.",
    ]
    if fitted.check is None:
        return "\n".join([*lines, "No difference for the better: nothing is proposed."])
    ratio, noise, verdict = numbers(fitted.check)
    lines.append(f"All that was better, with other seeds: {ratio}, noise {noise}, {verdict}.")
    if not fitted.holds:
        return "\n".join([*lines, "It does not hold there: nothing is proposed."])
    proposed = proposals(all_ladders()[ladder], fitted.rungs)
    file = "joint" if ladder in JOINT_LADDERS else "plain"
    return "\n".join([*lines, f"Proposed for offcert/certification/ladders/{file}.py:", *proposed])
