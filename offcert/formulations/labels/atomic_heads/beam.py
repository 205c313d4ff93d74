"""Good ways along one side, quickly: a beam of sequences in which no tensor leaves twice.

The search for the least end (``kernel``) is there to prove. Where operations have time to spare,
very many sequences attain the least end, and it is long before that search meets one in which no
tensor leaves twice. Here all classes are counted, a tensor frees no memory for an operation that
uses it, and of the sequences with equally many transfers only the most promising stay. What is
found can be executed, and proves nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from offcert.core.compiled import compiled, inlined_and_entered
from offcert.formulations.labels.atomic_heads.kernel import Ints, Tables, bound_on_end
from offcert.formulations.labels.atomic_heads.search import SideSearch

_NEVER = 2**62
# An odd factor, so that sums of marks and idle times seldom agree by chance.
_SPREAD = np.int64(0x1E3779B97F4A7C15)


class States(NamedTuple):
    """Sequences of equally many transfers.

    ``w``, ``t``, ``s``, ``k`` and ``f`` are as in ``kernel``; ``parent`` is the place of the
    sequence before the last transfer, ``action`` its class, and ``mark`` tells sets apart.
    """

    w: Ints
    t: Ints
    s: Ints
    k: Ints
    f: Ints
    mark: Ints
    parent: Ints
    action: Ints


class Users(NamedTuple):
    """Which items each operation uses after they are ready: ``first[k]`` to ``first[k + 1]``."""

    first: Ints
    kind: Ints
    rank: Ints


@inlined_and_entered
def _run(side: Tables, users: Users, left: Ints, c: int, w: int, k: int) -> int:
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
    side: Tables,
    users: Users,
    states: States,
    left: Ints,
    marks: Ints,
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


def _selected(children: States, made: int, width: int, rng: np.random.Generator) -> Ints:
    """Return the places of the least bounds: ties are broken at random, equal sets kept once."""
    order = rng.permutation(made)
    bounds = children.f[:made][order]
    order = order[np.argsort(bounds, kind="stable")]
    _, places = np.unique(children.mark[order] + _SPREAD * children.s[order], return_index=True)
    return order[np.sort(places)[:width]]


def _taken(states: States, chosen: Ints) -> States:
    return States(*(column[chosen] for column in states))


def _beam(side: Tables, users: Users, width: int, most: int, seed: int) -> tuple[int, list[int]]:
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

    Parameters
    ----------
    search : SideSearch
        Of any pivot; it need not have searched.
    width : int
        Sequences that stay after every transfer.
    seed : int
        Of the choice among equally promising ones.

    Returns
    -------
    int, tuple of int
        None if no sequence was found.
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
