"""Report by name: the parts of a plan that the compiled graphs carry out, and those they do not."""

from __future__ import annotations

from dataclasses import dataclass

from offcert.runtime.watch.saved_hooks import SavedPlace


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
    size : int
        Bytes.
    operation : str
        The operation that saves it.
    why : str
        Half a sentence.
    """

    tensor: str
    size: int
    operation: str
    why: str


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
    """The report of one compilation: the parts of a plan that its graph carries out.

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
    """

    plan: str
    planned_bytes: int
    carried: tuple[MovedInGraphs, ...] = ()
    stays: tuple[Stays, ...] = ()
    again: tuple[RunsAgain, ...] = ()
    refused: str | None = None

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

    def __str__(self) -> str:
        """Say it in a sentence, with what is missing by name."""
        if self.refused is not None:
            return f"no part of the plan of {self.plan} is carried out: {self.refused}"
        text = (
            f"{self.carried_bytes} of {self.planned_bytes} planned bytes of {self.plan} move "
            "in this graph"
        )
        kinds: dict[str, list[Stays]] = {}
        for each in self.stays:
            kinds.setdefault(each.why, []).append(each)
        for why, stay in kinds.items():
            names = ", ".join(dict.fromkeys(f"{s.tensor} (saved by {s.operation})" for s in stay))
            text += f"; {sum(s.size for s in stay)} bytes stay because {why}: {names}"
        for segment in self.again:
            if not segment.marked:
                text += f"; {segment.segment} does not run again: no node of the graph is in it"
            for why in segment.why:
                text += f"; {segment.segment}: {why}"
        return text
