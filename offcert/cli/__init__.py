"""The command line: a file a command, and each imports what it needs when it runs.

Nothing is imported here: until `main` has said what an interrupt means, one is a traceback.

Its size: each of its commands has a sentence for every bad argument, and an interrupt that
keeps the best found at any moment, even while Python is still importing.
"""

from __future__ import annotations

# Not what arguments would need: `Sequence` would have to be loaded.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; see `offcert.cli.command_line.run`.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process, which is then taken to be all ours: an interrupt ends it
        with one line at any moment.
    """
    if arguments is None:
        try:
            from offcert.cli.interrupts import run_process

            # One may also come just when this is called, before it has said what one means.
            return run_process(_load)
        except KeyboardInterrupt:
            import sys

            sys.stderr.write("offcert: interrupted\n")
            return 130
    return _load()(arguments)


def _load() -> Callable[..., int]:
    from offcert.cli.command_line import run

    return run
