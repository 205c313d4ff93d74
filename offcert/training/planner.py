"""Makes plans for captured steps, within a budget of memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import torch

from offcert.certify.ladder import certify
from offcert.core.chain import Chain
from offcert.core.device_memory import memory_beside, uncounted_bytes
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.options import require_seconds
from offcert.core.platform import Platform
from offcert.core.problem import Problem, Recompute, Units
from offcert.core.trace import Trace, require_integer
from offcert.core.units import parse_memory
from offcert.proofs.certificate import Certificate
from offcert.runtime.capture import Capture
from offcert.runtime.hardware import hardware as find_hardware
from offcert.runtime.measurement import Measurement, modelled, retimed_network
from offcert.runtime.optimisers import state_bytes
from offcert.runtime.profile import profile
from offcert.runtime.reports import OffloadWarning
from offcert.runtime.step import TrainingStep
from offcert.training.host_room import certify_within_host

_ANY = Problem(
    "any", Chain([1], [1], [1, 1], [0, 0]), Platform(2, Fraction(1)), units=Units("ns", "B")
)


class Planner:
    """Turns captures into certificates.

    Parameters
    ----------
    memory, device_memory, optimiser, hardware, time_limit, recompute
        As for `offcert.training.offload`.

    Raises
    ------
    InputError
        If not exactly one budget is given, there is no such hardware, the time is no time, or
        something else may run again than ``"any"`` and ``"none"``.
    """

    def __init__(
        self,
        memory: int | str | None,
        device_memory: int | None,
        optimiser: torch.optim.Optimizer | None,
        hardware: str | None,
        time_limit: float,
        recompute: str = Recompute.ANY,
    ) -> None:
        if (memory is None) is (device_memory is None):
            raise InputError('plan="auto" needs exactly one of memory and device_memory')
        if device_memory is not None:
            require_integer(device_memory, "device_memory", 0)
        elif isinstance(memory, str):
            # What is wrong with a text shows now, not in the middle of the training.
            parse_memory(memory, _ANY)
        else:
            require_integer(memory, "memory", 0)
        time_limit = require_seconds(time_limit, "time_limit")
        if recompute not in (Recompute.ANY, Recompute.NONE):
            raise InputError(f'recompute must be "any" or "none", not {recompute!r}')
        self._recompute = Recompute(recompute)
        self.hardware = None if hardware is None else find_hardware(hardware)
        self._memory = memory
        self._device_memory = device_memory
        self._optimiser = optimiser
        self._time_limit = time_limit

    def problem_of(self, capture: Capture, measurement: Measurement | None, name: str) -> Problem:
        """Return the problem of a capture, whose times are measured or from the hardware model."""
        if measurement is None:
            assert self.hardware is not None
            measurement = modelled(capture.trace, self.hardware)
        platform = measurement.platform(measurement.memory)
        source = {
            "clock": str(capture.clock),
            "capture": capture.to_json(),
            "uncounted": dict(capture.uncounted),
            "hardware": measurement.device,
            "measured": self.hardware is None,
        }
        network: Network | Trace = measurement.trace
        if capture.network is not None and capture.record is not None:
            network = retimed_network(capture.network, measurement.trace)
        return self._asked(Problem(name, network, platform, units=Units("ns", "B"), source=source))

    def problem_of_step(self, step: TrainingStep) -> Problem:
        """Return the problem of an example."""
        name = None if self.hardware is None else self.hardware.name
        return self._asked(profile(step, hardware=name, measure=name is None))

    def _asked(self, problem: Problem) -> Problem:
        """Return the problem in which what may run again may do so."""
        if self._recompute is Recompute.ANY and problem.computed is None:
            warnings.warn(
                "what the step computes from what is not clear, as it changes tensors in place: "
                "plans move tensors, and nothing runs again",
                OffloadWarning,
                stacklevel=2,
            )
            return problem
        return replace(problem, recompute=self._recompute)

    def certificate(
        self,
        problem: Problem,
        room: int | None = None,
        pool_of: Callable[[Certificate], int] | None = None,
        *,
        share: float = 1.0,
    ) -> Certificate:
        """Return a certified plan within the budget, or a certificate that there is none.

        Parameters
        ----------
        problem : Problem
            Its limit does not matter.
        room : int, optional
            Bytes of the host's memory that the plan may take; by default any number.
        pool_of : callable, optional
            With `room`: how many bytes the runtime takes for the plan of a certificate.
        share : float
            Of the time.

        Raises
        ------
        NoPlanError
            If all plans that were found take more of the host's memory.
        """
        asked = problem.with_memory(self._limit(problem))
        if room is None:
            return certify(asked, time_limit=share * self._time_limit)
        assert pool_of is not None
        return certify_within_host(asked, room, self._time_limit, pool_of)

    def _limit(self, problem: Problem) -> int:
        if isinstance(self._memory, int):
            return self._memory
        if self._memory is not None:
            # A part of the range is the same bytes whether anything may run again or not.
            return parse_memory(self._memory, problem.plain())
        assert self._device_memory is not None
        taken = uncounted_bytes(problem)
        state = None if self._optimiser is None else state_bytes(self._optimiser)
        if state is not None:
            taken["optimiser"] = state
        return memory_beside(self._device_memory, taken)
