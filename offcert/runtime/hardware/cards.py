"""The accelerators that are known by name.

Rates are those of data sheets: dense, and for half precision and float8 with sums in float32.
"""

from __future__ import annotations

from fractions import Fraction
from types import MappingProxyType

from offcert.runtime.hardware.model import FLASH_2, FLASH_3, Hardware, OperationClass

# Bytes of a GiB, and a billion. By definition.
_GIB = 2**30
_GIGA = 10**9

# Launches are queued ahead of the device, so a kernel costs its start and drain there, not
# the several microseconds that the host spends. An assumption, the same for all models.
OVERHEAD_NS = 2_000

# Bytes a second of a copy between pinned memory and the device, less than the link's raw rate.
# Measured in the offloading paper on 16 lanes of PCI Express 3.0: 12.2 GB/s (raw: 15.75 GB/s in
# each direction). Later generations double the raw rate; their effective rate is assumed to double
# too.
_PCIE_3 = 12_200_000_000
_LINKS = {
    "3.0": _PCIE_3,
    "4.0": 2 * _PCIE_3,
    "5.0": 4 * _PCIE_3,
}

# NVLink-C2C: to the host and back, of 450 GB/s in each direction.
_C2C = (297 * _GIGA, 375 * _GIGA)
# PCIe 4.0, both directions at once: out 24 GB/s, back 12 to 13; 25 to 26 alone.
_BOTH_4 = (24 * _GIGA, 12 * _GIGA)

_MEASURED = "measured by Beaumont, Eyraud-Dubois, Shilova, Euro-Par 2020"
_SCALED = "scaled from 12.2 GB/s measured on PCIe 3.0"
_TAKEN = "taken from the V100 " + _MEASURED

_MATMUL = (
    "; products: the most that bfloat16 reaches, S. Bekman, Machine Learning Engineering, table of "
    "maximum achievable products as of August 2026"
)
# Which part of the peak kernels reach at most. Convolutions on tensor cores: those of more than
# 10^10 operations, of DeepBench on a V100 (`benchmarks/deepbench.py` prints it); the same part is
# taken for tensor cores of all cards of NVIDIA. In float32 they have no part: by Winograd's
# transforms they reach more than the peak there.
_CONVOLUTION = Fraction("0.63")
_VOLTA = {"product-float32": "0.856", "product-float16": "0.815"}
_GEMM = "; products: those of 512 and more each way, github.com/baidu-research/DeepBench"
_LARGE = "; products {}: of 8192 or 4096 each way, zzc0721/torch-performance-test-data, issue {}"
_DEEPBENCH = "; convolutions on tensor cores: the V100 in github.com/baidu-research/DeepBench"
_HOPPER_PRODUCTS = {"product-float32": "0.77", "product-tf32": "0.81"}
# Of the peak rate of memory.
_TRIAD = "; memory: triad of gpu-stream on the {}, github.com/te42kyfo/gpu-benches"
_AMPERE = {FLASH_2: "0.73"}
_HOPPER_KERNELS = {FLASH_2: "0.35", FLASH_3: "0.75"}
_ATTENTION = {
    FLASH_2: "; attention: the most of FlashAttention-2, Dao 2023, and, on Hopper, Shah and others "
    "2024",
    FLASH_3: "; the most of FlashAttention-3, Shah and others 2024",
}
_BOTH = "; both ways at once measured on an A100, github.com/NVIDIA/nvbandwidth/issues/11"


def _link(generation: str, origin: str = _SCALED) -> str:
    return f"; link: effective rate of 16 PCIe {generation} lanes, {origin}"


