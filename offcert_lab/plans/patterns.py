"""Patterns that name parts of a network, and the executions that decisions about it amount to.

The ways in which others save memory are executions of a network and schedules of them:
checkpointing, saved results with everything else computed on demand, and copies that leave after
their use and return when they are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from offcert.certification.other_ways import Decision, gaps_away, layers, module_of, segmented, turn
from offcert.core.documents import Fields, show
from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.program import Program, Segment
from offcert.core.strategy import Strategy


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
