"""Ways to train in less memory that others use, beside certified plans at the same peak.

    python benchmarks/ways.py problem.json --time-limit 20 -o out/ways.json
    python benchmarks/ways.py --networks gpt-tiny:8x64,resnet18:8x3x64x64 --hardware a100-40gb-pcie

Every way becomes an execution of the captured network and a schedule of it, legal by the code that
verifies certificates, so times, peaks and bytes are counted the same way for all:

- *checkpoint all*, *checkpoint every 2nd*: each layer, or every second one, runs again in the
  backward pass (`torch.utils.checkpoint`), up to the last computation that is needed;
- *checkpoint, products kept*: the same, but results of products and convolutions stay (selective
  checkpointing), by their names (``--products``);
- *save_on_cpu*: all that autograd saves leaves when the forward pass has read it last, and comes
  back when it is asked for; operators wait for every copy (`torch.autograd.graph.save_on_cpu`). A
  tensor that is saved several times is copied once here, several times there;
- *offloaded checkpoints*: each layer runs again, and what goes into it leaves meanwhile: out beside
  the operators, back when it is asked for;
- *memory budget B*: the knapsack of PyTorch's ``activation_memory_budget``, by its own solver, with
  the saved results of all computations as items. What it does not save is computed again on demand.
  (The minimum cut in front of it is about operators of a compiled graph and is not done here.)

For each, `certify` is given the memory that the way takes at most, and begins with the fastest way
that fits and that the runtime can carry out, or with the plan found for less memory. The proved
distance is how much of the way's time lies above the bound at its peak: what a better plan could
save at most.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from planned_ways import PRODUCTS, Way, measured, ways

from offcert.certification.ladder import certify
from offcert.certification.other_ways import host_bytes
from offcert.core.documents import write_json
from offcert.core.result import SolveStatus
from offcert.core.units import format_size, format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.files import read_problem
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.schedule import Schedule


@dataclass(frozen=True)
class Measured:
    """A way, and what it takes: a row of the table."""

    way: Way
    row: dict[str, Any]


def begun(problem: Problem, found: list[Measured], *, offload: bool = True) -> Certificate | None:
    """Return the fastest of some ways that a problem admits: where its search begins.

    Certified plans are such that the runtime carries them out on the user's modules. A memory
    budget's execution is none of these, so no search can begin with it.

    Parameters
    ----------
    problem : Problem
        With some memory limit.
    found : list of Measured
        Ways of the same network.
    offload : bool
        Whether tensors may leave.
    """
    admitted = (
        each
        for each in found
        if each.row["peak"] <= problem.platform.memory
        and (offload or not each.row["host"])
        and (each.way.execution.program is not None or not each.row["again"])
    )
    best = min(admitted, key=lambda each: int(each.row["step"]), default=None)
    if best is None:
        return None
    way = best.way
    result = Result(SolveStatus.FEASIBLE, way.schedule, execution=way.execution)
    return Certificate(problem, result=result, method=way.name)


def shorter(one: Certificate | None, other: Certificate | None) -> Certificate | None:
    """Return that of two certificates whose plan takes less time."""
    plans = [each for each in (one, other) if each is not None and each.result.schedule is not None]
    return min(plans, key=lambda each: each.result.schedule.makespan, default=None)


def compared(
    measure: Measured, found: list[Measured], time_limit: float, below: Certificate | None = None
) -> tuple[dict[str, Any], Certificate]:
    """Return a row with what is certified at the same peak, how far the way is from it, and that.

    Parameters
    ----------
    measure : Measured
        The way.
    found : list of Measured
        All ways.
    time_limit : float
        Seconds.
    below : Certificate, optional
        With a plan for the same network that takes less memory: it is one for more, too.
    """
    row, problem = measure.row, measure.way.problem
    limited = replace(problem, recompute=Recompute.ANY).with_memory(row["peak"])
    known = begun(limited, [each for each in found if each.way.problem is problem])
    certificate = certify(limited, time_limit=time_limit, known=shorter(known, below))
    result = certificate.result
    host = 0
    if isinstance(result.schedule, Schedule):
        runs = limited if result.execution is None else limited.executed(result.execution)
        host = host_bytes(runs.trace, result.schedule)
    return row | {
        "certified": result.objective,
        "certified_host": host,
        "bound": result.proved_bound,
        "distance": float(Fraction(row["step"] - result.proved_bound, row["step"])),
    }, certificate


def all_compared(found: list[Measured], time_limit: float) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each way and its row, from the least peak to the largest.

    What is found for less memory begins the search with more.
    """
    below: dict[int, Certificate] = {}
    for number in sorted(range(len(found)), key=lambda each: found[each].row["peak"]):
        problem = id(found[number].way.problem)
        row, certificate = compared(found[number], found, time_limit, below.get(problem))
        best = shorter(certificate, below.get(problem))
        if best is not None:
            below[problem] = best
        yield number, row


