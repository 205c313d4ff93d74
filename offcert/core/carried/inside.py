"""Extra bytes that operations take when parts of a step are recomputed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from offcert.core.carried.record import Ask, Within
from offcert.core.carried.unroll import OtherRun
from offcert.core.network import Network
from offcert.core.trace import Operation


class Inside:
    """Translation of events within computations to the execution of a program."""

    def __init__(
        self,
        within: Within,
        network: Network,
        order: Sequence[int],  # The computation of each operation.
        values: Sequence[int],  # The value of each copy.
        uses: Sequence[set[int]],  # Of each copy.
        outlasting: set[int],  # Copies that somebody else holds when the program lets go of them.
        groups: Sequence[OtherRun],  # Computations that run again, in order.
        lines: set[int],  # Operations at which calls of a line are made again, one after another.
    ) -> None:
        self.within = within
        self.network = network
        self.order = order
        self.groups = groups
        self.lines = lines
        # Of each operation, the values that are there before and die in it, and their bytes.
        self.ending: dict[int, set[int]] = {}
        self.freed: dict[int, int] = {}
        for copy, (value, of) in enumerate(zip(values, uses, strict=True)):
            if min(of) < max(of):
                if copy not in outlasting:
                    self.ending.setdefault(max(of), set()).add(value)
                self.freed[max(of)] = self.freed.get(max(of), 0) + network.values[value].size
        # Bytes of what backward computations have made when something runs again for them, by the
        # first operation, during which they are made, and the last, which is theirs.
        self.waiting: dict[tuple[int, int], int] = {}
        # Workspaces that operations need at least, and why: see `_wait`.
        self._needs: dict[int, int] = {}
        for asking, of_it in self._asking():
            self._wait(asking, of_it)

    def operations(self, operations: Iterable[Operation]) -> list[Operation]:
        """Return the operations of the execution with the workspaces that they need."""
        return [
            replace(
                each,
                workspace=max(each.workspace + self._more(place), self._needs.get(place, 0)),
            )
            for place, each in enumerate(operations)
        ]

    def _more(self, place: int) -> int:
        making = self.within.making_of.get(self.order[place])
        if making is None or self._die(making.values, place):
            return 0
        return making.more

    def _die(self, values: Iterable[int], place: int) -> bool:
        """Whether values die within an operation as they do when nothing runs again."""
        # In a line it is not the program's own code that lets go of them.
        return place not in self.lines and self.ending.get(place, set()).issuperset(values)

    def _asking(self) -> Iterable[tuple[int, list[OtherRun]]]:
        """Yield the operations for which something runs again, and what does.

        Where all of it is kept, the operation begins when it has been handed out.
        """
        found: dict[int, list[OtherRun]] = {}
        for group in self.groups:
            asking = next(
                place
                for place in range(group.end, len(self.order))
                if not self.network.computations[self.order[place]].repeatable
            )
            found.setdefault(asking, []).append(group)
        return found.items()

    def _wait(self, asking: int, groups: list[OtherRun]) -> None:
        """Note the bytes that wait while segments run again, until the operation that asks goes on.

        It begins to run before they do, during what comes before them.
        """
        waits = 0
        for group in groups:
            segment = group.segment
            ask = self.within.first_ask(self.order[asking], segment.first, segment.last)
            if ask is None:
                continue
            left, most = self._left(ask, asking)
            before = group.begin - 1
            if left > waits:
                self.waiting[before, asking] = left - waits
                waits = left
            # By then what dies in the operation before is dead.
            need = most - waits - self.freed.get(before, 0)
            self._needs[before] = max(need, self._needs.get(before, 0))

    def _left(self, ask: Ask, asking: int) -> tuple[int, int]:
        if self._die(ask.values, asking):
            return ask.left, ask.most
        return ask.left_otherwise, ask.most_otherwise
