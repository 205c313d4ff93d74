"""The picture of the section about moDNN: Figures 12, 9 and 18 with what is certified."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from offcert.core.documents import write_atomically
from papers.claims.modnn_claims import speed_up
from papers.claims.modnn_rows import GB, ModnnRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours that people tell apart however they see them; sizes fall in the order of drawing.
_LINES = (
    ("plus", "vDNN+", "#d55e00", "s", 7.0),
    ("modnn", "moDNN", "#0072b2", "o", 4.5),
    ("vdnn", "vDNN, whole batch", "#009e73", "^", 5.0),
    ("whole", "moDNN, whole batch", "#cc79a7", "D", 3.5),
)
_MARKS = (
    ("ideal", "ideal case", "#000000", "_"),
    ("live", "live at a time", "#9a9a9a", "_"),
    ("offloading", "offloading alone", "#009e73", "^"),
    ("sub_batches", "sub-batches alone", "#e69f00", "s"),
    ("least", "least, certified", "#0072b2", "o"),
    ("least_weights", "weights leave, certified", "#d55e00", "v"),
)
_CASES = (
    ("ideal, naive", "ideal,\nnaive", 3.1),
    ("12 GB", "12 GB", 3.7),
    ("6 GB, naive", "6 GB,\nnaive", 2.9),
    ("6 GB", "6 GB", 3.4),
    ("3 GB, naive", "3 GB,\nnaive", 2.6),
    ("3 GB", "3 GB", 3.1),
    ("3 GB, 20 cores", "3 GB,\n20 cores", 3.2),
)
_COLUMNS = 4


def save_figure(rows: ModnnRows, path: str | Path) -> None:
    """Draw the picture into a PNG file.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context({"font.size": 8}):
        figure = draw(rows)
        try:
            write_atomically(path, lambda part: figure.savefig(part, dpi=130, format="png"))
        finally:
            plt.close(figure)


def draw(rows: ModnnRows) -> Figure:
    """Return the figure: a panel a network, one of memory, one of four GPUs."""
    from matplotlib import pyplot as plt

    count = len(rows.networks) + 2
    height = -(-count // _COLUMNS)
    size = (3.2 * _COLUMNS, 2.7 * height + 0.5)
    figure, axes = plt.subplots(height, _COLUMNS, figsize=size, squeeze=False, layout="constrained")
    flat: list[Any] = list(axes.flat)
    for name, ax in zip(rows.networks, flat, strict=False):
        _times(rows, name, ax)
    _memory(rows, flat[count - 2])
    _devices(rows, flat[count - 1])
    for ax in flat[count:]:
        ax.set_axis_off()
    handles, labels = flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=len(labels), loc="outside lower left", frameon=False)
    return figure


def _times(rows: ModnnRows, network: str, ax: Axes) -> None:
    own = sorted((row for row in rows.times if row.network == network), key=lambda r: r.memory)
    x = [row.memory / GB for row in own]
    for name, label, colour, marker, size in _LINES:
        times = [getattr(row, f"{name}_time") for row in own]
        y = [
            float("nan") if time is None else time / row.ideal_time
            for time, row in zip(times, own, strict=True)
        ]
        ax.plot(x, y, color=colour, marker=marker, ms=size, lw=1.1, label=label)
    best = [row.best_time / row.ideal_time for row in own]
    bound = [row.bound / row.ideal_time for row in own]
    ax.plot(x, best, color="#000000", lw=1.3, ls=(0, (4, 1.5)), label="certified best", zorder=4)
    ax.fill_between(x, bound, best, color="#9a9a9a", alpha=0.5, lw=0, label="to proved bound")
    ax.set_title(network)
    ax.set_xlabel("memory (GB)")
    ax.set_ylabel("time / ideal case")
    ax.grid(color="#dddddd", lw=0.5)


def _memory(rows: ModnnRows, ax: Axes) -> None:
    x = range(len(rows.memory))
    for name, label, colour, marker in _MARKS:
        y = [getattr(row, name) / GB for row in rows.memory]
        wide: dict[str, Any] = {"ms": 12, "mew": 2} if marker == "_" else {"ms": 4}
        ax.plot(x, y, color=colour, marker=marker, ls="", label=label, **wide)
    ax.set_yscale("log")
    ax.set_xticks(list(x), list(rows.networks), rotation=35, ha="right")
    ax.set_ylabel("memory (GB)")
    ax.set_title("memory, by technique")
    ax.set_ylim(top=3e4)
    ax.legend(fontsize=6, ncols=2, loc="upper center", frameon=False)
    ax.grid(color="#dddddd", lw=0.5, axis="y")


def _devices(rows: ModnnRows, ax: Axes) -> None:
    for number, (case, _, paper) in enumerate(_CASES):
        if not rows.case(case):
            continue
        found = speed_up(case)(rows)
        assert found.certified is not None
        low, high = map(float, found.certified)
        first = number == 0
        ax.bar(
            number,
            mean(map(float, found.ours.values())),
            0.6,
            color="#0072b2",
            label="here" if first else None,
        )
        ax.bar(
            number,
            high - low,
            0.6,
            bottom=low,
            color="#9a9a9a",
            label="to proved bound" if first else None,
        )
        ax.plot(
            [number],
            [paper],
            color="#d55e00",
            marker="D",
            ms=5,
            ls="",
            label="paper" if first else None,
        )
    ax.set_xticks(range(len(_CASES)), [label for _, label, _ in _CASES], fontsize=6)
    ax.set_ylabel("speed-up of four GPUs")
    ax.set_title("four GPUs, mean")
    ax.set_ylim(0, 4.8)
    ax.legend(fontsize=6, ncols=3, loc="upper center", frameon=False)
