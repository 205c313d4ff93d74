"""Between which nodes a storage is off the device: the stretches of a plan, in the graphs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from offcert.runtime.compiled.anchors import Anchors
from offcert.runtime.compiled.line import Line, launches
from offcert.runtime.compiled.planned import Moved
from offcert.runtime.compiled.storages import Storage


@dataclass(frozen=True)
class Absence:
    """One stretch, in positions.

    Attributes
    ----------
    release : int
        Right before this node the storage has left.
    claim : int
        Right before this node its return begins.
    use : int
        Right before this node it is back.
    """

    release: int
    claim: int
    use: int


@dataclass(frozen=True)
class Timing:
    """All stretches of a storage, in order, and whether they are those of the plan."""

    absences: tuple[Absence, ...]
    exact: bool


def uses(storage: Storage, line: Line) -> list[int]:
    """Return the positions of the nodes that need a storage, the one that makes it first."""
    members = set(storage.nodes)
    found = {line.place[node] for node in storage.nodes}
    readers = [user for node in storage.nodes for user in node.users]
    readers += [user for node in storage.saved for user in line.inputs[node.name].users]
    found.update(line.place[node] for node in readers if node.op != "output")
    assert line.nodes[min(found)] in members
    return sorted(found)


def timing(moved: Moved, storage: Storage, anchors: Anchors, line: Line) -> Timing | str:
    """Return when a storage is away, or why it cannot be.

    A stretch of the plan becomes one between two consecutive uses in the graphs: of all such the
    one that shares most nodes with it. There the storage leaves when the plan says, or right after
    the use before it if that comes later, and returns when the plan says, or at the latest right
    before the use after it. It leaves in the forward graph and returns in the backward graph: what
    a program needs again in its forward pass, it holds until then.
    """
    used = uses(storage, line)
    absences: list[Absence] = []
    exact = True
    for eviction in moved.evictions:
        release, claim = anchors.begins(eviction.release), anchors.begins(eviction.claim)
        low = absences[-1].use if absences else 0
        pairs = [each for each in pairwise(used) if each[0] >= low and each[1] >= line.border]
        pair = _widest(pairs, release, claim)
        if pair is None:
            exact = False
            continue
        before, after = pair
        first = max(release, before + 1)
        if before < line.border <= first:
            # A copy that begins in the forward graph is complete at its end.
            first = line.forward_end
        last = max(min(max(claim, first), after), line.backward_begin)
        exact = exact and _same(line, first, release) and _same(line, last, claim)
        absences.append(Absence(first, last, after))
    if not absences:
        return "the graphs use it where the plan has it away"
    if absences[0].release > line.forward_end:
        return "it leaves for the first time during the backward pass"
    return Timing(tuple(absences), exact)


def _same(line: Line, one: int, other: int) -> bool:
    """Whether nothing is computed between two positions."""
    nodes = line.nodes[min(one, other) : max(one, other)]
    return not any(launches(node) for node in nodes)


def _widest(pairs: Iterable[tuple[int, int]], release: int, claim: int) -> tuple[int, int] | None:
    """Return the pair of positions with most positions between both of them and of two others."""
    best: tuple[int, int] | None = None
    most = 0
    for before, after in pairs:
        shared = min(after, max(claim, release + 1)) - max(before + 1, release)
        if after - before > 1 and shared > most:
            best, most = (before, after), shared
    return best
