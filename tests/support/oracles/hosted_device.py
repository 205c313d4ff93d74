"""A device with a host that takes time, tick by tick: random programs, and when all of it ends.

A program is what a host does, one thing after the other. `Ticks` hands it over to three streams and
lets them run one tick after the other, from the beginning whenever the host asks for a time: it
shares no line with the simulated device, which computes ends.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

STREAMS = ("compute", "out", "back")
Step = tuple[Any, ...]


def random_hosted_program(seed: int, length: int = 16) -> list[Step]:
    chance = random.Random(seed)
    steps: list[Step] = []
    events = 0
    for _ in range(length):
        steps.append(("works", chance.choice((0, 0, 1, 3, 7))))
        what = chance.choice(("ran", "ran", "copy", "copy", "copy", "order", "order", "wait"))
        if what == "ran":
            several = range(chance.choice((1, 1, 2, 3)))
            steps.append(("ran", *(chance.randrange(9) for _ in several)))
        elif what == "copy":
            steps.append(("copy", chance.choice(STREAMS[1:]), chance.randrange(1, 30)))
        elif what == "order":
            first, then = chance.sample(STREAMS, 2)
            steps += [("record", first), ("wait", then, events)]
            events += 1
        elif events and chance.random() < 0.3:
            steps.append(("host waits", chance.randrange(events)))
    return [*steps, *(("record", stream) for stream in STREAMS)]


@dataclass
class Item:
    """A piece of work: it begins after others and not before a time, nor ends before another."""

    stream: str
    after: list[int]
    earliest: int = 0
    lasts: int = 0
    until: int = 0
    size: int = 0
    begin: int | None = None
    end: int | None = None
    done: Fraction = Fraction(0)


@dataclass
class Ticks:
    """Rates out and back, alone and while the other direction runs."""

    alone: tuple[Fraction, Fraction]
    busy: tuple[Fraction, Fraction]
    items: list[Item] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    latest: dict[str, list[int]] = field(default_factory=lambda: {each: [] for each in STREAMS})
    now: int = 0
    told: int = 0

    def give(self, stream: str, **how: Any) -> None:
        after = [*self.latest[stream], *how.pop("after", ())]
        self.items.append(Item(stream, after, **how))
        self.latest[stream] = [len(self.items) - 1]

    def run(self, steps: Sequence[Step]) -> list[int]:
        for what, *rest in steps:
            if what == "works":
                self.now += rest[0]
            elif what == "ran":
                spread, count = self.now - self.told, len(rest)
                for n, lasts in enumerate(rest):
                    begin, until = (self.told + spread * k // count for k in (n, n + 1))
                    self.give("compute", earliest=begin, lasts=lasts, until=until)
                self.told = self.now
                self.give("compute", earliest=self.now)
            elif what == "copy":
                self.give(rest[0], earliest=self.now, size=rest[1])
            elif what == "record":
                self.give(rest[0], earliest=self.now)
                self.events.append(len(self.items) - 1)
            elif what == "wait":
                self.give(rest[0], earliest=self.now, after=[self.events[rest[1]]])
            else:
                ended = self.ends()[self.events[rest[0]]]
                self.now = self.told = max(self.now, ended, self.told)
        ends = self.ends()
        return [ends[each] for each in self.events]

    def ends(self) -> list[int]:
        for item in self.items:
            item.begin, item.end, item.done = None, None, Fraction(0)
        tick = 0
        while any(item.end is None for item in self.items):
            self._begin_and_end(tick)
            running = [i for i in self.items if i.begin is not None and i.end is None]
            ways = {item.stream for item in running if item.size}
            for item in running:
                if item.size:
                    rates = self.busy if len(ways) == 2 else self.alone
                    item.done += rates[item.stream == "back"]
                else:
                    item.done += 1
            tick += 1
        return [item.end for item in self.items if item.end is not None]

    def _begin_and_end(self, tick: int) -> None:
        for item in self.items:
            before = [self.items[each].end for each in item.after]
            free = all(end is not None and end <= tick for end in before)
            if item.begin is None and free and item.earliest <= tick:
                item.begin = tick
            done = item.begin is not None and item.done >= (item.size or item.lasts)
            if item.end is None and done and item.until <= tick:
                item.end = tick
