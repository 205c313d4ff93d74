"""Patterns that name parts of a network, and the executions that decisions about it amount to.

The ways in which others save memory are executions of a network and schedules of them:
checkpointing, saved results with everything else computed on demand, and copies that leave after
their use and return when they are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import pairwise
from typing import Any

from offcert.core.documents import Fields, show
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.platform import Kind
from offcert.core.program import Program, Segment
from offcert.core.strategy import Strategy
from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.slowing import Lasting, settled

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
    return settled(problem, partial(_stepwise, problem, away, wait))


def _stepwise(problem: Problem, away: set[int], wait: bool, lasts: Lasting) -> Schedule:
    trace, platform = problem.trace, problem.platform
    free = {Kind.OFFLOAD: 0, Kind.PREFETCH: 0}
    released: dict[int, int] = {}
    starts, ends, transfers = [], [], []
    now = 0

    def move(kind: Kind, gap: int, earliest: int) -> int:
        start = max(free[kind], earliest)
        alone = platform.transfer_time(trace.gap_size(gap), kind)
        end = start + lasts.get((kind, gap), alone)
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


@dataclass(frozen=True)
class Decision:
    """The decisions of somebody else's plan for a network.

    Attributes
    ----------
    name : str
        For tables.
    execution : Execution
        The operations that run, and those that run again.
    away : frozenset of int
        Gaps of the execution in which tensors leave, one a tensor.
    wait : bool
        Whether operators wait for every copy to have left.
    network : Network or None
        Of which it is an execution, where that is not the one that was asked about: a checkpoint
        keeps what goes into it, so that may leave, whether or not autograd saves it by itself.
    """

    name: str
    execution: Execution
    away: frozenset[int] = frozenset()
    wait: bool = False
    network: Network | None = None


def called(name: str) -> tuple[str, ...]:
    """Return all that a computation can be called by: whole name, module, operator."""
    module, _, operator = module_of(name).partition(":")
    return (name, module, operator)


def _plain_operator(pattern: str) -> str:
    """Return the operator's name in ``"aten.mm.default"``, and anything else as it is."""
    match = re.fullmatch(r"(?:torch\.ops\.)?aten\.(\w+)(?:\.\w+)?", pattern)
    return match[1] if match else pattern


def is_called(name: str, pattern: str) -> bool:
    """Return whether a computation is called by a pattern."""
    return any(fnmatchcase(text, _plain_operator(pattern)) for text in called(name) if text)


def forward_pass(network: Network) -> list[int]:
    """Return the computations that may run again."""
    return [i for i, each in enumerate(network.computations) if each.repeatable]


def computations_named(network: Network, patterns: Sequence[str], place: str) -> set[int]:
    """Return the computations of the forward pass that patterns name, each at least one."""
    found: set[int] = set()
    for number, pattern in enumerate(patterns):
        same = {
            i for i in forward_pass(network) if is_called(network.computations[i].name, pattern)
        }
        if not same:
            raise InputError(f"{place}[{number}] names no computation: {show(pattern)}")
        found |= same
    return found


def strings_of(fields: Fields, name: str) -> list[str]:
    """Return a field that is a list of strings."""
    values: list[Any] = fields.get(name, list)
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise InputError(f"{fields.path(name)}[{number}] must be a string, not {show(value)}")
    return values


def stretches_of(network: Network, patterns: Sequence[str], place: str) -> list[range]:
    """Return the computations of each module whose path matches a pattern, outermost modules."""
    paths: dict[str, list[int]] = {}
    for index in forward_pass(network):
        parts = called(network.computations[index].name)[1].split(".")
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            if any(
                fnmatchcase(path, each) or fnmatchcase(parts[depth - 1], each) for each in patterns
            ):
                paths.setdefault(path, []).append(index)
                break
    for number, pattern in enumerate(patterns):
        if not any(
            fnmatchcase(path, pattern) or fnmatchcase(path.rpartition(".")[2], pattern)
            for path in paths
        ):
            raise InputError(f"{place}[{number}] names no module: {show(pattern)}")
    return sorted((range(rows[0], rows[-1] + 1) for rows in paths.values()), key=min)


def layers_of(network: Network) -> list[range]:
    """Return the computations of each layer; a network without layers is an error."""
    found = layers(network)
    if not found:
        raise InputError("no names of computations have layers, as in h.3 or layer1.0")
    return found


def segmented(network: Network, stretches: Iterable[range]) -> Execution:
    """Return the execution in which each of some stretches is checkpointed."""
    program = Program(Segment(rows.start, rows.stop - 1) for rows in stretches)
    execution = program.strategy(network).without_unread(network).expand(network)
    return replace(execution, program=program.to_json())


def plain_execution(network: Network) -> Execution:
    """Return the execution in which everything runs once."""
    return Strategy.plain(network).expand(network)


def values_entering(network: Network, stretches: Iterable[range]) -> set[int]:
    """Return the values that stretches are given by what comes before them."""
    return {
        _base(network, value)
        for rows in stretches
        for computation in rows
        for value in network.computations[computation].reads
        if network.writer[value] not in rows
    }


def entering_leave(
    network: Network, segments: Sequence[range], moved: Sequence[range], least: int = 0
) -> Decision:
    """Return the decision in which segments run again, and what enters some stretches leaves."""
    entering = values_entering(network, moved)
    values = [
        replace(value, evictable=value.evictable or index in entering)
        for index, value in enumerate(network.values)
    ]
    free = Network(network.computations, values)
    execution = segmented(free, segments)
    away = gaps_away(
        free, execution, lambda value: value in entering and free.values[value].size >= least
    )
    return Decision("", execution, away, network=free)


def _base(network: Network, value: int) -> int:
    base = network.values[value].base
    return value if base is None else base


def gaps_away(
    network: Network, execution: Execution, leaves: Callable[[int], bool]
) -> frozenset[int]:
    """Return the gaps across the turn of the step in which values leave."""
    return frozenset(
        gap
        for gap in across_the_turn(network, execution)
        if leaves(execution.values[execution.trace.gaps[gap].tensor])
    )


def saving(network: Network, saved: set[int], left: set[int], name: str) -> Decision:
    """Return the decision that saves what some computations make; of these, some results leave.

    A change in place is saved with the memory that it changes, or made again with it.
    """
    for index in forward_pass(network):
        bases = [network.values[value].base for value in network.computations[index].writes]
        owners = {network.writer[base] for base in bases if base is not None}
        if None not in bases and bases:
            saved = saved | {index} if owners <= {-1, *saved} else saved - {index}
    execution = on_demand(network, saved)
    away = gaps_away(network, execution, lambda value: network.writer[value] in left)
    return Decision(name, execution, away)
