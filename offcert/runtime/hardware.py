"""Stated models of accelerators, and the time that an operation takes on them.

A roofline is an optimistic model: it knows peak rates and nothing of how well a kernel uses
them. Numbers derived from it are labelled with the model's name and never mixed with
measured ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.errors import InputError
from offcert.core.messages import meant, show

_GIB = 2**30
_GIGA = 10**9
_TERA = 10**12
_NS_PER_SECOND = 10**9

# Launches are queued ahead of the device, so a kernel costs its start and drain there, not
# the several microseconds that the host spends. An assumption, the same for all models.
_OVERHEAD_NS = 2_000

# What a copy between pinned memory and the device reaches is less than the link's raw rate.
# 12.2 GB/s is the measurement of the offloading paper on 16 lanes of PCI Express 3.0 (raw:
# 15.75 GB/s in each direction). Later generations double the raw rate; their effective rate
# is taken to double too.
_PCIE_3 = 12_200_000_000
_PCIE_4 = 2 * _PCIE_3
_PCIE_5 = 4 * _PCIE_3

_LINK = "link: effective rate of 16 PCIe {} lanes, {}"
_MEASURED = "measured by Beaumont, Eyraud-Dubois, Shilova, Euro-Par 2020"
_SCALED = "scaled from 12.2 GB/s measured on PCIe 3.0"


@dataclass(frozen=True)
class Hardware:
    """An accelerator, as far as a roofline knows it.

    Attributes
    ----------
    name
        Key in `HARDWARE`.
    flops
        Peak floating-point operations per second at float32, without tensor cores.
    memory_bandwidth
        Peak rate of the device memory in bytes per second, reads and writes together.
    link_bandwidth
        Effective, not peak, rate between host and device in one direction, bytes per second.
    memory
        Device memory in bytes: the nominal size, from which driver and context still take
        their part, where the source names no smaller number.
    overhead_ns
        Nanoseconds that every kernel takes beyond its work; assumed, not from a data sheet.
    source
        Where the numbers come from.
    """

    name: str
    flops: int
    memory_bandwidth: int
    link_bandwidth: int
    memory: int
    overhead_ns: int
    source: str


_ALL = (
    Hardware(
        name="v100-pcie",
        flops=14 * _TERA,
        memory_bandwidth=900 * _GIGA,
        link_bandwidth=_PCIE_3,
        memory=63 * _GIB // 4,
        overhead_ns=_OVERHEAD_NS,
        source="NVIDIA Tesla V100 GPU Accelerator data sheet, 2018 (rates); "
        "memory: 15.75 GB reported in the offloading paper, read as GiB; "
        + _LINK.format("3.0", _MEASURED),
    ),
    Hardware(
        name="v100-sxm2",
        flops=15_700 * _GIGA,
        memory_bandwidth=900 * _GIGA,
        link_bandwidth=_PCIE_3,
        memory=16 * _GIB,
        overhead_ns=_OVERHEAD_NS,
        source="NVIDIA Tesla V100 GPU Accelerator data sheet, 2018 (rates, 16 GB version); "
        + _LINK.format("3.0", _MEASURED),
    ),
    Hardware(
        name="a100-40gb-pcie",
        flops=19_500 * _GIGA,
        memory_bandwidth=1_555 * _GIGA,
        link_bandwidth=_PCIE_4,
        memory=40 * _GIB,
        overhead_ns=_OVERHEAD_NS,
        source="NVIDIA A100 Tensor Core GPU data sheet, 2021 (40 GB PCIe); "
        + _LINK.format("4.0", _SCALED),
    ),
    Hardware(
        name="a100-80gb-sxm",
        flops=19_500 * _GIGA,
        memory_bandwidth=2_039 * _GIGA,
        link_bandwidth=_PCIE_4,
        memory=80 * _GIB,
        overhead_ns=_OVERHEAD_NS,
        source="NVIDIA A100 Tensor Core GPU data sheet, 2021 (80 GB SXM); "
        + _LINK.format("4.0", _SCALED),
    ),
    Hardware(
        name="h100-sxm",
        flops=67 * _TERA,
        memory_bandwidth=3_350 * _GIGA,
        link_bandwidth=_PCIE_5,
        memory=80 * _GIB,
        overhead_ns=_OVERHEAD_NS,
        source="NVIDIA H100 Tensor Core GPU data sheet, 2023 (SXM5); "
        + _LINK.format("5.0", _SCALED),
    ),
    Hardware(
        name="rtx-4090",
        flops=82_600 * _GIGA,
        memory_bandwidth=1_008 * _GIGA,
        link_bandwidth=_PCIE_4,
        memory=24 * _GIB,
        overhead_ns=_OVERHEAD_NS,
        source="NVIDIA Ada GPU Architecture white paper, 2022 (GeForce RTX 4090); "
        + _LINK.format("4.0", _SCALED),
    ),
    Hardware(
        name="t4",
        flops=8_100 * _GIGA,
        memory_bandwidth=320 * _GIGA,
        link_bandwidth=_PCIE_3,
        memory=16 * _GIB,
        overhead_ns=_OVERHEAD_NS,
        source="NVIDIA T4 data sheet (flops) and product brief (memory, up to 320 GB/s), 2018; "
        + _LINK.format("3.0", "taken from the V100 " + _MEASURED),
    ),
    Hardware(
        name="k40",
        flops=4_290 * _GIGA,
        memory_bandwidth=288 * _GIGA,
        link_bandwidth=_PCIE_3,
        memory=12 * _GIB,
        overhead_ns=_OVERHEAD_NS,
        source="NVIDIA Tesla K40 board specification, 2013 (base clock); "
        + _LINK.format("3.0", "taken from the V100 " + _MEASURED),
    ),
)

HARDWARE: dict[str, Hardware] = {model.name: model for model in _ALL}


def hardware(name: str) -> Hardware:
    """Return the accelerator called `name`.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if name not in HARDWARE:
        known = ", ".join(HARDWARE)
        hint = meant(name, HARDWARE)
        raise InputError(f"hardware must be one of {known}, not {show(name)}{hint}")
    return HARDWARE[name]


def roofline_ns(hardware: Hardware, flops: int, bytes: int) -> int:
    """Return the time of one kernel on `hardware` in nanoseconds, rounded up.

    The larger of compute and memory traffic time, plus the overhead of a kernel. No work
    and no traffic mean that there is no kernel, which takes no time.

    Parameters
    ----------
    hardware
        The accelerator.
    flops
        Floating-point operations of the kernel.
    bytes
        Bytes that it reads from and writes to device memory.

    References
    ----------
    Williams, Waterman, Patterson: Roofline: an insightful visual performance model for
    multicore architectures. Communications of the ACM 52 (4), 2009.
    """
    if flops < 0 or bytes < 0:
        raise InputError(f"A kernel cannot have {flops} flops and move {bytes} bytes.")
    if flops == 0 and bytes == 0:
        return 0
    compute = -(-flops * _NS_PER_SECOND // hardware.flops)
    traffic = -(-bytes * _NS_PER_SECOND // hardware.memory_bandwidth)
    return max(compute, traffic) + hardware.overhead_ns
