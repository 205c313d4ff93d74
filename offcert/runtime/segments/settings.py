"""Settings beside arguments and modules that decide results: put back when a segment runs again.

Among them are the states of PyTorch's random generators, of the CPU and of the devices of some
tensors, autocast, and the default device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch

from offcert.runtime.torch_private import (
    FLAGS,
    DeviceContext,
    dispatch_modes,
    function_mode_count,
    function_modes,
    of_core,
)
from offcert.runtime.watch.tracker import LiveBytes


class GeneratorStates:
    """The states of random number generators, by device (None: the CPU)."""

    __slots__ = ("_states",)

    def __init__(self, states: list[tuple[torch.device | None, torch.Tensor]]) -> None:
        self._states = states

    @classmethod
    def of(cls, devices: Iterable[torch.device]) -> GeneratorStates:
        """Return the states with which something begins that computes on some devices."""
        states: list[tuple[torch.device | None, torch.Tensor]]
        states = [(None, torch.default_generator.get_state())]
        for device in devices:
            module = device_module(device)
            if module is not None:
                states.append((device, module.get_rng_state(device)))
        return cls(states)

    def put(self) -> None:
        """Let the same random numbers come next."""
        for device, state in self._states:
            if device is None:
                torch.default_generator.set_state(state)
            else:
                device_module(device).set_rng_state(state, device)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Let the same random numbers come in the block; afterwards go on as without it."""
        before = self.of([device for device, _ in self._states if device is not None])
        self.put()
        try:
            yield
        finally:
            before.put()


def generator_of(device: torch.device) -> torch.Tensor:
    """Return the state of the generator of random numbers of a device, or of the host."""
    module = device_module(device)
    return torch.get_rng_state() if module is None else module.get_rng_state(device)


# Kinds of devices whose autocast may be on; the others are no matter of ours.
CASTING = ("cpu", "cuda")


class Casts:
    """Autocast by kind of device, and the default device of a block."""

    __slots__ = ("_caches", "_device", "_kinds")

    def __init__(self, kinds: list[tuple[bool, torch.dtype]], caches: bool, device: Any) -> None:
        self._kinds, self._caches, self._device = kinds, caches, device

    @classmethod
    def now(cls) -> Casts:
        """Return those of the calling thread."""
        kinds = [(torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in CASTING]
        device = None
        if function_mode_count():
            modes = reversed(function_modes())
            device = next((mode for mode in modes if isinstance(mode, DeviceContext)), None)
        return cls(kinds, torch.is_autocast_cache_enabled(), device)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Cast in the block as then."""
        kinds = [
            (kind, dtype, is_on)
            for kind, (is_on, dtype) in zip(CASTING, self._kinds, strict=True)
            if is_on or torch.is_autocast_enabled(kind)
        ]
        if self._device is None and not kinds:
            yield
            return
        with ExitStack() as stack:
            for each in kinds:
                stack.enter_context(torch.amp.autocast(*each, cache_enabled=self._caches))
            if self._device is not None:
                stack.enter_context(self._device)
            yield


def device_module(device: torch.device) -> Any:
    """Return PyTorch's module of a device that has a random generator of its own, or None."""
    if device.type in ("cpu", "meta"):
        return None
    module = torch.get_device_module(device.type)
    begun = getattr(module, "is_initialized", lambda: True)
    return module if hasattr(module, "get_rng_state") and begun() else None


_Pair = tuple[Callable[[], Any], Callable[[Any], Any]]

# PyTorch's newer names for the precision of float32: backends and operators.
_PRECISIONS = (
    ("generic", "all"),
    *((backend, operator) for backend in ("cuda", "mkldnn") for operator in ("all", "matmul")),
    *((backend, operator) for backend in ("cuda", "mkldnn") for operator in ("conv", "rnn")),
)


def _precision() -> str | None:
    """Return the precision of products by its older name; None if only the newer ones are set."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _set_precision(value: str | None) -> None:
    if value is not None:
        torch.set_float32_matmul_precision(value)


def _pairs() -> Iterator[tuple[str, _Pair]]:
    """Yield name, getter and setter of every setting that this PyTorch has."""
    yield "the default data type", (torch.get_default_dtype, torch.set_default_dtype)
    yield "the precision of products", (_precision, _set_precision)
    # Those that others are made of come first: what is set for all need not be set for each.
    getter, setter = of_core("_get_fp32_precision_getter"), of_core("_set_fp32_precision_setter")
    for backend, operator in _PRECISIONS if getter is not None else ():
        yield (
            f"the precision of {backend}, {operator}",
            (
                partial(getter, backend, operator),
                partial(setter, backend, operator),
            ),
        )
    yield "the number of threads", (torch.get_num_threads, torch.set_num_threads)
    yield (
        "deterministic algorithms",
        (
            lambda: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        ),
    )
    for name, pair in FLAGS.items():
        getter, setter = map(of_core, pair)
        # Older versions lack some.
        if getter is not None and setter is not None:
            yield name, (getter, setter)
    order, set_order = of_core("_get_sdp_priority_order"), of_core("_set_sdp_priority_order")
    if order is not None:
        yield (
            "the order of kernels of attention",
            (lambda: tuple(map(int, order())), lambda value: set_order(list(value))),
        )


_PAIRS: dict[str, _Pair] = {}


def settings() -> tuple[Any, ...]:
    """Return the settings of now."""
    if not _PAIRS:
        _PAIRS.update(_pairs())
    return tuple([getter() for getter, _ in _PAIRS.values()])


def put(asked: tuple[Any, ...], now: tuple[Any, ...]) -> None:
    """Put back the settings that have changed since `settings` returned what is `asked`."""
    if asked == now:
        return
    for value, (getter, setter) in zip(asked, _PAIRS.values(), strict=True):
        if getter() != value:
            setter(value)


@contextmanager
def uncounted() -> Iterator[None]:
    """Do not count what the block allocates as live bytes of the step."""
    with ExitStack() as stack:
        for mode in dispatch_modes():
            if isinstance(mode, LiveBytes):
                stack.enter_context(mode.paused())
        yield


class Held:
    """Bytes of copies on the device, of all segments of the process; the most since `start`."""

    def __init__(self) -> None:
        self.live = self.peak = 0
        # A copy may die while another one is counted, in the same thread.
        self._lock = threading.RLock()

    def start(self) -> None:
        """Forget the peak so far."""
        with self._lock:
            self.peak = self.live

    def take(self, size: int) -> None:
        """Count so many bytes more."""
        with self._lock:
            self.live += size
            self.peak = max(self.peak, self.live)

    def drop(self, size: int) -> None:
        """Count so many bytes less."""
        with self._lock:
            self.live -= size


HELD = Held()


class HeldBytes:
    """So many bytes of copies, counted until the object dies."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size
        HELD.take(size)

    def keep(self, size: int) -> None:
        """Count only so many of them from now on."""
        HELD.drop(self._size - size)
        self._size = size

    def __del__(self) -> None:
        HELD.drop(self._size)
