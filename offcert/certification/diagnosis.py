"""Diagnoses: the memory that a training step needs at a size, and the best plan known for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import overload

from offcert.certification.other_ways import OtherWay
from offcert.core.notebook import html, text
from offcert.core.trace import Trace
from offcert.core.units import Units, format_size
from offcert.proofs.certificate import Certificate
from offcert.questions.placement.problem import PlacementProblem
from offcert.questions.schedule.check import peak
from offcert.questions.schedule.device_memory import describe_uncounted
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.residences import host_placement_problem, pinned_and_pageable
from offcert.questions.schedule.schedule import Schedule

_BYTES = Units("ns", "B")


@dataclass(frozen=True)
class MemoryNeed:
    """Memory of one kind, and what the plan of a training step needs of it.

    Attributes
    ----------
    name : str
        Of the device or of the host, and for what.
    needed : int or None
        Bytes; None if no plan is known, and it is not known that there is none.
    available : int or None
        Bytes; None if that is not limited.
    """

    name: str
    needed: int | None
    available: int | None

    @property
    def short(self) -> bool:
        """Whether more is known to be needed than there is."""
        if self.needed is None or self.available is None:
            return False
        return self.needed > self.available

    def __str__(self) -> str:
        needed = "unknown" if self.needed is None else _size(self.needed)
        available = "any number" if self.available is None else _size(self.available)
        return f"{self.name}: {needed} needed, {available} available"


@dataclass(frozen=True)
class Diagnosis:
    """The needs of one size of a training step on a device, and the best plan known for it.

    Attributes
    ----------
    asked : mapping of str to int
        The dimensions that make the size.
    samples : int
        Samples that one step trains on.
    device_memory : int
        Bytes of the device.
    problem : Problem
        The step. Its limit is what the device has left for it, 0 if nothing is left.
    beside : mapping of str to int
        Bytes of the device that the problem does not count: parameters, gradients, optimiser, ….
    certificate : Certificate or None
        The certificate of the problem; None if what is beside it takes the whole device.
    host_memory : int or None
        Bytes of the host that may be pinned for copies; None if that is not limited.
    pageable_memory : int or None
        Bytes of the host that are not pinned, for copies that have no room where memory is; None
        if none are to be there (of ways that need no plan: if that is not limited).
    others : tuple of OtherWay
        Ways that need no plan, of those that the step has: a way is missing where the step does not
        say what is computed from what, where the names of its computations have no layers, or where
        a layer does something that cannot run again.
    """

    asked: Mapping[str, int]
    samples: int
    device_memory: int
    problem: Problem
    beside: Mapping[str, int]
    certificate: Certificate | None
    host_memory: int | None = None
    pageable_memory: int | None = None
    others: tuple[OtherWay, ...] = ()

    @cached_property
    def _plain(self) -> Trace:
        return self.problem.plain().trace

    @cached_property
    def peak_operation(self) -> int:
        """The operation that needs most if everything runs once and stays, by its index."""
        demand = self._plain.demand
        return demand.index(max(demand))

    @cached_property
    def at_peak(self) -> dict[str, int]:
        """Bytes on the device during that operation, by what they are.

        ``saved`` are tensors that may leave, which wait for the backward pass; ``computed`` are
        gradients and intermediate results that may not; ``workspace`` is the operation's own.
        """
        trace, peak = self._plain, self.peak_operation
        found = {"saved": 0, "computed": 0}
        for tensor in trace.tensors:
            if tensor.uses[0] <= peak <= tensor.uses[-1]:
                found["saved" if tensor.evictable else "computed"] += tensor.size
        found["workspace"] = trace.operations[peak].workspace
        return dict(self.beside) | found

    @property
    def peak(self) -> int:
        """Bytes of the device that the step takes without any plan."""
        return sum(self.at_peak.values())

    @property
    def fits(self) -> bool:
        """Whether the step and the optimiser's step fit without any plan."""
        return self.peak <= self.device_memory and not self.budgets[-1].short

    @property
    def computing(self) -> int:
        """Nanoseconds of computing alone, everything once."""
        return self._plain.compute_time

    @property
    def step(self) -> int | None:
        """Nanoseconds of the step by the best plan known; None without one."""
        return None if self.certificate is None else self.certificate.result.objective

    @property
    def bound(self) -> int | None:
        """Lower bound on any plan's step in nanoseconds; None if there certainly is no plan."""
        if self.certificate is None or self.certificate.result.infeasibility is not None:
            return None
        return self.certificate.result.proved_bound

    @property
    def rate(self) -> Fraction:
        """Samples a second by the best plan known; 0 without one."""
        return Fraction(self.samples * 10**9, self.step) if self.step else Fraction(0)

    @cached_property
    def _copies(self) -> PlacementProblem | None:
        """The copies that the plan has on the host; None without a plan."""
        certificate = self.certificate
        if certificate is None or certificate.result.schedule is None:
            return None
        return host_placement_problem(certificate.executed, certificate.result.schedule, 1)

    @property
    def host_bytes(self) -> int:
        """Bytes of the host, pinned or not, that the copies of the plan take at most at a time."""
        return 0 if self._copies is None else self._copies.load

    @cached_property
    def _on_host(self) -> tuple[int, int]:
        """Bytes of the host that the plan takes: pinned, and pageable.

        Where not all has room in pinned memory, copies to the rest go by way of a part of it.
        """
        copies, pinned = self._copies, self.host_memory
        if copies is None or pinned is None or self.pageable_memory is None:
            return self.host_bytes, 0
        return pinned_and_pageable(copies, pinned)

    @cached_property
    def budgets(self) -> tuple[MemoryNeed, ...]:
        """The budgets of the step, with what its plan needs of each.

        The device has one for what is there before anything is computed (parameters, gradients,
        the optimiser's state, …), and what is left is that of activations and workspaces; the host
        has one of pinned memory and one of pageable memory, both for copies. Once activations are
        gone, the device has one for what the optimiser makes beside its state in its step.
        """
        before = sum(self.beside.values())
        pinned, pageable = self._on_host if self.step is not None else (None, None)
        left = max(0, self.device_memory - before)
        in_step = before + (self.problem.source or {}).get("optimiser_step", 0)
        return (
            MemoryNeed("device memory before anything is computed", before, self.device_memory),
            MemoryNeed("device memory for activations and workspaces", self._activations, left),
            MemoryNeed("host memory for pinned copies", pinned, self.host_memory),
            MemoryNeed("pageable host memory", pageable, self.pageable_memory),
            MemoryNeed("device memory for the optimiser's step", in_step, self.device_memory),
        )

    @property
    def _activations(self) -> int | None:
        """Bytes that the plan takes beside the model, or those that every plan takes."""
        if self.certificate is None:
            return None
        result = self.certificate.result
        if result.infeasibility is not None:
            return result.infeasibility.needed
        if not isinstance(result.schedule, Schedule):
            return None
        return peak(self.certificate.executed, result.schedule)

    @property
    def short(self) -> MemoryNeed | None:
        """The first budget that is known to be short; None if none is."""
        return next((each for each in self.budgets if each.short), None)

    @property
    def planned(self) -> bool:
        """Whether a plan is known for which every budget suffices."""
        return self.step is not None and self.short is None

    @property
    def why_not(self) -> str | None:
        """Why there certainly is no plan, in one sentence; None if there may be one."""
        if self.certificate is None:
            return (
                f"{describe_uncounted(self.beside)} take {_size(sum(self.beside.values()))} of the "
                f"{_size(self.device_memory)} before anything is computed"
            )
        lack = self.certificate.result.infeasibility
        return None if lack is None else lack.said(self.problem.units)


