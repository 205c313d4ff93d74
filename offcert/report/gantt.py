"""The Gantt chart of a schedule: device and link over the memory curve with its limit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from offcert.core.documents import write_atomically
from offcert.core.errors import InputError
from offcert.core.fluid_schedule import FluidSchedule
from offcert.core.plan import Kind
from offcert.core.problem import Problem
from offcert.core.schedule import Schedule
from offcert.proofs.certificate import Certificate
from offcert.report.fluid_curve import fluid_memory_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {
    "forward": "#4477aa",
    "backward": "#66ccee",
    Kind.OFFLOAD: "#ee6677",
    Kind.PREFETCH: "#228833",
}
_FORMATS = (".png", ".svg")
# White lines between more bars than these would hide the bars.
_MOST_OUTLINED = 150


def save_gantt(certificate: Certificate, path: str | Path) -> None:
    """Draw a certificate's schedule into a PNG or SVG file.

    Raises
    ------
    InputError
        If the certificate holds no schedule or the file name ends in neither ``.png`` nor ``.svg``.
    """
    if Path(path).suffix.lower() not in _FORMATS:
        raise InputError(f"{path} must end in .png or .svg")
    schedule = certificate.result.schedule
    if schedule is None:
        raise InputError("the certificate holds no schedule to draw")
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (gantt, memory) = plt.subplots(
        2, 1, figsize=(11, 5.2), sharex=True, height_ratios=[2, 3], layout="constrained"
    )
    try:
        plot_gantt(certificate.problem, schedule, gantt)
        plot_memory(certificate.problem, schedule, memory)
        result = certificate.result
        claim = f"{result.status}, gap {100 * result.gap:.3g} %"
        figure.suptitle(f"{certificate.problem.name}: {claim}", parse_math=False)
        write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=130))
    finally:
        plt.close(figure)


def plot_gantt(problem: Problem, schedule: Schedule | FluidSchedule, ax: Axes) -> None:
    """Draw the operations on the device and the transfers on the link, against time."""
    moves = schedule.transfers if isinstance(schedule, Schedule) else schedule.pieces
    scale = _time_scale(problem)
    middle = turn(problem)
    width = 0.3 if max(len(schedule.starts), len(moves)) <= _MOST_OUTLINED else 0.0
    for half, (begin, end) in {"forward": (0, middle), "backward": (middle, None)}.items():
        bars = [
            (start / scale, (stop - start) / scale)
            for start, stop in zip(
                schedule.starts[begin:end], schedule.ends[begin:end], strict=True
            )
        ]
        ax.broken_barh(bars, (2.1, 0.8), color=_COLOURS[half], label=half, ec="white", lw=width)
    for kind in Kind:
        row = 0.1 if problem.platform.duplex and kind is Kind.PREFETCH else 1.1
        bars = [
            (float(move.start) / scale, float(move.end - move.start) / scale)
            for move in moves
            if move.kind is kind
        ]
        ax.broken_barh(bars, (row, 0.8), color=_COLOURS[kind], label=kind, ec="white", lw=width)
    if problem.platform.duplex:
        ax.set_yticks([0.5, 1.5, 2.5], ["link in", "link out", "device"])
    else:
        ax.set_yticks([1.5, 2.5], ["link", "device"])
    ax.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)


def turn(problem: Problem) -> int:
    """Return the first operation of the backward pass: the first named so, or half-way."""
    names = [operation.name for operation in problem.trace.operations]
    backward = (index for index, name in enumerate(names) if name.startswith("B:"))
    return next(backward, len(names) // 2)


def plot_memory(problem: Problem, schedule: Schedule | FluidSchedule, ax: Axes) -> None:
    """Draw the bytes on the device against time, and the limit."""
    scale = _time_scale(problem)
    unit, label = _size_scale(problem)
    if isinstance(schedule, Schedule):
        steps, whole = memory_curve(problem, schedule)
        times, held = [t / scale for t in steps], [size / unit for size in whole]
        ax.step(times, held, where="post")
        ax.fill_between(times, held, step="post", alpha=0.2)
    else:
        points = fluid_memory_curve(problem, schedule)
        times = [float(time) / scale for time, _ in points]
        held = [float(size) / unit for _, size in points]
        ax.plot(times, held)
        ax.fill_between(times, held, alpha=0.2)
    limit = problem.platform.memory / unit
    ax.axhline(limit, color="#aa3377", linestyle="--", label="limit")
    ax.set_ylabel(f"memory ({label})")
    ax.set_xlabel("time (ms)" if problem.units.time == "ns" else "time (ticks)")
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper right", frameon=False)


def memory_curve(problem: Problem, schedule: Schedule) -> tuple[list[int], list[int]]:
    """Return the bytes on the device over time, as the times of change and the bytes from then on.

    Changes at the same time are joined, so an operation of no duration does not show.
    """
    trace = problem.trace
    changes: dict[int, int] = {0: 0}

    def change(time: int, size: int) -> None:
        changes[time] = changes.get(time, 0) + size

    for tensor in trace.tensors:
        first = tensor.uses[0]
        change(schedule.starts[first] if first >= 0 else 0, tensor.size)
        change(schedule.ends[tensor.uses[-1]], -tensor.size)
    for operation, start, end in zip(trace.operations, schedule.starts, schedule.ends, strict=True):
        change(start, operation.workspace)
        change(end, -operation.workspace)
    offloads = {trace.gaps[t.gap].tensor: t for t in schedule.transfers if t.kind is Kind.OFFLOAD}
    for transfer in schedule.transfers:
        if transfer.kind is Kind.PREFETCH:
            gap = trace.gaps[transfer.gap]
            opened = schedule.ends[gap.before] if gap.before >= 0 else 0
            change(max(offloads[gap.tensor].end, opened), -trace.gap_size(transfer.gap))
            change(transfer.start, trace.gap_size(transfer.gap))
    times = sorted(changes)
    held, total = [], 0
    for time in times:
        total += changes[time]
        held.append(total)
    return times, held


def _time_scale(problem: Problem) -> float:
    return 1e6 if problem.units.time == "ns" else 1.0


def _size_scale(problem: Problem) -> tuple[float, str]:
    if problem.units.size != "B":
        return 1.0, "units"
    return (2**30, "GiB") if problem.trace.peak_memory > 2**31 else (2**20, "MiB")
