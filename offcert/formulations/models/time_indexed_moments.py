"""What the time-indexed model on CP-SAT says of moments that are no ticks of a grid.

A moment is the start or the end of an operation, or the start of a prefetch, whenever that is. Who
is absent then is counted by literals, and transfers that must be made between two of them last no
longer than the time between (*energy*).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from offcert.formulations.models.time_indexed_model import TickModel

Literal = Any


@dataclass(frozen=True, slots=True)
class Moment:
    """The start of an operation, or its last tick.

    Attributes
    ----------
    operation : int
        Its index.
    at_end : bool
        Which of the two.
    """

    operation: int
    at_end: bool


class Moments:
    """Literals "has left by" and "is not back by" the starts and ends of operations.

    Parameters
    ----------
    model : TickModel
        Receives them, and the conditions on them.
    duplex : bool
        Whether the directions of the link are independent.
    """

    def __init__(self, model: TickModel, duplex: bool) -> None:
        self.ticks, self.data, self.model = model, model.data, model.model
        self.moments = [
            Moment(o, at_end)
            for o, amount in enumerate(self.data.required)
            for at_end in ((False, True) if self.data.operations[o].length > 0 else (False,))
            if amount > 0
        ]
        self.left: dict[tuple[int, Moment], Literal] = {}
        self.stays: dict[tuple[int, Moment], Literal] = {}
        for moment in self.moments:
            self._add_memory(moment)
        self._add_growth()
        for moment in self.moments:
            if not moment.at_end:
                self._add_departures(moment, duplex)
            if moment.at_end or self.data.operations[moment.operation].length == 0:
                self._add_returns(moment, duplex)

    def _add_memory(self, moment: Moment) -> None:
        """As much is absent at a moment as the operation requires.

        What has not left by a moment comes back after it, so of an evicted gap at least one
        literal holds, and both do exactly if it is absent.
        """
        start = self.ticks.operations[moment.operation]
        length = start.item.length
        # The last tick by which it has left, and the first at which it may be claimed. A prefetch
        # that starts with an operation is seen by it unless the operation lasts no time.
        released = start.tick + (length - 1 if moment.at_end else 0)
        claimed = start.tick + (length if moment.at_end else min(length, 1))
        absent = []
        for index in self.data.over[moment.operation]:
            gap, back = self.data.gaps[index], self.ticks.prefetches[index]
            left, stays = self.model.new_bool_var(""), self.model.new_bool_var("")
            self.model.add_implication(left, back.happens)
            self.model.add_implication(stays, back.happens)
            out = self.ticks.offloads[gap.tensor]
            self.model.add(out.end <= released).only_enforce_if(left)
            self.model.add(back.tick >= claimed).only_enforce_if(stays)
            self.model.add_bool_or([left, stays, ~back.happens])
            self.left[index, moment], self.stays[index, moment] = left, stays
            absent.append(gap.size * (left + stays - back.happens))
        self.model.add(sum(absent) >= self.data.required[moment.operation])

    def _add_growth(self) -> None:
        """Who has left by a moment has left by the next, and who is not back by it was not."""
        for index in range(len(self.data.gaps)):
            seen = [moment for moment in self.moments if (index, moment) in self.left]
            for one, two in pairwise(seen):
                self.model.add_implication(self.left[index, one], self.left[index, two])
                self.model.add_implication(self.stays[index, two], self.stays[index, one])

    # Energy

    def _add_departures(self, moment: Moment, duplex: bool) -> None:
        """What was written after a moment and has left by another left in between."""
        data, o = self.data, moment.operation
        over = data.over[o]
        for writer in sorted({data.gaps[index].writer for index in over}):
            opens = self.ticks.operations[writer].end if writer >= 0 else 0
            terms = [
                data.offloads[data.gaps[index].tensor].length * self.left[index, moment]
                for index in over
                if data.gaps[index].writer >= writer
            ]
            terms += self._whole(writer, o, out=True, back=not duplex)
            self.model.add(sum(terms) <= self.ticks.operations[o].tick - opens)

    def _add_returns(self, moment: Moment, duplex: bool) -> None:
        """What is not back by a moment and is used at another returns in between."""
        data, o = self.data, moment.operation
        over = data.over[o]
        for after in sorted({data.gaps[index].after for index in over}):
            terms = [
                data.gaps[index].prefetch.length * self.stays[index, moment]
                for index in over
                if data.gaps[index].after <= after
            ]
            terms += self._whole(o, after, out=not duplex, back=True)
            closes = self.ticks.operations[after].tick
            self.model.add(sum(terms) <= closes - self.ticks.operations[o].end)

    def _whole(self, opens: int, closes: int, *, out: bool, back: bool) -> list[Any]:
        """Return the ticks of the transfers of gaps that lie between two operations as a whole.

        Of tensors with one gap only: another gap's offload may have come before.
        """
        data = self.data
        return [
            (out * data.offloads[gap.tensor].length + back * gap.prefetch.length)
            * self.ticks.prefetches[index].happens
            for index, gap in enumerate(data.gaps)
            if gap.writer >= opens and gap.after <= closes and gap.single
        ]
