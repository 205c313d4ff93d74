"""Arrays that grow, for the re-runs of searches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import inlined, inner


@inner
def grown(rows: NDArray[Any], more: int = 0) -> NDArray[Any]:
    """Return the rows with room for as many again and `more`; what is new is not initialised."""
    larger = np.empty((2 * len(rows) + more, *rows.shape[1:]), dtype=rows.dtype)
    put(larger.ravel(), rows.ravel())
    return larger


@inlined
def put(to: NDArray[Any], row: NDArray[Any]) -> None:
    """Write a row over the beginning of another.

    Item by item: for slices Numba would compile a second's worth of checks and their messages.
    """
    for index in range(len(row)):
        to[index] = row[index]
