"""Plans after one, two and five seconds of a processor, beside those that need hardly any search.

    python benchmarks/first_second.py -o out/first-second.json
    python benchmarks/first_second.py --only 'resnet50*,drawn-*' --limits 1 2
    python benchmarks/first_second.py --drawn 200 --limits 0.2

Sixty problems: of the library, of networks as chains and by modules, and random graphs. Where
computations may run again each is asked three times: tensors only move, computations only run
again, both. A plan must not be worse than any *rival*: a plan of a published method, or of one
rule, that the same time allows; nor than the plan that certify itself finds with fewer means. A
rival counts where it takes at most `SHARE` of the limit by itself.

Time limits are counted in processor time of this process and its children, so that other work on
the machine changes nothing: `time.monotonic` is replaced. Kernels have to be compiled before
(``offcert compile``).
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.certification.ladder import certify
from offcert.certification.method import Effort
from offcert.certification.registry import method_called
from offcert.certification.search import Search
from offcert.core.documents import write_json
from offcert.core.errors import OffcertError
from offcert.core.program import Program, Segment
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.heuristics.checkpoint.live import checkpoint_execution
from offcert.instances.library import default_library
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.simulate import simulate

FORMAT = "offcert-first-second-run"
Row = dict[str, Any]

# Part of a limit that a rival may take by itself to count: there are about ten. Arbitrary.
SHARE = 0.1
MOVING = ("sequential", "greedy", "least-cover", "dynprog", "vdnn", "vdnn-all", "tflms", "autoswap")
RUNNING_AGAIN = ("checkpoints", "persistent:slots=100", "arbitrary-graph")
BOTH = ("combined:slots=20",)
# Seconds for each rival. Arbitrary.
_MOST = 10.0

_OF_LIBRARY = [
    "vgg19-224-b32-m10",
    "resnet50-224-b32-m10",
    "resnet101-224-b32-m10",
    "densenet121-224-b32-m10",
    "inception_v3-224-b32-m10",
    "gpt-1024-b8-m10",
    "transformer-24-0-m10",
    "resnet50-modules-m10",
    "gpt-modules-m10",
]
_CHAINS = [
    "cnn-24-0",
    "cnn-50-0",
    "cnn-101-0",
    "uniform-24-alike",
    "uniform-36-0",
    "core-narrow-40-0",
]
_OPEN = "checkpoint-chain-16-0 checkpoint-chain-32-0 recompute-network-8-0 recompute-network-16-0"
_NETWORKS = {"vgg19": (1, 2), "resnet50": (1, 2, 3), "resnet101": (1, 2), "densenet121": (1, 2)}
_BY_MODULES = {"resnet18": "32x3x224x224", "vgg19": "32x3x224x224", "gpt": "8x256"}


def processor_clock() -> Callable[[], float]:
    """Return a clock of the processor time of this process and of its children that run."""
    tick = os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/self/task/{os.getpid()}/children")

    def now() -> float:
        taken = time.process_time()
        with suppress(OSError, ValueError):
            for child in children.read_text().split():
                fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
                taken += (int(fields[11]) + int(fields[12])) / tick
        return taken

    return now


def _library_problems() -> Iterator[Problem]:
    library = default_library()
    entries = {entry.name: entry.problem for entry in library.entries()}
    for name in _OF_LIBRARY:
        found = entries.get(name) or next(
            entries[each] for each in entries if each.startswith(name.rpartition("-")[0])
        )
        yield replace(found, name=name)
    for family in _CHAINS + _OPEN.split():
        for part in (1, 2):
            problem = next(entries[each] for each in entries if each.startswith(family))
            yield at(replace(problem, name=family, recompute=Recompute.ANY, offload=True), part, 4)


def _network_problems() -> Iterator[Problem]:
    from combined_networks import problems

    from offcert.runtime.hardware import hardware
    from offcert.runtime.profiling.profile import profile

    options = argparse.Namespace(input=None, hardware="v100-pcie", memory="1/2")
    for name, parts in _NETWORKS.items():
        ((_, problem),) = problems(name, options)
        for part in parts:
            yield at(problem, part, 4)
    for name, shape in _BY_MODULES.items():
        model = hardware("v100-pcie", peak=True)
        problem = profile(name, shape, hardware=model, name=f"{name}-modules")
        for part in (1, 2):
            yield at(problem, part, 4)


def drawn(seeds: Iterable[int]) -> Iterator[Problem]:
    """Yield chains, random networks and residual ones in turn, at limits from tight to wide."""
    from support.problems.random_networks import checkpoint_chain, random_network, recompute_problem
    from support.problems.residual_networks import residual_problem

    for seed in seeds:
        rng = random.Random(seed)
        part, kind, size = Fraction(1 + seed % 4, 5), seed % 3, 4 + seed % 13
        if kind == 0:
            problem = recompute_problem(rng, checkpoint_chain(rng, size), part)
        elif kind == 1:
            problem = recompute_problem(rng, random_network(rng, size), part)
        else:
            problem = residual_problem(1 + size // 3, part)
        yield replace(problem, name=f"drawn-{seed}")


def at(problem: Problem, part: int, of: int) -> Problem:
    """Return a problem whose limit is so far from the most of an operation to the peak."""
    network = problem.computed
    assert network is not None
    least, peak = max(network.own_memory), problem.trace.peak_memory
    limited = problem.with_memory(least + max(0, peak - least) * part // of)
    return replace(limited, name=f"{problem.name} {part}/{of}")


def problems(patterns: str = "*") -> Iterator[Problem]:
    """Yield the problems whose names match one of some patterns."""
    for source in (_library_problems(), _network_problems(), drawn(range(16))):
        for problem in source:
            if any(fnmatchcase(problem.name, each) for each in patterns.split(",")):
                yield problem


def means_of(problem: Problem) -> dict[str, Problem]:
    """Return the problem with every means: either alone first, then both."""
    if problem.recompute is Recompute.NONE:
        return {"moving": problem}
    return {
        "moving": replace(problem, recompute=Recompute.NONE, offload=True),
        "running again": replace(problem, offload=False),
        "both": replace(problem, offload=True),
    }


def rivals(problem: Problem) -> dict[str, tuple[float, float]]:
    """Return makespan and seconds of every rival that finds a plan of a problem."""
    names = MOVING if problem.offload else ()
    found: dict[str, tuple[float, float]] = {}
    if problem.recompute is not Recompute.NONE:
        names = (*names, *RUNNING_AGAIN, *(BOTH if problem.offload else ()))
        for name, makespan in _selections(problem).items():
            found[name] = makespan, 0.0
    for name in names:
        chosen = method_called(name)
        plain = name in MOVING
        asked = replace(problem, recompute=Recompute.NONE) if plain else problem
        if chosen.method.misfit(asked) or infeasibility(asked) is not None:
            continue
        search = Search(asked, _MOST)
        with suppress(OffcertError):
            chosen.method.step(search, Effort(_MOST, 1, options=chosen.options))
            if search.schedule is not None:
                found[name] = float(search.schedule.makespan), search.seconds
    return found


def _selections(problem: Problem) -> dict[str, float]:
    """Return the makespans of checkpoints at every layer and at every √n-th one."""
    network, chain = problem.computed, problem.checkpoint_chain
    assert network is not None
    found = {}
    count = len(chain) if chain is not None else sum(c.repeatable for c in network.computations)
    for name, pace in {"every layer": 1, "√n layers": max(1, math.isqrt(count))}.items():
        with suppress(OffcertError):
            if chain is not None:
                selected = [*range(0, count, pace), count]
                execution = checkpoint_execution(chain, selected)
            else:
                width = pace if pace > 1 else 2
                ends = range(0, count - width + 1, width)
                segments = [Segment(first, first + width - 1) for first in ends]
                execution = Program(segments).strategy(network).expand(network)
            executed = replace(problem, offload=False).executed(execution)
            found[name] = float(simulate(executed, Plan()).makespan)
    return found


def measure(problem: Problem, limits: list[float], beside: dict[str, Row]) -> Row:
    """Return the makespans of a problem at every limit, and where they are worse than another."""
    known = rivals(problem)
    row: Row = {
        "problem": problem.name,
        "compute_time": problem.trace.compute_time,
        "rivals": {name: {"makespan": m, "seconds": s} for name, (m, s) in known.items()},
        "limits": {},
    }
    for limit in limits:
        began = time.process_time()
        found = certify(problem, time_limit=limit, workers=1).result.objective
        seconds = time.process_time() - began
        allowed = {name: m for name, (m, s) in known.items() if s <= SHARE * limit}
        for means, other in beside.items():
            less = other["limits"][f"{limit:g}"]["makespan"]
            if less is not None:
                allowed[f"certify, {means} alone"] = less
        best = min(allowed, key=lambda name: allowed[name], default=None)
        ratio = 1.0
        if best is not None:
            ratio = math.inf if found is None else found / max(1, allowed[best])
        row["limits"][f"{limit:g}"] = {
            "makespan": found,
            "seconds": seconds,
            "best_rival": best,
            "ratio": ratio,
        }
    return row


def lines_of(row: Row, means: str) -> list[str]:
    """Return the lines of a Markdown table about one problem, one a limit."""
    lines = []
    for limit, cell in row["limits"].items():
        found = cell["makespan"]
        shown = "none" if found is None else f"{found / max(1, row['compute_time']):.4f}"
        lines.append(
            f"| {row['problem']} | {means} | {limit} s | {cell['seconds']:.1f} s | {shown} "
            f"| {cell['ratio']:.4f} | {cell['best_rival']} |"
        )
    return lines


def summary(rows: list[Row], limits: list[float]) -> str:
    """Return counts of violations and the worst ratio for every limit, as a Markdown table."""
    lines = [
        "| limit | asked | worse than a rival | worst ratio | by |",
        "| ---: | ---: | ---: | ---: | --- |",
    ]
    for limit in limits:
        cells = [(row["limits"][f"{limit:g}"], row) for row in rows]
        worse = [each for each in cells if each[0]["ratio"] > 1]
        worst, row = max(cells, key=lambda each: each[0]["ratio"])
        by = f"{row['problem']}: {worst['best_rival']}" if worse else ""
        lines.append(f"| {limit:g} s | {len(cells)} | {len(worse)} | {worst['ratio']:.4f} | {by} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line's choices."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="*", help="patterns of problems' names")
    parser.add_argument("--drawn", type=int, default=0, help="so many random problems instead")
    parser.add_argument("--limits", type=float, nargs="+", default=[1.0, 2.0, 5.0])
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    # Random problems are those of the tests.
    sys.path[:0] = [str(Path(__file__).parent.parent / "tests")]
    warnings.simplefilter("ignore")
    asked = list(drawn(range(options.drawn)) if options.drawn else problems(options.only))
    time.monotonic = processor_clock()
    rows: list[Row] = []
    print("| problem | means | limit | took | of computing | to the best rival | rival |")
    print("| --- | --- | ---: | ---: | ---: | ---: | --- |")
    for problem in asked:
        before: dict[str, Row] = {}
        for means, allowed in means_of(problem).items():
            row = measure(allowed, options.limits, before if means == "both" else {})
            before[means] = row
            rows.append(row | {"means": means})
            print("\n".join(lines_of(row, means)), flush=True)
            if options.output is not None:
                write_json(options.output, {"format": FORMAT, "rows": rows})
    print(f"\n{len(asked)} problems\n\n{summary(rows, options.limits)}")


if __name__ == "__main__":
    main()
