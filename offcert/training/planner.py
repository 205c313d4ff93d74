"""Options of a training whose plans are made on the way, and the problems of its captured steps."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from offcert.core.carried.ranges import RANGES
from offcert.core.chain import Chain
from offcert.core.documents import Fields
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.options import require_count, require_seconds
from offcert.core.platform import Platform
from offcert.core.trace import Trace
from offcert.core.units import Units, format_size, require_limit
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.carried import with_ranges
from offcert.questions.schedule.device_memory import (
    memory_beside,
    uncounted_bytes,
    with_copies_of_buffers,
)
from offcert.questions.schedule.problem import Problem, Recompute, parse_memory
from offcert.runtime.capture import Capture, read_capture
from offcert.runtime.capture.run import uncounted_bytes_of
from offcert.runtime.capture.step import TrainingStep
from offcert.runtime.follow.options import FollowOptions
from offcert.runtime.hardware import hardware as find_hardware
from offcert.runtime.hardware.bandwidth import measured, modelled, retimed, retimed_network
from offcert.runtime.hardware.choice import at_hand
from offcert.runtime.plan.predict import rounding
from offcert.runtime.profiling.optimisers import state_bytes
from offcert.runtime.profiling.profile import profile, recompute_called
from offcert.runtime.segments.reachable import Reach
from offcert.runtime.watch.guard import OffloadWarning
from offcert.runtime.watch.sharded import states_of
from offcert.runtime.watch.signature import Signature

# Of a limit, the part that is left out for the allocator's rounding at most: where storages are
# smaller than its granules, a limit is one for tensors. Arbitrary.
_ROUNDED = 64


def first_call(problem: Problem) -> Signature:
    """Return the signature of the model's first call in the step that was captured."""
    assert problem.source is not None
    call: Signature = problem.source["capture"]["calls"][0]
    return call


# The hardware model whose times are those of a step until it has been timed, where the device here
# is none that is known. Arbitrary.
_MAKESHIFT = "v100-pcie"


