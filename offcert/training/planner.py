"""Makes plans for captured steps, within a budget of memory."""

from __future__ import annotations

from fractions import Fraction

import torch

from offcert.certify.ladder import certify
from offcert.core.chain import Chain
from offcert.core.device_memory import memory_beside, uncounted_bytes
from offcert.core.errors import InputError
from offcert.core.options import require_seconds
from offcert.core.platform import Platform
from offcert.core.problem import Problem, Units
from offcert.core.trace import require_integer
from offcert.core.units import parse_memory
from offcert.proofs.certificate import Certificate
from offcert.runtime.capture import Capture
from offcert.runtime.hardware import hardware as find_hardware
from offcert.runtime.measurement import Measurement, modelled
from offcert.runtime.optimisers import state_bytes
from offcert.runtime.profile import profile
from offcert.runtime.step import TrainingStep

_ANY = Problem(
    "any", Chain([1], [1], [1, 1], [0, 0]), Platform(2, Fraction(1)), units=Units("ns", "B")
)


class Planner:
    """Turns captures into certificates.

    Parameters
    ----------
    memory, device_memory, optimiser, hardware, time_limit
        As for `offcert.training.offload`.

    Raises
    ------
    InputError
        If not exactly one budget is given, there is no such hardware, or the time is no time.
    """

    def __init__(
        self,
        memory: int | str | None,
        device_memory: int | None,
        optimiser: torch.optim.Optimizer | None,
        hardware: str | None,
        time_limit: float,
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
        trace = measurement.trace
        return Problem(name, trace, platform, units=Units("ns", "B"), source=source)

    def problem_of_step(self, step: TrainingStep) -> Problem:
        """Return the problem of an example."""
        name = None if self.hardware is None else self.hardware.name
        return profile(step, hardware=name, measure=name is None)

    def certificate(self, problem: Problem) -> Certificate:
        """Return a certified plan within the budget, or a certificate that there is none."""
        return certify(problem.with_memory(self._limit(problem)), time_limit=self._time_limit)

    def _limit(self, problem: Problem) -> int:
        if isinstance(self._memory, int):
            return self._memory
        if self._memory is not None:
            return parse_memory(self._memory, problem)
        assert self._device_memory is not None
        taken = uncounted_bytes(problem)
        state = None if self._optimiser is None else state_bytes(self._optimiser)
        if state is not None:
            taken["optimiser"] = state
        return memory_beside(self._device_memory, taken)