def offloading(
    measure: Measured, bound: int, found: list[Measured], time_limit: float
) -> dict[str, Any]:
    """Return the most that moving can save where nothing has to move: a plan, and the bound on all.

    Parameters
    ----------
    measure : Measured
        A way that moves nothing, at whose peak that is asked.
    bound : int
        Ticks that are proved to be necessary at this peak, whatever moves.
    found : list of Measured
        All ways.
    time_limit : float
        Seconds to look for a plan that moves nothing.
    """
    row, problem = measure.row, measure.way.problem
    alone = replace(problem, recompute=Recompute.ANY, offload=False).with_memory(row["peak"])
    same = [each for each in found if each.way.problem is problem]
    result = certify(alone, time_limit=time_limit, known=begun(alone, same, offload=False)).result
    others = (
        int(each.row["step"])
        for each in same
        if each.row["peak"] <= row["peak"] and not each.row["host"]
    )
    best = min(others) if result.objective is None else min(result.objective, *others)
    return {
        "at": row["way"],
        "peak": row["peak"],
        "recomputing": best,
        "bound": bound,
        "saves": float(Fraction(best - bound, best)),
    }


def table(problem: Problem, rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    units, computing = problem.units, problem.trace.compute_time
    lines = [
        "| way | step | / computing | peak | host | certified at this peak | host | bound | "
        "proved distance |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        if "reason" in row:
            lines.append(f"| {row['way']} | {row['reason']} | | | | | | | |")
            continue
        known = row["certified"]
        lines.append(
            f"| {row['way']} | {format_time(row['step'], units)} | {row['step'] / computing:.3f} "
            f"| {format_size(row['peak'], units)} | {format_size(row['host'], units)} "
            f"| {'–' if known is None else f'{known / computing:.3f}'} "
            f"| {format_size(row['certified_host'], units)} | {row['bound'] / computing:.3f} "
            f"| {100 * row['distance']:.2f} % |"
        )
    return "\n".join(lines)


def answer(problem: Problem, found: dict[str, Any]) -> str:
    """Return in one sentence what offloading is good for at a peak."""
    computing = problem.trace.compute_time
    size = format_size(found["peak"], problem.units)
    saves = 100 * found["saves"]
    plan, bound = (found[name] / computing for name in ("recomputing", "bound"))
    what = f"recomputing alone takes {plan:.3f} times the computing, no plan less than {bound:.3f}"
    what += f" (proved), so offloading saves at most {saves:.2f} % of the step"
    return f"At {size} {'offloading cannot help: ' if saves <= 1 else ''}{what}."


def problems(options: argparse.Namespace) -> Iterator[Problem]:
    """Yield the problems to be compared: from files, and of networks of the zoo."""
    yield from map(read_problem, options.problems)
    for spec in filter(None, options.networks.split(",")):
        from offcert.runtime.profiling.profile import profile

        network, _, shape = spec.partition(":")
        yield profile(network, shape, hardware=options.hardware, recompute="none")


def main(arguments: list[str] | None = None) -> None:
    """Run the comparison that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("problems", nargs="*", help="files of captured networks")
    parser.add_argument("--networks", default="", help="of the zoo, with the shape of their input")
    parser.add_argument("--hardware", default="a100-40gb-pcie")
    parser.add_argument("--products", default=PRODUCTS, help="pattern of modules that are products")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds for each peak")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    documents = []
    for problem in problems(options):
        made = list(ways(problem, options.products))
        found = [Measured(way, measured(way)) for way in made if isinstance(way, Way)]
        numbered: dict[int, dict[str, Any]] = {}
        for number, row in all_compared(found, options.time_limit):
            numbered[number] = row
            print(json.dumps(row), file=sys.stderr)
        rows = [numbered[number] for number in range(len(found))]
        # Where every layer is checkpointed nothing has to move: what could moving save there?
        asked = next((n for n, row in enumerate(rows) if row["way"] == "checkpoint all"), 0)
        least = rows[asked]["bound"]
        moving = offloading(found[asked], least, found, options.time_limit)
        missing = (way for way in made if not isinstance(way, Way))
        rows += ({"way": name, "reason": reason} for name, reason in missing)
        documents.append({"problem": problem.name, "rows": rows, "offloading": moving})
        print(f"\n{problem.name}\n\n{table(problem, rows)}\n\n{answer(problem, moving)}")
        if options.output is not None:
            write_json(options.output, documents)


if __name__ == "__main__":
    main()
