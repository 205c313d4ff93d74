"""Bounds for several devices, established again from the definition of the problem.

The argument (docs/theory/several-gpus.md): everything in a set of pieces of work on one resource
begins no earlier than the least head, nothing of it runs beside anything else of it (on a host of
several cores: beside more than the others), and after its last piece at least the least tail must
follow. So the step takes at least head + work + tail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from offcert.core.platform import Kind
from offcert.proofs.devices_certificate import Resource, ResourceProof
from offcert.proofs.kinds.computed import Computed
from offcert.questions.devices.problem import AdditionPlace, DevicesProblem, Gradient, JobKind
from offcert.verification.limits import Allowance, BeyondLimitsError

_RESOURCE_KINDS: Mapping[Resource, tuple[Kind, ...]] = {
    Resource.LINK: (Kind.OFFLOAD, Kind.PREFETCH),
    Resource.OUT: (Kind.OFFLOAD,),
    Resource.BACK: (Kind.PREFETCH,),
    Resource.ADDER: (),
}
_OUTWARDS = (JobKind.SEND, JobKind.COLLECT)


@dataclass(frozen=True)
class SingleDeviceTimes:
    """A problem on several devices, and the ticks that are established for one device alone."""

    problem: DevicesProblem  # The certificate's
    alone: int  # Ticks that the step of one device takes at least
    # Whether more is claimed of one device, which the limits did not allow to establish.
    open: bool = False


def alone(
    known: SingleDeviceTimes, value: int, proof: Computed, allowance: Allowance
) -> str | None:
    """Return None if one device takes so long, or the fault of the bound."""
    fault = f"one device is known to take {known.alone} only"
    return None if value <= known.alone else _unless_open(known, fault)


def resource(
    known: SingleDeviceTimes, value: int, proof: ResourceProof, allowance: Allowance
) -> str | None:
    """Return None if work on a resource takes so long, or the fault of the bound."""
    fault = _outside(known.problem, proof)
    if fault is not None:
        return fault
    fault = resource_fault(known.problem, known.alone, value, proof)
    return None if fault is None else _unless_open(known, fault)


def _unless_open(known: SingleDeviceTimes, fault: str) -> str:
    """Return a fault of a proof as it is, or raise it if a claim about one device was left open."""
    if known.open:
        raise BeyondLimitsError(f"what is claimed of one device is not verified: {fault}")
    return fault


def _outside(problem: DevicesProblem, proof: ResourceProof) -> str | None:
    """Return a sentence if a proof names a gradient or operation that does not exist, or None."""
    gradients, operations = len(problem.gradients), len(problem.step.trace)
    for kind, which in proof.jobs.items():
        if any(each >= gradients for each in which):
            return f"details.jobs.{kind} names a gradient too many"
    if any(each >= operations for each in proof.multipliers):
        return "details.multipliers names an operation that does not exist"
    if proof.after is not None and (proof.after >= operations or proof.multipliers):
        return "details.after names no operation, or is beside multipliers"
    return None


def resource_fault(
    problem: DevicesProblem, alone: int, value: int, proof: ResourceProof
) -> str | None:
    """Return the fault of a proof, or None if the proof establishes the bound.

    `alone` are the ticks that one device alone takes at least; they were established before.
    """
    return _Bound(problem, alone, proof).fault(value)


class _Bound:
    def __init__(self, problem: DevicesProblem, alone: int, proof: ResourceProof) -> None:
        self.problem = problem
        self.trace = problem.step.trace
        self.memory = problem.step.platform.memory
        self.proof = proof
        self.host = problem.accumulation.place is AdditionPlace.HOST
        self.alone = max(alone, sum(operation.duration for operation in self.trace.operations))
        self.kinds = _RESOURCE_KINDS[proof.resource]

    def fault(self, value: int) -> str | None:
        duplex = self.problem.step.platform.duplex
        if self.proof.resource is not Resource.ADDER:
            if (self.proof.resource is Resource.LINK) is duplex:
                return f"there is no resource {self.proof.resource} on this link"
        elif self.proof.multipliers or self.proof.after is not None:
            return "activations are nothing that is added up"
        if self.proof.after is not None and Kind.PREFETCH not in self.kinds:
            return "nothing comes back that way"
        for kind in self.proof.jobs:
            if kind not in self._kinds_of_jobs():
                return f"no {kind} uses the {self.proof.resource}"
        found = self._value()
        return None if found >= value else f"it establishes {found} only, not {value}"

    def _kinds_of_jobs(self) -> tuple[JobKind, ...]:
        if self.problem.devices == 1:
            return ()
        if self.proof.resource is Resource.ADDER:
            return (JobKind.ADD,)
        found: list[JobKind] = []
        if Kind.OFFLOAD in self.kinds:
            found += [JobKind.SEND] if self.host else [JobKind.SEND, JobKind.COLLECT]
        if Kind.PREFETCH in self.kinds:
            found += [JobKind.RETURN] if self.host else [JobKind.FORWARD, JobKind.RETURN]
        return tuple(found)

    def _value(self) -> int:
        heads, tails, work = [], [], Fraction(0)
        begin = 0
        if self.proof.multipliers or self.proof.after is not None:
            if self.proof.after is not None:
                head, tail, ticks = self._returning(self.proof.after)
            else:
                head, tail, ticks = self._forced()
            if not ticks:
                # Nothing has to move: then neither head nor tail is about anything.
                pass
            elif self.host:
                heads, tails, work = [head], [tail], ticks * self.problem.devices
            else:
                begin = head + _ceil(ticks * self.problem.devices) + tail
        if not self.host:
            # Nothing is sent before all devices have ended.
            begin = max(begin, self.alone)
        for kind, which in self.proof.jobs.items():
            for index in which:
                gradient = self.problem.gradients[index]
                heads.append(self._head(kind, gradient))
                tails.append(self._tail(kind, gradient))
                work += self._count(kind) * self._ticks(kind, gradient)
        if not heads:
            return begin
        units = self.problem.accumulation.cores if self.proof.resource is Resource.ADDER else 1
        return begin + min(heads) + _ceil(work / units) + min(tails)

    # Gradients.

    def _count(self, kind: JobKind) -> int:
        """Return how many jobs of a kind every gradient has."""
        if self.host or kind is JobKind.ADD:
            return self.problem.devices
        return 1 if kind is JobKind.COLLECT else self.problem.devices - 1

    def _ticks(self, kind: JobKind, gradient: Gradient) -> int:
        platform = self.problem.step.platform
        if kind is JobKind.ADD:
            rate = self.problem.accumulation.rate
        else:
            rate = platform.rate(Kind.OFFLOAD if kind in _OUTWARDS else Kind.PREFETCH)
        return _ceil(gradient.size / rate)

    def _head(self, kind: JobKind, gradient: Gradient) -> int:
        """Return when a job can begin: from the start, or from when all devices have ended."""
        send, add = self._ticks(JobKind.SEND, gradient), self._ticks(JobKind.ADD, gradient)
        count = self.problem.devices
        if self.host:
            ready = self._end(gradient.ready)
            if kind is JobKind.SEND:
                return ready
            if kind is JobKind.ADD:
                return ready + send
            # All are sent, and the last one is added; or all are added, and the first one is sent.
            added = max(ready + count * send + add, ready + send + count * add)
            return max(added, self._end(gradient.last_use))
        if kind in (JobKind.SEND, JobKind.ADD):
            return 0
        forward = self._ticks(JobKind.FORWARD, gradient)
        if kind is JobKind.FORWARD:
            return send
        chains = (
            (count - 1) * send + forward + add,
            send + (count - 1) * forward + add,
            send + forward + (count - 1) * add,
            count * add,
        )
        collected = self._ticks(JobKind.COLLECT, gradient) if kind is JobKind.RETURN else 0
        return max(chains) + collected

    def _tail(self, kind: JobKind, gradient: Gradient) -> int:
        """Return the least ticks from the end of a job until every device has the weights."""
        if kind is JobKind.RETURN:
            return 0
        tail = self._count(JobKind.RETURN) * self._ticks(JobKind.RETURN, gradient)
        if self.host:
            return tail + (self._ticks(JobKind.ADD, gradient) if kind is JobKind.SEND else 0)
        if kind is JobKind.COLLECT:
            return tail
        tail += self._ticks(JobKind.COLLECT, gradient)
        if kind is JobKind.ADD:
            return tail
        tail += self._ticks(JobKind.ADD, gradient)
        return tail if kind is JobKind.FORWARD else tail + self._ticks(JobKind.FORWARD, gradient)

    # Activations.

    def _end(self, operation: int) -> int:
        """Return when an operation (-1: the start) can have ended at the earliest."""
        if operation == len(self.trace.operations) - 1:
            return self.alone
        return sum(each.duration for each in self.trace.operations[: operation + 1])

    def _rest(self, operation: int) -> int:
        """Return the ticks from the start of an operation to the end of the step at least."""
        durations = [each.duration for each in self.trace.operations]
        found = sum(durations[operation:])
        if not self.host or self.problem.devices == 1:
            return found
        for gradient in self.problem.gradients:
            if gradient.ready >= operation:
                sent = self._ticks(JobKind.SEND, gradient) + self._tail(JobKind.SEND, gradient)
                found = max(found, sum(durations[operation : gradient.ready + 1]) + sent)
            if gradient.last_use >= operation:
                back = self._ticks(JobKind.RETURN, gradient)
                found = max(found, sum(durations[operation : gradient.last_use + 1]) + back)
        return found

    def _missing(self, operation: int) -> int:
        """Return the bytes that must be absent while an operation runs."""
        taken = sum(
            tensor.size
            for tensor in self.trace.tensors
            if tensor.uses[0] <= operation <= tensor.uses[-1]
        )
        return max(0, taken + self.trace.operations[operation].workspace - self.memory)

    def _move(self, size: int, kind: Kind) -> int:
        return _ceil(size / self.problem.step.platform.rate(kind))

    def _returning(self, operation: int) -> tuple[int, int, Fraction]:
        """Return head, tail and ticks of what a device must fetch after an operation."""
        tails = [
            self._rest(gap.after) for gap in self.trace.gaps if gap.before < operation < gap.after
        ]
        ticks = self._move(self._missing(operation), Kind.PREFETCH)
        return self._end(operation), min(tails, default=0), Fraction(ticks)

    def _forced(self) -> tuple[int, int, Fraction]:
        """Return head, tail and ticks of the transfers that multipliers prove for a device."""
        missing = {operation: self._missing(operation) for operation in self.proof.multipliers}
        ticks = sum((y * missing[o] for o, y in self.proof.multipliers.items()), Fraction(0))
        heads, tails = [], []
        worth: dict[int, Fraction] = {}
        rests: dict[int, int] = {}
        for gap in self.trace.gaps:
            tensor = self.trace.tensors[gap.tensor]
            out = self._move(tensor.size, Kind.OFFLOAD)
            back = self._move(tensor.size, Kind.PREFETCH)
            if gap.after not in rests:
                rests[gap.after] = self._rest(gap.after)
            written = self._end(tensor.uses[0])
            if Kind.OFFLOAD in self.kinds:
                heads.append(written)
                tails.append(back + rests[gap.after])
            if Kind.PREFETCH in self.kinds:
                heads.append(max(self._end(gap.before), written + out))
                tails.append(rests[gap.after])
            # The part of the missing bytes' price that evicting this gap would save.
            saves: Fraction = sum(
                (
                    y * min(tensor.size, missing[o])
                    for o, y in self.proof.multipliers.items()
                    if gap.before < o < gap.after
                ),
                Fraction(0),
            )
            costs = back if Kind.PREFETCH in self.kinds else 0
            worth[gap.tensor] = worth.get(gap.tensor, Fraction(0)) + max(Fraction(0), saves - costs)
        for number, saves in worth.items():
            size = self.trace.tensors[number].size
            costs = self._move(size, Kind.OFFLOAD) if Kind.OFFLOAD in self.kinds else 0
            ticks -= max(Fraction(0), saves - costs)
        return min(heads, default=0), min(tails, default=0), max(ticks, Fraction(0))


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
