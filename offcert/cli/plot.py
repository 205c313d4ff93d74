"""The command `plot`: a certificate's schedule as a picture."""

from __future__ import annotations

import argparse

from offcert.cli.output import show
from offcert.cli.parser import Commands, add_command


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "plot", "draw the schedule and the memory curve", _run)
    parser.add_argument("certificate", metavar="CERTIFICATE")
    parser.add_argument("-o", "--output", required=True, metavar="out.png|out.svg")


def _run(options: argparse.Namespace) -> int:
    from offcert.proofs.certificate import read_certificate
    from offcert.report.gantt import save_gantt

    save_gantt(read_certificate(options.certificate), options.output)
    show(options, {"written": options.output}, f"wrote {options.output}")
    return 0
