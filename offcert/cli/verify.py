"""The command `verify`: a certificate, checked by code that no search uses."""

from __future__ import annotations

import argparse
import math
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from offcert.cli.arguments import seconds, size, source
from offcert.cli.ending import exit_code
from offcert.cli.output import show
from offcert.cli.parser import EXIT_INVALID, EXIT_NOT_VERIFIED, Commands, add_command
from offcert.cli.progress import LOG
from offcert.core.units import Units, format_size

if TYPE_CHECKING:
    from offcert.verification.limits import Limits


# Seconds that work gets to end by itself once its time is over. Arbitrary.
_GRACE = 2.0
# Exit code after an exception that nobody expected. Given by Python.
_EXIT_BUG = 1


def confined(
    prepare: Callable[[], object], work: Callable[[], int], seconds: float, memory: float
) -> int | None:
    """Return the exit code of some work, or None if it did not end within its limits.

    The work is to look at its time itself; what does not is killed. Where processes cannot be
    forked, or not be waited for (other systems than Linux), the work is done in this one, and
    nothing is killed.

    Parameters
    ----------
    prepare : callable
        Loads libraries: their memory does not count.
    work : callable
        Returns an exit code; what it prints is printed.
    seconds, memory : float
        Seconds and bytes; infinite for none.
    """
    if not _may_fork():
        prepare()
        return work()
    sys.stdout.flush()
    sys.stderr.flush()
    # An interrupt waits until there is somebody who ends the child.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    child = os.fork()
    if child == 0:
        _be_the_child(prepare, work, memory)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        status = _ended(child, seconds + _GRACE)
    except BaseException:
        _kill(child)
        raise
    if status is None:
        _kill(child)
        return None
    code = os.waitstatus_to_exitcode(status)
    return None if code < 0 else code


def _may_fork() -> bool:
    """Whether a forked process does what this one would: it has one thread and writes directly."""
    direct = sys.stdout is sys.__stdout__ and sys.stderr is sys.__stderr__
    return hasattr(os, "pidfd_open") and threading.active_count() == 1 and direct


def _be_the_child(prepare: Callable[[], object], work: Callable[[], int], memory: float) -> None:
    """Do the work, say what its errors mean, and end the process whatever happens."""
    # Ctrl-C reaches both processes; the other one says so, and ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def prepared() -> int:
        prepare()
        _limit_memory(memory)
        return work()

    try:
        code = exit_code(prepared)
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        code = _EXIT_BUG
    # Nothing of the parent's is to be cleaned up here.
    os._exit(code)


def _limit_memory(memory: float) -> None:
    """Let this process have so many bytes more than it has."""
    if memory == math.inf:
        return
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        return
    most = pages * resource.getpagesize() + int(memory)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _ended(child: int, seconds: float) -> int | None:
    """Return the status with which a process has ended, or None if it has not within the time."""
    descriptor = os.pidfd_open(child)
    try:
        wait = None if seconds == math.inf else min(seconds, threading.TIMEOUT_MAX)
        ready, _, _ = select.select([descriptor], [], [], wait)
    finally:
        os.close(descriptor)
    return os.waitpid(child, 0)[1] if ready else None


def _kill(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(child, 0)


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
        type=source,
        metavar="CERTIFICATE",
        help="file that certify, solve, choose, place or devices has written",
    )
    parser.add_argument(
        "--on",
        type=source,
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

    memory = format_size(int(options.memory_limit), Units("ns", "B"))
    return _beyond(options, f"{options.time_limit:g} s and {memory} of memory are not enough")


def _load() -> None:
    """Load the modules that verification may need, so that their memory does not count."""
    from importlib import import_module

    searches = ("verification.outward.check", "verification.pivot.check")
    for module in ("report.findings", "verification.elsewhere", *searches):
        import_module(f"offcert.{module}")


def _verify(options: argparse.Namespace) -> int:
    from offcert.verification.document import VerificationOutcome, verify_file
    from offcert.verification.limits import BeyondLimitsError, Limits

    limits = Limits(options.time_limit, options.memory_limit, options.max_size)
    try:
        if options.on is not None:
            return _on(options, limits)
        verification = verify_file(options.certificate, limits)
    except (BeyondLimitsError, MemoryError) as error:
        return _beyond(options, str(error) or "it takes more memory than there is")
    show(options, *verification.question.text.load().verified(verification))
    if verification.outcome is VerificationOutcome.BEYOND_LIMITS:
        return EXIT_NOT_VERIFIED
    return 0 if verification.valid else EXIT_INVALID


def _on(options: argparse.Namespace, limits: Limits) -> int:
    from offcert.report.findings import describe_elsewhere, elsewhere_summary
    from offcert.verification.elsewhere import verify_on

    found = verify_on(options.certificate, options.on, limits)
    show(options, elsewhere_summary(found), describe_elsewhere(found))
    return 0 if found.legal else EXIT_INVALID


def _beyond(options: argparse.Namespace, reason: str) -> int:
    from offcert.report.findings import describe_unverified
    from offcert.verification.findings import VerificationOutcome

    beyond = {"valid": False, "outcome": str(VerificationOutcome.BEYOND_LIMITS), "faults": []}
    show(options, beyond | {"unverified": [reason]}, describe_unverified([reason]))
    return EXIT_NOT_VERIFIED
