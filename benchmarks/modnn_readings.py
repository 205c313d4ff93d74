"""Every number that the moDNN paper prints, reading by reading, where it leaves room.

    python benchmarks/modnn_readings.py [--output FILE]

The first table is a search: of all combinations of what Eq. 8 may count, which give ResNet-34 the
sub-batches of §7.4: 256 at 6 and 5 GB, fewer images below. The second has every printed number that
a model of times and sizes can give (`modnn_numbers.py`), for readings that differ from the
library's in one respect, and for the one of its first version.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import modnn_windows as eq8
from modnn_numbers import MEMORIES, POWER, PRINTED, STATEMENTS, Numbers
from modnn_windows import Reading, Selector, variants

from offcert.core.documents import write_json
from offcert_lab.modnn.networks import NETWORKS
from papers.claims.modnn import written
from papers.claims.tolerance import Agreement
from papers.sub_batch import workspaces

READINGS = (
    Reading(),
    Reading("BP3 does not count", count=eq8.DRAWN),
    Reading("BP1 with BP2 is one task", count=eq8.PAIRS),
    Reading("15 % of the layers", count=eq8.LAYERS),
    Reading("15 % of the layers, all data once", count=eq8.LAYERS, data=eq8.ONCE),
    Reading("all data once", data=eq8.ONCE),
    Reading("all data once, 8 %", data=eq8.ONCE, alpha=Fraction(8, 100)),
    Reading("all data each time, as bracketed", data=eq8.EACH),
    Reading("no workspace", workspace=False),
    Reading("workspaces of 128 images", chunk=128),
    Reading("normalisations need nothing of their own", kept=False),
    Reading("GB are 10⁹ bytes", gigabyte=10**9),
    Reading("Eq. 8 as in our first version", eq8.ONCE, eq8.DRAWN, kept=False, gigabyte=10**9),
)

_MARKS = {Agreement.CONFIRMED: "**", Agreement.IN_TREND: "", Agreement.NOT: "~~"}


def section_7_4(reading: Reading, image: int) -> bool:
    """Return whether ResNet-34's whole batch fits at 5 GB, and does not at 4."""
    selector = Selector(POWER, image, reading)
    batch = NETWORKS[POWER].batch
    asked = selector.asks(batch, workspaces(selector.profile(batch)))
    return 4 * reading.gigabyte < asked <= 5 * reading.gigabyte


def search(image: int) -> Iterator[dict[str, Any]]:
    """Yield readings of Eq. 8, and how many variants of each agree with §7.4."""
    for data, count, needed in product(eq8.DATA, eq8.COUNTS, (True, False)):
        found = [section_7_4(each, image) for each in variants(data, count, needed)]
        row = {"data": data, "tasks": count, "kept": needed}
        yield {**row, "agree": sum(found), "of": len(found)}


def search_table(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of the search."""
    yield "| what counts of the data | tasks | normalisations need what they made | agree |"
    yield "| --- | --- | --- | ---: |"
    for row in rows:
        cells = (eq8.DATA[row["data"]], eq8.COUNTS[row["tasks"]], "yes" if row["kept"] else "no")
        yield f"| {' | '.join(cells)} | {row['agree']} of {row['of']} |"


def measure(reading: Reading, image: int) -> dict[str, Any]:
    """Return every printed number in a reading."""
    numbers = Numbers(reading, image)
    figures = [figure(numbers) for *_, figure in STATEMENTS]
    figures += [printed.figure(numbers) for printed in PRINTED]
    sizes = {name: [numbers.size(name, memory) for memory in MEMORIES] for name in NETWORKS}
    return {
        "reading": reading.name,
        "figures": [{"text": text, "agreement": str(how)} for text, how in figures],
        "sub_batches": sizes,
    }


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of numbers: what is confirmed is bold, what is not reproduced struck out."""
    for number, row in enumerate(rows, 1):
        yield f"{number}. {row['reading']}"
    yield ""
    yield f"| place | number | paper | {' | '.join(str(n) for n in range(1, len(rows) + 1))} |"
    yield "| --- | --- | ---: |" + " ---: |" * len(rows)
    labels = [(place, label, paper) for place, label, paper, _ in STATEMENTS]
    labels += [(each.place, each.label, written(each.paper, each.kind)) for each in PRINTED]
    for index, label in enumerate(labels):
        cells = [_marked(row["figures"][index]) for row in rows]
        yield f"| {' | '.join([*label, *cells])} |"
    for agreed in Agreement:
        counts = (sum(f["agreement"] == agreed for f in row["figures"]) for row in rows)
        yield f"| | {agreed} | | {' | '.join(map(str, counts))} |"


def _marked(figure: dict[str, str]) -> str:
    mark = _MARKS[Agreement(figure["agreement"])]
    return f"{mark}{figure['text']}{mark}"


def main(arguments: Iterable[str] | None = None) -> None:
    """Search, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--readings", type=int, nargs="+", help="numbers of readings (all)")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(None if arguments is None else list(arguments))
    chosen = options.readings or range(1, len(READINGS) + 1)
    found = list(search(options.image))
    print("\n".join(search_table(found)), end="\n\n", flush=True)
    rows = []
    for number in chosen:
        rows.append(measure(READINGS[number - 1], options.image))
        print(rows[-1]["reading"], rows[-1]["sub_batches"], file=sys.stderr, flush=True)
    print("\n".join(table(rows)))
    if options.output:
        write_json(options.output, {"search": found, "readings": rows})


if __name__ == "__main__":
    main()
