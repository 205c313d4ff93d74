"""Random cases by their seeds, a few dozen to a test, whose name says which."""

import pytest


def by_seeds(first: int, end: int, size: int = 25) -> pytest.MarkDecorator:
    """Return a mark that calls a test with ``seeds``, a range, until all of them have been used.

    Parameters
    ----------
    first, end : int
        The first seed, and the one after the last.
    size : int
        Of every range but the last, which may be shorter.
    """
    ranges = [range(each, min(each + size, end)) for each in range(first, end, size)]
    names = [f"seeds-{each.start}-{each.stop - 1}" for each in ranges]
    return pytest.mark.parametrize("seeds", ranges, ids=names)
