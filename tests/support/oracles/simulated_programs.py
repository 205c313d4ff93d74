"""Random programs for a simulated device, and what is true of them, found out the slow way.

A program is a list of steps. It is run on a device by `run`; `graph` says what comes before what,
as a graph of the work: an edge from each item of a stream to the next one, and from what came
before an event to what was given after a wait for it. Paths of this graph are all there is to
know: the longest ones are times, and two uses without a path between them race.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import networkx as nx
import torch

from offcert.core.platform import Platform
from offcert.runtime.simulated import SimulatedDevice
from support.runtime.simulated_cases import part

STREAMS = ("compute", "out", "back")
ARENA = 24
SIZES = (4, 8, 12)
# What is to be done, and its arguments.
Step = tuple[Any, ...]


def random_program(seed: int, length: int = 14, care: float = 0.8) -> list[Step]:
    """Return steps; with care 1 nothing races but by places on the host used again."""
    chance = random.Random(seed)
    steps: list[Step] = []
    alive: dict[int, int] = {}
    made = events = 0

    def ordered(after: str, before: str) -> None:
        nonlocal events
        if chance.random() < care:
            steps.append(("record", before, events))
            steps.append(("wait", after, events))
            events += 1

    for _ in range(length):
        what = chance.choice(["make", "make", "send", "send", "send", "fetch", "fetch", "drop"])
        if what == "make":
            alive[made] = size = chance.choice(SIZES)
            steps += [("make", made, size), ("ran", chance.randrange(30))]
            made += 1
        elif what == "send" and alive:
            which = chance.choice(list(alive))
            ordered("out", "compute")
            if chance.random() < 0.5:
                ordered("out", "back")
            steps.append(("send", which, alive[which], chance.randrange(0, ARENA - 11, 4)))
        elif what == "fetch":
            alive[made] = size = chance.choice(SIZES)
            steps.append(("allocate", made, size))
            ordered("back", "compute")
            ordered("back", "out")
            steps.append(("fetch", made, size, chance.randrange(0, ARENA - 11, 4)))
            made += 1
        elif what == "drop" and alive:
            which = chance.choice(list(alive))
            del alive[which]
            for stream in ("out", "back"):
                ordered("compute", stream)
            steps += [("drop", which), ("ran", chance.randrange(10))]
        if chance.random() < 0.1:
            steps.append(("synchronise",))
    return steps


@dataclass
class Outcome:
    """What a device made of a program."""

    times: list[int]
    races: int
    host: torch.Tensor
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)


def run(steps: Sequence[Step], *platform: Platform, **options: Any) -> Outcome:
    device = SimulatedDevice(*platform, **options)
    arena = device.arena(ARENA)
    streams = {name: getattr(device, name) for name in STREAMS}
    tensors: dict[int, torch.Tensor] = {}
    events: list[Any] = []
    start = device.compute.record()
    for step, *rest in steps:
        if step == "make":
            which, size = rest
            tensors[which] = torch.full((size,), which % 200 + 1, dtype=torch.uint8)
        elif step == "allocate":
            tensors[rest[0]] = device.allocate(rest[1])
        elif step == "ran":
            device.ran(rest[0])
        elif step == "send":
            device.copy_out([part(tensors[rest[0]], arena, rest[2])])
        elif step == "fetch":
            device.copy_back([part(tensors[rest[0]], arena, rest[2])])
        elif step == "drop":
            del tensors[rest[0]]
        elif step == "record":
            events.append(streams[rest[0]].record())
        elif step == "wait":
            streams[rest[0]].wait(events[rest[1]])
        else:
            device.synchronise()
    races = len(device.races)
    device.synchronise()
    times = [device.nanoseconds(start, event) for event in events]
    return Outcome(times, races, arena.view(0, ARENA).clone(), tensors)


@dataclass
class Work:
    """What comes before what in a program.

    Attributes
    ----------
    graph : nx.DiGraph
        Nodes are numbers of steps, with the time ``takes``.
    uses : list
        ``(node, memory, begin, end, writes)``.
    operators : list
        ``(node, other)``: the latest operators when a copy out is handed over, and the copy.
    """

    graph: nx.DiGraph = field(default_factory=nx.DiGraph)
    events: list[int] = field(default_factory=list)
    uses: list[tuple[Any, ...]] = field(default_factory=list)
    operators: list[tuple[int, int]] = field(default_factory=list)

    def times(self) -> list[int]:
        ends: dict[int, int] = {}
        for node in nx.topological_sort(self.graph):
            begin = max((ends[other] for other in self.graph.predecessors(node)), default=0)
            ends[node] = begin + self.graph.nodes[node]["takes"]
        return [ends[node] for node in self.events]

    def races(self) -> int:
        """Count pairs of uses of which one writes, and neither comes before the other.

        With them, copies that do not come after the operators that may have written.
        """
        before = {node: nx.ancestors(self.graph, node) for node, *_ in self.uses}
        count = sum(node not in before[other] for node, other in self.operators)
        for number, (node, memory, begin, end, writes) in enumerate(self.uses):
            for other, memory_too, low, high, writes_too in self.uses[:number]:
                if memory == memory_too and begin < high and low < end and (writes or writes_too):
                    count += node not in before[other] and other not in before[node]
        return count


def graph(
    steps: Sequence[Step],
    rates: Sequence[Fraction] = (Fraction(1), Fraction(1)),
    simplex: bool = False,
) -> Work:
    work = Work()
    latest: dict[str, int] = {}
    link: int | None = None
    operated: int | None = None

    def does(node: int, stream: str, takes: int = 0) -> None:
        work.graph.add_node(node, takes=takes)
        if stream in latest:
            work.graph.add_edge(latest[stream], node)
        latest[stream] = node

    made_by: dict[int, int] = {}
    for node, (step, *rest) in enumerate(steps):
        if step == "make":
            # Made by operators that have run when `ran` is called, which is the next step.
            made_by[rest[0]] = node + 1
        elif step in ("ran", "allocate", "drop"):
            does(node, "compute", rest[0] if step == "ran" else 0)
            if step == "ran":
                operated = node
            else:
                work.uses.append((node, rest[0], 0, 100, True))
            for which in [which for which, at in made_by.items() if at == node]:
                work.uses.append((node, which, 0, 100, True))
        elif step in ("send", "fetch"):
            out = step == "send"
            which, size, offset = rest
            does(node, "out" if out else "back", -int(-size // rates[not out]))
            if simplex and link is not None:
                work.graph.add_edge(link, node)
            link = node
            work.uses.append((node, which, 0, 100, not out))
            if out and operated is not None:
                work.operators.append((operated, node))
            work.uses.append((node, "host", offset, offset + size, out))
        elif step == "record":
            does(node, rest[0])
            work.events.append(node)
        elif step == "wait":
            does(node, rest[0])
            work.graph.add_edge(work.events[rest[1]], node)
        else:
            before = set(latest.values())
            work.graph.add_node(node, takes=0)
            work.graph.add_edges_from((other, node) for other in before)
            latest = dict.fromkeys(STREAMS, node)
    return work
