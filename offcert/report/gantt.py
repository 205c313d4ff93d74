"""The Gantt chart of a schedule: device and link over the memory curve with its limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from offcert.core.documents import write_atomically
from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.units import format_size, format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.fluid_schedule import FluidSchedule
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.report.bars import (
    BOUND,
    HELD,
    LIMIT,
    LOOKS,
    Bar,
    bars_of,
    looks_of,
    rows_of,
    shown_looks,
    size_scale,
    time_scale,
)
from offcert.report.gantt_svg import gantt_text
from offcert.report.memory_curve import fluid_memory_curve, memory_curve
from offcert.report.robust import BAND, band_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FORMATS = (".png", ".svg")
# Bars up to which bars have outlines and stripes: on more, these would hide them. Arbitrary.
_MOST_OUTLINED = 150
# Part of the picture's width that a letter takes: a bar too short for its name has none. Assumed.
_PART_PER_LETTER = 0.0085


def save_gantt(certificate: Certificate, path: str | Path) -> None:
    """Draw a certificate's schedule into a PNG or SVG file.

    In an SVG file every operation and every transfer says what it is when the mouse rests on it.

    Raises
    ------
    InputError
        If the certificate holds no schedule or the file name ends in neither ``.png`` nor ``.svg``.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise InputError(f"{path} must end in .png or .svg")
    if certificate.result.schedule is None:
        raise InputError("the certificate holds no schedule to draw")
    if suffix == ".svg":
        text = gantt_text(certificate)
        write_atomically(path, lambda part: _write_text(part, text))
    else:
        _save_png(certificate, certificate.result.schedule, path)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _save_png(
    certificate: Certificate, schedule: Schedule | FluidSchedule, path: str | Path
) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    problem = certificate.executed
    figure, (gantt, memory) = plt.subplots(
        2, 1, figsize=(11, 5.2), sharex=True, height_ratios=[2, 3], layout="constrained"
    )
    try:
        plot_gantt(problem, schedule, gantt, looks_of(certificate))
        plot_memory(problem, schedule, memory)
        plot_bound(certificate, gantt, memory)
        title = f"{cut(problem.name)}: {certificate.result.summary(problem.units)}"
        figure.suptitle(title, parse_math=False)
        write_atomically(path, lambda part: figure.savefig(part, dpi=130))
    finally:
        plt.close(figure)


def plot_gantt(
    problem: Problem,
    schedule: Schedule | FluidSchedule,
    ax: Axes,
    looks: Sequence[str] | None = None,
) -> None:
    """Draw the operations on the device and the transfers on the link, against time.

    Parameters
    ----------
    problem : Problem
        Of which `schedule` is a schedule; of a certificate, `Certificate.executed`.
    schedule : Schedule or FluidSchedule
        What is drawn.
    ax : Axes
        Of matplotlib.
    looks : sequence of str, optional
        How each operation looks; see `offcert.report.bars.bars_of`.
    """
    scale, _ = time_scale(problem, schedule.makespan)
    rows = rows_of(problem)
    bars = list(bars_of(problem, schedule, looks))
    few = len(bars) <= _MOST_OUTLINED
    for name, look in shown_looks(bars).items():
        chosen = [bar for bar in bars if bar.look == name]
        height = len(rows) - 1 - rows.index(chosen[0].row) if chosen else 0
        ax.broken_barh(
            [(float(bar.start) / scale, float(bar.end - bar.start) / scale) for bar in chosen],
            (height + 0.1, 0.8),
            facecolor=look.colour,
            label=look.name,
            hatch=look.hatch * 2 if few else "",
            ec="white",
            lw=0.3 if few else 0.0,
        )
        for bar in chosen:
            _plot_name(bar, height + 0.5, schedule.makespan, scale, ax)
    ax.set_yticks([len(rows) - 0.5 - index for index in range(len(rows))], rows)
    ax.legend(ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)


def _plot_name(bar: Bar, height: float, makespan: int, scale: int, ax: Axes) -> None:
    part = float(bar.end - bar.start) / max(makespan, 1)
    if bar.label and part >= _PART_PER_LETTER * (len(bar.label) + 1):
        look = LOOKS[bar.look]
        ax.text(
            float(bar.start + bar.end) / 2 / scale,
            height,
            bar.label,
            color=look.text,
            fontsize=8,
            ha="center",
            va="center",
            parse_math=False,
            # Stripes must not run through the letters.
            bbox={"facecolor": look.colour, "edgecolor": "none", "pad": 0.8},
        )


def plot_memory(problem: Problem, schedule: Schedule | FluidSchedule, ax: Axes) -> None:
    """Draw the bytes on the device against time, and the limit."""
    scale, time = time_scale(problem, schedule.makespan)
    unit, label = size_scale(problem, max(problem.trace.peak_memory, problem.platform.memory))
    if isinstance(schedule, Schedule):
        steps, whole = memory_curve(problem, schedule)
        times, held = [t / scale for t in steps], [size / unit for size in whole]
        ax.step(times, held, where="post", color=HELD)
        ax.fill_between(times, held, step="post", alpha=0.25, color=HELD)
    else:
        points = fluid_memory_curve(problem, schedule)
        times = [float(t) / scale for t, _ in points]
        held = [float(size) / unit for _, size in points]
        ax.plot(times, held, color=HELD)
        ax.fill_between(times, held, alpha=0.25, color=HELD)
    limit = problem.platform.memory / unit
    ax.axhline(limit, color=LIMIT, linestyle="--", label="limit")
    ax.set_ylabel(f"memory ({label})")
    ax.set_xlabel(f"time ({time})")
    ax.set_ylim(bottom=0)
    ax.legend(loc="lower center", facecolor="white", edgecolor="none")


def plot_bound(certificate: Certificate, *axes: Axes) -> None:
    """Mark the lower bound, before which no schedule ends, if there is one.

    Where memory is minimised it is below the limit, in the last of the axes.
    """
    problem, result = certificate.problem, certificate.result
    if not result.bounds or result.objective is None:
        return
    if problem.minimise is Minimise.MEMORY:
        executed = certificate.executed
        unit, _ = size_scale(executed, max(executed.trace.peak_memory, result.objective))
        text = f"lower bound {format_size(result.lower_bound, problem.units)}"
        axes[-1].axhline(result.lower_bound / unit, color=BOUND, linestyle=":", label=text)
    else:
        scale, _ = time_scale(problem, result.objective)
        text = f"lower bound {format_time(result.lower_bound, problem.units)}"
        for ax in axes:
            ax.axvline(result.lower_bound / scale, color=BOUND, linestyle=":", label=text)
        if certificate.robust is not None:
            ends = certificate.robust.lower_bound / scale, certificate.robust.objective / scale
            band = f"uncertain times: {band_text(certificate)}"
            for ax in axes:
                ax.axvspan(*ends, color=BAND, alpha=0.16, lw=0, label=band)
    axes[-1].legend(loc="lower center", facecolor="white", edgecolor="none")
