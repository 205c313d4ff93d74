"""Arrays that grow, for the re-runs of searches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from offcert.core.compiled import compiled


@compiled
def grown(rows: NDArray[Any], more: int = 0) -> NDArray[Any]:
    """Return the rows with room for as many again and `more`; what is new is not initialised."""
    larger = np.empty((2 * len(rows) + more, *rows.shape[1:]), dtype=rows.dtype)
    larger[: len(rows)] = rows
    return larger
