"""Plans from both sides of an operation: what leaves on one side has to return on the other.

The best head and the best tail mostly move different tensors. So take the tensors of a good way
along one side, and ask for the best way along the other that moves exactly these. Both ways
together are an ordered schedule (``heuristics.ordered``): all offloads before all prefetches. On
long chains so many ways are almost equally good that some pair comes very close to the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from offcert.formulations.labels.atomic_heads.beam import good_way
from offcert.formulations.labels.atomic_heads.search import SideSearch
from offcert.formulations.labels.atomic_heads.side import only

# Sequences in a beam, and how that grows from one attempt to the next.
_FIRST_WIDTH = 20
_GROWTH = 1.35
_LAST_WIDTH = 200
_ATTEMPTS = 12


@dataclass(frozen=True)
class Orders:
    """The order in which gaps are opened, and that in which the same gaps are closed.

    Attributes
    ----------
    offloads, prefetches : tuple of int
        Gaps.
    end : int
        Ticks of both sides together, without what it takes to turn from offloads to prefetches.
    """

    offloads: tuple[int, ...]
    prefetches: tuple[int, ...]
    end: int


def good_orders(head: SideSearch, tail: SideSearch, seed: int = 0) -> Iterator[Orders | None]:
    """Yield orders, from wider and wider beams; None where an attempt found nothing.

    Parameters
    ----------
    head, tail : SideSearch
        Of one pivot. What they have found is a way to begin with.
    seed : int
        Of the choices among equally promising sequences.
    """
    sides = (head, tail)
    width = float(_FIRST_WIDTH)
    # Where few tensors can leave, the first attempts have seen all there is.
    for attempt in range(min(_ATTEMPTS, 2 * len(head.side.items))):
        draw = _ATTEMPTS * seed + attempt
        for first in (0, 1):
            known = sides[first].way
            if attempt % 2 == 0 and known is not None:
                yield _joined(sides, first, sides[first].bound, known, int(width), draw)
            else:
                found = good_way(sides[first], int(width), draw)
                yield None if found is None else _joined(sides, first, *found, int(width), draw)
        width = min(_GROWTH * width, _LAST_WIDTH)


def _joined(
    sides: tuple[SideSearch, SideSearch],
    first: int,
    end: int,
    way: tuple[int, ...],
    width: int,
    seed: int,
) -> Orders | None:
    """Return both orders when a way along one side is given."""
    other = good_way(SideSearch(only(sides[1 - first].side, set(way))), width, seed)
    if other is None:
        return None
    # The way back is told in reversed time.
    ways = (other[1], way[::-1]) if first else (way, other[1][::-1])
    return Orders(*ways, end + other[0])