class Planner:
    """Makes problems of captures, with the limit that a budget leaves."""

    def __init__(self, options: OffloadOptions) -> None:
        options.require_auto()
        self.options = options
        self.hardware = None if options.hardware is None else find_hardware(options.hardware)
        # Until times have been measured, somebody's will do.
        self.rates = self.hardware or at_hand() or find_hardware(_MAKESHIFT)
        limit = options.limit
        self._device_memory = None if limit is None else require_limit(limit, "device_memory")
        # Bytes of the device that its allocator reserves in vain, and that it rounds up to.
        self.fragments = 0
        self.granule: int = getattr(options.device, "granule", 1)

    def problem_of(self, capture: Capture, name: str) -> Problem:
        """Return the problem of a capture, whose times are those of the hardware model."""
        measurement = modelled(capture.trace, self.rates)
        platform = measurement.platform(measurement.memory)
        source = {
            "clock": str(capture.clock),
            "capture": capture.to_json(),
            "uncounted": dict(capture.uncounted),
            "hardware": measurement.device,
            "measured": False,
        }
        source |= self.rates.origin(capture.attention)
        network: Network | Trace = measurement.trace
        if capture.network is not None and capture.record is not None:
            network = retimed_network(capture.network, measurement.trace)
        return self._asked(Problem(name, network, platform, units=Units("ns", "B"), source=source))

    def problem_of_step(self, step: TrainingStep) -> Problem:
        """Return the problem of an example, with the times of the hardware model."""
        return self._asked(profile(replace(step, here=True), hardware=self.rates))

    def timed(self, problem: Problem, durations: Sequence[int], device: torch.device) -> Problem:
        """Return a problem with the times of its operations, on a device whose link is measured.

        `durations` are nanoseconds, one an operation that runs if everything runs once.
        """
        plain = problem.plain().trace
        found = measured(retimed(plain, durations), device)
        network: Network | Trace = found.trace
        if isinstance(problem.network, Network):
            network = retimed_network(problem.network, found.trace)
        source = {**(problem.source or {}), "hardware": found.device, "measured": True}
        for name in ("efficiency", "attention"):
            source.pop(name, None)
        platform = found.platform(found.memory)
        return replace(problem, network=network, platform=platform, source=source)

    def limited(self, problem: Problem) -> Problem:
        """Return a problem with the limit that the budget leaves, and the allocator's rounding."""
        limit = self._limit(problem)
        return problem.with_memory(limit - min(self._rounding(problem), limit // _ROUNDED))

    def _rounding(self, problem: Problem) -> int:
        """Return the bytes that the allocator gives out beyond what tensors take."""
        if self.granule == 1:
            return 0
        trace = problem.plain().trace
        storages = read_capture(problem.source, trace).storages
        return rounding(trace, [(each.tensor, each.place.size) for each in storages], self.granule)

    def fits(self, problem: Problem) -> bool:
        """Whether there certainly is a plan that keeps to the limit."""
        limited = self.limited(problem)
        return limited.plain().least_memory <= limited.platform.memory

    def room(self, model: nn.Module, batch: int) -> int:
        """Return the bytes that a step may take of which nothing is known but its batch.

        Of a budget that is a part of a range nothing is known before that is: it is 0.
        """
        memory = self.options.memory
        if memory is not None:
            share = isinstance(memory, str) and memory.strip().endswith("%")
            return 0 if share else self._limit(ANY_PROBLEM)
        assert self._device_memory is not None
        taken = self._with_state(uncounted_bytes_of(model, batch))
        if self.options.again is not Recompute.NONE:
            taken = with_copies_of_buffers(taken)
        return max(0, int(self._device_memory) - sum(taken.values()) - self.fragments)

    def _asked(self, problem: Problem) -> Problem:
        """Return the problem in which what may run again may do so."""
        if self.options.again is Recompute.ANY and problem.computed is None:
            warnings.warn(
                "what the step computes from what is not clear, as it changes tensors in place or "
                "has them saved anew for the backward pass: "
                "plans move tensors, and nothing runs again",
                OffloadWarning,
                stacklevel=2,
            )
            return problem
        return replace(problem, recompute=self.options.again)

    def require_room(self, model: nn.Module) -> None:
        """Raise an `InputError` if the device's budget has no room for the model alone.

        The batch and what is computed are not known before a step has been captured.
        """
        if self._device_memory is None:
            return
        if any(is_lazy(parameter) for parameter in model.parameters()):
            return
        taken = self._with_state(uncounted_bytes_of(model, 0))
        example, optimiser = self.options.example, self.options.optimiser
        if optimiser is not None or (example is not None and example.optimiser is not None):
            # Of some optimisers it is only known how much their state takes once they have it.
            taken.setdefault("optimiser", 0)
        memory_beside(self._device_memory, taken)

    def why_none(self, certificate: Certificate) -> str:
        """Return in words why a certificate holds no plan, and what the least budget is."""
        problem, lack = certificate.problem, certificate.result.infeasibility
        if lack is None:
            return f"none was found in {self.options.time_limit:g} s"
        return f"{lack.said(problem.units)}; {self._least(problem)}"

    def _least(self, problem: Problem) -> str:
        """Return in words the budget from which on there certainly is a plan."""
        least, name = problem.plain().least_memory, "memory"
        least += min(self._rounding(problem), least // (_ROUNDED - 1) + 1)
        if self._device_memory is not None:
            taken = self._taken(problem.plain())
            least, name = least + sum(taken.values()), "device_memory"
        size = format_size(least, problem.units)
        return f"the least with which a plan certainly exists is {name}={least} ({size})"

    def _limit(self, problem: Problem) -> int:
        memory = self.options.memory
        if isinstance(memory, int):
            return memory
        if memory is not None:
            # A part of the range is the same bytes whether anything may run again or not.
            return parse_memory(memory, problem.plain())
        assert self._device_memory is not None
        taken = self._taken(problem)
        try:
            return memory_beside(self._device_memory, taken)
        except InputError as error:
            if "optimiser" not in taken:
                raise
            raise InputError(f"{error}; {self._least(problem)}") from error

    def _taken(self, problem: Problem) -> dict[str, int]:
        """Return the bytes of the device that a trace does not count."""
        taken = self._with_state(uncounted_bytes(problem))
        if problem.recompute is not Recompute.NONE:
            taken = with_copies_of_buffers(taken)
        return taken | {"fragments": self.fragments} if self.fragments else taken

    def _with_state(self, taken: dict[str, int]) -> dict[str, int]:
        """Return bytes with those of the optimiser's state, if they are known."""
        optimiser = self.options.optimiser
        state = None if optimiser is None else state_bytes(optimiser)
        return taken if state is None else taken | {"optimiser": state}


def opaque_modules(root: nn.Module) -> dict[str, str]:
    """Return the modules of a model, by path, that can reach objects which may change unseen.

    Those whose parameters a call gathers (`fully_shard`) are among them; the model itself never
    runs again as a whole.
    """
    found = {}
    sharded = {id(module) for module, _ in states_of(root.modules())}
    registered = {id(module) for module in root.modules()}
    for path, module in root.named_modules():
        if path:
            if id(module) in sharded:
                # Modules inside run again while all is gathered, so without a collective.
                found[path] = "fully_shard gathers its parameters"
                continue
            unseen = Reach(registered - {id(module)}).visit([(path, module)]).unseen
            if unseen:
                found[path] = f"{unseen[0]} may change unseen"
    return found


def without(problem: Problem, paths: Collection[str]) -> Problem:
    """Return the problem of a captured step in which some modules do not run again.

    Nothing runs again that calls them, or lies around them.
    """
    if not paths or problem.recompute is Recompute.NONE or problem.source is None:
        return problem
    capture = problem.source["capture"]
    ranges = RANGES.read_in(Fields(capture, "source.capture"), "ranges").without(paths)
    if next(iter(ranges), None) is None:
        return replace(problem, recompute=Recompute.NONE)
    return with_ranges(problem, ranges)


def price(barred: dict[str, str], unbarred: Certificate, chosen: Certificate) -> str | None:
    """Return in one sentence what it costs that some modules do not run again, or None if nothing.

    The certificates are those of the best plans found if they might run again, and as it is.
    """
    path, reason = next(iter(barred.items()))
    who = path if len(barred) == 1 else f"{path} and {len(barred) - 1} other modules"
    best, found = unbarred.result.objective, chosen.result.objective
    if best is None or (found is not None and found <= best):
        return None
    compute = unbarred.problem.trace.compute_time or 1
    cost = "there is no plan" if found is None else f"a step takes {found / compute:.2f} times that"
    return (
        f"{who} cannot run again ({reason}): {cost} of computing alone, instead of "
        f"{best / compute:.2f} times"
    )


# Seconds to look for a plan. Arbitrary.
SECONDS = 10.0

# Some problem, to see whether a text is a part of its memory.
ANY_PROBLEM = Problem(
    "any", Chain([1], [1], [1, 1], [0, 0]), Platform(2, Fraction(1)), units=Units("ns", "B")
)


@dataclass(frozen=True, kw_only=True)
class OffloadOptions(FollowOptions):
    """The options of a training whose plans are made on the way, and of how they are followed."""

    memory: int | str | None = None
    device_memory: int | str | None = None
    optimiser: torch.optim.Optimizer | None = None
    time_limit: float = SECONDS
    example: TrainingStep | None = None
    hardware: str | None = None
    recompute: str | None = None
    max_plans: int = 4
    background: bool = True
    plans: str | Path | None = None

    def require_given(self) -> None:
        """Raise an `InputError` for an option of plans that are made, as the plan is given."""
        followed = {each.name for each in fields(FollowOptions)}
        for each in fields(self):
            if each.name not in followed and getattr(self, each.name) != each.default:
                raise InputError(f'{each.name} can only be given with plan="auto"')

    def require_auto(self) -> None:
        """Raise an `InputError` unless plans can be made within one limit."""
        if (self.memory is None) is (self.limit is None):
            raise InputError(
                'plan="auto" needs exactly one of memory and device_memory, or reserved_memory'
            )
        if self.memory is None:
            require_limit(self.limit, "device_memory")
        elif isinstance(self.memory, str):
            # What is wrong with a text shows now, not in the middle of the training.
            parse_memory(self.memory, ANY_PROBLEM)
        else:
            require_limit(self.memory, "memory")
        require_seconds(self.time_limit, "time_limit")
        if self.recompute is not None:
            recompute_called(self.recompute)
        require_count(self.max_plans, "max_plans")

    @property
    def limit(self) -> int | str | None:
        """The limit with all that the device holds; the allocator's, if no other is given."""
        if self.memory is None and self.device_memory is None:
            return self.reserved_limit
        return self.device_memory

    @property
    def again(self) -> Recompute:
        """Whether computations may run again."""
        return Recompute.ANY if self.recompute is None else Recompute(self.recompute)
