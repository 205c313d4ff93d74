"""Whether a trace is a legal execution of a network, from the definition of the network alone.

It shares no code with the expansion of strategies. An execution runs every computation, the first
runs in the network's order, and what is not repeatable once. Every run finds a copy of what it
reads on the device, with what in-place changes had made of it when the program ran it first. A
trace may take longer and hold more than the network says, never less.

What computations need is derived here from a network's definition, too (`Needs`), for arguments on
least memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from offcert.core.execution import Execution
from offcert.core.network import Network
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.verification.absence import least_memory


@dataclass(frozen=True)
class Needs:
    """A network with values that share memory counted as one."""

    sizes: list[int]  # Bytes of each value; 0 of those that lie in the memory of another
    own: list[int]  # For each computation, bytes that no run of it can do without
    touched: list[set[int]]  # For each computation, the values that it reads and writes
    read: list[set[int]]  # For each computation, the values that it reads
    writer: tuple[int, ...]  # For each value, who writes it; -1 if it is there at the start
    # For each value, whether a copy of it that is needed later has to be on the device.
    held: list[bool]
    again: list[bool]  # Whether each computation may run again at all, and in time
    spare: int | None  # Ticks that runs beside the first ones may take together; None for any


def needs_of(problem: Problem, network: Network) -> Needs:
    """Return sizes, needs and readers of a problem's computations, as the arguments use them."""
    values = network.values

    def stored(numbers: tuple[int, ...]) -> set[int]:
        bases = (values[number].base for number in numbers)
        return {
            number if base is None else base for number, base in zip(numbers, bases, strict=True)
        }

    own, read, touched = [], [], []
    for each in network.computations:
        taken = stored(each.reads)
        made = {number for number in each.writes if values[number].base is None}
        beside = each.workspace + sum(values[number].size for number in made)
        if each.lean is not None:
            # A run that discards something may take less.
            beside = min(beside, each.lean)
        own.append(beside + sum(values[number].size for number in each.reads))
        read.append(taken)
        touched.append(taken | made)
    spare = None
    if problem.deadline is not None:
        spare = problem.deadline - sum(each.duration for each in network.computations)
    return Needs(
        [value.size for value in values],
        own,
        touched,
        read,
        network.writer,
        [not (problem.offload and value.evictable) for value in values],
        [
            each.repeatable
            and problem.recompute is not Recompute.NONE
            and (spare is None or each.duration <= spare)
            for each in network.computations
        ],
        spare,
    )


def at_start(needs: Needs) -> int:
    """Return the bytes of the values that are there at the start and are read at all."""
    used = set().union(*needs.read)
    return sum(
        size
        for number, (size, writer) in enumerate(zip(needs.sizes, needs.writer, strict=True))
        if writer < 0 and number in used
    )


def legality_faults(problem: Problem, execution: Execution) -> list[str]:
    """Return every reason why a trace is no execution that a problem admits.

    Any computation may run again in the problem, or as stored copies on a chain allow it.
    """
    network = problem.computed
    assert network is not None, "problems with recomputation have a network"
    found = execution_faults(network, execution)
    if not found and problem.recompute is Recompute.CHAIN:
        found = persistency_faults(network, execution)
    return found


def execution_faults(network: Network, execution: Execution) -> list[str]:
    """Return every reason why a trace is no legal execution of a network.

    One sentence a fault, with its place.
    """
    return _Check(network, execution).run()


def persistency_faults(network: Network, execution: Execution) -> list[str]:
    """Return every copy that is stored and given up again before a backward operation reads it.

    Such a copy may only be passed from one run to the next (combined paper, persistency).
    """
    faults = []
    for index, tensor in enumerate(execution.trace.tensors):
        uses = tensor.uses
        passed = all(use <= uses[0] + 1 for use in uses)
        last = network.computations[execution.runs[uses[-1]]]
        if not passed and last.repeatable:
            faults.append(
                f"execution.trace.tensors[{index}] ({tensor.name}) is stored, and given up after "
                f"operation {uses[-1]}, which is no backward operation"
            )
    return faults


