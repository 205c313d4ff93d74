"""Rows of the runtime's benchmark, and their table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One way to train one network.

    Attributes
    ----------
    network, way : str
        Which.
    at : str
        The way whose peak a plan was made for; the way itself otherwise.
    peak : int or None
        Bytes above those at the beginning of the step, measured; None if there is no such plan.
    time : int or None
        Nanoseconds of a step.
    ratio : float or None
        To the time of plain training.
    predicted : int or None
        Nanoseconds that the plan's timetable forecasts.
    hosted : int or None
        Likewise, where no operation ends before the host has handed it over in its measured time.
    bound : int or None
        That no schedule under this limit takes less, as proved.
    behind : int or None
        Nanoseconds of a step on a simulated device behind the host at hand.
    note : str
        What else is to be said.
    """

    network: str
    way: str
    at: str
    peak: int | None
    time: int | None
    ratio: float | None = None
    predicted: int | None = None
    hosted: int | None = None
    bound: int | None = None
    behind: int | None = None
    note: str = ""


def table(rows: list[Row]) -> str:
    """Return the rows as text."""
    head = f"{'network':<13}{'way':<23}{'at the peak of':<15}{'peak':>14}{'time':>9}"
    lines = [f"{head}{'behind host':>14}  note"]
    for row in rows:
        peak = "-" if row.peak is None else f"{row.peak:,}"
        ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
        behind = "-" if row.behind is None else f"{row.behind / 1e6:.2f} ms"
        at = "" if row.at == row.way else row.at
        lines.append(
            f"{row.network:<13}{row.way:<23}{at:<15}{peak:>14}{ratio:>9}{behind:>14}  {row.note}"
        )
    return "\n".join(lines)
