"""The command `export`: problems for other people's solvers, bounds for their checkers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from offcert.cli.arguments import count
from offcert.cli.output import show
from offcert.cli.parser import Commands, add_command
from offcert.cli.searching import add_problem, read_problem

if TYPE_CHECKING:
    from offcert.questions.schedule.problem import Problem

_EXAMPLES = (
    "offcert export problem.json --format mps -o model.mps",
    "offcert export problem.json --format mzn --grid 1000 --keep schedule -o model.mzn",
    "offcert export problem.json --format csv -o tables",
    "offcert export network.json --format lp --model retention -o model.lp",
    "offcert export certificate.json --format vipr -o bound.vipr",
)
# Names that `offcert.certify.exporting` knows, which a help text need not load; a test compares.
FORMATS = ("mps", "lp", "opb", "mzn", "csv")
MODELS = ("time-indexed", "interval", "retention")
# Bounds that `offcert.certify.exporting` knows.
BOUNDS = ("joint-lp",)
# Options that change a problem; a certificate's bounds are about its own.
_CHANGES = (
    "memory",
    "device_memory",
    "optimiser",
    "bandwidth",
    "prefetch_bandwidth",
    "sharing",
    "transfers",
    "grid",
    "horizon",
)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "write a problem for other solvers, or a proved bound for other checkers"
    parser = add_command(commands, "export", summary, _run, examples=_EXAMPLES)
    add_problem(parser)
    parser.add_argument(
        "--format",
        dest="form",
        choices=(*FORMATS, "vipr"),
        required=True,
        help="mps, lp, opb: a program in 0-1 variables; mzn: MiniZinc, with its data (.dzn); csv: "
        "the data as tables; vipr: a bound of a certificate, as a program and its proof",
    )
    parser.add_argument(
        "--model",
        choices=(*MODELS, *BOUNDS),
        help="what is stated: starts in cells of time, intervals, or, where things may run again "
        "and nothing leaves, which copies are kept; or which bound of the "
        "certificate PROBLEM, for vipr, mps and lp (default: the format's, the best bound)",
    )
    parser.add_argument(
        "--every-fact",
        action="store_true",
        help="of a bound: state all facts there are, not only those that its proof weighs",
    )
    parser.add_argument(
        "--proof",
        action="store_true",
        help="with opb: write what a weighted sum of the rows proves, for VeriPB (.pbp)",
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
    if options.form == "vipr" or options.model in BOUNDS:
        return _export_bound(options)
    from offcert.certify.exporting import export
    from offcert.core.errors import InputError

    if options.every_fact:
        raise InputError("--every-fact is about bounds of certificates: give --format vipr")
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
        proof=options.proof,
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
        "least": made.least,
    }
    rounded = "down: a bound stays a bound"
    if options.keep == "schedule":
        rounded = "up: a solution is a legal schedule"
    how = "nothing is rounded" if made.exact else f"times are rounded {rounded}"
    lines = [f"{problem.name}: cells of {made.cells.grid} ticks, {how}"]
    if made.variables is not None:
        lines.append(f"  {made.variables} variables, {made.rows} rows")
    if made.least is not None:
        lines.append(f"  {made.least} ticks are necessary, by a weighted sum of the rows")
    show(options, document, "\n".join([*lines, *(f"  wrote {path}" for path in written)]))
    return 0


def _export_retention(options: argparse.Namespace, problem: Problem) -> int:
    from offcert.certify.exporting import export_retention
    from offcert.core.errors import InputError

    for name in ("grid", "horizon", "proof"):
        if getattr(options, name):
            raise InputError(f"--{name} is not for the model retention, which has no cells of time")
    made = export_retention(problem, options.form)
    written = [str(path) for path in made.write(options.target)]
    document = {"written": written, "variables": made.variables, "rows": made.rows}
    size = f"{made.variables} variables, {made.rows} rows"
    lines = [f"{problem.name}: executions in stages, {size}"]
    show(options, document, "\n".join([*lines, *(f"  wrote {path}" for path in written)]))
    return 0


def _export_bound(options: argparse.Namespace) -> int:
    from offcert.certify.exporting import VIPR, export_bound
    from offcert.core.errors import InputError
    from offcert.proofs.certificate import read_certificate

    given = next((name for name in _CHANGES if getattr(options, name) is not None), None)
    if given is not None:
        option = given.replace("_", "-")
        raise InputError(f"--{option} is about problems: a certificate's bounds are about its own")
    if options.proof:
        raise InputError("--proof is for the format opb of a problem")
    if options.form not in (VIPR, "mps", "lp"):
        raise InputError(f"--format must be vipr, mps or lp for a bound, not {options.form}")
    if options.model in MODELS:
        raise InputError(f"--model must be one of {', '.join(BOUNDS)} for vipr")
    certificate = read_certificate(options.problem)
    made = export_bound(
        certificate.problem,
        certificate.result.bounds,
        options.form,
        method=options.model,
        every=options.every_fact,
    )
    written = [str(path) for path in made.write(options.target)]
    document = {
        "written": written,
        "bound": made.method,
        "value": made.value,
        "variables": made.variables,
        "rows": made.rows,
        "derivations": made.derivations if options.form == VIPR else None,
    }
    size = f"{made.variables} variables, {made.rows} rows"
    if options.form == VIPR:
        size += f", {made.derivations} steps"
    lines = [f"{certificate.problem.name}: {made.method}, {made.value} ticks", f"  {size}"]
    show(options, document, "\n".join([*lines, *(f"  wrote {path}" for path in written)]))
    return 0
