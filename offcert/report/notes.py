"""What searches remark beside their results, whatever they search for."""

from __future__ import annotations

from typing import Any

from offcert.proofs.settings import Notes


def notes_summary(notes: Notes) -> dict[str, Any]:
    """Return what happened during a search as JSON values; nothing of what did not."""
    said: dict[str, Any] = {}
    if notes.no_plan is not None:
        said["no_plan"] = notes.no_plan
    if notes.failed:
        said["failed"] = dict(notes.failed)
    if notes.interrupted:
        said["interrupted"] = True
    return said


def notes_lines(notes: Notes) -> list[str]:
    """Return for people why a search found no plan, and what failed."""
    lines = [] if notes.no_plan is None else [f"  {notes.no_plan}"]
    return [*lines, *(f"  {step} failed: {message}" for step, message in notes.failed.items())]
