"""Plans from both sides of an operation: what leaves on one side has to return on the other.

The best head and the best tail mostly move different tensors. So take the tensors of a good way
along one side, and ask for the best way along the other that moves exactly these. Both ways
together are an ordered schedule (``heuristics.ordered``): all offloads before all prefetches. On
long chains so many ways are almost equally good that some pair comes very close to the bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from offcert.core.compiled import IntArray, compiled, inlined_and_entered
from offcert.formulations.labels.ends.alone import SideSearch
from offcert.formulations.labels.ends.side import only
from offcert.formulations.labels.ends.tables import SideTables, bound_on_end

# A time that never comes. By definition.
_NEVER = 2**62
# An odd factor, so that sums of marks and idle times seldom agree by chance.
_SPREAD = np.int64(0x1E3779B97F4A7C15)


class States(NamedTuple):
    """Sequences of equally many transfers.

    ``w``, ``t``, ``s``, ``k`` and ``f`` are as in ``best_first``; ``parent`` is the place of the
    sequence before the last transfer, ``action`` its class, and ``mark`` tells sets apart.
    """

    w: IntArray
    t: IntArray
    s: IntArray
    k: IntArray
    f: IntArray
    mark: IntArray
    parent: IntArray
    action: IntArray


class Users(NamedTuple):
    """The items that each operation uses after they are ready: ``first[k]`` to ``first[k + 1]``."""

    first: IntArray
    kind: IntArray
    rank: IntArray


@inlined_and_entered
def _run(side: SideTables, users: Users, left: IntArray, c: int, w: int, k: int) -> int:
    """Return how many operations can run after one more of class `c` has left.

    What an operation uses frees no memory for it.
    """
    last = side.prefix.size - 1
    while k < last:
        moved = w
        for place in range(users.first[k], users.first[k + 1]):
            kind = users.kind[place]
            if users.rank[place] < left[kind] + (kind == c):
                moved -= side.size[kind]
        if side.unit * moved < side.required[k]:
            break
        k += 1
    return k


@compiled
def _children(
    side: SideTables,
    users: Users,
    states: States,
    left: IntArray,
    marks: IntArray,
    children: States,
    best: int,
) -> int:
    """Write all sequences with one transfer more that may end before `best`; return how many."""
    made = 0
    for state in range(left.shape[0]):
        t, s, k = states.t[state], states.s[state], states.k[state]
        for c in range(side.size.size):
            rank = left[state, c]
            if rank >= side.amount[c] or side.ready[c, rank] >= k:
                continue
            w = states.w[state] + side.size[c]
            end = max(t, s + side.prefix[side.ready[c, rank] + 1]) + side.time[c]
            on = _run(side, users, left[state], c, w, k)
            idle = max(s, end - side.prefix[k]) if on > k else s
            f = max(states.f[state], bound_on_end(side, w, end, idle, on))
            if f < best:
                children.w[made], children.t[made], children.s[made] = w, end, idle
                children.k[made], children.f[made] = on, f
                children.mark[made] = states.mark[state] + marks[c]
                children.parent[made], children.action[made] = state, c
                made += 1
    return made


def _selected(children: States, made: int, width: int, rng: np.random.Generator) -> IntArray:
    """Return the places of the least bounds: ties are broken at random, equal sets kept once."""
    order = rng.permutation(made)
    bounds = children.f[:made][order]
    order = order[np.argsort(bounds, kind="stable")]
    _, places = np.unique(children.mark[order] + _SPREAD * children.s[order], return_index=True)
    return order[np.sort(places)[:width]]


def _taken(states: States, chosen: IntArray) -> States:
    return States(*(column[chosen] for column in states))


def _beam(
    side: SideTables, users: Users, width: int, most: int, seed: int
) -> tuple[int, list[int]]:
    """Return the least end found, or `_NEVER`, and the classes in their order."""
    rng = np.random.default_rng(seed)
    count = side.size.size
    marks = rng.integers(-(2**61), 2**61, count)
    children = States(*np.zeros((len(States._fields), max(1, width * count)), np.int64))
    states = _taken(children, np.zeros(1, np.int64))
    left = np.zeros((1, count), np.int64)
    states.k[0] = _run(side, users, left[0], -1, 0, 0)
    states.f[0] = bound_on_end(side, 0, 0, 0, states.k[0])
    best, way = _NEVER, []
    history: list[States] = []
    for transfers in range(most + 1):
        history.append(states)
        done = (states.k == side.prefix.size - 1) & (side.unit * states.w >= side.required[-1])
        for state in np.flatnonzero(done):
            if states.f[state] < best:
                best, way = int(states.f[state]), _way(history, int(state))
        if transfers == most:
            break
        made = _children(side, users, states, left, marks, children, best)
        if made == 0:
            break
        states = _taken(children, _selected(children, made, width, rng))
        left = left[states.parent]
        left[np.arange(len(left)), states.action] += 1
    return best, way


def _way(history: list[States], state: int) -> list[int]:
    """Return the classes in the order in which they leave."""
    way = []
    for states in history[:0:-1]:
        way.append(int(states.action[state]))
        state = int(states.parent[state])
    return way[::-1]


def good_way(search: SideSearch, width: int, seed: int) -> tuple[int, tuple[int, ...]] | None:
    """Return the end of a side and the gaps in the order of their transfers, or None.

    `width` sequences stay after every transfer; `seed` chooses among equally promising ones. The
    side need not have been searched.
    """
    most = len(search.side.items)
    end, way = _beam(search.tables(), _users(search), width, most, seed)
    if end == _NEVER:
        return None
    left = [iter(items) for _, items in search.classes]
    return end, tuple(next(left[c]).gap for c in way)


def _users(search: SideSearch) -> Users:
    first, kind, rank = [0], [], []
    for operation in range(len(search.side.prefix) - 1):
        for c, (_, items) in enumerate(search.classes):
            for number, item in enumerate(items):
                if item.ready < operation and not item.absent[operation]:
                    kind.append(c)
                    rank.append(number)
        first.append(len(kind))
    return Users(*(np.array(column, dtype=np.int64) for column in (first, kind, rank)))


# Sequences in the first beam, its growth from one attempt to the next, sequences in the last beam,
# and the number of attempts. Arbitrary.
_FIRST_WIDTH = 20
_GROWTH = 1.35
_LAST_WIDTH = 200
_ATTEMPTS = 12


@dataclass(frozen=True)
class Orders:
    """The order in which gaps are opened, and that in which the same gaps are closed."""

    # Gaps.
    offloads: tuple[int, ...]
    prefetches: tuple[int, ...]
    # Ticks of both sides together, without what it takes to turn from offloads to prefetches.
    end: int


def good_orders(head: SideSearch, tail: SideSearch, seed: int = 0) -> Iterator[Orders | None]:
    """Yield orders, from wider and wider beams; None where an attempt found nothing.

    What the searches of a head and a tail of one pivot have found is a way to begin with; `seed` is
    that of the choices among equally promising sequences.
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