def _size(size: int) -> str:
    return format_size(size, _BYTES)


@dataclass(frozen=True, repr=False)
class Diagnoses(Sequence[Diagnosis]):
    """The diagnoses of a training step at several sizes: a sequence that is shown as a table.

    Attributes
    ----------
    sizes : tuple of Diagnosis
        One a size.
    asked : int
        The sizes that were asked for, of which an interrupt may have left some.
    title : str
        The model's name.
    notes : tuple of str
        Sentences about what was assumed: who chose the card, what of its memory is left out, ….
    """

    sizes: tuple[Diagnosis, ...]
    asked: int = 0
    title: str = "a training step"
    notes: tuple[str, ...] = ()

    @overload
    def __getitem__(self, index: int) -> Diagnosis: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Diagnosis, ...]: ...

    def __getitem__(self, index: int | slice) -> Diagnosis | tuple[Diagnosis, ...]:
        return self.sizes[index]

    def __iter__(self) -> Iterator[Diagnosis]:
        return iter(self.sizes)

    def __len__(self) -> int:
        return len(self.sizes)

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return html(self)

    @property
    def _planned(self) -> list[Diagnosis]:
        return [each for each in self.sizes if each.planned]

    @property
    def largest(self) -> Diagnosis | None:
        """The diagnosis of most samples whose plan all budgets suffice for, or None."""
        return max(self._planned, key=lambda each: each.samples, default=None)

    @property
    def fastest(self) -> Diagnosis | None:
        """The diagnosis of most samples a second whose plan all budgets suffice for, or None."""
        return max(self._planned, key=lambda each: each.rate, default=None)
