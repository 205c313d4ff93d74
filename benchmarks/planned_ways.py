"""Ways to train in less memory that others use, as plans for a captured network.

`benchmarks/runtime_ways.py` has some of them as what runs on a device. Here each is an execution
and a schedule, legal by the code that verifies certificates, so that times, peaks and bytes are
counted the same way for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.platform import Kind
from offcert.core.program import Program, Segment
from offcert.core.strategy import Strategy
from offcert.core.trace import Trace
from offcert.questions.schedule.check import check, peak
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.verify.execution import execution_faults

PRODUCTS = r"(conv\d*|fc\d*|c_fc|c_attn|c_proj|\w+_proj|lm_head|linear\d*|downsample\.0)$"
BUDGETS = (Fraction(3, 4), Fraction(1, 2), Fraction(1, 4))
# A layer's path ends with the first number in it: ``h.3``, ``layer1.0``, ``model.layers.11``.
_LAYER = re.compile(r"((?:[^.\s]+\.)*?\d+)(?:\.|$)")


@dataclass(frozen=True)
class Way:
    """A way to train, as what is executed and when.

    Attributes
    ----------
    name : str
        In the table.
    execution : Execution
        Of the captured network.
    schedule : Schedule
        Of the execution.
    problem : Problem
        What it is a way to solve, and what is certified at its peak.
    """

    name: str
    execution: Execution
    schedule: Schedule
    problem: Problem


def module_of(name: str) -> str:
    """Return the path of the module that a computation belongs to."""
    return name.removeprefix("F:").removeprefix("after ").partition(" #")[0]


def layers(network: Network) -> list[range]:
    """Return the computations of each layer, as stretches of the forward pass in their order."""
    found: dict[str, list[int]] = {}
    for index, each in enumerate(network.computations):
        layer = _LAYER.match(module_of(each.name))
        if each.repeatable and layer:
            found.setdefault(layer[1], []).append(index)
    stretches = sorted((range(rows[0], rows[-1] + 1) for rows in found.values()), key=min)
    for first, second in pairwise(stretches):
        if second.start < first.stop:
            raise InputError(f"layers overlap: {first} and {second}")
    return stretches


def checkpointed(
    network: Network, every: int = 1, keep: Callable[[str], bool] = lambda path: False
) -> Execution:
    """Return the execution in which every n-th layer runs again, but for what is kept."""
    segments = []
    for rows in layers(network)[::every]:
        kept = (each for each in rows if keep(module_of(network.computations[each].name)))
        segments.append(Segment(rows.start, rows.stop - 1, tuple(kept)))
    program = Program(segments)
    execution = program.strategy(network).without_unread(network).expand(network)
    return replace(execution, program=program.to_json())


def turn(network: Network) -> int:
    """Return the first computation that cannot run again: the loss, or the end of the network."""
    rows = enumerate(network.computations)
    return next((index for index, each in rows if not each.repeatable), len(network))


def on_demand(network: Network, saved: set[int]) -> Execution:
    """Return the execution that saves what some computations make, and the rest runs when needed.

    What the backward pass needs and is not saved is computed again just before, with all that it
    is computed from, once. What the loss reads has just been computed.
    """
    runs: list[int] = []
    there, loss = set(saved), turn(network)
    for index, computation in enumerate(network.computations):
        if not computation.repeatable and index > loss:
            waiting = [(value, False) for value in reversed(computation.reads)]
            while waiting:
                value, ready = waiting.pop()
                writer = network.writer[value]
                if writer < 0 or writer in there or not network.computations[writer].repeatable:
                    continue
                if ready:
                    there.add(writer)
                    runs.append(writer)
                    continue
                waiting.append((value, True))
                waiting += [(v, False) for v in reversed(network.computations[writer].reads)]
        runs.append(index)
    return Strategy(runs).without_unread(network).expand(network)


def budgeted(network: Network, budget: Fraction) -> set[int]:
    """Return the computations that PyTorch's knapsack saves within a part of the activations."""
    from torch._functorch._activation_checkpointing.knapsack import dp_knapsack

    size = dict.fromkeys(range(len(network)), 0)
    late = (each for each in network.computations[turn(network) + 1 :] if not each.repeatable)
    read_later = {value for each in late for value in each.reads}
    for value in read_later:
        if network.writer[value] >= 0:
            size[network.writer[value]] += network.values[value].size
    items = [i for i, bytes_ in size.items() if network.computations[i].repeatable and bytes_]
    whole = sum(size[item] for item in items)
    memory = [size[item] / whole for item in items]
    runtime = [float(network.computations[item].duration) for item in items]
    _, chosen, _ = dp_knapsack(memory, runtime, float(budget))
    # What takes nothing is not asked about; changes in place come and go with what they change.
    free = {
        index
        for index, each in enumerate(network.computations)
        if all(network.values[v].base is not None for v in each.writes)
        and {network.writer[network.values[v].base or 0] for v in each.writes}
        <= {-1, *(items[index] for index in chosen)}
    }
    return {items[index] for index in chosen} | free


def across_the_turn(network: Network, execution: Execution) -> Iterator[int]:
    """Yield the gaps of an execution from the forward pass to the backward pass."""
    first = execution.runs.index(turn(network))
    for number, gap in enumerate(execution.trace.gaps):
        if gap.before < first <= gap.after:
            yield number


