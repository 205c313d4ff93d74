"""Checkpoints of chains: what each selection costs under every memory model, and how fast it is.

    python benchmarks/checkpoint_chains.py -o out/checkpoint-chains.json
    python benchmarks/checkpoint_chains.py --parts speed --layers 1000000

Three parts. *networks*: the selection paper's networks, each selection's bytes under every
published model beside the live bytes of the program that carries it out. *models*: random chains,
how far each model's value is from the live bytes of the same checkpoints, how far each selection is
from the fewest live bytes, and how much of the time that it runs again is needed for its bytes.
*speed*: processor time, kernels compiled before. Every row asserts that a selection's memory is
what its model says.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from offcert.certification.joint_methods import warm_checkpoints
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.documents import write_json
from offcert.heuristics.checkpoint.arbitrary import limits_tried
from offcert.heuristics.checkpoint.live import live_bytes, recomputed_time
from offcert.heuristics.checkpoint.live_curve import live_curve, live_selection
from offcert.heuristics.checkpoint.selections import SELECTIONS
from papers.checkpoint_chains.memory_models import MEMORY_MODELS
from papers.checkpoint_chains.networks import SELECTION_NETWORKS, selection_network
from papers.checkpoint_chains.stage_ends import stage_end_bytes

MIB = 2**20
PARTS = ("networks", "models", "speed")
LIVE = "live"
# Layers on which the goals are measured, and how long what grows faster may get.
GOALS = {"algorithm-6": (10**6, 2.0), "algorithm-3": (1000, 10.0)}
OTHERS = {"algorithm-5": 10_000, "reforwarding": 150, "reforwarding-queue": 10**5, "sqrt": 10**6}
REPETITIONS = 3


def selected(chain: CheckpointChain) -> dict[str, tuple[int, ...]]:
    """Return the checkpoints of every method, each asserted to be what it says."""
    found = {}
    for name, method in SELECTIONS.items():
        selection = method.select(chain.output)
        value = MEMORY_MODELS[method.model](chain.output, selection.checkpoints)
        assert value == selection.memory, (name, value, selection)
        found[name] = selection.checkpoints
    selection = live_selection(chain)
    assert live_bytes(chain, selection.checkpoints) == selection.memory
    return found | {LIVE: selection.checkpoints}


def costs(chain: CheckpointChain, checkpoints: Sequence[int]) -> dict[str, Any]:
    """Return a set's bytes under every model, on the device, and the share of time run again."""
    models = {name: model(chain.output, checkpoints) for name, model in MEMORY_MODELS.items()}
    return {
        "checkpoints": list(checkpoints),
        **models,
        "stage_ends": stage_end_bytes(chain, checkpoints),
        LIVE: live_bytes(chain, checkpoints),
        "again": recomputed_time(chain, checkpoints) / chain.network().compute_time,
    }


def needed_again(chain: CheckpointChain, memory: int) -> float:
    """Return the least share of time that segments run again within so many live bytes."""
    return live_curve(chain, memory)[-1].again / chain.network().compute_time


def networks(batch: int) -> list[dict[str, Any]]:
    """Return a row for every network and selection."""
    rows = []
    for name in SELECTION_NETWORKS:
        chain = selection_network(name, batch, pytorch=True)
        plain = chain.network().trace().peak_memory
        for method, checkpoints in selected(chain).items():
            row = {"network": name, "batch": batch, "method": method, "plain": plain}
            row |= costs(chain, checkpoints)
            rows.append(row | {"needed": needed_again(chain, row[LIVE])})
    return rows


def drawn(stages: int, seed: int) -> CheckpointChain:
    """Return a chain like a convolutional network; some stages keep more than their output."""
    rng = random.Random(seed)
    output = [rng.randint(50, 200)]
    for _ in range(stages):
        output.append(max(1, round(output[-1] * rng.choice((0.5, 0.8, 1, 1, 1, 1.5)))))
    forward = [rng.randint(1, 20) for _ in range(stages)]
    saved = [size * rng.choice((1, 1, 2, 3)) for size in output[1:]]
    return CheckpointChain(forward, [2 * ticks for ticks in forward], output, saved)