class _Check:
    def __init__(self, network: Network, execution: Execution) -> None:
        self.network = network
        self.runs = execution.runs
        self.values = execution.values
        self.trace = execution.trace
        self.faults: list[str] = []
        # For each operation: the tensors in use, and those that begin with it.
        self.used: list[list[int]] = [[] for _ in self.runs]
        self.written: list[list[int]] = [[] for _ in self.runs]
        # In-place changes that have been made to each tensor so far.
        self.states: list[list[int]] = [[] for _ in self.trace.tensors]

    def run(self) -> list[str]:
        self._check_indices()
        if not self.faults:
            self._check_order()
            self._check_tensors()
            for operation in range(len(self.runs)):
                self._check_operation(operation)
        return self.faults

    def _check_indices(self) -> None:
        for name, numbers, least, count in (
            ("runs", self.runs, 0, len(self.network)),
            ("values", self.values, -1, len(self.network.values)),
        ):
            self.faults += [
                f"execution.{name}[{index}] must be from {least} to {count - 1}, not {number}"
                for index, number in enumerate(numbers)
                if not least <= number < count
            ]

    def _check_order(self) -> None:
        """Every computation runs; the first runs are in order; gradients are computed once."""
        following = 0
        for operation, computation in enumerate(self.runs):
            name = self.network.computations[computation].name
            if computation == following:
                following += 1
            elif computation > following:
                self._fault(operation, f"runs {name} before computation {following} has run")
                return
            elif not self.network.computations[computation].repeatable:
                self._fault(operation, f"runs {name} again, which may run once only")
        if following < len(self.network):
            name = self.network.computations[following].name
            self.faults.append(f"execution.runs: computation {following} ({name}) never runs")

    def _check_tensors(self) -> None:
        begun: set[tuple[int, int]] = set()
        for index, (tensor, number) in enumerate(zip(self.trace.tensors, self.values, strict=True)):
            # What cannot leave is there all the time from its first use to its last one.
            held = range(max(tensor.uses[0], 0), tensor.uses[-1] + 1)
            for use in tensor.uses if tensor.evictable else held:
                if use >= 0:
                    self.used[use].append(index)
            first = tensor.uses[0]
            if first >= 0:
                self.written[first].append(index)
            if number < 0:
                continue
            value = self.network.values[number]
            place = f"execution.trace.tensors[{index}] ({tensor.name})"
            if value.base is not None:
                self.faults.append(f"{place} is {value.name}, which lies in the memory of another")
            elif tensor.size < value.size:
                self.faults.append(
                    f"{place} has {tensor.size} units, but {value.name} has {value.size}"
                )
            elif tensor.evictable and not value.evictable:
                self.faults.append(f"{place} may leave, but {value.name} may not")
            if (number, first) in begun:
                self.faults.append(f"{place} is a second copy of {value.name} from one run")
            begun.add((number, first))
            writer = self.network.writer[number]
            made_by = self.runs[first] if first >= 0 else -1
            if made_by != writer:
                self.faults.append(
                    f"{place} is {value.name}, but operation {first} does not make it"
                )

    def _check_operation(self, operation: int) -> None:
        number = self.runs[operation]
        computation = self.network.computations[number]
        found = self.trace.operations[operation]
        if found.duration < computation.duration:
            self._fault(
                operation, f"lasts {found.duration} ticks instead of {computation.duration}"
            )
        for value in computation.reads:
            self._check_read(operation, value)
        self._check_workspace(operation)
        for value in computation.writes:
            base = self.network.values[value].base
            if base is not None:
                self._change(operation, value, base)

    def _check_read(self, operation: int, value: int) -> None:
        """A copy must be on the device, in the state in which the program gives it to this run."""
        base = self.network.values[value].base
        stored = value if base is None else base
        copies = [
            tensor
            for tensor in self.used[operation]
            if self.values[tensor] == stored and self.trace.tensors[tensor].uses[0] < operation
        ]
        name = self.network.values[value].name
        if not copies:
            self._fault(operation, f"reads {name}, of which no copy is there")
            return
        wanted = self._state(stored, self.runs[operation])
        if all(self.states[copy] != wanted for copy in copies):
            self._fault(operation, f"reads {name}, but no copy is what the program would find")

    def _state(self, stored: int, computation: int) -> list[int]:
        """Return the in-place changes of a value that come before a computation in the program."""
        return [
            value
            for value in self._changes.get(stored, ())
            if self.network.writer[value] < computation
        ]

    @cached_property
    def _changes(self) -> dict[int, list[int]]:
        """For each value that is changed in place, the values that are made of it, in order."""
        rows: dict[int, list[int]] = {}
        for value in range(len(self.network.values)):
            base = self.network.values[value].base
            if base is not None:
                rows.setdefault(base, []).append(value)
        for row in rows.values():
            row.sort(key=lambda value: self.network.writer[value])
        return rows

    def _change(self, operation: int, value: int, base: int) -> None:
        copies = [tensor for tensor in self.used[operation] if self.values[tensor] == base]
        if len(copies) != 1:
            name = self.network.values[base].name
            self._fault(
                operation, f"changes {name} in place, of which {len(copies)} copies are in use"
            )
        for copy in copies:
            self.states[copy].append(value)
            self._require_at_home(operation, copy)

    def _require_at_home(self, operation: int, copy: int) -> None:
        """Require that no value has left before it is changed: its copy would stay unchanged."""
        tensor = self.trace.tensors[copy]
        uses = [use for use in tensor.uses if use <= operation]
        if tensor.evictable and tensor.size and len(uses) <= operation - uses[0]:
            name = self.network.values[self.values[copy]].name
            self._fault(operation, f"changes {name} in place, which may have left before")

    def _check_workspace(self, operation: int) -> None:
        computation = self.network.computations[self.runs[operation]]
        made = [self.values[tensor] for tensor in self.written[operation]]
        stored = [v for v in computation.writes if self.network.values[v].base is None]
        discarded = [value for value in stored if value not in made]
        needed = computation.workspace
        if discarded:
            beside = sum(self.network.values[value].size for value in discarded)
            needed = needed + beside if computation.lean is None else computation.lean
        found = self.trace.operations[operation].workspace
        if found < needed:
            self._fault(operation, f"has a workspace of {found} units instead of {needed}")

    def _fault(self, operation: int, what: str) -> None:
        name = self.trace.operations[operation].name
        self.faults.append(f"execution.trace.operations[{operation}] ({name}) {what}")


def least_need(problem: Problem) -> tuple[int, int, str]:
    """Return the bytes that no schedule can do without, and where: operation and its name.

    Where computations may run again, those are the bytes that a single one of them reads and
    writes, or the bytes that are there at the start, for which the operation is -1.
    """
    network = problem.computed
    if problem.recompute is Recompute.NONE or network is None:
        needed, operation = least_memory(problem)
        return needed, operation, _name(problem, operation)
    needs = needs_of(problem, network)
    found = (at_start(needs), -1, "the start")
    for index, (needed, each) in enumerate(zip(needs.own, network.computations, strict=True)):
        if needed > found[0]:
            found = (needed, index, each.name)
    return found


def _name(problem: Problem, operation: int) -> str:
    return problem.trace.operations[operation].name if operation >= 0 else "the start"