def stepwise(problem: Problem, away: set[int], *, wait: bool) -> Schedule:
    """Return the schedule in which tensors leave after their use and return when they are needed.

    Parameters
    ----------
    problem : Problem
        In which everything runs once.
    away : set of int
        The gaps in which tensors are away, one a tensor.
    wait : bool
        Whether the next operation waits for a tensor to have left.
    """
    trace, platform = problem.trace, problem.platform
    free = {Kind.OFFLOAD: 0, Kind.PREFETCH: 0}
    released: dict[int, int] = {}
    starts, ends, transfers = [], [], []
    now = 0

    def move(kind: Kind, gap: int, earliest: int) -> int:
        start = max(free[kind], earliest)
        end = start + platform.transfer_time(trace.gap_size(gap), kind)
        for each in (kind,) if platform.duplex else tuple(Kind):
            free[each] = end
        transfers.append(Transfer(kind, gap, start, end))
        return end

    def leave(opened: list[int]) -> int:
        done = now
        for gap in opened:
            released[gap] = done = move(Kind.OFFLOAD, gap, now)
        return done if wait else now

    opening: dict[int, list[int]] = {}
    for gap in sorted(away):
        opening.setdefault(trace.gaps[gap].before, []).append(gap)
    now = leave(opening.get(-1, []))
    for index, operation in enumerate(trace.operations):
        asked = now
        for gap in trace.gaps_leaving[index]:
            if gap in away:
                now = max(now, move(Kind.PREFETCH, gap, max(asked, released[gap])))
        starts.append(now)
        now += operation.duration
        ends.append(now)
        now = leave(opening.get(index, []))
    return Schedule(starts, ends, transfers)


def ways(problem: Problem, products: str = PRODUCTS) -> Iterator[Way | tuple[str, str]]:
    """Yield all ways, or names of those that cannot be had with the reason."""
    network = problem.computed
    if network is None:
        raise InputError(f"{problem.name} does not say what is computed from what")
    plain = Strategy.plain(network).expand(network)
    pattern = re.compile(products)

    def timed(name: str, execution: Execution, away: set[int], *, wait: bool = False) -> Way:
        schedule = stepwise(problem.executed(execution), away, wait=wait)
        return Way(name, execution, schedule, problem)

    yield timed("plain", plain, set())
    yield timed("save_on_cpu", plain, set(across_the_turn(network, plain)), wait=True)
    layered = layers(network)
    if not layered:
        yield "checkpointing", "no names of computations have layers, as in h.3 or layer1.0"
        return
    yield timed("checkpoint all", checkpointed(network), set())
    yield timed("checkpoint every 2nd", checkpointed(network, 2), set())
    kept = checkpointed(network, 1, lambda path: pattern.search(path) is not None)
    yield timed("checkpoint, products kept", kept, set())
    yield offloaded_checkpoints(problem, network, layered)
    for budget in BUDGETS:
        name = f"memory budget {float(budget):g}"
        yield timed(name, on_demand(network, budgeted(network, budget)), set())


def offloaded_checkpoints(problem: Problem, network: Network, layered: list[range]) -> Way:
    """Return the way in which what goes into the layers leaves until these run again.

    A checkpoint saves it, whether or not the layer does by itself. So it may leave here, and in
    what is certified beside it.
    """
    entering = {
        value if network.values[value].base is None else network.values[value].base
        for rows in layered
        for computation in rows
        for value in network.computations[computation].reads
        if network.writer[value] not in rows
    }
    values = (
        replace(value, evictable=value.evictable or index in entering)
        for index, value in enumerate(network.values)
    )
    there = replace(problem, network=Network(network.computations, values))
    assert there.computed is not None
    execution = checkpointed(there.computed)
    away = {
        gap
        for gap in across_the_turn(network, execution)
        if execution.values[execution.trace.gaps[gap].tensor] in entering
    }
    schedule = stepwise(there.executed(execution), away, wait=False)
    return Way("offloaded checkpoints", execution, schedule, there)


def host_bytes(trace: Trace, schedule: Schedule) -> int:
    """Return the most bytes of copies on the host at a time."""
    last: dict[int, int] = {}
    changes: list[tuple[int, int]] = []
    for transfer in schedule.transfers:
        tensor = trace.gaps[transfer.gap].tensor
        if transfer.kind is Kind.OFFLOAD:
            changes.append((transfer.start, trace.tensors[tensor].size))
        else:
            last[tensor] = max(last.get(tensor, 0), transfer.end)
    changes += [(end, -trace.tensors[tensor].size) for tensor, end in last.items()]
    held = most = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most


def measured(way: Way) -> dict[str, Any]:
    """Return time, peak and bytes of a way that the checkers find legal.

    Raises
    ------
    InputError
        If they do not: then the way is not what it says.
    """
    network = way.problem.computed
    assert network is not None
    executed = way.problem.executed(way.execution)
    most = peak(executed, way.schedule)
    faults = execution_faults(network, way.execution)
    faults += check(executed.with_memory(most), way.schedule)
    if faults:
        raise InputError(f"{way.name} is not legal: {faults[0]}")
    return {
        "way": way.name,
        "step": way.schedule.makespan,
        "peak": most,
        "host": host_bytes(executed.trace, way.schedule),
        "again": way.execution.repeated,
    }
