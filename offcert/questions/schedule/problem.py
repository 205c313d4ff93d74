"""`Problem`: a trace on a platform, and its file format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import Any

from offcert.core.chain import Chain
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.messages import cut, short_repr
from offcert.core.network import Network, sources
from offcert.core.notebook import html
from offcert.core.platform import Kind, Platform, rates_text
from offcert.core.trace import LARGEST_TOTAL, Tensor, Trace, require_integer
from offcert.core.uncertainty import Uncertainty, parse_uncertainty
from offcert.core.units import (
    Units,
    format_size,
    format_time,
    parse_bandwidth,
    parse_limit,
    require_size,
)
from offcert.questions.schedule.device_memory import memory_beside, uncounted_bytes, with_optimiser


class Transfers(StrEnum):
    """Kinds of transfers (problems 1 and 2 of the offloading paper, and its §4)."""

    ATOMIC = "atomic"
    INTERRUPTIBLE = "interruptible"
    FRACTIONAL = "fractional"


class Recompute(StrEnum):
    """The computations that may run again.

    ``CHAIN``: what the papers' strategies do on chains, where a stored tensor stays stored until
    its backward operation (persistency). ``ANY``: any repeatable computation, whenever what it
    reads is there.
    """

    NONE = "none"
    CHAIN = "chain"
    ANY = "any"


class Minimise(StrEnum):
    """The objective: ticks within the memory limit, or bytes within a deadline, if there is one."""

    TIME = "time"
    MEMORY = "memory"


@dataclass(frozen=True)
class Problem:
    """Find the shortest schedule of `network` on `platform`, or the one that takes least memory.

    Parameters
    ----------
    name : str
        Name for people.
    network : Trace, Chain, Network or CheckpointChain
        What is executed; the papers' dynamic programs take chains, everything else takes `trace`,
        or `computed` where something may run again.
    platform : Platform
        Memory and link.
    transfers : Transfers or str
        Whether transfers are atomic (Problem 1), interruptible (Problem 2) or fractional (§4).
    units : Units
        Units of ticks and sizes.
    source : mapping, optional
        Where the trace comes from; what ``offcert train`` needs to rebuild the network.
    recompute : Recompute or str
        Kind of recomputation that is allowed.
    offload : bool
        Whether anything may leave the device.
    minimise : Minimise or str
        The objective.
    deadline : int, optional
        Most ticks of a schedule, where memory is minimised.
    uncertainty : Uncertainty, optional
        The box in which the times may lie; by default they are exact.
    """

    name: str
    network: Trace | Chain | Network | CheckpointChain
    platform: Platform
    transfers: Transfers = Transfers.ATOMIC
    units: Units = Units()
    source: Mapping[str, Any] | None = None
    recompute: Recompute = Recompute.NONE
    offload: bool = True
    minimise: Minimise = Minimise.TIME
    deadline: int | None = None
    uncertainty: Uncertainty | None = None

    def __post_init__(self) -> None:
        self._validate_types()
        for name, kind in (
            ("transfers", Transfers),
            ("recompute", Recompute),
            ("minimise", Minimise),
        ):
            self._validate_choice(name, kind)
        self._validate_choices()
        self._validate_totals()
        if self.uncertainty is not None:
            self.uncertainty.require_around(self.network, self.platform)
            self.corner(fastest=False)

    def _validate_choice(self, name: str, kind: type[StrEnum]) -> None:
        value = getattr(self, name)
        if value not in tuple(kind):
            *others, last = (f'"{member}"' for member in kind)
            known = f"{', '.join(others)} or {last}"
            raise InputError(f"{name} must be {known}, not {short_repr(value)}")
        object.__setattr__(self, name, kind(value))

    def _validate_choices(self) -> None:
        """Refuse fields that do not go together."""
        if self.recompute is not Recompute.NONE and self.computed is None:
            raise InputError(
                f'recompute "{self.recompute}" needs a network that says what is computed from '
                "what, and a trace does not"
            )
        if self.recompute is Recompute.CHAIN and isinstance(self.network, Network):
            raise InputError('recompute "chain" needs a chain, not a network')
        if self.deadline is not None:
            require_integer(self.deadline, "deadline", 0)
            if self.minimise is Minimise.TIME:
                raise InputError("a deadline is only for problems that minimise memory")
        if self.platform.slows and self.transfers is not Transfers.ATOMIC:
            raise InputError(f"busy_bandwidth is for atomic transfers, not {self.transfers} ones")

    def _validate_types(self) -> None:
        if not isinstance(self.name, str):
            raise InputError(f"name must be a string, not {short_repr(self.name)}")
        if not isinstance(self.network, Trace | Chain | Network | CheckpointChain):
            kinds = "a Trace, a Chain, a Network or a CheckpointChain"
            raise InputError(f"network must be {kinds}, not {short_repr(self.network)}")
        if not isinstance(self.offload, bool):
            raise InputError(f"offload must be true or false, not {short_repr(self.offload)}")
        if not isinstance(self.platform, Platform):
            raise InputError(f"platform must be a Platform, not {short_repr(self.platform)}")
        if not isinstance(self.units, Units):
            raise InputError(f"units must be Units, not {short_repr(self.units)}")

    def _validate_totals(self) -> None:
        """Keep all times and sizes inside 64 bits, so that compiled code may add them."""
        if self.platform.memory >= LARGEST_TOTAL:
            raise InputError(f"memory must be less than 2**61, not {self.platform.memory}")
        trace, slowest_link = self.trace, self.platform.always_busy
        moves = {
            kind: sum(
                slowest_link.transfer_time(trace.gap_size(gap), kind)
                for gap in range(len(trace.gaps))
            )
            for kind in Kind
        }
        if trace.compute_time + sum(moves.values()) >= LARGEST_TOTAL:
            slowest = max(moves, key=lambda kind: moves[kind])
            separate = slowest is Kind.PREFETCH and self.platform.prefetch_bandwidth is not None
            raise InputError(
                f"{'prefetch_bandwidth' if separate else 'bandwidth'} "
                f"{slowest_link.rate(slowest)} is so low that moving everything would take "
                "2**61 ticks or more"
            )

    def __repr__(self) -> str:
        trace = self.trace
        counts = f"{len(trace)} operations, {len(trace.tensors)} tensors, {len(trace.gaps)} gaps"
        link = f"{self.platform.link} link {self.rates}"
        parts = [counts, f"memory {self.memory_summary}", link, f"{self.transfers} transfers"]
        if self.recompute is not Recompute.NONE or not self.offload:
            parts.append(self.means)
        if self.minimise is Minimise.MEMORY:
            parts[1] = self.objective_summary
        return f"<Problem {cut(self.name)}: {'; '.join(parts)}>"

    def _repr_html_(self) -> str:
        return html(self)

    @property
    def means(self) -> str:
        """Means against a lack of memory, in words for people."""
        may = ["offloading"] if self.offload else []
        if self.recompute is not Recompute.NONE:
            again = "on chains" if self.recompute is Recompute.CHAIN else "of anything"
            may.append(f"recomputation {again}")
        return " and ".join(may) or "neither offloading nor recomputation"

    @property
    def objective_summary(self) -> str:
        """The objective and its limit, in words for people."""
        if self.minimise is Minimise.TIME:
            return f"least time within {self.memory_summary}"
        if self.deadline is None:
            return "least memory, in any time"
        return f"least memory within {format_time(self.deadline, self.units)}"

    @property
    def memory_summary(self) -> str:
        """The memory limit and where it lies between the least and the most, for people."""
        least, peak = self.least_memory, self.peak_memory
        limit, low, high = (
            format_size(size, self.units) for size in (self.platform.memory, least, peak)
        )
        if self.platform.memory < least:
            return f"{limit}, less than the least possible, {low}"
        if self.platform.memory >= peak:
            return f"{limit}, enough for the peak, {high}"
        part = 100 * (self.platform.memory - least) / (peak - least)
        return f"{limit} ({part:.4g} % between {low} and {high})"

    @property
    def rates(self) -> str:
        """The bandwidth, or both if they differ, and those of both directions at once."""
        return rates_text(self.platform, self.units)

    @cached_property
    def trace(self) -> Trace:
        """The network as a trace in which everything runs once."""
        if isinstance(self.network, Chain):
            return self._held(self.network.trace())
        if self.computed is not None:
            return self._held(self.computed.trace())
        assert isinstance(self.network, Trace)
        return self._held(self.network)

    def _held(self, trace: Trace) -> Trace:
        """Return a trace, with tensors that cannot leave if nothing may."""
        if self.offload or not any(tensor.evictable for tensor in trace.tensors):
            return trace
        tensors = (Tensor(t.name, t.size, t.uses, evictable=False) for t in trace.tensors)
        return Trace(trace.operations, tensors)

    @property
    def chain(self) -> Chain | None:
        """The chain of the offloading paper, if the problem was given as one."""
        return self.network if isinstance(self.network, Chain) else None

    @cached_property
    def checkpoint_chain(self) -> CheckpointChain | None:
        """The chain of the papers about recomputation, if the problem was given as a chain."""
        if isinstance(self.network, Chain):
            return CheckpointChain.of(self.network)
        return self.network if isinstance(self.network, CheckpointChain) else None

    @cached_property
    def computed(self) -> Network | None:
        """The network of a problem: its computations; None if the problem was given as a trace."""
        chain = self.checkpoint_chain
        if chain is not None:
            return chain.network()
        return self.network if isinstance(self.network, Network) else None

    def plain(self) -> Problem:
        """Return the problem in which everything runs once: as a trace, with time to minimise."""
        return self._scheduling(self.trace)

    def executed(self, execution: Execution) -> Problem:
        """Return the problem of scheduling the offloads of an execution: nothing else is open.

        Everything that works on traces takes it: simulator, checker, heuristics, runtime, plots.
        """
        return self._scheduling(execution.trace)

    def _scheduling(self, trace: Trace) -> Problem:
        return replace(
            self,
            network=trace,
            recompute=Recompute.NONE,
            minimise=Minimise.TIME,
            deadline=None,
            uncertainty=None,
        )

    def corner(self, *, fastest: bool) -> Problem:
        """Return the fastest or the slowest problem of the box of uncertain times."""
        if self.uncertainty is None:
            return self
        network, platform = self.uncertainty.corner(self.network, self.platform, fastest=fastest)
        return replace(self, network=network, platform=platform, uncertainty=None)

    def with_uncertainty(self, text: str) -> Problem:
        """Return the same problem with a box of uncertain times, written as ``"10%,conv*=5%"``.

        Raises
        ------
        InputError
            If the text describes none (`offcert.core.uncertainty.parse_uncertainty`).
        """
        exact = replace(self, uncertainty=None)
        return replace(exact, uncertainty=parse_uncertainty(text, self.platform, self.units))

    def with_memory(self, memory: int | str) -> Problem:
        """Return the same problem with another memory limit.

        Parameters
        ----------
        memory : int or str
            Bytes, or what the command line takes: ``"6GiB"``, or ``"25%"`` of the way from the
            least memory with which any schedule exists to the peak without offloading.

        Raises
        ------
        InputError
            If it is neither.
        """
        if isinstance(memory, str):
            memory = parse_memory(memory, self)
        return replace(self, platform=replace(self.platform, memory=memory))

    def with_device_memory(self, size: int | str, optimiser: str | None = None) -> Problem:
        """Return the same problem on a device of so many bytes, or ``"16GiB"``, minus all else.

        `optimiser` names the one whose state is counted
        (`offcert.questions.schedule.device_memory`), by default the profile's. Raises an
        `InputError` if that is too little, or not known.
        """
        beside = uncounted_bytes(self)
        beside = beside if optimiser is None else with_optimiser(beside, optimiser)
        return self.with_memory(memory_beside(require_size(size, "device memory"), beside))

    def with_bandwidth(
        self, bandwidth: Fraction | str, prefetch: Fraction | str | None = None
    ) -> Problem:
        """Return the same problem with another bandwidth, the same while both directions run.

        Parameters
        ----------
        bandwidth : Fraction or str
            From the device to the host: bytes per tick, or what the command line takes, for example
            ``"12.2GB/s"``.
        prefetch : Fraction or str, optional
            From the host to the device; by default the same.

        Raises
        ------
        InputError
            If it is no such thing.
        """
        back = None if prefetch is None else self._rate(prefetch, "prefetch bandwidth")
        platform = replace(
            self.platform.alone,
            bandwidth=self._rate(bandwidth, "bandwidth"),
            prefetch_bandwidth=back,
        )
        return replace(self, platform=platform)

    def _rate(self, rate: Fraction | str, field: str) -> Fraction:
        if isinstance(rate, str):
            return parse_bandwidth(rate, self.units, field)
        return rate

    @property
    def least_memory(self) -> int:
        """The memory below which certainly no schedule exists: 0 % of a limit.

        Where everything runs once, that much is enough. Where computations may run again, it is
        what the largest of them takes alone, and need not be enough.
        """
        network = self.computed
        if self.recompute is Recompute.NONE or network is None:
            return self.trace.least_memory
        return max(network.size_of(sources(network)), *network.own_memory)

    @property
    def peak_memory(self) -> int:
        """The memory that everything takes that runs once and stays: 100 % of a limit."""
        return max(self.trace.peak_memory, self.least_memory)

    def memory_at(self, fraction: Fraction) -> int:
        """Return the limit `fraction` of the way from the least memory to the peak.

        Rounded down to whole bytes, which at 0 and 1 is exact.
        """
        least, peak = self.least_memory, self.peak_memory
        return least + (peak - least) * fraction.numerator // fraction.denominator


def parse_memory(text: str, problem: Problem) -> int:
    """Return a memory limit for a size or a percentage; see `offcert.core.units.parse_limit`."""
    return parse_limit(text, problem.units, problem.memory_at)


def format_objective(value: int, problem: Problem, beside: int | None = None) -> str:
    """Return for people a value of what a problem minimises: a time or a size.

    With digits enough to tell it from another value `beside` it.
    """
    form = format_time if problem.minimise is Minimise.TIME else format_size
    return form(value, problem.units, beside)
