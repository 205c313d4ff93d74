"""Ticks that a link still takes at least, where everything runs once: bounds for labels."""

from __future__ import annotations

from functools import cache

from offcert.core.platform import Kind, Platform
from offcert.core.trace import Trace
from offcert.formulations.labels.joint.model import NOTHING, JointModel, Label, bits


class LinkBound:
    """Bounds from what must be absent during operations to come, and from what must return.

    Parameters
    ----------
    model : JointModel
        A problem in which everything runs once; contents are its tensors.
    trace : Trace
        What is executed.
    platform : Platform
        The link.
    memory : int
        Bytes.

    Attributes
    ----------
    after : list of int
        Ticks from the start of each operation to the end of the last one, at least; 0 at the end.
    """

    def __init__(self, model: JointModel, trace: Trace, platform: Platform, memory: int) -> None:
        self._model, self._platform = model, platform
        self._excess = [max(0, demand - memory) for demand in trace.demand]
        self._over = [0] * len(trace)
        # Per operation, where what is absent during it is used again at the earliest and later.
        closing: list[list[int]] = [[] for _ in trace.operations]
        for gap in trace.gaps:
            for operation in range(gap.before + 1, gap.after):
                self._over[operation] |= 1 << gap.tensor
                closing[operation].append(gap.after)
        self.after = [0] * (len(trace) + 1)
        for operation in reversed(range(len(trace))):
            least = self.after[operation + 1]
            if self._excess[operation]:
                back = platform.transfer_time(self._excess[operation], Kind.PREFETCH)
                uses = (self.after[use] for use in closing[operation])
                least = max(least, back + min(uses, default=0))
            self.after[operation] = trace.durations[operation] + least
        self._left = cache(self._ticks_left)

    def end(self, label: Label) -> int:
        """Return the end of the last operation, at the earliest, of all that follows a label."""
        here, there, out, back = label.device, label.host, label.time, label.time
        if label.leaving != NOTHING:
            there, out = there | 1 << label.leaving, label.left_at
        if label.coming != NOTHING:
            here, back = here | 1 << label.coming, label.back_at
        if self._model.simplex:
            out = back = max(out, back)
        outwards, inwards = self._left(label.frontier, here, there)
        device = max(label.time, label.run_end) + self.after[label.frontier]
        return max(device, out + outwards, back + inwards)

    def _ticks_left(self, begun: int, here: int, there: int) -> tuple[int, int]:
        """Return the ticks from the link's next offload to the end, and from its next prefetch.

        On a simplex link both are the same; 0 where nothing has to move.

        Parameters
        ----------
        begun : int
            How many operations have begun.
        here, there : int
            What is on the device and on the host, or on its way there: masks.
        """
        model, back = self._model, 0
        ticks, outwards, inwards, both = model.ticks[Kind.PREFETCH], 0, 0, 0
        for operation in range(begun, len(self._over)):
            for mask in model.reads[operation]:
                if mask & there and not mask & here:
                    here |= mask
                    back += sum(ticks[content] for content in bits(mask))
            missing = self._excess[operation] - model.total(self._over[operation] & there)
            out = self._platform.transfer_time(missing, Kind.OFFLOAD) if missing > 0 else 0
            after = self.after[operation]
            if out:
                outwards = max(outwards, out + after)
            if back:
                inwards = max(inwards, back + after)
            both = max(both, out + back + after if out or back else 0)
        return (both, both) if model.simplex else (outwards, inwards)
