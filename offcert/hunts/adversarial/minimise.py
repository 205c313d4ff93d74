"""Delta debugging: simpler numbers for as long as a property holds."""

from __future__ import annotations

from collections.abc import Callable

from offcert.hunts.adversarial.numbers import Box, Numbers, simplifications


def minimise(numbers: Numbers, holds: Callable[[Numbers], bool], box: Box) -> Numbers:
    """Return numbers of which no single simplification has the property any more.

    Parameters
    ----------
    numbers : Numbers
        They have the property.
    holds : callable
        Whether simpler numbers have it too. It may raise to end the search early; whoever calls
        then remembers the last numbers for which it returned true.
    box : Box
        What is simpler must lie in it; of its stages, only the fewest matter.

    Notes
    -----
    Every step lowers `Numbers.cost`, whose values are well-ordered, so this ends.
    """
    tried: set[Numbers] = set()
    while True:
        for simpler in simplifications(numbers, box):
            if simpler not in tried:
                tried.add(simpler)
                if holds(simpler):
                    numbers = simpler
                    break
        else:
            return numbers
