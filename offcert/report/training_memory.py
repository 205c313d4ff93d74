"""Live bytes of a training record, planned and measured over each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offcert.core.training_record import TrainingRecord
from offcert.report.bars import BOUND, HELD, LIMIT
from offcert.report.scales import size_scale, time_scale
from offcert.report.training_rows import courses_of, span_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_training_memory(record: TrainingRecord, ax: Axes | None = None) -> Axes:
    """Draw the bytes on the device against time, and the limit.

    Parameters
    ----------
    record : TrainingRecord
        What is drawn; measured bytes only if they were counted.
    ax : Axes, optional
        Of matplotlib; by default new ones.
    """
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(layout="constrained")
    scale, time = time_scale(record, span_of(record))
    unit, label = size_scale(record, max(record.limit, record.predicted_peak))
    for name, (course, factor) in courses_of(record).items():
        points = list(course.live())
        if not points:
            continue
        colour = HELD if name == "planned" else BOUND
        times = [at * factor / scale for at, _ in points]
        sizes = [size / unit for _, size in points]
        if name == "planned":
            ax.fill_between(times, sizes, step="post", alpha=0.25, color=colour, lw=0)
        style = "-" if name == "planned" else (0, (4, 1))
        ax.step(times, sizes, where="post", color=colour, lw=1.2, ls=style, label=name)
    ax.axhline(record.limit / unit, color=LIMIT, linestyle="--", label="limit")
    ax.set_ylabel(f"live memory ({label})")
    ax.set_xlabel(f"time ({time})")
    ax.set_ylim(bottom=0)
    ax.legend(loc="lower center", ncols=3, facecolor="white", edgecolor="none")
    return ax
