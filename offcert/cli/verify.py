"""The command `verify`: a certificate, checked by code that no search uses."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from offcert.cli.arguments import seconds, size
from offcert.cli.confined import confined
from offcert.cli.messages import LOG
from offcert.cli.output import show, text_of
from offcert.cli.parser import EXIT_INVALID, EXIT_NOT_VERIFIED, Commands, add_command

if TYPE_CHECKING:
    from offcert.verify.limits import Limits

_EXAMPLES = (
    "offcert verify certificate.json",
    "offcert verify certificate.json --time-limit 60 --memory-limit 4GiB",
    "offcert verify certificate.json --on other-machine.json",
)
# What the most demanding certificates of the library need, several times over.
_SECONDS, _MEMORY = 600.0, "8GiB"
# Reading one as large takes some ten times as much memory.
_LARGEST = "256MiB"


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "check a certificate with independent code"
    parser = add_command(commands, "verify", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "certificate",
        metavar="CERTIFICATE",
        help="file that certify, solve, choose, place or devices has written",
    )
    parser.add_argument(
        "--on",
        metavar="PROBLEM",
        help="problem or certificate of the same network on another machine: say instead whether "
        "the plan is legal there, what it takes, and how far that is from the bound there "
        "(default: what the certificate claims is verified)",
    )
    parser.add_argument(
        "--time-limit",
        type=seconds,
        default=_SECONDS,
        metavar="S",
        help="seconds that it may take",
    )
    parser.add_argument(
        "--memory-limit",
        type=size,
        default=_MEMORY,
        metavar="SIZE",
        help="memory that it may take, for example 4GiB",
    )
    parser.add_argument(
        "--max-size",
        type=size,
        default=_LARGEST,
        metavar="SIZE",
        help="largest document that is read, as a file and unpacked",
    )


def _run(options: argparse.Namespace) -> int:
    LOG.info("verifying %s", options.certificate)
    code = confined(
        _load, lambda: _verify(options), options.time_limit, float(options.memory_limit)
    )
    if code is not None:
        return code
    from offcert.core.units import Units, format_size

    memory = format_size(int(options.memory_limit), Units("ns", "B"))
    return _beyond(options, f"{options.time_limit:g} s and {memory} of memory are not enough")


def _load() -> None:
    """Load what verification may need, so that its memory does not count."""
    from importlib import import_module

    for module in ("report.elsewhere", "verify.document", "verify.pivot_outward.verifier"):
        import_module(f"offcert.{module}")


def _verify(options: argparse.Namespace) -> int:
    from offcert.verify.document import Outcome, verify_file
    from offcert.verify.limits import BeyondLimitsError, Limits

    limits = Limits(options.time_limit, options.memory_limit, options.max_size)
    try:
        if options.on is not None:
            return _on(options, limits)
        verification = verify_file(options.certificate, limits)
    except (BeyondLimitsError, MemoryError) as error:
        return _beyond(options, str(error) or "it takes more memory than there is")
    show(options, *text_of(verification.question).verified(verification))
    if verification.outcome is Outcome.BEYOND_LIMITS:
        return EXIT_NOT_VERIFIED
    return 0 if verification.valid else EXIT_INVALID


def _on(options: argparse.Namespace, limits: Limits) -> int:
    from offcert.report.elsewhere import describe_elsewhere, elsewhere_summary
    from offcert.verify.elsewhere import verify_on

    found = verify_on(options.certificate, options.on, limits)
    show(options, elsewhere_summary(found), describe_elsewhere(found))
    return 0 if found.legal else EXIT_INVALID


def _beyond(options: argparse.Namespace, reason: str) -> int:
    from offcert.report.findings import describe_unverified
    from offcert.verify.findings import Outcome

    beyond = {"valid": False, "outcome": str(Outcome.BEYOND_LIMITS), "faults": []}
    show(options, beyond | {"unverified": [reason]}, describe_unverified([reason]))
    return EXIT_NOT_VERIFIED
