"""The command `plot`: schedules, addresses over time, training, or curves over memory."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from offcert.cli.arguments import source
from offcert.cli.output import show
from offcert.cli.parser import Commands, add_command
from offcert.core.documents import naming, read_json
from offcert.core.errors import InputError

if TYPE_CHECKING:
    from offcert.proofs.certificate import Certificate

_EXAMPLES = (
    "offcert plot certificate.json -o plan.svg",
    "offcert plot placed.json --addresses -o space.svg",
    "offcert plot offloading/ recomputing/ both/ -o curves.svg",
    "offcert plot report.json -o training.svg",
    "offcert plot certificate.json -o plan.pickle",
)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = (
        "draw a schedule and its memory curve, addresses over time, training, or curves over memory"
    )
    parser = add_command(commands, "plot", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "certificates",
        type=source,
        metavar="CERTIFICATE",
        nargs="+",
        help="file that certify, solve or place has written; report of train, whose plan and "
        "measurements are drawn over each other; or folders of curves over memory, as certify "
        "writes them for several limits, all in one picture",
    )
    parser.add_argument(
        "--addresses",
        action="store_true",
        help="draw where everything lies in memory, which place has found, instead of the schedule",
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="PICTURE",
        help="file for the picture; its ending, .svg or .png, says which kind; .pickle: a memory "
        "snapshot of the plan, which pytorch.org/memory_viz opens",
    )


def _run(options: argparse.Namespace) -> int:
    paths = [Path(name) for name in options.certificates]
    if any(path.is_dir() for path in paths):
        if options.addresses:
            raise InputError("a folder of curves has no addresses to draw")
        _save_curves(paths, Path(options.output))
    elif len(paths) > 1:
        raise InputError(f"a picture shows one certificate, not {len(paths)}, or folders of curves")
    else:
        _save_one(paths[0], options)
    text = f"wrote {options.output}"
    if options.output.lower().endswith(".pickle"):
        text += ", a memory snapshot: drop it into https://pytorch.org/memory_viz"
    show(options, {"written": options.output}, text)
    return 0


def _save_one(path: Path, options: argparse.Namespace) -> None:
    from offcert.proofs.questions import SCHEDULE, question_of
    from offcert.questions.schedule.training_files import TRAINING_FORMAT

    document = read_json(path)
    if isinstance(document, dict) and document.get("format") == TRAINING_FORMAT:
        _save_training(path, document, options)
        return
    question = question_of(document)
    with naming(path):
        # Of the others there are no pictures, which reading them as schedules says.
        drawable = question if question.picture else SCHEDULE
        found = drawable.certificate.load().from_json(document)
    if options.addresses:
        found = found.pool
    if found is None:
        raise InputError(f"{path} holds no addresses: `offcert place` finds some")
    snapshot = options.output.lower().endswith(".pickle")
    drawn = found.question.snapshot if snapshot else found.question.picture
    if drawn is None:
        raise InputError(f"{path} is no certificate of a schedule: only these are snapshots")
    drawn.load()(found, options.output)


def _save_training(path: Path, document: object, options: argparse.Namespace) -> None:
    from offcert.questions.schedule.training_files import training_from_json
    from offcert.report.training_figure import save_training

    if options.addresses:
        raise InputError(f"{path} is a report of training, which has no addresses to draw")
    with naming(path):
        record = training_from_json(document)
    save_training(record, options.output)


def _save_curves(folders: Sequence[Path], target: Path) -> None:
    from offcert.report.frontier import MOST_CURVES, frontier_svg
    from offcert.report.svg import require_picture, save

    require_picture(target)
    if len(folders) > MOST_CURVES:
        raise InputError(f"a picture holds at most {MOST_CURVES} curves, not {len(folders)}")
    curves = [_curve(folder) for folder in folders]
    means = [curve[0].problem.means for curve in curves]
    # By what may be done, where that tells them apart.
    apart = len(set(means)) == len(means)
    names = means if apart else [str(folder) for folder in folders]
    save(frontier_svg(dict(zip(names, curves, strict=True))), target)


def _curve(folder: Path) -> list[Certificate]:
    """Return the certificates in a folder, by increasing memory."""
    from offcert.proofs.certificate import read_certificate

    found = [read_certificate(path) for path in sorted(folder.glob("memory-*.json"))]
    if not found:
        raise InputError(f"{folder} is no folder with a curve over memory, as certify writes it")
    return sorted(found, key=lambda certificate: certificate.problem.platform.memory)
