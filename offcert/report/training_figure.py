"""The picture of a training record: rows of operations and transfers over the memory curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offcert.core.documents import write_atomically
from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.training_record import TrainingRecord
from offcert.core.units import format_time
from offcert.report.training_memory import plot_training_memory
from offcert.report.training_rows import courses_of, plot_training_rows

_FORMATS = (".png", ".svg")


def save_training(record: TrainingRecord, path: str | Path) -> None:
    """Draw a record into a PNG or SVG file; the same record gives the same SVG, byte by byte.

    Raises
    ------
    InputError
        If the file name ends in neither ``.png`` nor ``.svg``, or it cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise InputError(f"{path} must end in .png or .svg")
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    # Without a salt of their own, and with a date, two SVG files of the same figure differ.
    settings: Any = {"svg.hashsalt": "offcert"}
    with mpl.rc_context(settings):
        figure, (rows, memory) = plt.subplots(
            2, 1, figsize=(11, 6.2), sharex=True, height_ratios=[3, 3], layout="constrained"
        )
        try:
            plot_training_rows(record, rows)
            plot_training_memory(record, memory)
            rows.set_xlabel("")
            figure.suptitle(f"{cut(record.name)}: {said_of_times(record)}", parse_math=False)
            metadata = {"Date": None} if suffix == ".svg" else None
            write_atomically(path, lambda part: figure.savefig(part, dpi=130, metadata=metadata))
        finally:
            plt.close(figure)


def said_of_times(record: TrainingRecord) -> str:
    """Return in words how long the step took, and how long it should have."""
    predicted = format_time(record.predicted_time, record.units)
    if record.measured_time is None:
        return f"planned {predicted}, not measured"
    measured, error = format_time(record.measured_time, record.units), record.errors()["time"]
    beyond = "" if error is None else f" ({100 * error:+.2f} %)"
    factor = courses_of(record)["planned"][1]
    if factor != 1:
        digits = ".0f" if factor >= 10 else ".2g"
        beyond, predicted = "", f"{predicted} (drawn {factor:{digits}} times as long)"
    return f"planned {predicted}, measured {measured}{beyond} on {record.device_name}"
