"""The command `plot`: a certificate's schedule as a picture."""

from __future__ import annotations

import argparse

from offcert.cli.output import show
from offcert.cli.parser import Commands, add_command

_EXAMPLES = ("offcert plot certificate.json -o plan.svg",)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "draw the schedule and the memory curve"
    parser = add_command(commands, "plot", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "certificate", metavar="CERTIFICATE", help="file that certify or solve has written"
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="PICTURE",
        help="file for the picture; its ending, .svg or .png, says which kind",
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.proofs.certificate import read_certificate
    from offcert.report.gantt import save_gantt

    save_gantt(read_certificate(options.certificate), options.output)
    show(options, {"written": options.output}, f"wrote {options.output}")
    return 0
