"""Choices that `profile` is given by name, and which of them go together."""

from __future__ import annotations

from offcert.core.errors import InputError
from offcert.core.platform import Link
from offcert.questions.schedule.problem import Recompute
from offcert.runtime.capture import Clock
from offcert.runtime.device.interface import Device
from offcert.runtime.hardware import Hardware


def require_one_choice(
    clock: Clock, hardware: str | Hardware | None, measure: bool, device: Device | None
) -> None:
    """Raise an `InputError` unless times come either from a hardware model or from measuring."""
    if device is not None and not measure:
        raise InputError("a device is for measuring: give measure=True too")
    if device is not None and device.tensors.type == "cpu":
        if hardware is None:
            raise InputError("a simulated device takes durations from a hardware model: give one")
    elif (hardware is None) is not measure:
        raise InputError("exactly one of hardware and measure must be given")
    if measure and clock is Clock.GRAPHS:
        raise InputError(
            "compiled graphs are not measured kernel by kernel: give a hardware model, such as "
            "what offcert profile --measure --save-hardware FILE.toml writes of the device at hand"
        )
    if measure and clock is Clock.OPERATORS:
        raise InputError(
            "single operators cannot be measured: what watches them takes longer than many of "
            "them do; use the clock modules, or a hardware model"
        )


def link_called(name: str, measure: bool) -> Link:
    """Return the link of a name, which only a hardware model lets choose."""
    if name not in tuple(Link):
        raise InputError(f"link must be one of {', '.join(Link)}, not {name!r}")
    if measure and name != Link.DUPLEX:
        raise InputError("a link is measured, not chosen: leave it out with measure")
    return Link(name)


def clock_called(name: str) -> Clock:
    """Return the clock of a name."""
    try:
        return Clock(name)
    except ValueError:
        known = ", ".join(Clock)
        raise InputError(f"clock must be one of {known}, not {name!r}") from None


def recompute_called(name: str) -> Recompute:
    """Return whether computations may run again, by name."""
    if name not in (Recompute.ANY, Recompute.NONE):
        raise InputError(f'recompute must be "any" or "none", not {name!r}')
    return Recompute(name)
