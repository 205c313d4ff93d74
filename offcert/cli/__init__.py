"""The command line: a file a command, and each imports what it needs when it runs."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; see `offcert.cli.program.run`."""
    from offcert.cli.program import run

    return run(arguments)
