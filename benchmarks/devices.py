"""Speed-ups of several K40s over one: the moDNN paper's Figures 17 to 19, each with its bound.

    python benchmarks/devices.py measure -o out/devices.json
    python benchmarks/devices.py table out/devices.json

`measure` certifies every case and writes what came out; cases that the file has already are kept.
`table` prints the tables of docs/theory/several-gpus.md.

The sub-batch is what the paper's Eq. 8 selects, or the best of all regular ones, where the case is
called so (the bound is then for all of them); algorithms are the fastest. The
speed-up is the time of one GPU with memory for everything over the makespan; over the lower bound
it is what no schedule exceeds. *Any choice* is a bound over all regular sub-batches and all
algorithms, in any memory.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcert.certification.devices import certify_devices
from offcert.certification.ladder import certify
from offcert.core.documents import write_json
from offcert.formulations.devices.bounds import devices_bounds
from offcert.questions.devices.problem import Accumulation, DevicesProblem
from offcert.verification.document import verify
from offcert_lab.modnn.algorithms import GIGABYTE
from offcert_lab.modnn.networks import NETWORKS, modnn_network
from offcert_lab.modnn.problems import (
    CORE,
    CORES,
    NAIVE,
    chosen,
    modnn_devices,
    regular_sizes,
)
from offcert_lab.modnn.tasks import step_round
from papers.sub_batch import select_sub_batch

_UNLIMITED = 10**13
_SECONDS = 20.0


@dataclass(frozen=True)
class Case:
    """One point of a figure.

    Attributes
    ----------
    name, paper : str
        For the table; what the paper found on average.
    devices, memory : int
        How many, and GB of each (0: enough).
    accumulation : Accumulation
        Who adds up.
    best : bool
        Whether all regular sub-batches are tried instead of the selected one.
    """

    name: str
    devices: int
    memory: int
    accumulation: Accumulation
    paper: str = ""
    best: bool = False


CASES = (
    Case("ideal, naive", 4, 0, NAIVE, "3.1"),
    Case("12 GB", 4, 12, CORE, "3.7"),
    Case("12 GB, fifo", 4, 12, CORE, "3.7"),
    Case("6 GB, naive", 4, 6, NAIVE, "2.9"),
    Case("6 GB", 4, 6, CORE, "3.4"),
    Case("3 GB, naive", 4, 3, NAIVE, "2.6"),
    Case("3 GB", 4, 3, CORE, "3.1"),
    Case("3 GB, 20 cores", 4, 3, CORES, "3.2"),
    Case("6 GB, best", 4, 6, CORE, best=True),
    Case("3 GB, best", 4, 3, CORE, best=True),
    Case("3 GB, naive, best", 4, 3, NAIVE, best=True),
    Case("2 GPUs, 12 GB", 2, 12, CORE),
    Case("8 GPUs, 12 GB", 8, 12, CORE),
    Case("8 GPUs, naive", 8, 0, NAIVE),
)


def one_gpu(network: str) -> int:
    """Return the nanoseconds of a step on one GPU with memory for everything."""
    layers = modnn_network(network)
    return chosen(step_round(layers, NETWORKS[network].batch), "fastest").compute_time


def selected(network: str, images: int, memory: int) -> int:
    """Return the sub-batch that Eq. 8 selects."""
    layers = modnn_network(network)
    return select_sub_batch(lambda size: step_round(layers, size), images, memory).size


def measure_case(network: str, case: Case, seconds: float) -> dict[str, Any]:
    """Certify a case; return what came out, times in nanoseconds."""
    memory = case.memory * GIGABYTE or _UNLIMITED
    share = NETWORKS[network].batch // case.devices
    begun = time.process_time()
    if case.best:
        found = best_of_sizes(network, case, memory, seconds)
    else:
        size = selected(network, share, memory)
        rule = "fifo" if case.name.endswith("fifo") else None
        found = certified(_problem(network, case, memory, size), size, seconds, rule)
    return {
        "network": network,
        "case": case.name,
        "devices": case.devices,
        **found,
        "any_choice": any_choice(network, case),
        "cpu_seconds": round(time.process_time() - begun, 1),
    }


def certified(
    problem: DevicesProblem, size: int, seconds: float, rule: str | None = None
) -> dict[str, Any]:
    """Certify a problem, and verify that."""
    certificate = certify_devices(problem, time_limit=seconds, rule=rule)
    verification = verify(certificate)
    return {
        "sub_batch": size,
        "computing": problem.step.trace.compute_time,
        "makespan": certificate.objective,
        "lower_bound": certificate.lower_bound,
        "found_by": certificate.found_by,
        "valid": verification.valid,
        "evidence": str(verification.evidence),
    }


def best_of_sizes(network: str, case: Case, memory: int, seconds: float) -> dict[str, Any]:
    """Certify every regular sub-batch that may be best; the bound holds for all of them."""
    best: dict[str, Any] | None = None
    bounds = []
    share, layers = NETWORKS[network].batch // case.devices, modnn_network(network)
    for size in regular_sizes(share):
        computing = share // size * chosen(step_round(layers, size), "fastest").compute_time
        if best is not None and computing >= best["makespan"]:
            bounds.append(computing)
            continue
        problem = _problem(network, case, memory, size)
        if problem.step.least_memory > memory:
            continue
        cheap = max(bound.value for bound in devices_bounds(_problem(network, case, 0, size)))
        if best is not None and cheap >= best["makespan"]:
            bounds.append(cheap)
            continue
        found = certified(problem, size, seconds)
        bounds.append(found["lower_bound"])
        if best is None or found["makespan"] < best["makespan"]:
            best = found
    assert best is not None
    return best | {"lower_bound": min(bounds)}


def _problem(network: str, case: Case, memory: int, size: int) -> DevicesProblem:
    """Return the problem of a case with a sub-batch; without a limit if the memory is 0."""
    return modnn_devices(
        network,
        case.devices,
        memory=memory or _UNLIMITED,
        sub_batch=size,
        accumulation=case.accumulation,
    )


def any_choice(network: str, case: Case) -> int:
    """Return a lower bound for every regular sub-batch and all algorithms, in any memory."""
    share = NETWORKS[network].batch // case.devices
    layers = modnn_network(network)
    best: int | None = None
    for size in regular_sizes(share):
        if best is not None:
            once = chosen(step_round(layers, size), "fastest").compute_time
            # Smaller sub-batches compute longer than what is possible with larger ones.
            if share // size * once >= best:
                continue
        value = max(bound.value for bound in devices_bounds(_problem(network, case, 0, size)))
        best = value if best is None else min(best, value)
    assert best is not None
    return best


def measure_alone(network: str, seconds: float) -> dict[str, Any]:
    """Certify a step on one GPU of 12 GB, for Figure 19: rounds one after the other."""
    batch, memory = NETWORKS[network].batch, 12 * GIGABYTE
    size = selected(network, batch, memory)
    whole = made = proved = 0
    valid = True
    for images, count in ((size, batch // size), (batch % size, 1)):
        if not images:
            continue
        problem = modnn_devices(network, 1, memory=memory, batch=images).step
        certificate = certify(problem, time_limit=seconds)
        assert certificate.result.objective is not None
        made += count * certificate.result.objective
        proved += count * certificate.result.lower_bound
        whole += count * problem.trace.compute_time
        valid &= verify(certificate).valid
    return {
        "network": network,
        "case": "1 GPU, 12 GB",
        "devices": 1,
        "sub_batch": size,
        "computing": whole,
        "makespan": made,
        "lower_bound": proved,
        "valid": valid,
    }


def measure(path: Path, networks: list[str], seconds: float) -> None:
    """Measure all cases that a file lacks, and write them to it one by one."""
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    known = {(row["network"], row["case"]) for row in rows}
    for network in networks:
        ideal = one_gpu(network)
        for case in (None, *CASES):
            name = "1 GPU, 12 GB" if case is None else case.name
            if (network, name) in known:
                continue
            found = (
                measure_alone(network, seconds)
                if case is None
                else measure_case(network, case, seconds)
            )
            rows.append(found | {"one_gpu": ideal})
            write_json(path, {"seconds": seconds, "rows": rows})
            print(network, name, round(ideal / found["makespan"], 3), flush=True)


def tables(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the tables, and what they come to."""
    by = {(row["network"], row["case"]): row for row in rows}
    networks = [name for name in NETWORKS if (name, CASES[0].name) in by]
    heading = "| case | " + " | ".join(networks)
    yield f"{heading} | mean | paper |"
    yield "| --- |" + " ---: |" * (len(networks) + 2)
    for case in CASES:
        found = [by.get((name, case.name)) for name in networks]
        known = [row for row in found if row is not None]
        cells = ["" if row is None else _cell(_speed(row), _most(row)) for row in found]
        mean = ""
        if len(known) == len(networks):
            mean = _cell(_mean(map(_speed, known)), _mean(map(_most, known)))
        yield f"| {case.name} | {' | '.join(cells)} | {mean} | {case.paper} |"
    yield ""
    yield f"{heading} | mean |"
    yield "| --- |" + " ---: |" * (len(networks) + 1)
    seen = set()
    for case in CASES:
        same = case.devices, case.accumulation
        if same not in seen:
            seen.add(same)
            most = [by[n, case.name]["one_gpu"] / by[n, case.name]["any_choice"] for n in networks]
            cells = [_hundredths(value, math.ceil) for value in most]
            who = "naive" if case.accumulation == NAIVE else f"{case.accumulation.rate} GB/s"
            name = f"{case.devices} GPUs, {who}"
            yield f"| {name} | {' | '.join(cells)} | {_hundredths(_mean(most), math.ceil)} |"
    yield ""
    yield f"{heading} |"
    yield "| --- |" + " ---: |" * len(networks)
    for case in CASES:
        found = [by.get((name, case.name)) for name in networks]
        sizes = ["" if row is None else str(row["sub_batch"]) for row in found]
        yield f"| {case.name} | {' | '.join(sizes)} |"
    yield ""
    for name in ("3 GB", "3 GB, 20 cores"):
        pairs = [(by[n, "1 GPU, 12 GB"], by[n, name]) for n in networks]
        ratios = [one["makespan"] / row["makespan"] for one, row in pairs]
        cells = [f"{value:.2f}" for value in ratios]
        yield f"{name} against one GPU of 12 GB: {', '.join(cells)}; mean {_mean(ratios):.2f}"
    best = {case.name for case in CASES if case.best}
    single = [row for row in rows if row["case"] not in best]
    gaps = [(row["makespan"] - row["lower_bound"]) / row["makespan"] for row in single]
    valid = sum(row["valid"] for row in rows)
    yield (
        f"{len(rows)} certificates, {valid} verified; of {len(single)} with a given sub-batch the "
        f"largest gap is {100 * max(gaps):.1f} %, {sum(gap == 0 for gap in gaps)} are optimal"
    )


