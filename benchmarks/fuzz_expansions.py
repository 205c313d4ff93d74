"""Random networks: what every heuristic makes of them is a legal execution, says the checker.

    python benchmarks/fuzz_expansions.py --count 20000 -o out/fuzz-expansions.json

Computations are repeatable or not, wherever they stand, and change in place what they read: values
of others, of their own and of the input, once or more often. Every fifth network is that of a chain
of stages, on which the methods for chains run as well. Each heuristic's executions are given to
`offcert.verification.execution`, which shares no code with them, and its schedules to the checker
of schedules. What fails is written down with the seed that makes the network.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.computations import Computation, Value
from offcert.core.documents import write_json
from offcert.core.errors import InputError, MethodError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.core.strategy import Strategy
from offcert.heuristics.checkpoint.arbitrary import expansions
from offcert.heuristics.checkpoint.graph_networks import graph_of
from offcert.heuristics.checkpoint.live import checkpoint_execution
from offcert.heuristics.checkpoint.live_curve import live_selection
from offcert.heuristics.checkpoint.persistent import persistent, persistent_least_memory
from offcert.heuristics.combined.search import combined_plan
from offcert.heuristics.joint.search import joint_search
from offcert.heuristics.rematerialisation.search import RematerialisationSearch
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.schedule import Schedule
from offcert.verification.execution import execution_faults

Made = tuple[Execution, Schedule | None]
# Selections that are drawn beside those of the solver, and limits of memory that are tried.
_DRAWN, _LIMITS = 2, 3
_LONGEST = 2**60


def wild_network(rng: random.Random) -> Network:
    """Draw two to nine computations that read, write and change what there is."""
    values = [Value("x", rng.choice((1, 3)))]
    number = rng.randint(2, 9)
    computations = [_computation(rng, values, index, number) for index in range(number)]
    return Network(computations, values)


def _computation(rng: random.Random, values: list[Value], index: int, number: int) -> Computation:
    """Draw a computation, and append what it writes to the values."""
    reads = set(rng.sample(range(len(values)), min(len(values), rng.choice((1, 1, 2, 3)))))
    writes = []
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        stored = [value for value in reads if values[value].base is None]
        if stored and rng.random() < 0.25:
            made = Value(f"v{len(values)}", 0, evictable=False, base=rng.choice(stored))
        else:
            size = rng.choice((0, 1, 2, 5))
            made = Value(f"v{len(values)}", size, evictable=rng.random() < 0.9)
        values.append(made)
        writes.append(len(values) - 1)
    # What is changed in place lies in the memory of its base, which has to be there.
    reads |= {base for value in reads if (base := values[value].base) is not None}
    return Computation(
        f"C{index}",
        rng.choice((0, 1, 3)),
        rng.choice((0, 0, 2)),
        tuple(sorted(reads)),
        tuple(writes),
        rng.random() < (0.75 if index < 0.6 * number else 0.2),
        lean=rng.choice((None, None, 1)),
    )


def wild_chain(rng: random.Random) -> CheckpointChain:
    """Draw one to six stages; some keep more than their output, some numbers are zero."""
    stages = rng.randint(1, 6)
    output = [rng.choice((0, 1, 2, 3, 5, 8)) for _ in range(stages + 1)]
    return CheckpointChain(
        [rng.choice((0, 1, 2, 4, 7)) for _ in range(stages)],
        [rng.choice((0, 1, 3, 6, 9)) for _ in range(stages)],
        output,
        [size + rng.choice((0, 0, 1, 4)) for size in output[1:]],
        [rng.choice((0, 1, 2)) for _ in range(stages + 1)],
        [rng.choice((0, 0, 2)) for _ in range(stages)],
        [rng.choice((0, 0, 3)) for _ in range(stages)],
    )


def graph_selections(rng: random.Random, problem: Problem) -> Iterator[Made]:
    """Yield executions of the re-forwarding solver's selections, by max term, and of drawn ones."""
    network = problem.computed
    assert network is not None
    try:
        made = graph_of(network)
    except InputError:
        # Nothing can run again.
        return
    inner = made.graph.inner
    drawn = [[v for v in inner if rng.random() < 0.5] for _ in range(_DRAWN)]
    selections = [selection for _, selection, _ in expansions(made.graph)]
    for selection in [*selections, *map(made.graph.select, drawn)]:
        yield made.strategy(selection).expand(network), None


