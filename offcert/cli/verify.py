"""The command `verify`: a certificate, checked by code that no search uses."""

from __future__ import annotations

import argparse
import math

from offcert.cli.arguments import seconds, size
from offcert.cli.output import show
from offcert.cli.parser import EXIT_INVALID, EXIT_NOT_VERIFIED, Commands, add_command

_EXAMPLES = (
    "offcert verify certificate.json",
    "offcert verify certificate.json --time-limit 60 --memory-limit 4GiB",
)
# Reading one as large takes some ten times as much memory.
_LARGEST = "1GiB"


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "check a certificate with independent code"
    parser = add_command(commands, "verify", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "certificate", metavar="CERTIFICATE", help="file that certify or solve has written"
    )
    parser.add_argument(
        "--time-limit",
        type=seconds,
        default=math.inf,
        metavar="S",
        help="seconds that it may take (default: no limit)",
    )
    parser.add_argument(
        "--memory-limit",
        type=size,
        default=math.inf,
        metavar="SIZE",
        help="memory that searches may take, for example 4GiB (default: no limit)",
    )
    parser.add_argument(
        "--max-size",
        type=size,
        default=_LARGEST,
        metavar="SIZE",
        help="largest document that is read, as a file and unpacked",
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.report.text import (
        describe_unverified,
        describe_verification,
        verification_summary,
    )
    from offcert.verify.document import Outcome, verify_file
    from offcert.verify.limits import BeyondLimitsError, Limits

    limits = Limits(options.time_limit, options.memory_limit, options.max_size)
    try:
        verification = verify_file(options.certificate, limits)
    except (BeyondLimitsError, MemoryError) as error:
        reason = str(error) or "it takes more memory than there is"
        beyond = {"valid": False, "outcome": str(Outcome.BEYOND_LIMITS), "faults": []}
        show(options, beyond | {"unverified": [reason]}, describe_unverified([reason]))
        return EXIT_NOT_VERIFIED
    show(options, verification_summary(verification), describe_verification(verification))
    if verification.outcome is Outcome.BEYOND_LIMITS:
        return EXIT_NOT_VERIFIED
    return 0 if verification.valid else EXIT_INVALID
