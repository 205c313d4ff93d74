"""Settings of a method, and its remarks beside the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from offcert.core.documents import Fields, show
from offcert.core.errors import InputError
from offcert.core.trace import require_integer


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
        Of random choices.
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


def to_json(settings: Settings, notes: Notes) -> dict[str, Any]:
    """Return both as one JSON object; what is not known, or did not happen, is left out."""
    asked = {each.name: getattr(settings, each.name) for each in fields(settings)}
    noted = {each.name: getattr(notes, each.name) for each in fields(notes)}
    said = {name: value for name, value in asked.items() if value is not None}
    for name, value in noted.items():
        if value not in (None, False, {}):
            said[name] = dict(value) if isinstance(value, Mapping) else value
    return said


def from_json(value: Any, place: str) -> tuple[Settings, Notes]:
    """Return what a JSON object says of both.

    Raises
    ------
    InputError
        One sentence that names the first field that is wrong or unknown.
    """
    document = Fields(value, place)
    number, text = (int, float), str
    settings = Settings(
        time_limit=document.optional("time_limit", number),
        workers=_integer(document, value, "workers"),
        target_gap=document.optional("target_gap", number),
        seed=_integer(document, value, "seed"),
        grid=_integer(document, value, "grid"),
        solver=document.optional("solver", text),
    )
    notes = Notes(
        interrupted=bool(document.optional("interrupted", bool)),
        unfinished=document.optional("unfinished", text),
        no_plan=document.optional("no_plan", text),
        ordered_lower_bound=_integer(document, value, "ordered_lower_bound"),
        ordered_objective=_integer(document, value, "ordered_objective"),
        failed=_strings(document, "failed"),
        refuted=_integers(document, "refuted"),
        shortened=bool(document.optional("shortened", bool)),
    )
    document.finish()
    return settings, notes


def _integer(document: Fields, value: Mapping[str, Any], name: str) -> int | None:
    return document.integer(name) if name in value else None


def _strings(document: Fields, name: str) -> dict[str, str]:
    found: dict[str, str] = document.optional(name, dict) or {}
    for step, message in found.items():
        if not isinstance(message, str):
            place = f"{document.path(name)}.{step:.60}"
            raise InputError(f"{place} must be a string, not {show(message)}")
    return found


def _integers(document: Fields, name: str) -> dict[str, int]:
    found: dict[str, Any] = document.optional(name, dict) or {}
    return {
        method: require_integer(value, f"{document.path(name)}.{method:.60}", 0)
        for method, value in found.items()
    }