def executor(rng: random.Random, problem: Problem) -> Iterator[Made]:
    """Yield the executor's executions within random limits, guided by random powers."""
    network = problem.computed
    assert network is not None
    search = RematerialisationSearch(network, rng.randrange(1000))
    least, peak = max(network.own_memory), network.trace().peak_memory
    for _ in range(_LIMITS):
        powers = (rng.random(), 2 * rng.random(), 2 * rng.random())
        found = search.attempt(rng.randint(min(least, peak), peak), _LONGEST, powers)
        if found is not None:
            yield found.execution, None


def joint_programs(rng: random.Random, problem: Problem) -> Iterator[Made]:
    """Yield the plans of a short joint search: segments that run again, and what leaves."""
    found: list[Made] = []
    joint_search(
        problem,
        time_limit=60,
        seed=rng.randrange(1000),
        coolings=1,
        steps=5,
        transfers=0.0,
        on_improvement=lambda plan: found.append((plan.execution, plan.schedule)),
    )
    yield from found


def chain_methods(rng: random.Random, problem: Problem) -> Iterator[Made]:
    """Yield the executions that the methods for chains find."""
    chain = problem.checkpoint_chain
    if chain is None:
        return
    network, memory = chain.network(), problem.platform.memory
    yield checkpoint_execution(chain, live_selection(chain).checkpoints), None
    yield persistent_least_memory(chain).expand(network), None
    makers: tuple[Callable[[], Made], ...] = (
        lambda: (persistent(chain, memory, 50).expand(network), None),
        lambda: (persistent(chain, memory, None).expand(network), None),
        lambda: _combined(problem, bare=False),
        lambda: _combined(problem, bare=True),
    )
    for make in makers:
        try:
            yield make()
        except MethodError:
            # It finds no plan within this memory.
            continue


def _combined(problem: Problem, bare: bool) -> Made:
    plan = combined_plan(problem, 20, bare=bare)
    return plan.execution, plan.atomic(problem)


HEURISTICS = (graph_selections, executor, joint_programs, chain_methods)


def wild_problem(rng: random.Random, index: int) -> Problem:
    """Draw a network, and a limit between the least memory of a computation and the peak."""
    drawn = wild_network(rng) if index % 5 else wild_chain(rng)
    network = drawn.network() if isinstance(drawn, CheckpointChain) else drawn
    least, peak = max(network.own_memory), network.trace().peak_memory
    memory = rng.randint(min(least, peak), peak)
    platform = Platform(memory, rng.choice((Fraction(1, 2), Fraction(1), Fraction(3, 2))))
    return Problem(f"wild {index}", drawn, platform, recompute=Recompute.ANY)


def faults_of(problem: Problem, execution: Execution, schedule: Schedule | None) -> list[str]:
    """Return the faults of an execution, or of its schedule if there is one."""
    network = problem.computed
    assert network is not None
    found = execution_faults(network, execution)
    if found or schedule is None:
        return found
    return check(problem.executed(execution), schedule)


def fuzz(count: int, seed: int, heuristics: tuple[Any, ...] = HEURISTICS) -> dict[str, Any]:
    """Return counts by heuristic, and every fault with what makes it."""
    counts: dict[str, Counter[str]] = {each.__name__: Counter() for each in heuristics}
    failures = []
    for index in range(count):
        rng = random.Random(f"{seed} {index}")
        problem = wild_problem(rng, index)
        network = problem.computed
        assert network is not None
        assert not execution_faults(network, Strategy.plain(network).expand(network))
        for heuristic in heuristics:
            tally = counts[heuristic.__name__]
            try:
                for execution, schedule in heuristic(rng, problem):
                    tally["executions"] += 1
                    tally["that run something again"] += execution.repeated > 0
                    found = faults_of(problem, execution, schedule)
                    if found:
                        failures.append(_failure(seed, index, heuristic, found[0]))
            except Exception as error:
                failures.append(
                    _failure(seed, index, heuristic, f"{type(error).__name__}: {error}")
                )
        if sys.stderr.isatty() and index % 100 == 0:
            print(f"\r{index} networks, {len(failures)} faults", end="", file=sys.stderr)
    return {"networks": count, "seed": seed, "counts": counts, "failures": failures}


def _failure(seed: int, index: int, heuristic: Any, fault: str) -> dict[str, Any]:
    return {"seed": seed, "index": index, "heuristic": heuristic.__name__, "fault": fault}


def main(arguments: list[str] | None = None) -> int:
    """Run it; the exit code is 1 if anything is illegal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000, help="networks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", default="out/fuzz-expansions.json")
    asked = parser.parse_args(arguments)
    found = fuzz(asked.count, asked.seed)
    write_json(asked.output, found)
    for name, tally in found["counts"].items():
        print(name.replace("_", " "), dict(tally))
    for failure in found["failures"][:10]:
        print(failure)
    print(f"{asked.count} networks, {len(found['failures'])} faults")
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
