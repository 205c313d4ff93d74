"""What lies in memory that nobody has written."""

from __future__ import annotations

import ctypes

import torch

# As a number: not one in every floating type, -1 in signed integers, the largest in unsigned ones.
BYTE = 0xFF


def poison(address: int, size: int) -> None:
    """Write poison over bytes of this process."""
    if size:
        ctypes.memset(address, BYTE, size)


def poisoned(size: int) -> torch.Tensor:
    """Return new memory that is poisoned throughout."""
    data = torch.empty(size, dtype=torch.uint8)
    poison(data.data_ptr(), size)
    return data
