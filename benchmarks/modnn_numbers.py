"""The numbers that the moDNN paper prints, each with what it is here in a reading of the paper.

Times and bytes are those of Algorithm 1 and of vDNN; on four GPUs they are what moDNN's rule for
the link gives, without a search. Nothing here is a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from statistics import mean
from typing import Any

from modnn_windows import Reading, Selector, layers_of, profile

from offcert.core.errors import NoPlanError
from offcert.core.platform import Platform
from offcert.core.trace import Trace
from offcert.heuristics.devices import best_by_rules
from offcert.heuristics.modnn.memory import bytes_of
from offcert.heuristics.modnn.scheduler import ModnnOutcome, algorithm_1, modnn
from offcert.heuristics.modnn.vdnn_tasks import vdnn_tasks
from offcert.questions.devices.problem import Accumulation
from offcert.questions.schedule.problem import Problem
from offcert.questions.split.problem import Round
from offcert_lab.modnn.networks import NETWORKS
from offcert_lab.modnn.problems import CORE, CORES, NAIVE, RATE, UNITS, modnn_devices
from offcert_lab.modnn.tasks import step_round
from papers.claims.modnn import written
from papers.claims.tolerance import Agreement, agreement
from papers.sub_batch import least_memory

MEMORIES = (12, 10, 8, 6, 5, 4, 3, 2)
POWER = "resnet34"
_ENOUGH = 10**13

Figure = tuple[str, Agreement]
Model = tuple[bool, int]


@cache
def executed(
    network: str, image: int, model: Model, memory: int, size: int, method: str
) -> tuple[int, int] | None:
    """Return time and moved bytes of a batch in sub-batches; None if a method finds no room."""
    count, rest = divmod(NETWORKS[network].batch, size)
    time = moved = 0
    for images, times in ((size, count), (rest, 1)):
        if not images:
            continue
        found = profile(network, image, model, images)
        problem = Problem(network, found.trace, Platform(memory, RATE), units=UNITS)
        try:
            made = _METHODS[method](problem, found)
        except NoPlanError:
            return None
        time += times * made.schedule.makespan
        moved += times * bytes_of(made.schedule.transfers, made.trace)
    return time, moved


_METHODS: dict[str, Callable[[Problem, Round], Any]] = {
    "modnn": lambda problem, found: algorithm_1(problem, found.menu),
    "vdnn": lambda problem, found: vdnn_tasks(problem, found.menu),
}


@cache
def speed_up(
    network: str, image: int, memory: int, size: int, who: Accumulation
) -> Fraction | None:
    """Return the speed-up of four GPUs with moDNN's rule for the link; memory 0 is enough for all.

    Times are the library's in every reading: only the sub-batch is the reading's. None if
    Algorithm 1 finds no room for it.
    """
    alone = profile(network, image, Reading().model, NETWORKS[network].batch)
    problem = modnn_devices(
        network, 4, memory=memory or _ENOUGH, sub_batch=size, image=image, accumulation=who
    )
    try:
        found = best_by_rules(problem, [modnn(problem.step)], ["fifo"])
    except NoPlanError:
        return None
    assert found is not None
    return Fraction(alone.chosen(alone.menu.fastest()).compute_time, found[0].makespan)


class Numbers:
    """The printed numbers in one reading, over all networks."""

    def __init__(self, reading: Reading, image: int) -> None:
        self.reading, self.image = reading, image
        self.selectors = {name: Selector(name, image, reading) for name in NETWORKS}
        self.size = cache(lambda name, memory: self.selectors[name].size(memory))
        self.part = cache(lambda name, memory: self.selectors[name].size(memory, 4))

    def round(self, network: str, images: int = 0) -> Round:
        """Return the round of so many images, by default of the whole batch."""
        images = images or NETWORKS[network].batch
        return profile(network, self.image, self.reading.model, images)

    def ideal(self, network: str) -> int:
        """Return the bytes of the ideal case."""
        found = self.round(network)
        return placed_apart(found.chosen(found.menu.fastest()))

    def ideal_time(self, network: str, images: int = 0, lean: bool = False) -> int:
        """Return the computing time of a round with its fastest or leanest algorithms."""
        menu = self.round(network, images).menu
        choice = menu.leanest() if lean else menu.fastest()
        return self.round(network, images).chosen(choice).compute_time

    def least(self, network: str, weights_leave: bool = False) -> int:
        """Return the bytes of Eq. 7."""
        found = self.round(network, 1)
        if weights_leave:
            found = step_round(layers_of(network, self.image), 1, weights_leave=True)
        return least_memory(found.trace, found.menu)

    def whole_least(self, network: str) -> int:
        """Return the bytes with which the whole batch runs with the fastest algorithms."""
        found = self.round(network)
        return found.chosen(found.menu.fastest()).least_memory

    def apart(self, network: str, images: int = 0, lean: bool = False) -> int:
        """Return the bytes of a round with everything in a place of its own."""
        found = self.round(network, images)
        return placed_apart(found.chosen(found.menu.leanest() if lean else found.menu.fastest()))

    def done(self, network: str, memory: int, size: int, method: str) -> tuple[int, int] | None:
        """Return time and bytes of a method."""
        total = memory * self.reading.gigabyte
        return executed(network, self.image, self.reading.model, total, size, method)

    def modnn(self, network: str, memory: int) -> tuple[int, int] | None:
        """Return time and bytes of Algorithm 1 with the sub-batch of Eq. 8."""
        return self.done(network, memory, self.size(network, memory), "modnn")

    def plus(self, network: str, memory: int) -> tuple[int, int] | None:
        """Return time and bytes of vDNN+: with that sub-batch, or the next smaller that fits."""
        size = self.size(network, memory)
        while (found := self.done(network, memory, size, "vdnn")) is None and size > 1:
            size = 1 << ((size - 1).bit_length() - 1)
        return found

    def four(self, network: str, memory: int, who: Accumulation) -> Fraction | None:
        """Return the speed-up of four GPUs; with memory 0 for the whole part of the batch."""
        size = self.part(network, memory) if memory else NETWORKS[network].batch // 4
        return speed_up(network, self.image, memory * self.reading.gigabyte, size, who)

    def over_one(self, network: str, who: Accumulation) -> Fraction | None:
        """Return the speed-up of four GPUs of 3 GB over moDNN on one of 12 GB."""
        alone = self.modnn(network, 12)
        four = self.four(network, 3, who)
        if alone is None or four is None:
            return None
        return Fraction(alone[0], self.ideal_time(network)) * four


def offloading_alone(trace: Trace) -> ModnnOutcome:
    """Return Algorithm 1 in the least memory of a trace: what offloading alone comes to (§7.3)."""
    least = Problem("offloading alone", trace, Platform(trace.least_memory, RATE), units=UNITS)
    return algorithm_1(least)


def whole(numbers: Numbers, network: str) -> Fraction:
    """Return the time of offloading alone by the ideal one."""
    found = numbers.round(network)
    made = offloading_alone(found.chosen(found.menu.fastest()))
    return Fraction(made.schedule.makespan, numbers.ideal_time(network))


def placed_apart(trace: Trace) -> int:
    """Return the bytes of all tensors and of the largest workspace."""
    largest = max(operation.workspace for operation in trace.operations)
    return sum(tensor.size for tensor in trace.tensors) + largest


Each = Callable[[Numbers, str], "Fraction | None"]


def ratio(above: Callable[[Numbers, str], int], below: Callable[[Numbers, str], int]) -> Each:
    """Return a quotient for a network."""
    return lambda numbers, network: Fraction(above(numbers, network), below(numbers, network))


def slowed(method: Callable[[Numbers, str], tuple[int, int] | None]) -> Each:
    """Return the time of a method by the ideal one."""

    def each(numbers: Numbers, network: str) -> Fraction | None:
        found = method(numbers, network)
        return Fraction(found[0], numbers.ideal_time(network)) if found else None

    return each


def vdnn(numbers: Numbers, network: str) -> tuple[int, int] | None:
    """Return time and bytes of vDNN with the whole batch at 12 GB."""
    return numbers.done(network, 12, NETWORKS[network].batch, "vdnn")


def transfers(numbers: Numbers, network: str) -> Fraction | None:
    """Return the bytes of vDNN at 12 GB by those of Algorithm 1, with what everybody loads."""
    theirs, own = vdnn(numbers, network), numbers.modnn(network, 12)
    tensors = numbers.round(network).trace.tensors
    loaded = sum(each.size for each in tensors if each.name in ("X", "labels"))
    return Fraction(theirs[1] + loaded, own[1] + loaded) if theirs and own else None


def over_plus(memory: int) -> Each:
    """Return the time of vDNN+ by that of Algorithm 1."""

    def each(numbers: Numbers, network: str) -> Fraction | None:
        theirs, own = numbers.plus(network, memory), numbers.modnn(network, memory)
        return Fraction(theirs[0], own[0]) if theirs and own else None

    return each


@dataclass(frozen=True)
class Printed:
    """A number of the paper: a mean of factors over its networks."""

    place: str
    label: str
    paper: Fraction
    each: tuple[Each, ...]
    kind: str = "times"

    def figure(self, numbers: Numbers) -> Figure:
        """Return ours, and how it agrees."""
        found = [one(numbers, network) for one in self.each for network in NETWORKS]
        known = [value for value in found if value is not None]
        if not known:
            return "–", Agreement.NOT
        text = written(mean(known), self.kind)
        if len(known) < len(found):
            text += f" ({len(known)} of {len(found)})"
        return text, agreement(mean(known), self.paper, factor=True)


def _times(place: str, label: str, paper: str, *each: Each) -> Printed:
    return Printed(place, label, Fraction(paper), each)


def _more(place: str, label: str, paper: str, *each: Each) -> Printed:
    return Printed(place, label, Fraction(paper), each, "more")


PRINTED = (
    _times("Fig. 9", "ideal by least memory", "59", ratio(Numbers.ideal, Numbers.least)),
    _times(
        "Fig. 9",
        "weights leave",
        "396",
        ratio(Numbers.ideal, lambda numbers, name: numbers.least(name, True)),
    ),
    _more("Fig. 10", "moDNN", "1.03", slowed(lambda numbers, name: numbers.modnn(name, 12))),
    _more("Fig. 10", "vDNN", "1.31", slowed(vdnn)),
    _times("Fig. 11", "bytes of vDNN by moDNN's", "378", transfers),
    _times("Fig. 12", "vDNN+ by moDNN", "1.26", *map(over_plus, MEMORIES)),
    _times(
        "Fig. 13",
        "sub-batches alone",
        "42",
        ratio(Numbers.ideal, lambda numbers, name: numbers.apart(name, 1)),
    ),
    _times(
        "Fig. 13",
        "offloading alone",
        "4.1",
        ratio(Numbers.ideal, lambda numbers, name: numbers.whole_least(name)),
    ),
    Printed(
        "Fig. 13",
        "algorithms alone",
        Fraction(20, 17),
        (ratio(Numbers.ideal, lambda numbers, name: numbers.apart(name, lean=True)),),
        "less",
    ),
    _times(
        "Fig. 14",
        "time, sub-batches alone",
        "3.74",
        lambda numbers, name: Fraction(
            NETWORKS[name].batch * numbers.ideal_time(name, 1), numbers.ideal_time(name)
        ),
    ),
    _more("Fig. 14", "time, offloading alone", "1.28", whole),
    _times(
        "Fig. 14",
        "time, algorithms alone",
        "2.7",
        lambda numbers, name: Fraction(
            numbers.ideal_time(name, lean=True), numbers.ideal_time(name)
        ),
    ),
    _times("Fig. 17", "4 GPUs, naive", "3.1", lambda n, name: n.four(name, 0, NAIVE)),
    _times("Fig. 17", "12 GB, one core", "3.7", lambda n, name: n.four(name, 12, CORE)),
    _times("Fig. 18", "6 GB, naive", "2.9", lambda n, name: n.four(name, 6, NAIVE)),
    _times("Fig. 18", "6 GB, one core", "3.4", lambda n, name: n.four(name, 6, CORE)),
    _times("Fig. 18", "3 GB, naive", "2.6", lambda n, name: n.four(name, 3, NAIVE)),
    _times("Fig. 18", "3 GB, one core", "3.1", lambda n, name: n.four(name, 3, CORE)),
    _times("Fig. 18", "3 GB, 20 cores", "3.2", lambda n, name: n.four(name, 3, CORES)),
    _times("Fig. 19", "over one GPU, one core", "3.1", lambda n, name: n.over_one(name, CORE)),
    _times("Fig. 19", "over one GPU, 20 cores", "3.3", lambda n, name: n.over_one(name, CORES)),
)


def _said(holds: bool) -> Agreement:
    return Agreement.CONFIRMED if holds else Agreement.NOT


def fit(numbers: Numbers) -> Figure:
    """§7.1: which ideal cases fit into 12 GB, and which into 24."""
    counts = [
        [name for name in NETWORKS if numbers.ideal(name) <= size * numbers.reading.gigabyte]
        for size in (12, 24)
    ]
    return ", ".join(counts[1]), _said(counts == [["resnet34"], ["resnet34", "fcn"]])


def large(numbers: Numbers) -> Figure:
    """§7.1: "nearly 100 GB", and 1.4 GB at least."""
    ideal, least = (
        size("vgg101") / numbers.reading.gigabyte for size in (numbers.ideal, numbers.least)
    )
    return f"{ideal:.1f}, {least:.2f}", _said(95 <= ideal <= 100 and round(least, 1) == 1.4)


def kept(numbers: Numbers) -> Figure:
    """§7.4: ResNet-34's sub-batches at 6, 5 and 4 GB."""
    sizes = [numbers.size(POWER, memory) for memory in (6, 5, 4)]
    return " ".join(map(str, sizes)), _said(
        sizes[0] == sizes[1] == NETWORKS[POWER].batch > sizes[2]
    )


def moved(memory: int) -> Callable[[Numbers], Figure]:
    """§7.4: at 6 and at 5 GB something leaves for ResNet-34."""

    def figure(numbers: Numbers) -> Figure:
        found = numbers.modnn(POWER, memory)
        size = found[1] if found else 0
        return f"{size / numbers.reading.gigabyte:.2f} GB", _said(size > 0)

    return figure


STATEMENTS: tuple[tuple[str, str, str, Callable[[Numbers], Figure]], ...] = (
    ("Fig. 9", "ideal in 24 GB (12: resnet34)", "resnet34, fcn", fit),
    ("Fig. 9", "VGG-101: ideal, least, in GB", "nearly 100, 1.4", large),
    ("§7.4", "ResNet-34 at 6, 5, 4 GB", "256 256 <256", kept),
    ("§7.4", "it moves at 6 GB", "more", moved(6)),
    ("§7.4", "it moves at 5 GB", "more", moved(5)),
)
