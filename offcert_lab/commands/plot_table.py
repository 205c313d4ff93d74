"""The command `plot-table`: what methods do over memory, beside the certified optimum."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from offcert.cli.arguments import source
from offcert.cli.output import show
from offcert.cli.parser import Commands, add_command

if TYPE_CHECKING:
    from offcert_lab.comparisons.curves import Curves
    from offcert_lab.comparisons.points import Point

_FORMATS = ("svg", "png")


_EXAMPLES = ("offcert plot-table table.parquet -o figures --what throughput",)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "draw a campaign's table: makespan or throughput against memory"
    parser = add_command(commands, "plot-table", summary, _run, examples=_EXAMPLES)
    parser.add_argument("table", type=source, metavar="TABLE", help="as compare writes it")
    parser.add_argument(
        "-o",
        dest="target",
        required=True,
        metavar="DIR|FILE",
        help="folder for one picture a problem and one of all; or one file, .svg or .png, with all",
    )
    parser.add_argument(
        "--what",
        choices=("makespan", "throughput", "slowdown"),
        default="makespan",
        help="makespan, as a multiple of the Prop. 3 bound (of the computing time where something "
        "may run again); throughput, in images a second; or slowdown, by the computing time",
    )
    parser.add_argument(
        "--format", choices=_FORMATS, help="of the files in DIR (default: svg, or FILE's ending)"
    )
    parser.add_argument(
        "--only",
        metavar="PATTERN",
        help="draw these problems, for example 'resnet*-chain' (default: all)",
    )
    parser.add_argument(
        "--bandwidth",
        dest="rate",
        metavar="RATE",
        help="of the link, for example 12.2GB/s, if the table does not say it (default: it does)",
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.core.documents import make_folder
    from offcert_lab.comparisons.curves import Quantity, curves_of
    from offcert_lab.comparisons.points import by_problem

    target = Path(options.target)
    single = _is_file(target, options.format)
    groups = by_problem(_points(options))
    drawn = {name: curves_of(points, Quantity(options.what)) for name, points in groups.items()}
    pages = {target: list(drawn.values())} if single else _pages(options, target, groups, drawn)
    if not single:
        make_folder(target)
    from offcert_lab.comparisons.curve_figures import save_grid

    for path, panels in pages.items():
        save_grid(panels, path)
    written = list(map(str, pages))
    show(options, {"written": written}, "\n".join(f"wrote {path}" for path in written))
    return 0


def _is_file(target: Path, form: str | None) -> bool:
    """Tell a file to be written from a folder, before anything is read."""
    from offcert.core.documents import require_writable
    from offcert.core.errors import InputError

    ending = target.suffix.lower().removeprefix(".")
    if target.is_dir() or (ending not in _FORMATS and not ending):
        return False
    if ending not in _FORMATS:
        raise InputError(f"{target} must be a folder, or end in .svg or .png")
    if form not in (None, ending):
        raise InputError(f"{target} ends in .{ending}, but --format says {form}")
    require_writable(target)
    return True


def _points(options: argparse.Namespace) -> list[Point]:
    from fnmatch import fnmatchcase

    from offcert.campaign.table import read
    from offcert.core.errors import InputError
    from offcert.core.units import Units, parse_bandwidth
    from offcert_lab.comparisons.points import points_of

    rate = None
    if options.rate is not None:
        rate = parse_bandwidth(options.rate, Units("ns", "B"))
    frame = read(options.table)
    if options.only is not None:
        frame = frame[[fnmatchcase(name, options.only) for name in frame["problem"]]]
    if frame.empty:
        what = "rows" if options.only is None else f'problem that matches "{options.only}"'
        raise InputError(f"{options.table} has no {what}")
    return points_of(frame, rate)


def _pages(
    options: argparse.Namespace,
    folder: Path,
    groups: dict[str, list[Point]],
    drawn: dict[str, Curves],
) -> dict[Path, list[Curves]]:
    """Return the curves in each file of a folder: of a problem, or of all of one image size."""
    import re

    form = options.format or _FORMATS[0]
    pages: dict[Path, list[Curves]] = {}
    for name, curves in drawn.items():
        safe = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")
        pages.setdefault(folder / f"{safe}.{form}", []).append(curves)
    for label, names in _grids(groups):
        if len(names) > 1:
            pages[folder / f"grid{label}.{form}"] = [drawn[name] for name in names]
    return pages


def _grids(groups: dict[str, list[Point]]) -> Iterator[tuple[str, list[str]]]:
    """Yield the panels of each grid: chains and traces apart, image sizes apart, in pages."""
    from offcert_lab.comparisons.curve_figures import MOST_PANELS

    found: dict[str, list[str]] = {}
    for name, points in groups.items():
        image = points[0].image
        label = "" if image is None else f"-{image}"
        found.setdefault(label + ("-chain" if name.endswith("-chain") else ""), []).append(name)
    for label, names in found.items():
        for number, first in enumerate(range(0, len(names), MOST_PANELS)):
            page = f"-{number + 1}" if len(names) > MOST_PANELS else ""
            yield label + page, names[first : first + MOST_PANELS]
