"""How fast Algorithm 1 runs, compiled and as the plain dictionary program of the paper.

    python benchmarks/dynprog.py -o out/dynprog.json

Both get the same discretised chain, the last one of DYNPROG's iterative rounding. Each row asserts
that both find the same idle time, and that the plain recursion reaches it with the very set that
the compiled one returns. Where memory is ample (`--memory 50`), the dictionaries need gigabytes.
Prints a Markdown table; times are of the processor, the best of five runs for the compiled program
and of one for the other.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

from algorithm_1 import plain
from chains import cnn_chain

from offcert.core.documents import write_json
from offcert.heuristics.evictions import dynprog as dynprog_module
from offcert.heuristics.evictions.dynprog import MAX_STATES, dynprog
from offcert.heuristics.evictions.dynprog_states import ScaledChain, least_idle

REPETITIONS = 5


def discretised(stages: int, slots: int, percent: Fraction, seed: int) -> list[ScaledChain]:
    """Return the chains on which DYNPROG runs Algorithm 1, one for each round of rounding."""
    problem = cnn_chain(stages, seed)
    problem = problem.with_memory(problem.memory_at(percent / 100))
    with mock.patch.object(dynprog_module, "least_idle", wraps=least_idle) as called:
        dynprog(problem, slots=slots)
    return [call.args[0] for call in called.call_args_list]


def peak_bytes(chain: ScaledChain) -> int:
    """Return the most memory that the compiled program holds at once."""
    tracemalloc.start()
    least_idle(chain, MAX_STATES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def measure(stages: int, slots: int, percent: Fraction, seed: int) -> dict[str, Any]:
    """Return one row: times of both programs on one chain, after checking that they agree."""
    rounds = discretised(stages, slots, percent, seed)
    chain = rounds[-1]
    seconds = []
    for _ in range(REPETITIONS):
        begun = time.process_time()
        found = least_idle(chain, MAX_STATES)
        seconds.append(time.process_time() - begun)
    assert found is not None
    idle, chosen = found
    begun = time.process_time()
    expected, entries = plain(chain)
    plain_seconds = time.process_time() - begun
    assert idle == expected, (idle, expected)
    assert idle == plain(chain, chosen)[0], chosen
    return {
        "stages": stages,
        "slots": slots,
        "memory_percent": str(percent),
        "seed": seed,
        "rounds": len(rounds),
        "idle_slots": idle,
        "offloaded": len(chosen),
        "seconds": min(seconds),
        "peak_bytes": peak_bytes(chain),
        "dictionary_seconds": plain_seconds,
        "dictionary_entries": entries,
        "ratio": plain_seconds / min(seconds),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| stages | slots | memory | dictionary | its entries | compiled | its memory | ratio |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        lines.append(
            f"| {row['stages']} | {row['slots']} | {row['memory_percent']} % "
            f"| {row['dictionary_seconds']:.2f} s | {row['dictionary_entries']} "
            f"| {1000 * row['seconds']:.2f} ms | {row['peak_bytes'] / 2**20:.1f} MiB "
            f"| {row['ratio']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--stages", default="24,50,101")
    parser.add_argument("--slots", default="100,500")
    parser.add_argument("--memory", default="10")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for stages in map(int, options.stages.split(",")):
        for slots in map(int, options.slots.split(",")):
            for percent in map(Fraction, options.memory.split(",")):
                rows.append(measure(stages, slots, percent, options.seed))
                print(json.dumps(rows[-1]), file=sys.stderr)
    if options.output is not None:
        write_json(options.output, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