def _cell(found: float, most: float) -> str:
    """Return a speed-up, rounded down, and its bound, rounded up; in bold if they are the same."""
    if most < found * 1.0005:
        return f"**{found:.2f}**"
    return f"{_hundredths(found, math.floor)} ≤ {_hundredths(most, math.ceil)}"


def _hundredths(value: float, rounded: Callable[[float], int]) -> str:
    return f"{rounded(100 * value) / 100:.2f}"


def _speed(row: dict[str, Any]) -> float:
    return float(row["one_gpu"] / row["makespan"])


def _most(row: dict[str, Any]) -> float:
    return float(row["one_gpu"] / row["lower_bound"])


def _mean(values: Any) -> float:
    found = list(values)
    return sum(found) / len(found)


def main() -> None:
    """Measure, or print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    measuring = actions.add_parser("measure")
    measuring.add_argument("-o", "--output", type=Path, default=Path("out/devices.json"))
    measuring.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    measuring.add_argument("--time-limit", type=float, default=_SECONDS)
    printing = actions.add_parser("table")
    printing.add_argument("file", type=Path)
    options = parser.parse_args()
    if options.action == "measure":
        options.output.parent.mkdir(parents=True, exist_ok=True)
        measure(options.output, options.networks, options.time_limit)
    else:
        print("\n".join(tables(json.loads(options.file.read_text())["rows"])))


if __name__ == "__main__":
    main()
