"""When work is done that may be done now or later, and what the host gets to know of it."""

from __future__ import annotations

import random
from collections.abc import Callable

# Asked whenever a copy that has been handed over may run, and whenever the host asks for an event
# that has happened: whether it does, or is told.
Adversary = Callable[[], bool]


def late() -> bool:
    """Run copies as late as events allow, and tell the host nothing before it waits."""
    return False


def early() -> bool:
    """Run copies as soon as they are handed over, and tell the host of them when it asks."""
    return True


def by_chance(seed: int) -> Adversary:
    """Return an adversary that decides by coins of its own."""
    coins = random.Random(seed)

    def decide() -> bool:
        return coins.random() < 0.5

    return decide
