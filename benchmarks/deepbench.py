"""Print which part of a V100's peak products and convolutions reach, from DeepBench's results.

    python benchmarks/deepbench.py DeepBench_NV_V100.xlsx

The file is `results/train/DeepBench_NV_V100.xlsx` of https://github.com/baidu-research/DeepBench,
measured with CUDA 10.1 and cuDNN 7.6. Products are those of which every size is 512 or more, each
weighted by its operations. Convolutions (of images, in forward and both backward passes) are those
of more than 10^10 operations: their part is the one with which a roofline, of a memory at 0.9 of
900 GB/s and 2 µs a kernel, takes as long for all of them as was measured.
"""

from __future__ import annotations

import argparse
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

_SPACE = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_IMAGES = ("Vision", "Resnet", "Face Recognition")
# Sheet, bytes of a number, operations per second.
_SHEETS = {"float32": (1, 4, 15.7e12), "float16": (2, 2, 125e12)}
_MEMORY, _OVERHEAD = 0.9 * 900e9, 2e-6


def rows(book: zipfile.ZipFile, sheet: int) -> Iterator[list[str | float]]:
    """Yield the cells of a sheet that hold something."""
    shared = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
    texts = ["".join(part.text or "" for part in item.iter(f"{_SPACE}t")) for item in shared]
    tree = ElementTree.fromstring(book.read(f"xl/worksheets/sheet{sheet}.xml"))
    for row in tree.iter(f"{_SPACE}row"):
        cells = []
        for cell in row:
            value = cell.find(f"{_SPACE}v")
            if value is not None and value.text:
                words = cell.get("t") == "s"
                cells.append(texts[int(value.text)] if words else float(value.text))
        yield cells


def measured(book: zipfile.ZipFile, sheet: int, size: int) -> dict[str, list[tuple[float, ...]]]:
    """Return operations, bytes and seconds of products and convolutions."""
    found: dict[str, list[tuple[float, ...]]] = {"Dense": [], "Convolution": []}
    part = ""
    for cells in rows(book, sheet):
        heading = re.match("Dense|Convolution|Recurrent", str(cells[0])) if cells else None
        part = heading.group() if heading else part
        numbers = [cell for cell in cells if isinstance(cell, float)]
        if part == "Dense" and len(numbers) >= 5 and min(numbers[:3]) >= 512:
            m, n, k, milliseconds = numbers[:4]
            found[part].append((2 * m * n * k, 0, milliseconds / 1000))
        if part == "Convolution" and cells and cells[0] in _IMAGES:
            wide, high, ins, batch, outs, s, r = (float(cell) for cell in cells[1:8])
            points = float(cells[15]) * float(cells[16]) * batch
            operations = 2 * points * outs * ins * s * r
            traffic = size * (batch * ins * wide * high + outs * points + outs * ins * s * r)
            times = [cell for cell in cells[12:15] if isinstance(cell, float)]
            found[part] += [(operations, traffic, time / 1000) for time in times]
    return found


def part_of(peak: float, kernels: list[tuple[float, ...]]) -> float:
    """Return the part with which a roofline takes as long as was measured, by bisection."""
    low, high, total = 0.01, 10.0, sum(time for _, _, time in kernels)
    for _ in range(60):
        middle = (low + high) / 2
        times = [max(a / (middle * peak), b / _MEMORY) + _OVERHEAD for a, b, _ in kernels]
        low, high = (middle, high) if sum(times) > total else (low, middle)
    return low


def main() -> None:
    """Print a line for each type."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    with zipfile.ZipFile(parser.parse_args().file) as book:
        for dtype, (sheet, size, peak) in _SHEETS.items():
            found = measured(book, sheet, size)
            products = found["Dense"]
            reached = sum(a for a, _, _ in products) / sum(time for _, _, time in products) / peak
            large = [each for each in found["Convolution"] if each[0] > 1e10]
            print(
                f"{dtype}: {len(products)} products reach {reached:.3f} of the peak, "
                f"{len(large)} convolutions {part_of(peak, large):.2f}"
            )


if __name__ == "__main__":
    main()