def _card(
    name: str,
    memory: int,
    bandwidth: int,
    tera: dict[str, float],
    source: str,
    pcie: str = "4.0",
    products: str | None = None,
    attention: dict[str, str] | None = None,
    traffic: tuple[str, str] | None = None,
    reached: dict[str, str] | None = None,
    convolutions: bool = True,
    link: tuple[int, int] | None = None,
    both: tuple[int, int] | None = None,
) -> Hardware:
    """Return a card; rates are given in 10^12 operations a second, bandwidth in GB/s.

    Which part of its peak memory reaches comes with the card that it was measured on.
    """
    rates = {dtype: round(rate * 1000) * _GIGA for dtype, rate in tera.items()}
    efficiency = {name: Fraction(part) for name, part in (reached or {}).items()}
    quick = [dtype for dtype in _MULTIPLIED if rates.get(dtype, 0) > rates["float32"]]
    if quick and convolutions:
        efficiency |= {f"{OperationClass.CONVOLUTION}-{dtype}": _CONVOLUTION for dtype in quick}
        source += _DEEPBENCH
    if traffic is not None:
        efficiency[OperationClass.TRAFFIC] = Fraction(traffic[0])
        source += _TRIAD.format(traffic[1])
    if products is not None:
        efficiency[OperationClass.PRODUCT] = Fraction(products)
        source += _MATMUL
    for kernel in attention or ():
        source += _ATTENTION[kernel]
    out, back = (_LINKS[pcie], None) if link is None else link
    return Hardware(
        name=name,
        flops=rates.pop("float32"),
        memory_bandwidth=bandwidth * _GIGA,
        link_bandwidth=out,
        memory=memory,
        overhead_ns=OVERHEAD_NS,
        source=source,
        rates=MappingProxyType(rates),
        efficiency=MappingProxyType(efficiency),
        kernels=MappingProxyType({k: Fraction(part) for k, part in (attention or {}).items()}),
        link_back=back,
        link_both=both,
    )


def _half(rate: float, **others: float) -> dict[str, float]:
    """Return rates with the same one for both types of half precision."""
    return {"float16": rate, "bfloat16": rate, **others}


# Types that tensor cores have.
_MULTIPLIED = ("tf32", "float16", "bfloat16")

_HOPPER = _half(989.4, float64=67, float32=67, tf32=494.7, float8=1978.9)

