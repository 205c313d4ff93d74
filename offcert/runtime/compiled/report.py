"""Report by name: the parts of a plan that the compiled graphs carry out, and those they do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from offcert.runtime.watch.saved_hooks import SavedPlace

# Why a tensor stays in a graph that has no part of its operation.
NOWHERE = "no node of a graph belongs there"


@dataclass(frozen=True)
class MovedInGraphs:
    """A storage that leaves and comes back as nodes of the graphs say.

    Attributes
    ----------
    tensor : str
        The tensor of the trace that it is a part of.
    place : SavedPlace
        By what the plan knows it.
    node : str
        The node that is copied to the host.
    released, returned : tuple of str
        For each stretch in which it is away: the nodes right before which it has left, and before
        which its return begins, as the graphs were before anything was inserted.
    exact : bool
        Whether all of these are just where the plan has them; if not, it leaves or comes back
        later, or once less often.
    """

    tensor: str
    place: SavedPlace
    node: str
    released: tuple[str, ...]
    returned: tuple[str, ...]
    exact: bool

    @property
    def size(self) -> int:
        """Bytes."""
        return self.place.size


@dataclass(frozen=True)
class Stays:
    """A storage that the plan moves, and that stays on the device.

    Attributes
    ----------
    tensor : str
        The tensor of the trace that it is a part of.
    place : SavedPlace
        By what the plan knows it.
    operation : str
        The operation that saves it.
    why : str
        Half a sentence.
    """

    tensor: str
    place: SavedPlace
    operation: str
    why: str

    @property
    def size(self) -> int:
        """Bytes."""
        return self.place.size


@dataclass(frozen=True)
class RunsAgain:
    """A segment of the plan.

    Attributes
    ----------
    segment : str
        The segment that runs again, for people.
    marked : int
        How many nodes of the forward pass are to.
    nodes : tuple of str
        Nodes of it that do run again; the backward pass has no need of the others' results.
    why : tuple of str
        Reasons why it is not as planned; empty if it is.
    """

    segment: str
    marked: int
    nodes: tuple[str, ...]
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class GraphReport:
    """The parts of a plan that compiled graphs carry out: one graph, or all of them.

    Attributes
    ----------
    plan : str
        Name of the plan's problem.
    planned_bytes : int
        Of the storages that the plan moves.
    carried : tuple of MovedInGraphs
        Storages that move.
    stays : tuple of Stays
        Storages that do not.
    again : tuple of RunsAgain
        For every segment.
    refused : str or None
        Why the graph follows no plan at all, if it does not.
    limit : int or None
        Bytes that the plan may take.
    peak : int or None
        The most bytes of buffers, as Inductor has put its kernels in order; None if not known. What
        kernels need inside is not among them, nor are parameters, what the step is given, gradients
        of parameters, and copies on the host.
    """

    plan: str
    planned_bytes: int
    carried: tuple[MovedInGraphs, ...] = ()
    stays: tuple[Stays, ...] = ()
    again: tuple[RunsAgain, ...] = ()
    refused: str | None = None
    limit: int | None = None
    peak: int | None = None

    @property
    def carried_bytes(self) -> int:
        """Bytes of the storages that move."""
        return sum(each.size for each in self.carried)

    @property
    def share(self) -> float:
        """The part of the planned bytes that move; 1 if none are to."""
        return self.carried_bytes / self.planned_bytes if self.planned_bytes else 1.0

    @property
    def complete(self) -> bool:
        """Whether all that the plan moves does, and all that it runs again does as planned."""
        whole = self.refused is None and not self.stays
        return whole and not any(each.why or not each.marked for each in self.again)

    @property
    def within(self) -> bool:
        """Whether the peak is within the limit, as far as is known."""
        return self.peak is None or self.limit is None or self.peak <= self.limit

    def __str__(self) -> str:
        """Say it in a sentence, with what is missing by name."""
        if self.refused is not None:
            return f"no part of the plan of {self.plan} is carried out: {self.refused}"
        text = (
            f"{self.carried_bytes} of {self.planned_bytes} planned bytes of {self.plan} move "
            "in compiled graphs"
        )
        kinds: dict[str, list[Stays]] = {}
        for each in self.stays:
            kinds.setdefault(each.why, []).append(each)
        for why, stay in kinds.items():
            names = ", ".join(dict.fromkeys(f"{s.tensor} (saved by {s.operation})" for s in stay))
            text += f"; {sum(s.size for s in stay)} bytes stay because {why}: {names}"
        for segment in self.again:
            if not segment.marked:
                text += f"; {segment.segment} does not run again: no node of a graph is in it"
            for why in segment.why:
                text += f"; {segment.segment}: {why}"
        if not self.within:
            text += f"; buffers take {self.peak} bytes at their peak, of {self.limit} allowed"
        return text


def together(reports: Sequence[GraphReport], peak: int | None) -> GraphReport:
    """Return one report for the graphs of a step."""
    carried = {moved.place: moved for each in reports for moved in each.carried}
    stays: dict[SavedPlace, Stays] = {}
    for stay in (stay for each in reports for stay in each.stays):
        before = stays.get(stay.place)
        # A graph that has nodes of the operation knows best why its tensor stays.
        if stay.place not in carried and (before is None or before.why == NOWHERE):
            stays[stay.place] = stay
    again = []
    for rows in zip(*(each.again for each in reports if each.refused is None), strict=True):
        # What a segment keeps may be in any of the graphs.
        why = [said for said in rows[0].why if all(said in row.why for row in rows)]
        nodes = tuple(name for row in rows for name in row.nodes)
        marked = sum(row.marked for row in rows)
        again.append(RunsAgain(rows[0].segment, marked, nodes, tuple(why)))
    return replace(
        reports[0],
        carried=tuple(carried.values()),
        stays=tuple(stays.values()),
        again=tuple(again),
        refused=next((each.refused for each in reports if each.refused is not None), None),
        peak=peak,
    )
