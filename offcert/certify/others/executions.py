"""The ways in which others save memory, as executions of a network and schedules of them.

Checkpointing, saved results with everything else computed on demand, and copies that leave after
their use and return when they are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.platform import Kind
from offcert.core.program import Program, Segment
from offcert.core.strategy import Strategy
from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer

# A layer's path ends with the first number in it: ``h.3``, ``layer1.0``, ``model.layers.11``.
_LAYER = re.compile(r"((?:[^.\s]+\.)*?\d+)(?:\.|$)")


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
    """Return the execution in which every n-th layer runs again, but for kept computations."""
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


def across_the_turn(network: Network, execution: Execution) -> Iterator[int]:
    """Yield the gaps of an execution from the forward pass to the backward pass, if it has one."""
    backward = turn(network)
    runs = execution.runs
    first = runs.index(backward) if backward < len(network) else len(runs)
    for number, gap in enumerate(execution.trace.gaps):
        if gap.before < first <= gap.after:
            yield number


def stepwise(problem: Problem, away: set[int], *, wait: bool) -> Schedule:
    """Return the schedule in which tensors leave after their use and return when they are needed.

    Parameters
    ----------
    problem : Problem
        A problem in which everything runs once.
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
