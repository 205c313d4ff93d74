"""Ratios of methods to the best values known and to proved bounds, by group of problems.

The table for people has ratios to what `certify` found, and says what the campaign did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

from offcert.campaign.cells import CERTIFY
from offcert.campaign.run import Summary
from offcert.campaign.storage import FAILED, NO_PLAN, Row
from offcert.core.errors import InputError
from offcert.core.messages import aligned
from offcert.core.result import SolveStatus
from offcert.core.units import Units, format_size, format_time
from offcert.instances.library import Library
from offcert.instances.records import Record


def summary_to_json(summary: Summary) -> dict[str, Any]:
    """Return the counts and seconds of a campaign, without its rows."""
    names = ("cells", "kept", "computed", "failed", "damaged", "seconds")
    return {name: getattr(summary, name) for name in names}


def describe_rows(rows: Sequence[Row], units: Mapping[str, Units] | None = None) -> str:
    """Return a line for every problem and limit: ratios to the makespan that certify found.

    Where there is none, makespans, in the units that the hashes of problems are given with.
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
    """Return whether a row's problem allows to offload, to recompute, or both."""
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


# The group of problems that no library knows.
OWN = "own"
ALL = "all"


@dataclass(frozen=True)
class Measured:
    """One method on one problem."""

    # As in a campaign's table; the group is the library's, or `OWN`.
    problem: str
    digest: str
    group: str
    method: str
    status: str
    # The method's result, which a checker has passed: ticks, or bytes of a pool of addresses.
    value: int | None
    # The least that is known: a record of the library's, or what any of the methods attained.
    best: int | None
    # The best proved lower bound that is known. What solvers claim does not count.
    proved: int | None
    seconds: float  # Seconds that the method took.
    reason: str | None = None  # Why there is no value.

    @property
    def to_best(self) -> float | None:
        """The value by the best one known; at least 1."""
        return _ratio(self.value, self.best)

    @property
    def to_proved(self) -> float | None:
        """The value by the proved bound: no answer is better by more than that."""
        return _ratio(self.value, self.proved)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        names = ("problem", "group", "method", "status", "value", "best", "proved", "seconds")
        ratios = {"ratio_to_best": self.to_best, "ratio_to_proved": self.to_proved}
        return {name: getattr(self, name) for name in names} | ratios | {"reason": self.reason}


def _ratio(value: int | None, reference: int | None) -> float | None:
    if value is None or reference is None:
        return None
    if reference == 0:
        return 1.0 if value == 0 else None
    return value / reference


@dataclass(frozen=True)
class Standing:
    """How one method stands in one group of problems."""

    # `ALL` is all groups.
    group: str
    method: str
    # Problems, those with a legal answer, and those where the method broke or its answer was
    # illegal.
    problems: int
    answered: int
    failed: int
    attained: int  # Problems in which it is as good as the best known.
    # Geometric means and maxima of the ratios, where it has an answer.
    mean_to_best: float | None
    worst_to_best: float | None
    mean_to_proved: float | None
    worst_to_proved: float | None
    seconds: float  # Seconds of all its problems together.

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return dict(vars(self))


def measured_of(rows: Sequence[Row], library: Library | None = None) -> list[Measured]:
    """Return the results of methods in a campaign, beside all that a library knows of them."""
    known = library or Library()
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["digest"], []).append(row)
    measured = []
    for same in found.values():
        group, record = _known(same[0], known)
        values = [row["makespan"] for row in same if row["makespan"] is not None]
        best = min([*values, *(() if record.value is None else (record.value,))], default=None)
        proved = [row["proved_bound"] for row in same] + [record.proved_bound]
        # No schedule is shorter than what it computes, where nothing is to be decided but moves.
        if same[0]["recompute"] in (None, "none"):
            proved.append(same[0]["compute_time"])
        bound = max((value for value in proved if value is not None), default=None)
        measured += [_measured(row, group, best, bound) for row in same]
    return measured


def _measured(row: Row, group: str, best: int | None, bound: int | None) -> Measured:
    name = row["problem"]
    if row["memory_percent"] is not None:
        name += f" at {row['memory_percent']:.4g} %"
    return Measured(
        name,
        row["digest"],
        group,
        row["method"],
        row["status"],
        row["makespan"],
        best,
        bound,
        row["seconds"],
        row["reason"],
    )


def _known(row: Row, library: Library) -> tuple[str, Record]:
    """Return a problem's group and record; a table names problems by their families."""
    try:
        family = library.family(row["problem"])
    except InputError:
        return OWN, Record()
    for entry in family.entries:
        if entry.digest == row["digest"]:
            return family.group, entry.record
    return OWN, Record()


def standings(measured: Iterable[Measured]) -> list[Standing]:
    """Return the standing of every method in every group, and in all where there are several."""
    groups: dict[str, dict[str, list[Measured]]] = {}
    for each in measured:
        if each.status == SolveStatus.INFEASIBLE:
            continue
        for group in (each.group, ALL):
            groups.setdefault(group, {}).setdefault(each.method, []).append(each)
    everything = groups.pop(ALL, {})
    if len(groups) > 1:
        groups[ALL] = everything
    return [
        _standing(group, *item) for group, methods in groups.items() for item in methods.items()
    ]


def _standing(group: str, method: str, rows: Sequence[Measured]) -> Standing:
    best = [ratio for row in rows if (ratio := row.to_best) is not None]
    proved = [ratio for row in rows if (ratio := row.to_proved) is not None]
    return Standing(
        group=group,
        method=method,
        problems=len(rows),
        answered=sum(row.value is not None for row in rows),
        failed=sum(row.status == FAILED for row in rows),
        attained=sum(row.value is not None and row.value == row.best for row in rows),
        mean_to_best=_mean(best),
        worst_to_best=max(best, default=None),
        mean_to_proved=_mean(proved),
        worst_to_proved=max(proved, default=None),
        seconds=sum(row.seconds for row in rows),
    )


def _mean(ratios: Sequence[float]) -> float | None:
    return geometric_mean(ratios) if ratios and min(ratios) > 0 else None


def describe_standings(found: Iterable[Standing]) -> str:
    """Return a line for every method in every group, for people."""
    header = "group", "method", "problems", "legal", "failed", "as the best"
    ratios = "mean to best", "largest", "mean to proved bound", "largest"
    lines = [[*header, *ratios, "seconds"]]
    for each in found:
        counts = each.problems, each.answered, each.failed, each.attained
        means = each.mean_to_best, each.worst_to_best, each.mean_to_proved, each.worst_to_proved
        shown = ["-" if mean is None else f"{mean:.3f}" for mean in means]
        lines.append([each.group, each.method, *map(str, counts), *shown, f"{each.seconds:.2f}"])
    return aligned(lines)


def describe_faults(measured: Iterable[Measured]) -> list[str]:
    """Return a line for every answer that is missing: where, and why."""
    bad = (FAILED, NO_PLAN)
    return [
        f"{each.method} on {each.problem}: {each.reason}"
        for each in measured
        if each.status in bad and each.method != CERTIFY
    ]


def profile(measured: Iterable[Measured]) -> dict[str, list[float | None]]:
    """Return every method's ratios to the best value known, a problem each; None: no answer.

    Only problems that every method was given, and of which some value is known.
    """
    given: dict[str, dict[str, Measured]] = {}
    for each in measured:
        if each.best is not None:
            given.setdefault(each.digest, {})[each.method] = each
    methods = list(dict.fromkeys(name for same in given.values() for name in same))
    return {
        name: [same[name].to_best for same in given.values() if len(same) == len(methods)]
        for name in methods
    }
