"""Ways to save memory that need no plan: checkpointing every layer, and save_on_cpu.

Every layer checkpointed, or all that is saved copied to the host: each is an execution of the
network, and a schedule of it in which tensors leave after their use and return when asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from operator import itemgetter

from offcert.core.errors import InputError
from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.core.platform import Kind
from offcert.core.program import Program, Segment
from offcert.core.strategy import Strategy
from offcert.core.trace import Trace
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.check import check, peak
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.result import Result, SolveStatus
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.schedule.slowing import Lasting, settled
from offcert.verification.execution import execution_faults


@dataclass(frozen=True)
class OtherWay:
    """A way to save memory that needs no plan, at one size of a training step.

    Attributes
    ----------
    name : str
        ``"every layer checkpointed"`` or ``"save_on_cpu"``.
    step : int
        Nanoseconds of the step, beginning and end of copies that are waited for included.
    peak : int
        Bytes of activations and workspaces on the device.
    host : int
        Bytes of the host that copies take: pageable memory, as ``save_on_cpu`` pins none unless it
        is told to.
    fits : bool
        Whether so many bytes are left beside parameters, gradients and the optimiser's state, and
        so many of pageable memory.
    """

    name: str
    step: int
    peak: int
    host: int
    fits: bool


def other_ways(
    problem: Problem, left: int, pageable: int | None
) -> tuple[tuple[OtherWay, ...], Certificate | None]:
    """Find the ways of a problem that need no plan, and a certificate of the fastest that fits.

    The problem is at the limit that the device leaves; `left` are the bytes that it leaves, less
    than 0 where it has none; `pageable` those of the host that are not pinned, None if these are
    not limited.
    """
    found, beginnings = [], []
    for decide in (every_layer_again, save_on_cpu) if problem.computed is not None else ():
        try:
            decision = decide(problem.computed)  # type: ignore[arg-type]
        except InputError:
            continue
        done = carried_out(problem, decision)
        if done.faults:
            continue
        step, fits = done.schedule.makespan, done.peak <= left
        there = pageable is None or done.host <= pageable
        found.append(OtherWay(decision.name, step, done.peak, done.host, fits and there))
        if fits and (problem.recompute is Recompute.ANY or not decision.execution.repeated):
            known = beginning(problem, decision.execution, done.schedule)
            beginnings += [] if known is None else [(step, known)]
    return tuple(found), min(beginnings, key=itemgetter(0), default=(0, None))[1]


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


def turn(network: Network) -> int:
    """Return the first computation that cannot run again: the loss, or the end of the network."""
    rows = enumerate(network.computations)
    return next((index for index, each in rows if not each.repeatable), len(network))


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

    In the problem everything runs once. Tensors are `away` in these gaps, one a tensor, and the
    next operation may `wait` for each to have left.
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
    """The decisions of somebody else's plan for a network."""

    name: str  # For tables
    execution: Execution  # The operations that run, and those that run again
    away: frozenset[int] = frozenset()  # Gaps of the execution in which tensors leave, one a tensor
    wait: bool = False  # Whether operators wait for every copy to have left
    # Of which it is an execution, where that is not the one that was asked about: a checkpoint
    # keeps what goes into it, so that may leave, whether or not autograd saves it by itself.
    network: Network | None = None


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


def gaps_away(
    network: Network, execution: Execution, leaves: Callable[[int], bool]
) -> frozenset[int]:
    """Return the gaps across the turn of the step in which values leave."""
    return frozenset(
        gap
        for gap in across_the_turn(network, execution)
        if leaves(execution.values[execution.trace.gaps[gap].tensor])
    )


@dataclass(frozen=True)
class CarriedOut:
    """The execution and schedule of a decision, with the faults that checkers find in them."""

    # The problem that was asked about, with the network that the decision is about.
    problem: Problem
    executed: Problem  # In which all runs of the execution are operations
    schedule: Schedule  # Of these
    peak: int  # Most bytes on the device; 0 where there are faults
    faults: tuple[str, ...]  # Why it is not legal

    @cached_property
    def host(self) -> int:
        """Most bytes of copies on the host."""
        return host_bytes(self.executed.trace, self.schedule)


def carried_out(problem: Problem, decision: Decision) -> CarriedOut:
    """Return the execution and the schedule that a decision about a network amounts to."""
    if decision.network is not None:
        problem = replace(problem, network=decision.network)
    executed = problem.executed(decision.execution)
    schedule = stepwise(executed, set(decision.away), wait=decision.wait)
    return examined(problem, decision.execution, schedule)


def examined(problem: Problem, execution: Execution, schedule: Schedule) -> CarriedOut:
    """Return an execution of a problem's network and its schedule, with the checkers' faults."""
    network = problem.computed
    assert network is not None
    executed = problem.executed(execution)
    faults = execution_faults(network, execution)
    most = 0 if faults else peak(executed, schedule)
    faults = faults or check(executed.with_memory(most), schedule)
    return CarriedOut(problem, executed, schedule, most, tuple(faults))


def beginning(problem: Problem, execution: Execution, schedule: Schedule) -> Certificate | None:
    """Return the certificate a search begins with: of the plan, if the runtime can carry it out."""
    if execution.program is None and execution.repeated:
        return None
    result = Result(SolveStatus.FEASIBLE, schedule, execution=execution)
    return Certificate(problem, result=result)


def every_layer_again(network: Network) -> Decision:
    """Return the decision to checkpoint every layer, as trainers do on one line."""
    return Decision("every layer checkpointed", segmented(network, layers_of(network)))


def save_on_cpu(network: Network) -> Decision:
    """Return the decision of `torch.autograd.graph.save_on_cpu`: all that is saved leaves."""
    execution = plain_execution(network)
    away = gaps_away(network, execution, lambda value: True)
    return Decision("save_on_cpu", execution, away, wait=True)
