"""How fast schedules are checked, and whole certificates verified, up to 10,000 operations.

    python benchmarks/check.py -o out/check.json

The checker looks at every moment at which memory is taken, once; beside it stands the checker of
the tests, which looks at every tick. Seconds are the least of
several runs of one process; ratios are of times within it.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from offcert.core.documents import write_json
from offcert.core.platform import Kind, Platform
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.check import check
from offcert.questions.schedule.check_fluid import check_fluid
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.schedule import FluidSchedule, Schedule, TransferPiece
from offcert.questions.schedule.simulate import Simulator
from offcert.verification.document import verify
from offcert.verification.fractional import recompute

TESTS = Path(__file__).parent.parent / "tests"
METHODS = ("prop3", "fractional", "prop3-subset-sum", "fractional-subset-sum")
STAGES, OPERATIONS, TENSORS = (300, 1200, 3000), 10_000, 5_000
# Ticks of the longest forward; fewer for the checker of the tests, which looks at each. Arbitrary.
LONGEST, LONGEST_OF_DEFINITION = 100_000, 500


def chain_problem(stages: int, longest: int = LONGEST) -> Problem:
    """Return a random chain in which moving everything takes about as long as computing."""
    import random

    from support.problems.long_problems import long_chain

    problem = Problem(
        f"chain-{stages}",
        long_chain(random.Random(stages), stages, longest),
        Platform(10**15, Fraction(1000 * LONGEST, longest)),
    )
    return problem.with_memory(problem.memory_at(Fraction(1, 10)))


def furthest_first(problem: Problem) -> Plan:
    """Return a plan that evicts what is needed last, and fetches before it is needed."""
    trace = problem.trace
    inside: list[tuple[int, int]] = []
    gone: set[int] = set()
    missing = 0
    for operation, demand in enumerate(trace.demand):
        for gap in trace.gaps_entering[operation]:
            heappush(inside, (-trace.gaps[gap].after, gap))
        missing -= sum(trace.gap_size(gap) for gap in trace.gaps_leaving[operation] if gap in gone)
        while missing < demand - problem.platform.memory:
            _, gap = heappop(inside)
            gone.add(gap)
            missing += trace.gap_size(gap)
    first: dict[int, int] = {}
    for gap in sorted(gone):
        first.setdefault(trace.gaps[gap].tensor, gap)
    moves = [
        (trace.tensors[tensor].uses[0], Move(Kind.OFFLOAD, gap, trace.gaps[gap].before + 1))
        for tensor, gap in first.items()
    ]
    moves += [
        (trace.gaps[gap].after - 0.5, Move(Kind.PREFETCH, gap, trace.gaps[gap].after))
        for gap in sorted(gone)
    ]
    return Plan([move for _, move in sorted(moves, key=lambda row: row[0])])


def in_pieces(problem: Problem, schedule: Schedule) -> tuple[Problem, FluidSchedule]:
    """Return the same schedule with every transfer in three pieces."""
    pieces = []
    for transfer in schedule.transfers:
        part = Fraction(transfer.end - transfer.start, 3)
        size = Fraction(problem.trace.gap_size(transfer.gap), 3)
        starts = [transfer.start + number * part for number in range(3)]
        pieces += [TransferPiece(transfer.kind, transfer.gap, at, at + part, size) for at in starts]
    relaxed = replace(problem, transfers=Transfers.INTERRUPTIBLE)
    return relaxed, FluidSchedule(schedule.starts, schedule.ends, pieces)


def seconds(call: Callable[[], Any], expected: Any, repeats: int = 3) -> float:
    """Return the least time that a call takes, which must give what is expected."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        found = call()
        times.append(time.perf_counter() - begun)
        assert found == expected, found
    return min(times)


def certificate(problem: Problem, schedule: Schedule) -> dict[str, Any]:
    """Return a certificate of the schedule with every bound that needs no solver."""
    bounds = tuple(Bound(method, recompute(method, problem), Evidence.PROVED) for method in METHODS)
    result = Result(SolveStatus.FEASIBLE, schedule, bounds)
    return Certificate(problem, result, method="benchmark").to_json()


def measure(problem: Problem) -> dict[str, Any]:
    """Return the sizes of a problem, and seconds for each thing that is done with a schedule."""
    simulator = Simulator(problem)
    plan = furthest_first(problem)
    schedule = simulator.run(plan)
    relaxed, pieces = in_pieces(problem, schedule)
    document = certificate(problem, schedule)
    return {
        "name": problem.name,
        "operations": len(problem.trace),
        "gaps": len(problem.trace.gaps),
        "transfers": len(schedule.transfers),
        "simulate": seconds(lambda: simulator.run(plan), schedule),
        "check": seconds(lambda: check(problem, schedule), []),
        "check_pieces": seconds(lambda: check_fluid(relaxed, pieces), []),
        "verify": seconds(lambda: verify(document).faults, [], repeats=1),
    }


def against_definition(problem: Problem) -> dict[str, Any]:
    """Return how much longer the checker of the tests takes, and whether both find the same."""
    from support.oracles.replay import replay

    schedule = Simulator(problem).run(furthest_first(problem))
    tight = problem.with_memory(problem.platform.memory * 9 // 10)
    full = replay(tight, schedule).full
    assert full
    begun = time.perf_counter()
    assert replay(problem, schedule) == (set(), set())
    slow = time.perf_counter() - begun
    return {
        "name": problem.name,
        "moments_when_tight": len(full),
        "both_refuse": bool(check(tight, schedule)),
        "ratio": slow / seconds(lambda: check(problem, schedule), []),
    }


def run(stages: Sequence[int], operations: int, tensors: int) -> dict[str, Any]:
    """Return all measurements; the first of the chains is compared with the definition too."""
    from support.problems.long_problems import long_problem

    chains = [chain_problem(count) for count in stages]
    short = chain_problem(stages[0], LONGEST_OF_DEFINITION)
    long = [long_problem(0, operations, tensors, nested=nested) for nested in (True, False)]
    return {
        "against_definition": against_definition(short),
        "rows": [measure(problem) for problem in (*chains, *long)],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    sys.path[:0] = [str(TESTS)]
    results = run(STAGES, OPERATIONS, TENSORS)
    compared = results["against_definition"]
    print(
        f"{compared['name']}: the definition takes {compared['ratio']:.0f} times as long; "
        f"{compared['moments_when_tight']} moments over the limit, "
        f"{'which both refuse' if compared['both_refuse'] else 'WHICH ONE ALLOWS'}"
    )
    for row in results["rows"]:
        print(
            f"{row['name']:>26}: {row['operations']:>6} operations, {row['gaps']:>5} gaps, "
            f"{row['transfers']:>5} transfers: check {1000 * row['check']:>4.0f} ms, in pieces "
            f"{1000 * row['check_pieces']:>5.0f} ms, simulate {1000 * row['simulate']:>3.0f} ms, "
            f"verify {row['verify']:.1f} s"
        )
    print(f"peak memory {results['peak_mib']:.0f} MiB")
    if options.output is not None:
        write_json(options.output, results)


if __name__ == "__main__":
    main()
