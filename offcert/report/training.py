"""Texts about a training report, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from offcert.core.units import Units, format_size, format_time

# Lines of one kind that are printed, and deviations; more are summed up. Arbitrary.
_MOST_LINES = 48
_MOST_DEVIATIONS = 10


def describe_training(report: dict[str, Any], units: Units) -> str:
    """Return a training report (``TrainReport.to_dict``) for people."""
    lines = [
        f"{report['name']}: plain training and training by the plan, side by side",
        f"  {'step':>4}  {'loss':>12}  {'equal':>6}  {'peak':>12}  {'plain':>9}  {'plan':>9}",
    ]
    for index, step in enumerate(report["steps"]):
        lines += _step_lines(index, step, units, counted=report["counted"])
    lines.append(
        "  losses, gradients, parameters and buffers bitwise equal: "
        f"{_yes(report['bitwise_equal'])}"
    )
    if report["arena_bytes"]:
        lines.append(f"  {describe_host(report, units)}")
    lines += _times(report, units)
    if not report["counted"]:
        lines.append(f"  every step as planned: {_yes(report['follows_prediction'])}")
        lines.append("  live bytes were not counted")
        return "\n".join(lines)
    lines.append(
        f"  live bytes as predicted at all {2 * len(report['operations'])} events: "
        f"{_yes(report['follows_prediction'])}"
    )
    lines.append(
        f"  peak {format_size(report['peak'], units)}, limit "
        f"{format_size(report['limit'], units)}, without a plan "
        f"{format_size(report['unplanned_peak'], units)}"
    )
    return "\n".join([*lines, *_curve(report, units)])


def describe_host(report: dict[str, Any], units: Units) -> str:
    """Return the host memory that a plan needs, for people."""
    spilled = report.get("host", {}).get("spilled", 0)
    file = f", {format_size(spilled, units)} of it in a file" if spilled else ""
    pinned = ""
    if report.get("device") == "cuda" and "pinned_seconds" in report:
        size = format_size(report["pinned_bytes"], units)
        pinned = f"; {size} pinned in {report['pinned_seconds']:.1f} s"
    return (
        f"host buffer {format_size(report['arena_bytes'], units)}, of which "
        f"{format_size(report['arena_load'], units)} are needed at a time{file}{pinned}"
    )


def _times(report: dict[str, Any], units: Units) -> Iterator[str]:
    """Yield lines about a step's time on its device, and its differences from the plan."""
    if report.get("device", "cpu") == "cpu":
        # There a plan costs what copying costs; how long the problem says anything takes is about
        # another device, unless it was measured here.
        yield "  copies are synchronous on the CPU: times of the plan are not compared with these"
        return
    times, errors = report["times"], report["errors"]
    certified, forecast, executed = (
        None if times[name] is None else format_time(times[name], units)
        for name in ("certified", "predicted", "measured")
    )
    parts = [] if certified is None else [f"certified {certified}"]
    parts += [f"forecast {forecast}", f"executed {executed or 'not timed to its end'}"]
    yield f"  a step on device {report['device']}: {', '.join(parts)}"
    said = [
        f"{name} {'not known' if errors[key] is None else format(100 * errors[key], '+.2f') + ' %'}"
        for name, key in (
            ("time to the certificate", "time_to_certified"),
            ("time to the forecast", "time"),
            ("peak", "peak"),
        )
        if key != "time_to_certified" or certified is not None
    ]
    said += [
        f"{format_size(errors[key], units)} {name}"
        for name, key in (
            ("late", "late_bytes"),
            ("not freed", "unfreed_bytes"),
            ("outside of the host buffer", "outside_bytes"),
        )
    ]
    yield f"  errors: {', '.join(said)}"
    if report.get("hosted") is not None:
        yield from _hosted(report["hosted"], units)
    allocator = report.get("allocator")
    if allocator is not None:
        given, held = (format_size(allocator[key], units) for key in ("allocated", "reserved"))
        # A part of a million is a ten-thousandth of a percent.
        apart = allocator["fragmentation_ppm"] / 10**4
        yield f"  allocator: at most {given} given out and {held} held, {apart:.2f} % in fragments"


def _hosted(found: dict[str, Any], units: Units) -> Iterator[str]:
    """Yield lines about a step behind the host at hand."""

    def time(ticks: int) -> str:
        return format_time(ticks, units)

    plain, planned = found["plain"], found["planned"]
    idle = f"host-bound: {time(found['idle'])} of {time(planned['time'])} idle"
    parts = [idle if found["idle"] else f"{time(planned['time'])}, never idle for it"]
    if found["forecast"] is not None:
        parts.append(f"forecast {time(found['forecast'])}")
    yield f"  behind the host at hand: {', '.join(parts)}"
    whose = "as was recorded" if found["recorded"] else "as is assumed"
    yield (
        f"  it takes {time(planned['host'])} to hand the step over, {time(plain['host'])} without "
        f"a plan; of that {time(found['launch'])} for each of {planned['operators']:,} operators, "
        f"{whose}"
    )


def _step_lines(index: int, step: dict[str, Any], units: Units, *, counted: bool) -> Iterator[str]:
    loss = step["planned_loss"]
    yield (
        f"  {index + 1:>4}  {'-' if loss is None else format(loss, '.6f'):>12}  "
        f"{'yes' if not step['differences'] else 'NO':>6}  "
        f"{format_size(step['peak'], units) if counted else '-':>12}  "
        f"{step['plain_seconds']:>7.2f} s  {step['planned_seconds']:>7.2f} s"
    )
    yield from _some([f"        differs: {name}" for name in step["differences"]])
    if step["deviation"] is not None:
        yield f"        not as planned: {step['deviation']}"
    yield from _some(
        [
            f"        {d['event']} of {d['operation']}: {format_size(d['counted'], units)} live, "
            f"{format_size(d['predicted'], units)} predicted, {d['counted'] - d['predicted']:+} B"
            for d in step["deviations"]
        ]
    )
    if step["unfreed_bytes"]:
        yield f"        {format_size(step['unfreed_bytes'], units)} could not be freed"
    if step["outside_bytes"]:
        outside = format_size(step["outside_bytes"], units)
        yield f"        {outside} were copied outside of the host buffer"
    if step["unforeseen_bytes"]:
        unforeseen = format_size(step["unforeseen_bytes"], units)
        yield f"        {unforeseen} were saved that were not foreseen"


def _some(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_MOST_DEVIATIONS]
    if len(lines) > _MOST_DEVIATIONS:
        yield f"        and {len(lines) - _MOST_DEVIATIONS} more"


def _curve(report: dict[str, Any], units: Units) -> Iterator[str]:
    names, counted, predicted = (
        report[key] for key in ("operations", "counted_end", "predicted_end")
    )
    stretch = -(-len(names) // _MOST_LINES)
    if stretch > 1:
        yield f"  most live bytes at the ends of {stretch} operations at a time (predicted):"
    else:
        yield "  live bytes at the end of each operation (predicted):"
    full = max(report["unplanned_peak"], 1)
    for first in range(0, len(counted), stretch):
        rows = range(first, min(first + stretch, len(counted)))
        most = max(rows, key=counted.__getitem__)
        bar = "#" * round(40 * counted[most] / full)
        live, foreseen = (format_size(sizes[most], units) for sizes in (counted, predicted))
        yield f"    {names[most]:>24} {live:>11} ({foreseen:>11}) {bar}"


def _yes(value: bool) -> str:
    return "yes" if value else "NO"
