"""The host of a simulated device: none that takes time, or the one at hand, by its own clock."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar

import torch

from offcert.runtime.torch_private import TorchDispatchMode

# Nanoseconds in which a host hands an operator's kernels over: dispatcher, allocator, driver.
# Assumed; `RealHost.recorded` takes them from a machine's record.
LAUNCH_NS = 8000
# Nanoseconds of one call of the driver through PyTorch: an event recorded or waited for, a copy
# handed over, memory given out. Assumed.
CALL_NS = 4000
# Operators by which a mode's own time is measured, and how often. Arbitrary.
_OPERATORS = 64
_REPETITIONS = 7


# Parameters of glibc's `mallopt`: beyond how many free bytes, and from how many bytes on, memory is
# given back to the system. Given by malloc.h; the largest that it takes.
_MALLOC = ((-1, 2**31 - 1), (-3, 2**25))


class HostClock:
    """How long the host has worked so far: no time, unless a subclass says otherwise."""

    # Called where the host reads what the device has computed, and so has to wait for it.
    reads: Callable[[], None] | None = None

    def now(self) -> int:
        """Return the nanoseconds for which it has worked."""
        return 0

    def stop(self) -> None:
        """Take no account of what comes now: it is the simulation's."""

    def go_on(self, calls: int = 0) -> None:
        """Take account of what comes again, and of some calls of the driver."""


Method = TypeVar("Method", bound=Callable[..., Any])


def apart(calls: int = 0) -> Callable[[Method], Method]:
    """Let a method cost the host the time of so many calls of the driver, and none of its own."""

    def decorate(method: Method) -> Method:
        @wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            clock: HostClock = self.host_clock
            clock.stop()
            try:
                return method(self, *args, **kwargs)
            finally:
                clock.go_on(calls)

        return run  # type: ignore[return-value]

    return decorate


class RealHost(HostClock, TorchDispatchMode):
    """The host at hand: the time that the Python of a step takes here, without its kernels.

    Entered around a step, it counts the processor time of the thread that runs it: the program's
    own Python, PyTorch's modules, autograd, and whatever carries the plan out. It does not count
    what the CPU does in place of a device: the kernel of an operator that computes takes `launch`
    instead, and a call of the device `call`. Operators that only look at memory in another way
    count as they are. Other threads and other programs are not counted.
    """

    def __init__(
        self,
        launch: int = LAUNCH_NS,
        call: int = CALL_NS,
        clock: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        super().__init__()
        self.launch = launch  # Nanoseconds in which the host hands over an operator
        self.call = call  # Nanoseconds of a call of the driver
        # Operators that have been handed over, and nanoseconds that this is said to have taken.
        self.operators = self.launched = 0
        self.reads: Callable[[], None] | None = None
        self._clock = clock
        self._worked = 0
        self._since = 0
        # How many of those that stop it have not let it go on: it stands still until it is entered.
        self._stops = 1
        self._thread = 0
        self._own: int | None = None

    def now(self) -> int:
        """Return the nanoseconds for which it has worked while it was entered."""
        return self._worked if self._stops else self._worked + self._passed()

    def _passed(self) -> int:
        # Every thread has a clock of its own.
        return self._clock() - self._since if self._thread == threading.get_ident() else 0

    def stop(self) -> None:
        """Take no account of what comes now."""
        self._stops += 1
        if self._stops == 1:
            self._worked += self._passed()

    def go_on(self, calls: int = 0) -> None:
        """Take account of what comes again."""
        self._stops -= 1
        if not self._stops:
            self._worked += calls * self.call
            self._thread = threading.get_ident()
            self._since = self._clock()

    def __enter__(self) -> RealHost:
        """Begin to count."""
        if self._own is None:
            self._own = _own_time(self._clock)
            _keep_memory()
        super().__enter__()
        self.go_on()
        return self

    def __exit__(self, *error: Any) -> None:
        """Stand still."""
        self.stop()
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, whose kernel the host only hands over."""
        if self._stops:
            return func(*args, **(kwargs or {}))
        self._worked -= self._own or 0
        if func.is_view:
            return func(*args, **(kwargs or {}))
        self.stop()
        try:
            if self.reads is not None and _reads(func):
                self.reads()
            return func(*args, **(kwargs or {}))
        finally:
            self.operators += 1
            self.launched += self.launch
            self._worked += self.launch
            self.go_on()

    @property
    def python(self) -> int:
        """Nanoseconds of all else, which have been measured here."""
        return self.now() - self.launched

    def recorded(self, step: int, python: int, operators: int) -> None:
        """Take the time of a launch from what a machine's host took for a whole plain step.

        `python` and `operators` have been counted here for the same step.
        """
        self.launch = max(0, step - python) // max(1, operators)


def _reads(func: Any) -> bool:
    """Whether an operator's outcome depends on values, which the host must wait for."""
    tags = func.tags
    return torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags


def _keep_memory() -> None:
    """Let the C library keep what tensors of the CPU give up, as a device's allocator does.

    Otherwise dropping one takes longer than much of what the host does besides.
    """
    with suppress(OSError, AttributeError):
        for parameter, value in _MALLOC:
            ctypes.CDLL(None).mallopt(parameter, value)


class _Bare(TorchDispatchMode):
    """A mode that does nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _own_time(clock: Callable[[], int]) -> int:
    """Return the nanoseconds that a mode adds to an operator."""
    data = torch.empty(1)

    def taken() -> int:
        begun = clock()
        for _ in range(_OPERATORS):
            data.detach()
        return (clock() - begun) // _OPERATORS

    without = min(taken() for _ in range(_REPETITIONS))
    with _Bare():
        within = min(taken() for _ in range(_REPETITIONS))
    return max(0, within - without)
