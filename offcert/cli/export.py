"""The command `export`: problems for other people's solvers."""

from __future__ import annotations

import argparse

from offcert.cli.arguments import count
from offcert.cli.output import show
from offcert.cli.parser import Commands, add_command
from offcert.cli.searching import add_problem, read_problem
from offcert.core.errors import InputError
from offcert.questions.schedule.problem import Problem

_EXAMPLES = (
    "offcert export problem.json --format mps -o model.mps",
    "offcert export problem.json --format mzn --grid 1000 --keep schedule -o model.mzn",
    "offcert export problem.json --format csv -o tables",
    "offcert export network.json --format lp --model retention -o model.lp",
)
# Names that `offcert.certification.exchange` knows; a test compares.
FORMATS = ("mps", "lp", "opb", "mzn", "csv")
MODELS = ("time-indexed", "interval", "retention")


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "write a problem for other solvers"
    parser = add_command(commands, "export", summary, _run, examples=_EXAMPLES)
    add_problem(parser)
    parser.add_argument(
        "--format",
        dest="form",
        choices=FORMATS,
        required=True,
        help="mps, lp, opb: a program in 0-1 variables; mzn: MiniZinc, with its data (.dzn); csv: "
        "the data as tables",
    )
    parser.add_argument(
        "--model",
        choices=MODELS,
        help="what is stated: starts in cells of time, intervals, or, where things may run again "
        "and nothing leaves, which copies are kept (default: the format's)",
    )
    parser.add_argument(
        "--grid",
        type=count,
        metavar="TICKS",
        help="ticks of a cell of time (default: the coarsest that rounds nothing, or coarser where "
        "a program would be too large)",
    )
    parser.add_argument(
        "--keep",
        choices=("bound", "schedule"),
        default="bound",
        help="where times are rounded: down, so that a bound stays a bound; or up, so that a "
        "solution is a legal schedule",
    )
    parser.add_argument(
        "--horizon",
        type=count,
        metavar="TICKS",
        help="longer schedules are not described (default: what a heuristic attains)",
    )
    parser.add_argument(
        "-o",
        dest="target",
        required=True,
        metavar="FILE|DIR",
        help="file for the model; for csv a folder",
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.certification.exchange import export

    problem = read_problem(options)
    if options.model == "retention":
        return _export_retention(options, problem)
    made = export(
        problem,
        options.form,
        model=options.model,
        grid=options.grid,
        keeps=options.keep,
        horizon=options.horizon,
    )
    written = [str(path) for path in made.write(options.target)]
    document = {
        "written": written,
        "grid": made.cells.grid,
        "exact": made.exact,
        "keeps": str(made.cells.keeps),
        "horizon": made.cells.horizon,
        "variables": made.variables,
        "rows": made.rows,
    }
    rounded = "down: a bound stays a bound"
    if options.keep == "schedule":
        rounded = "up: a solution is a legal schedule"
    how = "nothing is rounded" if made.exact else f"times are rounded {rounded}"
    lines = [f"{problem.name}: cells of {made.cells.grid} ticks, {how}"]
    if made.variables is not None:
        lines.append(f"  {made.variables} variables, {made.rows} rows")
    show(options, document, "\n".join([*lines, *(f"  wrote {path}" for path in written)]))
    return 0


def _export_retention(options: argparse.Namespace, problem: Problem) -> int:
    from offcert.certification.exchange import export_retention

    for name in ("grid", "horizon"):
        if getattr(options, name):
            raise InputError(f"--{name} is not for the model retention, which has no cells of time")
    made = export_retention(problem, options.form)
    written = [str(path) for path in made.write(options.target)]
    document = {"written": written, "variables": made.variables, "rows": made.rows}
    size = f"{made.variables} variables, {made.rows} rows"
    lines = [f"{problem.name}: executions in stages, {size}"]
    show(options, document, "\n".join([*lines, *(f"  wrote {path}" for path in written)]))
    return 0
