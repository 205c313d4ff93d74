"""The command `generate core`: a search for the point where proving takes longest."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from offcert.cli.arguments import integer, seconds
from offcert.cli.output import STDOUT, add_target, native_output_to_stderr, put_problem, show
from offcert.cli.parser import Commands, add_command
from offcert.cli.progress import progress

if TYPE_CHECKING:
    from offcert.questions.schedule.problem import Problem
    from offcert_lab.hunts.phase import EffortMap

# Knobs of `CoreProblems`, which knows their defaults; importing it would load solvers.
_NUMBERS = {
    "stages": "number of stages (default: 16)",
    "labels": "labels after which a point of the map counts as open (default: 160000)",
    "points": "most points of the map to measure, which can be repeated, unlike --budget "
    "(default: all that are wanted)",
}


_EXAMPLES = ("offcert generate core --stages 12 --budget 60 --map -o problem.json",)


def add(kinds: Commands) -> None:
    """Add the command to those of ``offcert generate``."""
    summary = "search for the memory and bandwidth where proving takes longest"
    parser = add_command(kinds, "core", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "--kind",
        "--shape",
        dest="shape",
        metavar="SHAPE",
        help="what the problem is drawn like; ?: list (default: uniform)",
    )
    for name, text in _NUMBERS.items():
        parser.add_argument(f"--{name}", type=integer, metavar="N", help=text)
    parser.add_argument("--seed", type=integer, default=0, metavar="N", help="of what is drawn")
    parser.add_argument(
        "--budget",
        type=seconds,
        metavar="S",
        help="end after so many seconds, as an interrupt would (default: no limit)",
    )
    parser.add_argument("--map", action="store_true", help="print how much effort each point took")
    add_target(parser)


def _run(options: argparse.Namespace) -> int:
    from offcert_lab.hunts.phase import SHAPES, CoreProblems

    if options.shape == "?":
        show(options, {"kinds": list(SHAPES)}, "\n".join(SHAPES))
        return 0
    names = ("shape", *_NUMBERS)
    knobs = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    core = CoreProblems(**knobs)
    with native_output_to_stderr(), progress(options, _describe_progress) as tell:
        found, problem = core.search(options.seed, time_limit=options.budget, progress=tell)
    if options.target_file == STDOUT and options.map:
        print(map_table(found), file=sys.stderr)
    if not put_problem(problem, options.target_file):
        return 0
    text = _text(options, found, problem, core.labels)
    show(options, _summary(found, problem), text)
    return 0


def _summary(found: EffortMap, problem: Problem) -> dict[str, Any]:
    hardest = found.hardest
    effort = found.efforts[hardest]
    return {
        "name": problem.name,
        "operations": len(problem.trace),
        "memory": problem.platform.memory,
        "memory_part": str(hardest.memory),
        "ratio": str(hardest.ratio),
        "effort": effort.to_json() | {"gap": float(effort.gap)},
        "points": len(found.efforts),
        "complete": found.complete,
        "interrupted": found.interrupted,
        "seconds": round(found.seconds, 3),
        "map": found.to_json(),
    }


def _text(options: argparse.Namespace, found: EffortMap, problem: Problem, most: int) -> str:
    """Return a search in words; `most` is the number of labels after which a proof ends."""
    hardest = found.hardest
    effort = found.efforts[hardest]
    known = f"{effort.labels} labels" + (
        f", still open by {float(100 * effort.gap):.3g} %" if effort.gap else ""
    )
    ended = "to its end" if found.complete else "not to its end"
    lines = [
        f"{problem.name}: {len(problem.trace)} operations",
        f"  hardest        memory {float(100 * hardest.memory):g} %, ratio {hardest.ratio}",
        f"  effort         {known}",
        f"  search         {len(found.efforts)} points in {found.seconds:.1f} s, {ended}",
    ]
    if not effort.gap:
        lines.append(
            f"  nothing hard   proofs closed each of these points within {most} labels: more "
            "--points, more --stages or another --seed may find some that they do not"
        )
    return "\n".join(lines) + (f"\n\n{map_table(found)}" if options.map else "")


def map_table(found: EffortMap) -> str:
    """Return the map as a Markdown table: memory down, ratio across.

    A number is labels; with a per cent sign it is the gap that was left, in brackets after fewer
    labels because it was behind. The hardest point is in bold; a dash was not measured.
    """
    ratios = sorted({point.ratio for point in found.efforts})
    cells = {(point.memory, point.ratio): text for point, text in _cells(found)}
    lines = [
        f"| memory | {' | '.join(f'ratio {ratio}' for ratio in ratios)} |",
        f"| ---: |{' ---: |' * len(ratios)}",
    ]
    for memory in sorted({point.memory for point in found.efforts}):
        row = " | ".join(cells.get((memory, ratio), "–") for ratio in ratios)
        lines.append(f"| {float(100 * memory):g} % | {row} |")
    return "\n".join(lines)


def _cells(found: EffortMap) -> list[tuple[Any, str]]:
    cells = []
    for point, effort in found.efforts.items():
        text = f"{float(100 * effort.gap):.3f} %" if effort.gap else str(effort.labels)
        text = f"({text})" if point in found.behind else text
        cells.append((point, f"**{text}**" if point == found.hardest else text))
    return cells


def _describe_progress(found: EffortMap) -> str:
    point, effort = list(found.efforts.items())[-1]
    best = found.hardest
    return (
        f"{len(found.efforts):3} points  memory {float(100 * point.memory):5.2f} %  "
        f"ratio {float(point.ratio):5.3f}  {effort.labels:8} labels  "
        f"gap {float(100 * effort.gap):.3f} %  hardest at memory {float(100 * best.memory):g} %, "
        f"ratio {float(best.ratio):g}"
    )
