"""The figures of `offcert.report.curves`: one a problem, and grids of several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcert.core.documents import write_atomically
from offcert.core.errors import InputError
from offcert.report.curves import Curves, Quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
# Okabe and Ito's colours, which people tell apart however they see colours; markers differ too.
# Sizes fall in the order of drawing, so that methods with the same schedule all show.
_STYLES = {
    "dynprog": ("#0072b2", "o", 7.5),
    "greedy": ("#d55e00", "s", 6.0),
    "vdnn": ("#009e73", "^", 5.5),
    "autoswap": ("#cc79a7", "D", 4.0),
    "tflms": ("#e69f00", "v", 4.0),
}
_SPARE_STYLES = (
    ("#56b4e9", "P", 4.0),
    ("#8c6d31", "X", 4.0),
    ("#7f3c8d", "<", 4.0),
    ("#5f6f52", ">", 4.0),
)
Style = tuple[str, str, float]
_BLACK, _BAND, _SHADE = "#000000", "#9a9a9a", "#eeeeee"
# Columns of panels, panels of a picture, and bytes of a GiB. Arbitrary but for the last.
_MOST_COLUMNS = 4
MOST_PANELS = 40
_GIB = 2**30
_AXES = {
    Quantity.MAKESPAN: "makespan / bound of Prop. 3",
    Quantity.THROUGHPUT: "images per second",
    Quantity.SLOWDOWN: "makespan / computing time",
}
_OPTIMUM, _OPEN = "certified optimum", "best schedule, optimality open"
_BAND_NAME = "between best schedule and proved bound"
_INFEASIBLE = "infeasible"


def save_curves(curves: Curves, path: str | Path) -> None:
    """Draw one problem into an SVG or PNG file; the same curves give the same SVG, byte by byte.

    Raises
    ------
    InputError
        If the file name ends in neither ``.svg`` nor ``.png``, or it cannot be written.
    """
    save_grid([curves], path)


def save_grid(panels: Sequence[Curves], path: str | Path) -> None:
    """Draw several problems into one file, a panel each, with one legend below.

    Raises
    ------
    InputError
        As for `save_curves`, and if there are no panels or more than can be read.
    """
    if Path(path).suffix.lower().removeprefix(".") not in FORMATS:
        raise InputError(f"{path} must end in .svg or .png")
    if not 0 < len(panels) <= MOST_PANELS:
        raise InputError(f"a figure holds 1 to {MOST_PANELS} problems, not {len(panels)}")
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    # Without a salt of their own, and with a date, two SVG files of the same figure differ.
    settings: Any = {"svg.hashsalt": "offcert", "svg.fonttype": "path", "font.size": 9}
    with mpl.rc_context(settings):
        figure = draw(panels)
        try:
            metadata = {"Date": None} if str(path).lower().endswith(".svg") else {}
            write_atomically(
                path, lambda part: figure.savefig(part, dpi=130, metadata=metadata or None)
            )
        finally:
            plt.close(figure)


def draw(panels: Sequence[Curves]) -> Figure:
    """Return the figure with one panel a problem."""
    from matplotlib import pyplot as plt

    single = len(panels) == 1
    columns = min(len(panels), _MOST_COLUMNS)
    rows = math.ceil(len(panels) / columns)
    size = (6.4, 4.6) if single else (3.1 * columns + 0.4, 2.3 * rows + 0.9)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    flat = list(axes.flat)
    styles = styles_of(panels)
    for number, (ax, curves) in enumerate(zip(flat, panels, strict=False)):
        draw_panel(curves, ax, styles, small=not single)
        if number % columns == 0:
            ax.set_ylabel(_AXES[curves.what])
        if number + columns >= len(panels):
            ax.set_xlabel("memory (% of the way from least to peak)" if single else "memory (%)")
        if single:
            _add_sizes(curves, ax)
        ax.set_title(curves.problem, fontsize=10 if single else 9, parse_math=False)
    for ax in flat[len(panels) :]:
        ax.set_axis_off()
    _add_legend(figure, flat[: len(panels)])
    return figure


def styles_of(panels: Iterable[Curves]) -> dict[str, Style]:
    """Return colour, marker and its size of every method, the same in all panels."""
    names = dict.fromkeys(name for curves in panels for name in (*curves.methods, *curves.failed))
    others = [name for name in names if name not in _STYLES]
    spare = {name: _SPARE_STYLES[i % len(_SPARE_STYLES)] for i, name in enumerate(others)}
    return {name: _STYLES.get(name) or spare[name] for name in names}


def draw_panel(curves: Curves, ax: Axes, styles: dict[str, Style], small: bool = False) -> None:
    """Draw one problem: shading, band, optimum, methods, and crosses where a method died."""
    scale = 0.7 if small else 1.0
    x = curves.percents
    _shade_infeasible(curves, ax)
    _draw_optimum(curves, ax, scale)
    for name, line in curves.methods.items():
        colour, marker, size = styles[name]
        ax.plot(
            x,
            line,
            color=colour,
            marker=marker,
            ms=size * scale,
            lw=1.3 * scale,
            label=_title(name),
        )
    _mark_failures(curves, ax, styles, scale)
    _mark_beyond(curves, ax, styles, scale)
    _set_limits(curves, ax)
    ax.grid(color="#dddddd", lw=0.5)
    ax.set_axisbelow(True)


def _draw_optimum(curves: Curves, ax: Axes, scale: float) -> None:
    """Draw the best schedules, full where they are certified, and the band to the proved bound."""
    x = curves.percents
    ax.plot(x, curves.best, color=_BLACK, lw=1.4 * scale, ls=(0, (4, 1.5)), zorder=3)
    marks: dict[str, Any] = {"color": _BLACK, "ls": "", "marker": "o", "ms": 3 * scale, "zorder": 4}
    ax.plot(x, curves.optimum, label=_OPTIMUM, **marks)
    open_ = [
        best if math.isnan(optimum) else math.nan
        for best, optimum in zip(curves.best, curves.optimum, strict=True)
    ]
    if not all(map(math.isnan, open_)):
        ax.plot(x, open_, label=_OPEN, mfc="white", **marks)
    ax.plot(x, curves.proved, color=_BAND, lw=0.8, ls=":")
    wide = any(abs(a - b) > 0 for a, b in zip(curves.best, curves.proved, strict=True))
    label = _BAND_NAME if wide else None
    ax.fill_between(x, curves.proved, curves.best, color=_BAND, alpha=0.5, lw=0, label=label)


def _shade_infeasible(curves: Curves, ax: Axes) -> None:
    if curves.infeasible:
        # Exactly what is below the least memory is infeasible, whichever limits were asked for.
        ax.axvspan(min(curves.infeasible), 0, color=_SHADE, lw=0)
        ax.fill_between([], [], color=_SHADE, lw=0, label=_INFEASIBLE)


def _mark_failures(curves: Curves, ax: Axes, styles: dict[str, Style], scale: float) -> None:
    for number, (name, percents) in enumerate(curves.failed.items()):
        colour = styles[name][0] if name in styles else _BLACK
        # Above the axis' lower end, each method on a line of its own.
        height = [0.03 + 0.04 * number] * len(percents)
        ax.plot(
            percents,
            height,
            transform=ax.get_xaxis_transform(),
            color=colour,
            marker="x",
            ms=6 * scale,
            mew=1.6,
            ls="",
            label=f"{_title(name)} failed",
        )


def _mark_beyond(curves: Curves, ax: Axes, styles: dict[str, Style], scale: float) -> None:
    """Write the value of what is off the scale at the upper end, in the method's colour."""
    for name, line in curves.methods.items():
        for percent, level in zip(curves.percents, line, strict=True):
            if level > curves.visible_top:
                ax.annotate(
                    f"{level:.2g} ↑",
                    (percent, 0.97),
                    xycoords=ax.get_xaxis_transform(),
                    color=styles[name][0],
                    ha="right" if percent > 50 else "left",
                    va="top",
                    fontsize=9 * (0.6 + 0.4 * scale),
                )


