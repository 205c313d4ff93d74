"""Memory that is given out in turns: who comes next waits for who was there first."""

from __future__ import annotations

from dataclasses import dataclass

from offcert.runtime.device.interface import Event


@dataclass(eq=False, slots=True)
class Slot:
    """A stretch of a ring.

    Attributes
    ----------
    begin, size : int
        Where it is.
    used : Event or None
        Once it is reached, nobody uses the slot; None while that is not known.
    in_stream : bool
        Whether it is an event of a stream, which streams can wait for.
    """

    begin: int
    size: int
    used: Event | None = None
    in_stream: bool = False


class Ring:
    """Gives out stretches of so many bytes, each behind the one before, and then from the front.

    Parameters
    ----------
    size : int
        Bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._slots: list[Slot] = []

    def take(self, size: int) -> tuple[Slot, list[Slot]]:
        """Return a slot, and those that have to be out of use before it is used."""
        assert 0 < size <= self.size
        slot, gone = self._next(size)
        lost = {id(each) for each in gone}
        # What of them is not met stays, and so does one that is passed over where the ring begins
        # anew: who waits for these here need not be who comes there.
        self._slots = [
            part
            for each in self._slots
            for part in (_beside(each, slot) if id(each) in lost else [each])
        ]
        self._slots.append(slot)
        return slot, gone

    def gone(self, size: int) -> list[Slot]:
        """Return the slots that would have to be out of use for another one of some size."""
        return self._next(size)[1]

    def _next(self, size: int) -> tuple[Slot, list[Slot]]:
        begin = self._slots[-1].begin + self._slots[-1].size if self._slots else 0
        if begin + size > self.size:
            begin = 0
        gone = [
            each
            for each in self._slots
            if each.begin < begin + size and begin < each.begin + each.size
        ]
        return Slot(begin, size), gone


def _beside(old: Slot, new: Slot) -> list[Slot]:
    """Return what of a slot is not met by another one."""
    end, last = new.begin + new.size, old.begin + old.size
    parts = [(old.begin, new.begin - old.begin), (end, last - end)]
    return [Slot(begin, size, old.used, old.in_stream) for begin, size in parts if size > 0]
