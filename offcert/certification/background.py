"""Compiling kernels in another process while a search goes on with what needs none of them.

Searches take no more time than they have: kernels that have not been compiled yet are left to a
process in the background, which ends by itself once it has compiled what it was asked for, also
after the search has ended. The next search finds them on disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress

from offcert.certification.warm import group_of
from offcert.core.kernel_cache import NotCompiledError

# The environment variable that has searches wait for kernels instead, beside their time limits.
WAIT = "OFFCERT_COMPILE"


def waits_for_kernels() -> bool:
    """Return whether searches compile what they need first, and their limits do not count it."""
    return os.environ.get(WAIT) == "wait"


class Compiling:
    """Kernels that are compiled in another process; none at first.

    Attributes
    ----------
    asked, finished : set of str
        What `offcert.certification.compile.compile_group` is told.
    """

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.finished: set[str] = set()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, missing: NotCompiledError) -> str:
        """Ask for kernels, unless somebody has; return the request as `finished` will name it."""
        asked = ",".join(missing.acts) or group_of(missing.kernel)[0]
        if asked in self.asked:
            return asked
        self.asked.add(asked)
        if self._process is None:
            self._process = _process()
            threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{asked}\n")
            self._process.stdin.flush()
        return asked

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.finished.add(json.loads(line)["group"]["name"])

    @property
    def busy(self) -> bool:
        """Whether something is still being compiled."""
        running = self._process is not None and self._process.poll() is None
        return running and self.finished != self.asked

    def close(self) -> None:
        """Ask for no more: the process ends once it has compiled what it was asked for."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()


def _process() -> subprocess.Popen[str]:
    """Start a process that goes on where this one, or its terminal, ends."""
    return subprocess.Popen(
        [sys.executable, "-m", "offcert.certification.compile"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
