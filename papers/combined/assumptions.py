"""The assumptions of the combined paper, each by itself."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True)
class Assumptions:
    """The assumptions of the combined paper's dynamic program (its §3.2 and Table 1), and one more.

    That the recursion is nested is nowhere said to be an assumption; the paper takes it for a
    consequence of persistency. It is none: see docs/theory/errata.md.

    Attributes
    ----------
    operations : bool
        Only the operations of Table 1: a stage that keeps all it makes keeps its input as well, and
        what it keeps stays together until its backward operation.
    persistent : bool
        A tensor that is stored stays stored, on the device or the host, until a backward operation
        has read it.
    nested : bool
        What runs again does so when the next backward operation lacks something, and from the last
        output before it that is stored; it makes its own output anew.
    early_offloads : bool
        Nothing leaves after the loss: offloads use the link until the first backward operation
        starts.
    late_prefetches : bool
        Nothing returns before the loss: prefetches use the link from the end of the last forward
        operation of the first pass on.
    stage_inputs : bool
        Only what the next stage starts from leaves, and as a whole: the output of a stage, together
        with all else that the stage has kept.
    pausing : bool
        Transfers may pause; memory is released and taken byte by byte. Otherwise transfers are
        whole (atomic).
    """

    operations: bool = True
    persistent: bool = True
    nested: bool = True
    early_offloads: bool = True
    late_prefetches: bool = True
    stage_inputs: bool = True
    pausing: bool = True

    @classmethod
    def lifted(cls, *, pausing: bool = True) -> Assumptions:
        """Return the assumptions with all of them given up."""
        return cls(False, False, False, False, False, False, pausing)

    def without(self, name: str) -> Assumptions:
        """Return the same with one assumption lifted."""
        return replace(self, **{name: False})


PUBLISHED = Assumptions()
NAMES = tuple(field.name for field in fields(Assumptions))