def _set_limits(curves: Curves, ax: Axes) -> None:
    left = min((*curves.percents, *curves.infeasible, 0.0))
    right = max((*curves.percents, *curves.infeasible, 100.0))
    ax.set_xlim(left - 3, right + 3)
    low, high = curves.lowest_level, curves.visible_top
    if math.isnan(low):
        ax.set_yticks([])
        return
    if curves.what is not Quantity.THROUGHPUT:
        room = max(high - 1.0, 0.05)
        ax.set_ylim(1.0 - 0.06 * room, high + 0.06 * room)
    else:
        ax.set_ylim(0, 1.06 * high)


def _add_sizes(curves: Curves, ax: Axes) -> None:
    """Add an axis with the memory in GiB or MiB, or in the problem's units if it is tiny."""
    least, peak = curves.ends
    if peak <= least:
        return
    sizes = ((_GIB, "GiB"), (_GIB >> 10, "MiB"))
    unit, name = next((known for known in sizes if peak > known[0]), (1, "size units"))
    per_percent = (peak - least) / 100 / unit
    both_ways = (
        lambda percent: least / unit + percent * per_percent,
        lambda size: (size - least / unit) / per_percent,
    )
    top = ax.secondary_xaxis("top", functions=both_ways)
    top.set_xlabel(f"memory ({name})")


def _add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    found: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    first = [label for label in (_OPTIMUM, _OPEN, _BAND_NAME, _INFEASIBLE) if label in found]
    labels = first + [label for label in found if label not in first]
    figure.legend(
        [found[label] for label in labels],
        labels,
        ncols=min(len(found), 2 if len(axes) < 3 else 4),
        loc="outside lower center",
        frameon=False,
    )


def _title(name: str) -> str:
    return name.upper() if name in _STYLES else name
