"""vDNN on task graphs, and with sub-batches (vDNN+): what the moDNN paper compares itself with.

Rhu et al., MICRO 2016, §III, as the moDNN paper describes it (§4.4, §5.2.1, Fig. 4, §7.2): the
input of every layer, or of every convolution, leaves while its last forward reader runs, and the
next layer waits for that. Backward, with each layer at most one input is sent for, that of the
nearest earlier layer that lacks it, no further than the nearest convolution; the next layer waits
for that, too. Everything else stays. Of the convolution algorithms each task takes the fastest for
which there is room.

`offcert.heuristics.vdnn_policy` is the same for chains, without the waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from offcert.core.errors import MethodError, NoPlanError
from offcert.core.menu import Menu
from offcert.core.plan import Kind
from offcert.core.problem import Problem
from offcert.core.schedule import Schedule, Transfer
from offcert.core.step import Round
from offcert.core.trace import Trace
from offcert.heuristics.modnn.sub_batch import select_sub_batch

POLICIES = ("none", "all", "conv")


@dataclass(frozen=True)
class VdnnOutcome:
    """What vDNN does.

    Attributes
    ----------
    policy : str
        One of `POLICIES`.
    choice : tuple of int
        The alternative of each operation on the menu.
    trace : Trace
        What that makes of the trace.
    schedule : Schedule
        With vDNN's waiting.
    """

    policy: str
    choice: tuple[int, ...]
    trace: Trace
    schedule: Schedule


def vdnn_tasks(problem: Problem, menu: Menu | None = None, policy: str = "all") -> VdnnOutcome:
    """Return what a policy of vDNN does with a task graph.

    Parameters
    ----------
    problem : Problem
        A trace whose operations are called ``FP``, ``BP1`` or ``BP2`` of a layer.
    menu : Menu, optional
        Alternatives of its operations.
    policy : str
        ``"none"``: nothing leaves; ``"all"``, ``"conv"``.

    Raises
    ------
    MethodError
        If the trace is no task graph, or there is no such policy.
    NoPlanError
        If what the policy keeps on the device does not fit.
    """
    if policy not in POLICIES:
        raise MethodError(f'the policy of vDNN must be "none", "all" or "conv", not {policy!r}')
    return _Run(problem, menu or Menu(), policy).outcome()


def best_vdnn(problem: Problem, menu: Menu | None = None) -> VdnnOutcome:
    """Return the best of vDNN's policies, as its dynamic policy does.

    Raises
    ------
    NoPlanError
        If none of them fits.
    """
    found = []
    for policy in POLICIES:
        try:
            found.append(vdnn_tasks(problem, menu, policy))
        except NoPlanError:
            continue
    if not found:
        raise NoPlanError("no policy of vDNN fits into the memory")
    return min(found, key=lambda each: each.schedule.makespan)


def vdnn_plus(
    profile: Callable[[int], Round], batch: int, problem: Callable[[Round], Problem]
) -> tuple[int, VdnnOutcome]:
    """Return vDNN with the sub-batch of Eq. 8, or the next smaller one in which it finds room.

    Parameters
    ----------
    profile : callable
        Returns the round of so many images.
    batch : int
        Images in the whole batch.
    problem : callable
        Returns the problem of a round: its trace on the platform.

    Raises
    ------
    NoPlanError
        If it does not fit with a single image.
    """
    memory = problem(profile(1)).platform.memory
    size = select_sub_batch(profile, batch, memory).size
    while True:
        found = profile(size)
        try:
            return size, best_vdnn(problem(found), found.menu)
        except NoPlanError:
            if size == 1:
                raise
            size = 1 << ((size - 1).bit_length() - 1)


class _Run:
    def __init__(self, problem: Problem, menu: Menu, policy: str) -> None:
        self.problem = problem
        self.menu = menu
        self.trace = problem.trace
        menu.require_fits(self.trace)
        # Consecutive tasks of a layer in one direction are one step of vDNN.
        self.steps = list(_steps(self.trace))
        self.step_of = {task: step for step, row in enumerate(self.steps) for task in row}
        self.forward = {step for step, row in enumerate(self.steps) if self._kind(row[0]) != "BP"}
        self.convolutions = self._convolutions()
        self.leaving = self._leaving(policy)
        self.returning = self._returning()
        self.absent = [0] * (len(self.trace) + 1)

    def _kind(self, task: int) -> str:
        return self.trace.operations[task].name[:2]

    def _convolutions(self) -> set[str]:
        names = [operation.name for operation in self.trace.operations]
        weighted = {_layer(name) for name in names if name.startswith("BP2 ")}
        return {name for name in weighted if not name.endswith(".norm")}

    def _leaving(self, policy: str) -> dict[int, int]:
        """Return the gaps over which a tensor is away, by the forward step in which it leaves."""
        gaps: dict[int, int] = {}
        if policy == "none":
            return gaps
        for number, gap in enumerate(self.trace.gaps):
            step = self.step_of.get(gap.before, -1)
            name = _layer(self.trace.operations[gap.before].name) if gap.before >= 0 else ""
            reads = self.trace.tensors[gap.tensor].uses[0] < gap.before
            back = self.step_of[gap.after] not in self.forward
            wanted = policy == "all" or name in self.convolutions
            if wanted and step in self.forward and reads and back:
                gaps[number] = step
        return gaps

    def _returning(self) -> dict[int, int]:
        """Return the backward step with which each gap's tensor starts to come back."""
        due: dict[int, list[int]] = {}
        for gap in self.leaving:
            due.setdefault(self.step_of[self.trace.gaps[gap].after], []).append(gap)
        chosen: dict[int, int] = {}
        for step in range(len(self.steps)):
            if step in self.forward:
                continue
            for later in range(step + 1, len(self.steps)):
                lacking = [gap for gap in due.get(later, ()) if gap not in chosen]
                if lacking:
                    chosen.update(dict.fromkeys(lacking, step))
                    break
                if _layer(self.trace.operations[self.steps[later][0]].name) in self.convolutions:
                    break
        # What nobody sent for in time comes when it is needed, before its step.
        for later, gaps in due.items():
            for gap in gaps:
                chosen.setdefault(gap, later)
        return chosen

    def outcome(self) -> VdnnOutcome:
        for gap, step in self.leaving.items():
            first = self.steps[step][-1] + 1
            back = self.steps[self.returning[gap]][0]
            if first < back:
                self.absent[first] += self.trace.gap_size(gap)
                self.absent[back] -= self.trace.gap_size(gap)
        trace, choice = self._chosen()
        return VdnnOutcome(self._policy_name(), choice, trace, self._schedule(trace))

    def _policy_name(self) -> str:
        if not self.leaving:
            return "none"
        names = {
            _layer(self.trace.operations[self.trace.gaps[gap].before].name) for gap in self.leaving
        }
        return "conv" if names <= self.convolutions else "all"

    def _chosen(self) -> tuple[Trace, tuple[int, ...]]:
        """Take the fastest alternative that fits beside what is there."""
        away = 0
        choice = []
        for task, demand in enumerate(self.trace.demand):
            away += self.absent[task]
            operation = self.trace.operations[task]
            room = self.problem.platform.memory - (demand - operation.workspace - away)
            ways = self.menu.of.get(task)
            if ways is None:
                if operation.workspace > room:
                    raise self._no_room(task, operation.workspace - room)
                continue
            fits = [number for number, way in enumerate(ways) if way.workspace <= room]
            if not fits:
                raise self._no_room(task, min(way.workspace for way in ways) - room)
            choice.append(min(fits, key=lambda number: ways[number].duration))
        made = tuple(choice)
        return self.menu.chosen(self.trace, made) if made else self.trace, made

    def _no_room(self, task: int, lacking: int) -> NoPlanError:
        name = self.trace.operations[task].name
        return NoPlanError(f"vDNN lacks {lacking} bytes for {name} beside what it keeps")

    def _schedule(self, trace: Trace) -> Schedule:
        """Let each step wait for the transfers of the one before."""
        platform = self.problem.platform
        starts, ends, transfers = [], [], []
        now = 0
        for step, tasks in enumerate(self.steps):
            link = now
            sent = [gap for gap, back in self.returning.items() if back == step]
            # What this very step needs comes first, and the step waits for it.
            for gap in sorted(sent, key=lambda gap: self.step_of[trace.gaps[gap].after]):
                end = link + platform.transfer_time(trace.gap_size(gap), Kind.PREFETCH)
                transfers.append(Transfer(Kind.PREFETCH, gap, link, end))
                link = end
                if self.step_of[trace.gaps[gap].after] == step:
                    now = link
            for gap, away in self.leaving.items():
                if away == step:
                    end = link + platform.transfer_time(trace.gap_size(gap), Kind.OFFLOAD)
                    transfers.append(Transfer(Kind.OFFLOAD, gap, link, end))
                    link = end
            for task in tasks:
                starts.append(now)
                now += trace.durations[task]
                ends.append(now)
            now = max(now, link)
        return Schedule(starts, ends, transfers)


def _layer(name: str) -> str:
    return name.split(" ", 2)[1] if " " in name else name


def _steps(trace: Trace) -> Iterable[list[int]]:
    """Yield the tasks of each layer in each direction; a trace without such names is refused."""
    names = [operation.name for operation in trace.operations]
    if not any(name.startswith("FP ") for name in names):
        raise MethodError("vDNN needs a task graph, whose operations are FP, BP1 and BP2 of layers")
    row: list[int] = []
    for task, name in enumerate(names):
        before = names[row[-1]] if row else ""
        if row and not (name.startswith("BP2 ") and _layer(before) == _layer(name)):
            yield row
            row = []
        row.append(task)
    yield row
