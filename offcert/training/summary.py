"""Summaries of a training under a plan, for people, and its numbers for loggers of metrics.

Callbacks of the Trainer and of Lightning say a line before a plan is made, one when the training
begins, and one when it ends; the numbers go to TensorBoard, W&B and whatever else is told of
metrics, and their names end in their units.
"""

from __future__ import annotations

from collections.abc import Mapping

from offcert.core.units import Units, format_size
from offcert.runtime.follow.accounts import say
from offcert.runtime.follow.offload import Offload

_BYTES = Units("ns", "B")
# Bytes in a MiB. By definition.
_MIB = 2**20
# Numbers that a plan promises: the names that loggers are told, and what they are divided by.
_LOGGED = {
    "peak": ("peak_MiB", _MIB),
    "peak_without": ("peak_without_plan_MiB", _MIB),
    "host": ("host_MiB", _MIB),
    "slowdown": ("step_by_computing_ratio", 1),
    "proved_within": ("from_best_possible_percent", 0.01),
    "search_seconds": ("search_seconds", 1),
}


def logged(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers that a plan promises as metrics, whose names end in their units."""
    found = {}
    for name, value in numbers.items():
        said, unit = _LOGGED[name]
        found[f"offload/{said}"] = value / unit
    return found


def tell_of_planning(what: str, seconds: float) -> None:
    """Say that a plan is made before the first step, and how long that may take."""
    say(
        f"a plan for {what} is made before the first step: the step is captured, then a plan is "
        f"searched for, for {seconds:g} s at most"
    )


def said_at_begin(offload: Offload) -> str:
    """Return a line about a training that begins under plans, or before any is there."""
    if not offload.promises:
        return "training begins; a plan is made in its first steps"
    return f"training begins: {_promised(offload)}"


def _promised(offload: Offload) -> str:
    """Return in words the promises of the plan that takes most of the device."""
    most = max(offload.promises, key=lambda numbers: numbers["peak"])
    parts = [
        f"activations take {_size(most['peak'])} of the device instead of "
        f"{_size(most['peak_without'])}",
        f"a step is predicted to take {most['slowdown']:.2f} times its computing",
        "no plan is faster"
        + (f" by more than {100 * most['proved_within']:.2g} %" if most["proved_within"] else ""),
    ]
    if most["host"]:
        parts.append(f"copies take {_size(most['host'])} of the host")
    return ", ".join(parts)


def said_at_end(offload: Offload) -> str:
    """Return a line about a training that has ended: steps, memory, bytes that were moved."""
    total, planned = sum(offload.steps.values()), offload.steps["planned"]
    if not total:
        return "training ended without a step under a plan"
    others = ", ".join(f"{n} {kind}" for kind, n in offload.steps.items() if kind != "planned")
    text = f"training ended: {planned} of {total} steps followed a plan"
    text += f" (the others: {others})" if others else ""
    report = offload.report
    if report.prediction is not None:
        text += f"; in the last one {_size(report.offloaded_bytes)} left the device and came back"
    return f"{text}; {_promised(offload)}" if offload.promises else text


def _size(size: float) -> str:
    return format_size(round(size), _BYTES)
