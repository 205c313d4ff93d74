"""Where a trace comes from: its clock, what it was captured on, what it does not count."""

from __future__ import annotations

from typing import Any

from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.units import format_size
from offcert.questions.schedule.device_memory import describe_uncounted, uncounted_bytes
from offcert.questions.schedule.problem import Problem

_CLOCKS = {
    "modules": "modules: what happens between two events at leaf modules",
    "operators": "operators, one by one",
}
_TENSORS = {
    "fake": "fake tensors, which have no data",
    "real": "real tensors, because the program looks at values",
}


def origin_summary(problem: Problem) -> dict[str, Any]:
    """Return clock, kind of tensors, device and uncounted bytes, as far as the problem has them."""
    source = problem.source or {}
    capture = _capture(problem)
    found = {
        "clock": source.get("clock"),
        "tensors": capture.get("tensors"),
        "device": capture.get("device"),
        "uncounted": _uncounted(problem),
    }
    return {name: value for name, value in found.items() if value is not None}


def origin_lines(problem: Problem) -> list[str]:
    """Return the same for people."""
    found = origin_summary(problem)
    lines = []
    if "clock" in found:
        lines.append(f"  clock          {_CLOCKS.get(found['clock'], found['clock'])}")
    lines += _times(problem)
    if "tensors" in found:
        tensors = _TENSORS.get(found["tensors"], found["tensors"])
        lines.append(f"  captured on    {tensors}; device: {found.get('device')}")
    if "uncounted" in found:
        sizes = found["uncounted"]
        total = format_size(sum(sizes.values()), problem.units)
        lines.append(f"  not counted    {total}: {describe_uncounted(sizes)}")
        if "optimiser" not in sizes:
            lines.append("                 and the optimiser's state, which is not known")
    return lines


def _times(problem: Problem) -> list[str]:
    """Return in a line whose times these are, and which part of its peaks a model reaches."""
    source = problem.source or {}
    name = source.get("hardware")
    if not isinstance(name, str):
        return []
    if source.get("measured"):
        return [f"  times          measured on {cut(name)}"]
    reached = source.get("efficiency")
    rows = reached.items() if isinstance(reached, dict) else ()
    by = f" ({cut(str(source['attention']))})" if "attention" in source else ""
    parts = [
        f"{cut(kind)}{by if kind == 'attention' else ''} {cut(str(part))}" for kind, part in rows
    ]
    reached = f"; of its peaks are reached: {', '.join(parts)}" if parts else " at its peak rates"
    return [f"  times          roofline of {cut(name)}{reached}"]


def _capture(problem: Problem) -> dict[str, Any]:
    found = (problem.source or {}).get("capture")
    return found if isinstance(found, dict) else {}


def _uncounted(problem: Problem) -> dict[str, int] | None:
    try:
        return uncounted_bytes(problem)
    except InputError:
        return None