def models(chains: int, stages: int) -> dict[str, Any]:
    """Return ratios to live bytes on random chains: of models' values, and of selections."""
    values: dict[str, list[float]] = {name: [] for name in MEMORY_MODELS}
    selections: dict[str, list[float]] = {name: [] for name in (*SELECTIONS, "plain", "segments")}
    needed: dict[str, list[float]] = {name: [] for name in SELECTIONS}
    for seed in range(chains):
        chain = drawn(stages, seed)
        found = selected(chain)
        least = live_bytes(chain, found.pop(LIVE))
        selections["plain"].append(chain.network().trace().peak_memory / least)
        selections["segments"].append(live_curve(chain)[0].memory / least)
        for name, checkpoints in found.items():
            live = live_bytes(chain, checkpoints)
            selections[name].append(live / least)
            again = recomputed_time(chain, checkpoints) / chain.network().compute_time
            needed[name].append(needed_again(chain, live) / again if again else 1.0)
            for model, function in MEMORY_MODELS.items():
                values[model].append(function(chain.output, checkpoints) / live)
    return {
        "chains": chains,
        "stages": stages,
        "model_to_live": {name: spread(ratios) for name, ratios in values.items()},
        "live_to_least": {name: spread(ratios) for name, ratios in selections.items()},
        "needed_of_again": {name: spread(ratios) for name, ratios in needed.items()},
    }


def spread(ratios: Sequence[float]) -> dict[str, float]:
    """Return the least, the mean and the largest."""
    return {"min": min(ratios), "mean": mean(ratios), "max": max(ratios)}


def speed(layers: int | None) -> list[dict[str, Any]]:
    """Return the processor time of each algorithm, the best of some runs."""
    warm_checkpoints()
    asked = {name: count for name, (count, _) in GOALS.items()} | OTHERS
    rows = []
    for name, count in asked.items():
        count = count if layers is None else min(count, layers)
        rng = random.Random(count)
        sizes = [rng.randint(1, 10**9) for _ in range(count + 1)]
        row: dict[str, Any] = {"method": name, "layers": count}
        row["seconds"] = min(cpu(SELECTIONS[name].select, sizes) for _ in range(REPETITIONS))
        if name == "reforwarding-queue":
            row["limits"] = limits_tried(sizes)
        if name in GOALS:
            row["goal"] = GOALS[name][1]
        rows.append(row)
    return rows


def cpu(function: Callable[[Sequence[int]], object], sizes: Sequence[int]) -> float:
    """Return the seconds of a core that a call takes."""
    begun = time.process_time()
    function(sizes)
    return time.process_time() - begun


def lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield tables of what was measured."""
    if "networks" in document:
        names = (*MEMORY_MODELS, "stage_ends", LIVE)
        shares = "of plain | again | needed"
        yield f"| network | method | {' | '.join(names)} | {shares} | checkpoints |"
        yield "| --- | --- |" + " ---: |" * (len(names) + 3) + " --- |"
        for row in document["networks"]:
            sizes = " | ".join(f"{row[name] / MIB:.1f}" for name in names)
            parts = row[LIVE] / row["plain"], row["again"], row["needed"]
            shares = " | ".join(f"{100 * part:.1f} %" for part in parts)
            where = " ".join(map(str, row["checkpoints"][1:]))
            yield f"| {row['network']} | {row['method']} | {sizes} | {shares} | {where} |"
    for key in ("model_to_live", "live_to_least", "needed_of_again"):
        for name, ratios in document.get("models", {}).get(key, {}).items():
            found = ", ".join(f"{part} {ratio:.3f}" for part, ratio in ratios.items())
            yield f"{key.replace('_', ' ')}: {name}: {found}"
    for row in document.get("speed", []):
        goal = f" (goal {row['goal']:g} s)" if "goal" in row else ""
        yield f"{row['method']}, {row['layers']} layers: {row['seconds']:.3f} s{goal}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--batch", type=int, default=128, help="images")
    parser.add_argument("--chains", type=int, default=100, help="random chains")
    parser.add_argument("--stages", type=int, default=30, help="stages of each random chain")
    parser.add_argument("--layers", type=int, help="most layers for measuring speed")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    document: dict[str, Any] = {}
    if "networks" in options.parts:
        document["networks"] = networks(options.batch)
    if "models" in options.parts:
        document["models"] = models(options.chains, options.stages)
    if "speed" in options.parts:
        document["speed"] = speed(options.layers)
    for line in lines(document):
        print(line)
    if options.output is not None:
        write_json(options.output, document)


if __name__ == "__main__":
    main()
