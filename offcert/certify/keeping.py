"""Having what is known kept while a search runs, so that it outlives a crash."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable

from offcert.core.errors import InputError

_SECONDS_BETWEEN = 1.0


class Keeping:
    """Calls what keeps the best so far; where that fails, a full disk must not cost the search.

    Parameters
    ----------
    keep : callable, optional
        What keeps it; by default nothing does.
    """

    def __init__(self, keep: Callable[[], None] | None = None) -> None:
        self._keep = keep
        self._last = -math.inf
        self._failed = False

    def at_news(self) -> None:
        """Have it kept, about every second."""
        if time.monotonic() - self._last >= _SECONDS_BETWEEN:
            self.now()

    def now(self) -> None:
        """Have it kept; the first failure is said."""
        if self._keep is None:
            return
        try:
            self._keep()
        except (OSError, InputError) as error:
            if not self._failed:
                warnings.warn(
                    f"what is known could not be kept ({error}); the search goes on, and tries "
                    "again from time to time",
                    stacklevel=3,
                )
            self._failed = True
        self._last = time.monotonic()
