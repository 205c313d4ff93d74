"""The command `verify`: a certificate, checked by code that no search uses."""

from __future__ import annotations

import argparse

from offcert.cli.output import show
from offcert.cli.parser import EXIT_INVALID, Commands, add_command

_EXAMPLES = ("offcert verify certificate.json",)


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "check a certificate with independent code"
    parser = add_command(commands, "verify", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "certificate", metavar="CERTIFICATE", help="file that certify or solve has written"
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.report.text import describe_verification, verification_summary
    from offcert.verify.document import verify_file

    verification = verify_file(options.certificate)
    show(options, verification_summary(verification), describe_verification(verification))
    return 0 if verification.valid else EXIT_INVALID
