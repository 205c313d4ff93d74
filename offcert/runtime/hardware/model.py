"""A roofline model of an accelerator, and the time that an operation takes there.

A roofline is an optimistic model: it knows peak rates and, if it is told, what part of them kernels
of a class reach at best. Numbers derived from it are labelled with the model's name and never mixed
with measured ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from offcert.core.errors import InputError

# Nanoseconds in a second. By definition.
NS_PER_SECOND = 10**9


# How attention may be computed: by FlashAttention, by PyTorch's memory-efficient kernel, which keep
# no scores, or by products and a softmax.
FLASH_2, FLASH_3, EFFICIENT, MATH = "flash-2", "flash-3", "efficient", "math"


class OperationClass(StrEnum):
    """Classes of operations, by which part of a peak they reach."""

    PRODUCT = "product"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    TRAFFIC = "traffic"


# Types with rates of their own, and what stands for them where a card has none: it converts. One
# that multiplies no float64 by itself is slower than float32 says, which is optimistic.
TYPES = ("float64", "float32", "tf32", "float16", "bfloat16", "float8")


@dataclass(frozen=True)
class Hardware:
    """An accelerator, as far as a roofline knows it."""

    name: str  # Key in `HARDWARE`, or what its file says
    flops: int  # Peak floating-point operations per second at float32, without tensor cores
    # Peak rate of the device memory in bytes per second, reads and writes together.
    memory_bandwidth: int
    link_bandwidth: int  # Effective, not peak, rate from the device to the host, bytes per second
    # Device memory in bytes: the nominal size, from which driver and context still take their part,
    # where the source names no smaller number.
    memory: int
    # Nanoseconds that every kernel takes beyond its work; assumed, not from a data sheet.
    overhead_ns: int
    source: str  # Where the numbers come from
    # Peak floating-point operations per second of the other types in `TYPES`, on tensor cores where
    # there are some: dense, with sums in float32. A type without one has that of float32.
    rates: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    # By class of work (`OperationClass`), or by class and type (``"product-float32"``), which part
    # of a peak is reached. A class without a number is counted at the peak. That of attention is in
    # `kernels` where it depends on the kernel.
    efficiency: Mapping[str, Fraction] = field(default_factory=lambda: MappingProxyType({}))
    # By kernel of attention, which part of a peak it reaches.
    kernels: Mapping[str, Fraction] = field(default_factory=lambda: MappingProxyType({}))
    # The kernel that attention runs on where it can: ``"flash-2"`` (FlashAttention-2, which PyTorch
    # has), ``"flash-3"``, or ``"efficient"`` (PyTorch's memory-efficient kernel).
    attention: str = FLASH_2
    # Rate from the host to the device; that of the other direction if it is not given.
    link_back: int | None = None
    # Rates out and back while both directions are used at once. Without them the link is taken to
    # serve one direction at a time.
    link_both: tuple[int, int] | None = None
    # Whether an operator reads all that it takes once, as at best, however many kernels it is.
    once: bool = False
    # Which part of what kernels reach at best products, convolutions and attention reach in a step
    # of training: 1 for a roofline, less for a calibrated card (`offcert.runtime.hardware.files`).
    sustained: Fraction = Fraction(1)

    def origin(self, attention: Mapping[str, Fraction] = MappingProxyType({})) -> dict[str, Any]:
        """Return the entry in a problem's ``source``: rates that are reached, and kernels.

        `attention` says, by kernel that attention runs on in the step, which part of its peak it
        reaches.
        """
        parts = dict(self.efficiency)
        known = [part for part in attention.values() if part < 1]
        parts |= {OperationClass.ATTENTION: min(known)} if known else {}
        reached = {str(name): str(float(part)) for name, part in parts.items()}
        kernel = {"attention": ", ".join(sorted(attention))} if attention else {}
        found = {"hardware": self.name} | ({"efficiency": reached} if reached else {}) | kernel
        return found if self.sustained == 1 else found | {"sustained": str(float(self.sustained))}

    def rate(self, dtype: str) -> int:
        """Return the peak of a type in floating-point operations per second."""
        return self.rates.get(dtype, self.flops)

    def reached(self, work: str, dtype: str = "") -> Fraction:
        """Return the part of its peak that a class of work reaches at best, in a type.

        What the memory-efficient kernel reaches is not known: in half precision it counts as
        FlashAttention-2, than which it is no quicker (github.com/facebookresearch/xformers, issue
        791), in float32 as the peak.
        """
        named = FLASH_2 if self.attention == EFFICIENT and dtype != "float32" else self.attention
        kernel = self.kernels.get(named) if work == OperationClass.ATTENTION else None
        if kernel is not None:
            return kernel
        whole = self.efficiency.get(work, Fraction(1))
        return self.efficiency.get(f"{work}-{dtype}", whole)

    def on_tensor_cores(self, dtype: str) -> bool:
        """Return whether products in a type run on tensor cores: these are quicker than float32."""
        return self.rate(dtype) > self.flops

    def link_rates(self, *, at_once: bool) -> tuple[int, int]:
        """Return the rates out and back: each alone, or both at once where that is known."""
        if at_once and self.link_both is not None:
            return self.link_both
        return self.link_bandwidth, self.link_back or self.link_bandwidth


def roofline_ns(
    hardware: Hardware,
    flops: int,
    bytes: int,
    dtype: str = "float32",
    work: str = OperationClass.PRODUCT,
) -> int:
    """Return the time of one kernel on `hardware` in nanoseconds, rounded up.

    The larger of the times for its floating-point operations, at the part of the peak of `dtype`
    that its class of `work` reaches, and for the bytes that it reads from and writes to device
    memory, plus the overhead of a kernel. No work and no traffic mean that there is no kernel,
    which takes no time.

    References
    ----------
    Williams, Waterman, Patterson: Roofline: an insightful visual performance model for
    multicore architectures. Communications of the ACM 52 (4), 2009.
    """
    if flops < 0 or bytes < 0:
        raise InputError(f"A kernel cannot have {flops} flops and move {bytes} bytes.")
    if flops == 0 and bytes == 0:
        return 0
    reached = hardware.sustained * hardware.reached(work, dtype)
    compute = _ns(flops, hardware.rate(dtype), reached)
    traffic = _ns(bytes, hardware.memory_bandwidth, hardware.reached(OperationClass.TRAFFIC))
    return max(compute, traffic) + hardware.overhead_ns


def _ns(amount: int, peak: int, reached: Fraction) -> int:
    """Return the nanoseconds that an amount takes at a part of a peak, rounded up."""
    return -(-amount * NS_PER_SECOND * reached.denominator // (peak * reached.numerator))
