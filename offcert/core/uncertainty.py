"""A box of uncertain times: a least and a most for each operation and for the link.

Whatever the times are, they lie between two corners: at the *fastest* every operation is as short
and every rate as high as it may be, at the *slowest* the other way round. Corners are problems as
all others, with whole ticks rounded outwards. What is proved about them holds in between
(docs/theory/uncertain-times.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any

from offcert.core.chain import Chain
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.forms import TEXT, Absent, Integer, Object, Rational, Record
from offcert.core.list_forms import Each, InOrder
from offcert.core.messages import cut, short_repr
from offcert.core.network import Network
from offcert.core.platform import Kind, Platform
from offcert.core.trace import Operation, Tensor, Trace, require_integer
from offcert.core.units import Units, parse_bandwidth, parse_percent, parse_size

Executed = Trace | Chain | Network | CheckpointChain


def with_durations(network: Executed, durations: Sequence[int]) -> Executed:
    """Return a network with other durations, given in the order in which everything runs once."""
    if isinstance(network, Network):
        computations = zip(network.computations, durations, strict=True)
        return Network((replace(c, duration=ticks) for c, ticks in computations), network.values)
    if isinstance(network, Trace):
        operations = zip(network.operations, durations, strict=True)
        return Trace((replace(o, duration=ticks) for o, ticks in operations), network.tensors)
    stages = len(network)
    # The stages' backward operations run in the opposite order.
    forward, backward = durations[:stages], durations[: stages - 1 : -1]
    fields = {name: getattr(network, name) for name in network.__dataclass_fields__}
    return type(network)(**fields | {"forward": forward, "backward": backward})


def executed_on(execution: Execution, ours: Network, other: Network) -> Execution:
    """Return an execution with the numbers of another network of the same structure.

    What the trace has beyond its own network (a longer run, a larger workspace) it keeps.
    """
    trace = execution.trace
    kept: list[set[int]] = [set() for _ in execution.runs]
    for tensor, value in zip(trace.tensors, execution.values, strict=True):
        if tensor.uses[0] >= 0:
            kept[tensor.uses[0]].add(value)

    def workspace(network: Network, index: int) -> int:
        computation = network.computations[execution.runs[index]]
        lost = [
            value
            for value in computation.writes
            if value not in kept[index] and network.values[value].base is None
        ]
        if lost and computation.lean is not None:
            return computation.lean
        return computation.workspace + network.size_of(lost)

    operations = []
    for index, (operation, run) in enumerate(zip(trace.operations, execution.runs, strict=True)):
        longer = operation.duration - ours.computations[run].duration
        larger = operation.workspace - workspace(ours, index)
        operations.append(
            Operation(
                operation.name,
                other.computations[run].duration + longer,
                workspace(other, index) + larger,
            )
        )
    tensors = []
    for tensor, value in zip(trace.tensors, execution.values, strict=True):
        size = tensor.size
        if value >= 0:
            size += other.values[value].size - ours.values[value].size
        tensors.append(Tensor(tensor.name, size, tensor.uses, tensor.evictable))
    return replace(execution, trace=Trace(operations, tensors))


_LINKS = {"link": "bandwidth", "prefetch": "prefetch_bandwidth"}


def parse_uncertainty(text: str, platform: Platform, units: Units) -> Uncertainty | None:
    """Return the box that a text describes; None for ``"none"``.

    Parameters
    ----------
    text : str
        Parts with commas between them. ``10%``: all durations, and the rates of the link, are
        within a tenth of what the problem says. ``PATTERN=5%``: the durations of operations with
        such names, whatever is said of all. ``link=5%`` or ``link=11GB/s:13GB/s``: the rate of the
        link; ``prefetch=…``: from the host to the device, where that differs. ``memory=SIZE``: the
        most memory; the least is the problem's.
    platform : Platform
        Of the problem that lies in the box.
    units : Units
        Its units.
    """
    if text.strip() == "none":
        return None
    spreads: list[Spread] = []
    everything: Fraction | None = None
    rates: dict[str, Rates] = {}
    memory = None
    for part in text.split(","):
        name, equals, value = part.strip().rpartition("=")
        if not equals:
            everything = _part(value, "uncertainty")
        elif name in _LINKS:
            rates[_LINKS[name]] = _range(value, platform, units, name)
        elif name == "memory":
            memory = parse_size(value, "uncertainty memory")
        elif name:
            less = _part(value, f"uncertainty of {cut(name)}")
            spreads.append(Spread(less, less, name))
        else:
            raise InputError(f'uncertainty "{cut(part)}" names nothing before its "="')
    if everything is not None:
        spreads.append(Spread(everything, everything))
        for name, field in _LINKS.items():
            if field not in rates and getattr(platform, field) is not None:
                rates[field] = _range("", platform, units, name, everything)
    return Uncertainty(tuple(spreads), None, memory=memory, **rates)


def _part(text: str, field: str) -> Fraction:
    part = parse_percent(text, field)
    if part >= 1:
        raise InputError(f'{field} must be less than 100%, not "{cut(text)}"')
    return part


def _range(
    text: str, platform: Platform, units: Units, name: str, known: Fraction | None = None
) -> tuple[Fraction, Fraction]:
    """Return the least and the highest rate of the link in a direction."""
    field = f"uncertainty {name}"
    exact = getattr(platform, _LINKS[name])
    if exact is None:
        raise InputError(f"{field} is for links with two rates; this has one")
    low, colon, high = text.partition(":")
    if colon:
        rates = (parse_bandwidth(end, units, field) for end in (low, high))
        least, most = rates
        return least, most
    part = _part(text, field) if known is None else known
    return (1 - part) * exact, (1 + part) * exact


Rates = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Spread:
    """Uncertainty of the durations of a class of operations.

    Attributes
    ----------
    less, more : Fraction
        Parts of a duration: it is between ``1 - less`` and ``1 + more`` times as long.
    of : str
        A pattern for the names of operations, such as ``"conv*"``.
    """

    less: Fraction
    more: Fraction
    of: str = "*"

    def __post_init__(self) -> None:
        for name in ("less", "more"):
            value = getattr(self, name)
            if not isinstance(value, int | Fraction) or isinstance(value, bool) or value < 0:
                raise InputError(
                    f"{name} must be a rational of at least 0, not {short_repr(value)}"
                )
            object.__setattr__(self, name, Fraction(value))
        if self.less > 1:
            raise InputError(f"less must be at most 1, not {self.less}")


@dataclass(frozen=True)
class Uncertainty:
    """A box of times around a problem.

    Attributes
    ----------
    durations : tuple of Spread
        By class of operation; the first that fits a name counts, and without any a duration is
        exact.
    ticks : tuple of (int, int), optional
        Instead, the least and the most ticks of every operation, as they were measured.
    bandwidth, prefetch_bandwidth : (Fraction, Fraction), optional
        The least and the highest rate in each direction, in bytes per tick; by default exact. Where
        the platform has one rate, `bandwidth` is that of both directions.
    memory : int, optional
        The most bytes on the device; by default as many as the problem has, which are the least.
    """

    durations: tuple[Spread, ...] = ()
    ticks: tuple[tuple[int, int], ...] | None = None
    bandwidth: Rates | None = None
    prefetch_bandwidth: Rates | None = None
    memory: int | None = None

    def range_of(self, index: int, name: str, duration: int) -> tuple[int, int]:
        """Return the least and the most whole ticks of an operation, rounded outwards."""
        if self.ticks is not None:
            return self.ticks[index]
        for spread in self.durations:
            if fnmatchcase(name, spread.of):
                low, high = (1 - spread.less) * duration, (1 + spread.more) * duration
                return low.numerator // low.denominator, -(-high.numerator // high.denominator)
        return duration, duration

    def require_around(self, network: Executed, platform: Platform) -> None:
        """Raise unless a problem lies inside."""
        names, durations = _operations(network)
        if self.ticks is not None:
            if len(self.ticks) != len(names):
                raise InputError(
                    f"uncertainty.ticks must have {len(names)} entries, one an operation, not "
                    f"{len(self.ticks)}"
                )
            if self.durations:
                raise InputError("uncertainty has either durations or ticks, not both")
            for index, (low, high) in enumerate(self.ticks):
                place = f"uncertainty.ticks[{index}]"
                require_integer(low, f"{place}[0]", 0)
                require_integer(high, f"{place}[1]", 0)
                if not low <= durations[index] <= high:
                    raise InputError(
                        f"{place} must be around {durations[index]}, the duration of "
                        f"{names[index]}, not from {low} to {high}"
                    )
        for name in ("bandwidth", "prefetch_bandwidth"):
            rates, exact = getattr(self, name), getattr(platform, name)
            if rates is None:
                continue
            if exact is None:
                raise InputError(f"uncertainty.{name} is for links with two rates; this has one")
            if not 0 < rates[0] <= exact <= rates[1]:
                raise InputError(
                    f"uncertainty.{name} must be around the problem's, {exact}, and more than 0, "
                    f"not from {rates[0]} to {rates[1]}"
                )
        if self.memory is not None and self.memory < platform.memory:
            raise InputError(
                f"uncertainty.memory must be at least the problem's, {platform.memory}, not "
                f"{self.memory}"
            )

    def corner(
        self, network: Executed, platform: Platform, *, fastest: bool
    ) -> tuple[Executed, Platform]:
        """Return the fastest or the slowest network and platform of the box."""
        names, durations = _operations(network)
        rows = enumerate(zip(names, durations, strict=True))
        ranges = [self.range_of(index, *row) for index, row in rows]
        rates = {
            name: found[fastest]
            for name in ("bandwidth", "prefetch_bandwidth")
            if (found := getattr(self, name)) is not None
        }
        most = platform.memory if self.memory is None or not fastest else self.memory
        there = replace(_link_at(platform, rates, fastest), memory=most)
        return with_durations(network, [each[not fastest] for each in ranges]), there


def _link_at(platform: Platform, rates: Mapping[str, Any], fastest: bool) -> Platform:
    """Return a platform with other rates; at once they keep their part of those alone.

    Directions that slow each other down never do at the fastest corner.
    """
    there = replace(platform.alone, **rates)
    if fastest or not platform.slows:
        return there
    slowed = [platform.rate(kind, busy=True) / platform.rate(kind) for kind in Kind]
    whole = [there.rate(kind) * there.sharing for kind in Kind]
    out, back = (part * rate for part, rate in zip(slowed, whole, strict=True))
    return replace(there, busy_bandwidth=out, busy_prefetch_bandwidth=back)


def _operations(network: Executed) -> tuple[list[str], list[int]]:
    """Return the names and durations of what runs, in the order of the plain trace."""
    if isinstance(network, CheckpointChain):
        network = network.network()
    if isinstance(network, Network):
        return [c.name for c in network.computations], [c.duration for c in network.computations]
    trace = network.trace() if isinstance(network, Chain) else network
    return [each.name for each in trace.operations], list(trace.durations)


_SPREAD = Record(Spread, of=TEXT, less=Rational(), more=Rational())
_RATES = Absent(InOrder(tuple, Rational(), Rational()))
# The field `uncertainty` of a document; exact times are left out.
UNCERTAINTY = Absent(
    Object(
        Record(
            Uncertainty,
            durations=Absent(Each(Object(_SPREAD)), ()),
            ticks=Absent(Each(InOrder(tuple, Integer(0), Integer(0)))),
            bandwidth=_RATES,
            prefetch_bandwidth=_RATES,
            memory=Absent(Integer(0)),
        )
    )
)
