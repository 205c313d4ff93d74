"""Whether a training step fits into a device, at which size, and how fast its best plan is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from offcert.certify.ladder import certify
from offcert.certify.others.ways import OtherWay, other_ways
from offcert.certify.search import SearchProgress
from offcert.core.errors import InputError
from offcert.core.options import require_count, require_seconds, require_seed
from offcert.core.trace import Trace, require_integer
from offcert.core.units import Units, format_size
from offcert.proofs.certificate import Certificate
from offcert.questions.placement.problem import PlacementProblem
from offcert.questions.schedule.check import peak
from offcert.questions.schedule.device_memory import (
    describe_uncounted,
    require_optimiser_counted,
    uncounted_bytes,
    with_copies_of_buffers,
)
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.residences import host_placement_problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.within_host import pinned_and_pageable

# Seconds that a search gets even where captures took all the time. Arbitrary.
_LEAST_SECONDS = 0.5
_BYTES = Units("ns", "B")


@dataclass(frozen=True)
class Size:
    """One size of a training step.

    Attributes
    ----------
    asked : mapping of str to int
        The dimensions that make the size, such as ``{"batch": 8, "sequence": 2048}``.
    samples : int
        Samples that one step trains on, for rates.
    profile : callable
        Returns the step's problem at this size, in nanoseconds and bytes.
    """

    asked: Mapping[str, int]
    samples: int
    profile: Callable[[], Problem]


@dataclass(frozen=True)
class Budget:
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
        """Whether the step fits without any plan."""
        return self.peak <= self.device_memory

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
        """Nanoseconds that no plan is below; None if there certainly is no plan."""
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
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets of the step, with what its plan needs of each.

        The device has one for what is there before anything is computed (parameters, gradients,
        the optimiser's state, …), and what is left is that of activations and workspaces; the host
        has one of pinned memory and one of pageable memory, both for copies.
        """
        before = sum(self.beside.values())
        pinned, pageable = self._on_host if self.step is not None else (None, None)
        left = max(0, self.device_memory - before)
        return (
            Budget("device memory before anything is computed", before, self.device_memory),
            Budget("device memory for activations and workspaces", self._activations, left),
            Budget("host memory for pinned copies", pinned, self.host_memory),
            Budget("pageable host memory", pageable, self.pageable_memory),
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
    def short(self) -> Budget | None:
        """The first budget that is known to be short; None if none is."""
        return next((each for each in self.budgets if each.short), None)

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


def diagnose(
    sizes: Sequence[Size],
    device_memory: int,
    *,
    host_memory: int | None = None,
    pageable_memory: int | None = None,
    time_limit: float = 60.0,
    workers: int = 2,
    seed: int = 0,
    recompute: bool = True,
    progress: Callable[[SearchProgress], None] | None = None,
    found: Callable[[Diagnosis], None] | None = None,
) -> list[Diagnosis]:
    """Find the best plan at every size of a training step, within one limit of time for all.

    Sizes come in their order. What one does not use of its share of the time is for those after
    it. An interrupt ends with what is known.

    Parameters
    ----------
    sizes : sequence of Size
        At least one.
    device_memory : int
        Bytes of the device, with all that a problem does not count.
    host_memory : int, optional
        Bytes of the host that may be pinned: a plan that needs more is said to be short of them.
    pageable_memory : int, optional
        Bytes of the host that are not pinned, for the copies of a plan that has no room in
        `host_memory`, and for those of ``save_on_cpu``.
    time_limit : float
        Seconds for all sizes, captures among them; each search gets half a second at least.
    workers : int
        Threads for solvers that can use several.
    seed : int
        Seed of every random choice.
    recompute : bool
        Whether computations may run again, where it is known what is computed from what.
    progress : callable, optional
        Told of every step and improvement of every search.
    found : callable, optional
        Given each diagnosis as soon as it is there.

    Raises
    ------
    InputError
        If there is no size, a number is out of its range, or a problem does not say what its trace
        does not count, the optimiser's state included.
    """
    if not sizes:
        raise InputError("at least one size is needed")
    require_integer(device_memory, "device memory", 1)
    require_count(workers, "workers")
    require_seed(seed, "seed")
    for name, limit in (("host memory", host_memory), ("pageable memory", pageable_memory)):
        if limit is not None:
            require_integer(limit, name, 0)
    deadline = time.monotonic() + require_seconds(time_limit, "time_limit")
    diagnoses: list[Diagnosis] = []
    for index, size in enumerate(sizes):
        try:
            problem, beside = _asked(size.profile(), device_memory, recompute)
            left = device_memory - sum(beside.values())
            others, known = other_ways(problem, left, pageable_memory)
            certificate = None
            if sum(beside.values()) <= device_memory:
                share = (deadline - time.monotonic()) / (len(sizes) - index)
                certificate = certify(
                    problem,
                    time_limit=max(share, _LEAST_SECONDS),
                    workers=workers,
                    seed=seed,
                    progress=progress,
                    known=known,
                )
        except KeyboardInterrupt:
            break
        needs = problem, beside, certificate, host_memory, pageable_memory, others
        diagnosis = Diagnosis(size.asked, size.samples, device_memory, *needs)
        diagnoses.append(diagnosis)
        if found is not None:
            found(diagnosis)
        if certificate is not None and certificate.notes.interrupted:
            break
    return diagnoses


def _asked(
    problem: Problem, device_memory: int, recompute: bool
) -> tuple[Problem, Mapping[str, int]]:
    """Return the problem at the device's limit, and what takes memory of the device beside it."""
    again = recompute and problem.computed is not None
    asked = replace(problem, recompute=Recompute.ANY) if again else problem
    beside = uncounted_bytes(problem)
    require_optimiser_counted(beside)
    if again:
        beside = with_copies_of_buffers(beside)
    left = max(0, device_memory - sum(beside.values()))
    return asked.with_memory(left), {name: size for name, size in beside.items() if size}


def largest(diagnoses: Sequence[Diagnosis]) -> Diagnosis | None:
    """Return the diagnosis of the most samples whose plan no budget is short of; None without."""
    planned = [each for each in diagnoses if each.step is not None and each.short is None]
    return max(planned, key=lambda each: each.samples, default=None)


def fastest(diagnoses: Sequence[Diagnosis]) -> Diagnosis | None:
    """Return that of the most samples a second among plans that no budget is short of."""
    planned = [each for each in diagnoses if each.step is not None and each.short is None]
    return max(planned, key=lambda each: each.rate, default=None)
