"""The command `export-proof`: bounds with their proofs, for checkers that others wrote."""

from __future__ import annotations

import argparse

from offcert.cli.arguments import count
from offcert.cli.output import show
from offcert.cli.parser import Commands, add_command

_EXAMPLES = (
    "offcert export-proof certificate.json --format vipr -o bound.vipr",
    "offcert export-proof problem.json --format opb -o counted.opb",
)
FORMATS = ("vipr", "mps", "lp", "opb")


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "write a proved bound for other people's checkers"
    parser = add_command(commands, "export-proof", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "source",
        metavar="FILE",
        help="certificate with a bound joint-lp; for opb a problem",
    )
    parser.add_argument(
        "--format",
        dest="form",
        choices=FORMATS,
        required=True,
        help="vipr: the bound as a program and its proof; mps, lp: that program alone; opb: a "
        "problem in 0-1 variables, with what a weighted sum of its rows proves (.pbp, for VeriPB)",
    )
    parser.add_argument(
        "--every-fact",
        action="store_true",
        help="state all facts there are, not only those that the proof weighs; not for opb",
    )
    parser.add_argument(
        "--grid",
        type=count,
        metavar="TICKS",
        help="with opb: ticks of a cell of time (default: as for export)",
    )
    parser.add_argument("-o", dest="target", required=True, metavar="FILE", help="file to write")


def _run(options: argparse.Namespace) -> int:
    from offcert.core.errors import InputError

    if options.form == "opb":
        if options.every_fact:
            raise InputError("--every-fact is about bounds of certificates, not for opb")
        return _export_counted(options)
    if options.grid is not None:
        raise InputError("--grid is for the format opb")
    return _export_bound(options)


def _export_counted(options: argparse.Namespace) -> int:
    from offcert.questions.schedule.files import read_problem
    from offcert_lab.checkers.counting import export_counted

    problem = read_problem(options.source)
    found = export_counted(problem, grid=options.grid)
    written = [str(path) for path in found.write(options.target)]
    made = found.made
    document = {
        "written": written,
        "grid": made.cells.grid,
        "exact": made.exact,
        "horizon": made.cells.horizon,
        "variables": made.variables,
        "rows": made.rows,
        "least": found.least,
    }
    lines = [
        f"{problem.name}: cells of {made.cells.grid} ticks",
        f"  {made.variables} variables, {made.rows} rows",
        f"  {found.least} ticks are necessary, by a weighted sum of the rows",
    ]
    show(options, document, "\n".join([*lines, *(f"  wrote {path}" for path in written)]))
    return 0


def _export_bound(options: argparse.Namespace) -> int:
    from offcert.proofs.certificate import read_certificate
    from offcert_lab.checkers.bounds import METHOD, VIPR, export_bound

    certificate = read_certificate(options.source)
    made = export_bound(
        certificate.problem, certificate.result.bounds, options.form, every=options.every_fact
    )
    written = [str(path) for path in made.write(options.target)]
    document = {
        "written": written,
        "bound": METHOD,
        "value": made.value,
        "variables": made.variables,
        "rows": made.rows,
        "derivations": made.derivations if options.form == VIPR else None,
    }
    size = f"{made.variables} variables, {made.rows} rows"
    if options.form == VIPR:
        size += f", {made.derivations} steps"
    lines = [f"{certificate.problem.name}: {METHOD}, {made.value} ticks", f"  {size}"]
    show(options, document, "\n".join([*lines, *(f"  wrote {path}" for path in written)]))
    return 0
