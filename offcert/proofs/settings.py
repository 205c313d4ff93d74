"""Settings of a method, and its remarks beside the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from offcert.core.documents import Fields
from offcert.core.forms import FLAG, NUMBER, TEXT, Absent, Integer, Record, Table


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that a method was called with; None where it does not read one.

    Attributes
    ----------
    time_limit : float or None
        Seconds.
    workers : int or None
        Threads.
    target_gap : float or None
        At which to stop, as a part of the makespan.
    seed : int or None
        Seed of random choices.
    grid : int or None
        Ticks a cell, of time-indexed models.
    solver : str or None
        Linear solver, by its name.
    """

    time_limit: float | None = None
    workers: int | None = None
    target_gap: float | None = None
    seed: int | None = None
    grid: int | None = None
    solver: str | None = None


@dataclass(frozen=True, kw_only=True)
class Notes:
    """Remarks beside the result.

    Attributes
    ----------
    interrupted : bool
        Whether the user ended the search.
    unfinished : str or None
        The step that was running when this was written, if the search was going on.
    no_plan : str or None
        Why the method found no plan.
    ordered_lower_bound, ordered_objective : int or None
        Ticks: of the best schedule whose offloads all come before its prefetches.
    failed : mapping of str to str
        For each step that failed, with what message.
    refuted : mapping of str to int
        For each method whose solver claimed what a schedule refutes, the claim in ticks.
    shortened : bool
        Whether the schedule was replaced, before it was placed, by one of the same step time.
    """

    interrupted: bool = False
    unfinished: str | None = None
    no_plan: str | None = None
    ordered_lower_bound: int | None = None
    ordered_objective: int | None = None
    failed: Mapping[str, str] = field(default_factory=dict)
    refuted: Mapping[str, int] = field(default_factory=dict)
    shortened: bool = False


_INTEGER, _TEXT, _FLAG = Absent(Integer()), Absent(TEXT), Absent(FLAG, default=False)
_SETTINGS = Record(
    Settings,
    time_limit=Absent(NUMBER),
    workers=_INTEGER,
    target_gap=Absent(NUMBER),
    seed=_INTEGER,
    grid=_INTEGER,
    solver=_TEXT,
)
_NOTES = Record(
    Notes,
    interrupted=_FLAG,
    unfinished=_TEXT,
    no_plan=_TEXT,
    ordered_lower_bound=_INTEGER,
    ordered_objective=_INTEGER,
    failed=Absent(Table(), {}),
    refuted=Absent(Table(integers=True), {}),
    shortened=_FLAG,
)


def to_json(settings: Settings, notes: Notes) -> dict[str, Any]:
    """Return both as one JSON object; what is not known, or did not happen, is left out."""
    return _SETTINGS.write(settings) | _NOTES.write(notes)


def from_json(value: Any, place: str) -> tuple[Settings, Notes]:
    """Return the settings and the remarks in a JSON object."""
    document = Fields(value, place)
    settings, notes = _SETTINGS.values(document), _NOTES.values(document)
    document.finish()
    return Settings(**settings), Notes(**notes)
