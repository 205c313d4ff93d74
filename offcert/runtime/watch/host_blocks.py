"""Memory of the host for copies that are waited for: its pages are there before they are written.

The kernel clears every page when it is touched first. A driver that copies to fresh memory waits
for that, page by page in one thread, which takes several times as long as the copy itself; so
several threads touch a block before the first copy to it.
"""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor

import torch

# Bytes of a block, and of what a thread touches at a time; threads at most. Arbitrary.
BLOCK, _PART, _THREADS = 2**28, 2**24, 8


class HostBlocks:
    """Gives out memory of the host that has been touched; a block goes when its last part does."""

    def __init__(self, block: int = BLOCK) -> None:
        self._block = block
        self._rest = torch.empty(0, dtype=torch.uint8)
        self._pool: ThreadPoolExecutor | None = None

    def take(self, size: int) -> torch.Tensor:
        """Return so many bytes (``uint8``), of any values."""
        if size > self._rest.numel():
            self._rest = self._touched(max(size, self._block))
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _touched(self, size: int) -> torch.Tensor:
        made = torch.empty(size, dtype=torch.uint8)
        begin = made.data_ptr()
        if self._pool is None:
            threads = min(_THREADS, max(1, (os.cpu_count() or 1) // 2))
            self._pool = ThreadPoolExecutor(threads, thread_name_prefix="offcert-touch")
        parts = range(0, size, _PART)
        # The interpreter's lock is not held meanwhile.
        touched = [
            self._pool.submit(ctypes.memset, begin + at, 0, min(_PART, size - at)) for at in parts
        ]
        for each in touched:
            each.result()
        return made
