"""Stretches of a forward pass that can run again: calls of modules, runs of children, lines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from offcert.core.carried.ranges import Line, Range, Ranges, SequentialCall
from offcert.runtime.capture.moments import CutStep
from offcert.runtime.capture.recorder import Recorder
from offcert.runtime.watch.events import ENTER, LEAVE, Event
from offcert.runtime.watch.hooks import is_compiled


class RangeFinder:
    """Finds the stretches of a recorded step that `Segments` can run again.

    Left out are compiled modules, script modules, what the program itself checkpoints, the model as
    a whole, and calls that compute nothing.
    """

    def __init__(self, recorder: Recorder, cut: CutStep) -> None:
        moments, self.ticks = cut.moments, cut.ticks
        self.only_once, self.found_lines = recorder.only_once, recorder.lines.found
        self.modules = dict(recorder.hooks.root.named_modules())
        self.refused = {
            above
            for path, module in self.modules.items()
            if is_compiled(module) or isinstance(module, torch.jit.ScriptModule)
            for above in _above(path)
        }
        # What is called again in a backward pass is checkpointed by the program itself.
        again = {m.event.path for m in moments if m.backward and m.event.kind == ENTER}
        self.refused |= {above for path in again for above in _above(path)}
        # In the order in which they are entered; those of the root apart.
        spans: dict[Event, tuple[int, int]] = {}
        for index, moment in enumerate(moments):
            begun = moment.event._replace(kind=ENTER)
            if moment.backward:
                continue
            if moment.event.kind == ENTER:
                spans[begun] = index, index
            elif moment.event.kind == LEAVE and begun in spans:
                spans[begun] = spans[begun][0], index
        self.spans = {event: span for event, span in spans.items() if event.path}
        self.root_spans = [(event, span) for event, span in spans.items() if not event.path]
        self.spans_of: dict[str, list[tuple[int, int]]] = {}
        for event, span in self.spans.items():
            self.spans_of.setdefault(event.path, []).append(span)

    def ranges(self) -> Ranges:
        """Return the calls, the rows of children, and the lines."""
        calls = []
        for event, (begun, ended) in self.spans.items():
            first, last = self._operations(begun, ended)
            if event.path in self.refused or event in self.only_once:
                continue
            if first <= last:
                calls.append(Range(first, last, event.path, event.call))
        calls.sort(key=lambda each: (each.first, -each.last))
        rows = tuple(self._rows())
        known = {(each.first, each.last) for each in Ranges(tuple(calls), rows)}
        found = (line for each in self.found_lines for line in self._lines(each))
        # What is in a row of children anyway needs no line.
        new = [
            line for line in found if any((r.first, r.last) not in known for r in line.stretches())
        ]
        return Ranges(tuple(calls), rows, tuple(new))

    def _lines(self, calls: Sequence[Event]) -> Iterator[Line]:
        """Yield a recorded line without the calls that cannot be made again."""
        pieces: list[list[Event]] = [[]]
        for event in calls:
            if event.path in self.refused or event in self.only_once or event not in self.spans:
                pieces.append([])
            else:
                pieces[-1].append(event)
        for piece in pieces:
            ends = [self._operations(*self.spans[event]) for event in piece]
            yield Line(
                tuple((event.path, event.call) for event in piece),
                tuple(first for first, _ in ends),
                tuple(last for _, last in ends),
            )

    def _operations(self, begun: int, ended: int) -> tuple[int, int]:
        """Return the operations between two moments; the last is before the first if none is."""
        return bisect_left(self.ticks, begun), bisect_left(self.ticks, ended) - 1

    def _rows(self) -> Iterator[SequentialCall]:
        containers = {
            path: module
            for path, module in self.modules.items()
            if isinstance(module, nn.Sequential)
            and type(module).forward is nn.Sequential.forward
            and "forward" not in module.__dict__
        }
        for event, span in [*self.spans.items(), *self.root_spans]:
            container = containers.get(event.path)
            if container is None:
                continue
            row = self._row(event, container, span)
            if row is not None:
                yield row

    def _row(
        self, event: Event, container: nn.Sequential, span: tuple[int, int]
    ) -> SequentialCall | None:
        above = f"{event.path}." if event.path else ""
        children = [(name, above + name) for name in container._modules]
        if not all(path in self.modules for _, path in children):
            # One that is also called by another name, or twice: which call is whose is not clear.
            return None
        names, first, last = [], [], []
        for name, path in children:
            inside = [
                times
                for times in self.spans_of.get(path, [])
                if span[0] <= times[0] and times[1] <= span[1]
            ]
            if len(inside) != 1:
                return None
            begin, end = self._operations(*inside[0])
            if path in self.refused:
                return None
            if begin <= end:
                names.append(name)
                first.append(begin)
                last.append(end)
        if not names:
            return None
        return SequentialCall(event.path, event.call, tuple(names), tuple(first), tuple(last))


def _above(path: str) -> Iterator[str]:
    """Yield a path and those of all modules that it is in."""
    yield path
    while path:
        path = path.rpartition(".")[0]
        yield path
