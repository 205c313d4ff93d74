"""All objects that a segment's code can reach and that are no state of modules: a census of them.

They must not change while the segment runs first: nothing puts them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from offcert.runtime.segments.code import Random
from offcert.runtime.segments.contents import Content
from offcert.runtime.segments.reachable import Reach, Reached, is_atom
from offcert.runtime.segments.snapshot import GLOBAL_HOOKS, MARK, same


@dataclass(slots=True)
class Counted:
    """The objects before a first run: all that they hold, one after another (`flat`).

    In a rehearsal or a verification all of them, with their contents (`closely`).
    """

    flat: list[Any]
    closely: list[tuple[Content, Any]] = field(default_factory=list)

    def clear(self) -> None:
        """Hold nothing any more."""
        self.flat.clear()
        self.closely.clear()


class Census:
    """The objects that the code of some modules can reach.

    Those that were found first are `reached`, modules and objects that may change unseen among
    them. `tensors` are those that these objects hold; `generators` of random numbers are put back.
    """

    def __init__(self, modules: Iterable[tuple[str, Any]]) -> None:
        self._reach = Reach()
        everywhere = [("a global hook", each) for table in GLOBAL_HOOKS for each in table.values()]
        self.reached: Reached = self._reach.visit([*modules, *everywhere])
        self.generators: list[Random] = []
        self.tensors: list[tuple[str, torch.Tensor]] = []
        self._contents: list[Content] = []
        self._last: list[Any] = []
        self._add(self.reached)

    def _add(self, found: Reached) -> None:
        self.tensors += found.tensors
        for each in found.contents:
            if isinstance(each, Random):
                self.generators.append(each)
            else:
                self._contents.append(each)

    def attach(self, tensors: list[tuple[str, torch.Tensor]]) -> None:
        """Add the attributes that programs have given to tensors, and all that they reach."""
        self._add(self._reach.visit((name, each.__dict__) for name, each in tensors))

    def take(self, arguments: Iterable[Any] = (), *, closely: bool = False) -> Counted:
        """Take down what the objects hold; `closely`: what is dear and in arguments, too."""
        flat = self.flat()
        if not same(flat, self._last):
            self._look_again()
            flat = self._last = self.flat()
        if not closely:
            return Counted(flat)
        given = [("an argument", each) for each in arguments if not is_atom(each)]
        others = Reach(self._reach).visit(given).contents
        return Counted(flat, [(each, each.take()) for each in self._contents + others])

    def flat(self) -> list[Any]:
        """Return the objects that they all hold, one after another."""
        return [held for each in self._contents for held in (MARK, *each.held())]

    def _look_again(self) -> None:
        """Add the objects that can be reached now and were not known yet."""
        above = [(each.name, each, each.take()) for each in self._contents]
        self._add(
            self._reach.visit(
                (f"{name}.{key}" if name else key, held)
                for name, content, value in above
                for key, held in content.items(value)
            )
        )

    def changed(self, before: Counted) -> Iterator[Content]:
        """Yield the objects that hold something else than they did."""
        if before.closely:
            for content, value in before.closely:
                if not content.same(value, content.take()):
                    yield content
        elif not same(self.flat(), before.flat):
            yield from self._differing(before.flat)

    def _differing(self, flat: list[Any]) -> Iterator[Content]:
        ends = [index for index, each in enumerate(flat) if each is MARK] + [len(flat)]
        for number, content in enumerate(self._contents[: len(ends) - 1]):
            was = flat[ends[number] + 1 : ends[number + 1]]
            if not same(was, list(content.held())):
                yield content