_ALL = (
    _card(
        "v100-pcie",
        63 * _GIB // 4,
        900,
        {"float64": 7, "float32": 14, "float16": 112},
        "NVIDIA Tesla V100 GPU Accelerator data sheet, 2018 (rates); memory: 15.75 GB reported in "
        "the offloading paper, read as GiB" + _link("3.0", _MEASURED) + _GEMM,
        "3.0",
        traffic=("0.904", "V100"),
        reached=_VOLTA,
    ),
    _card(
        "v100-sxm2",
        16 * _GIB,
        900,
        {"float64": 7.8, "float32": 15.7, "float16": 125},
        "NVIDIA Tesla V100 GPU Accelerator data sheet, 2018 (rates, 16 GB version)"
        + _link("3.0", _MEASURED)
        + _GEMM,
        "3.0",
        traffic=("0.904", "V100"),
        reached=_VOLTA,
    ),
    _card(
        "a100-40gb-pcie",
        40 * _GIB,
        1_555,
        _half(312, float64=19.5, float32=19.5, tf32=156),
        "NVIDIA A100 Tensor Core GPU data sheet, 2021 (40 GB PCIe)" + _link("4.0") + _BOTH,
        both=_BOTH_4,
        products="0.811",
        attention=_AMPERE,
        traffic=("0.875", "A100 of 40 GB"),
    ),
    _card(
        "a100-80gb-sxm",
        80 * _GIB,
        2_039,
        _half(312, float64=19.5, float32=19.5, tf32=156),
        "NVIDIA A100 Tensor Core GPU data sheet, 2021 (80 GB SXM)" + _link("4.0") + _BOTH,
        both=_BOTH_4,
        products="0.869",
        attention=_AMPERE,
        traffic=("0.863", "A100 of 80 GB"),
    ),
    _card(
        "h100-sxm",
        80 * _GIB,
        3_350,
        _HOPPER,
        "NVIDIA H100 Tensor Core GPU data sheet, 2023 (SXM5)"
        + _link("5.0")
        + _LARGE.format("in float32 and TF32", 79),
        "5.0",
        products="0.803",
        attention=_HOPPER_KERNELS,
        traffic=("0.916", "H100 PCIe"),
        reached=_HOPPER_PRODUCTS,
    ),
    _card(
        "h100-pcie",
        80 * _GIB,
        2_000,
        _half(756, float64=51, float32=51, tf32=378, float8=1_513),
        "NVIDIA H100 Tensor Core GPU data sheet, 2023 (PCIe)" + _link("5.0"),
        "5.0",
        traffic=("0.916", "H100 PCIe"),
    ),
    _card(
        "h200",
        141 * _GIGA,
        4_800,
        _HOPPER,
        "NVIDIA H200 Tensor Core GPU data sheet, 2024 (SXM)"
        + _link("5.0")
        + _LARGE.format("in float32 and TF32", "79, on an H100"),
        "5.0",
        products="0.803",
        attention=_HOPPER_KERNELS,
        traffic=("0.736", "H200"),
        reached=_HOPPER_PRODUCTS,
    ),
    _card(
        "gh200",
        96 * _GIB,
        4_000,
        _HOPPER,
        "NVIDIA GH200 Grace Hopper Superchip data sheet, 2024 (96 GB HBM3); link: NVLink-C2C, each "
        "way measured by Schieffer and others, ICPP 2024"
        + _LARGE.format("in float32 and TF32", "79, on an H100"),
        products="0.838",
        attention=_HOPPER_KERNELS,
        link=_C2C,
        traffic=("0.916", "H100 PCIe"),
        reached=_HOPPER_PRODUCTS,
    ),
    _card(
        "b200",
        180 * _GIGA,
        8_000,
        _half(2_250, float64=37, float32=75, tf32=1_125, float8=4_500),
        "NVIDIA HGX B200 data sheet, 2025 (an eighth of the board)" + _link("5.0"),
        "5.0",
        products="0.776",
    ),
    _card(
        "mi300x",
        192 * _GIGA,
        5_300,
        _half(1_307.4, float64=163.4, float32=163.4, tf32=653.7, float8=2_614.9),
        "AMD Instinct MI300X data sheet, 2023" + _link("5.0"),
        "5.0",
        products="0.514",
        convolutions=False,
    ),
    _card(
        "rtx-3090",
        24 * _GIB,
        936,
        _half(71, float32=35.6, tf32=35.6),
        "NVIDIA Ampere GA102 GPU Architecture white paper, 2021 (GeForce RTX 3090)" + _link("4.0"),
        traffic=("0.938", "A40"),
    ),
    _card(
        "rtx-4090",
        24 * _GIB,
        1_008,
        _half(165.2, float32=82.6, tf32=82.6, float8=330.3),
        "NVIDIA Ada GPU Architecture white paper, 2022 (GeForce RTX 4090)"
        + _link("4.0")
        + _LARGE.format("by type", 78),
        traffic=("0.889", "L40"),
        reached={"product": "0.97", "product-float32": "0.647"},
    ),
    _card(
        "rtx-5090",
        32 * _GIB,
        1_792,
        _half(209.5, float32=104.8, tf32=104.8, float8=419),
        "NVIDIA RTX Blackwell GPU Architecture white paper, 2025 (GeForce RTX 5090)"
        + _link("5.0")
        + _LARGE.format("in float32", 124),
        "5.0",
        reached={"product-float32": "0.638"},
    ),
    _card(
        "a10",
        24 * _GIB,
        600,
        _half(125, float32=31.2, tf32=62.5),
        "NVIDIA A10 Tensor Core GPU data sheet, 2021" + _link("4.0"),
        traffic=("0.938", "A40"),
    ),
    _card(
        "l4",
        24 * _GIB,
        300,
        _half(121, float32=30.3, tf32=60, float8=242.5),
        "NVIDIA L4 Tensor Core GPU data sheet, 2023" + _link("4.0"),
        traffic=("0.889", "L40"),
    ),
    _card(
        "l40s",
        48 * _GIB,
        864,
        _half(362, float32=91.6, tf32=183, float8=733),
        "NVIDIA L40S GPU data sheet, 2023" + _link("4.0"),
        traffic=("0.889", "L40"),
    ),
    _card(
        "t4",
        16 * _GIB,
        320,
        {"float32": 8.1, "float16": 65},
        "NVIDIA T4 data sheet (flops) and product brief (memory, up to 320 GB/s), 2018"
        + _link("3.0", _TAKEN),
        "3.0",
    ),
    _card(
        "k40",
        12 * _GIB,
        288,
        {"float64": 1.43, "float32": 4.29},
        "NVIDIA Tesla K40 board specification, 2013 (base clock)" + _link("3.0", _TAKEN),
        "3.0",
    ),
)

HARDWARE: dict[str, Hardware] = {model.name: model for model in _ALL}
