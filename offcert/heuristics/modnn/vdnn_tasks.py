"""vDNN on task graphs: what the moDNN paper compares itself with.

Rhu et al., MICRO 2016, §III, as the moDNN paper describes it (§4.4, §5.2.1, Fig. 4, §7.2): the
input of every layer, or of every convolution, leaves while its last forward reader runs, and the
next task waits for that. Backward, with each task at most one other task's inputs are sent for,
those of the nearest later one that lacks some, no further than the nearest convolution; the next
task waits for that, too. Everything else stays. Of the convolution algorithms each task takes the
fastest for which there is room.

`offcert.heuristics.evictions.vdnn` is the same for chains, without the waiting.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from offcert.core.errors import MethodError, NoPlanError
from offcert.core.platform import Kind, Platform
from offcert.core.trace import Trace
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule, Transfer
from offcert.questions.split.menu import Menu

POLICIES = ("none", "all", "conv")


@dataclass(frozen=True)
class VdnnOutcome:
    """The outcome of vDNN on the tasks of a step."""

    policy: str  # One of `POLICIES`.
    choice: tuple[int, ...]  # The alternative of each operation on the menu.
    trace: Trace  # The trace with the workspaces and durations of the choice.
    schedule: Schedule  # With vDNN's waiting.


def vdnn_tasks(problem: Problem, menu: Menu | None = None, policy: str = "all") -> VdnnOutcome:
    """Return the outcome of a policy of vDNN on a task graph, whose operations are FP, BP1 or BP2.

    The policies are ``"none"``, by which nothing leaves, ``"all"`` and ``"conv"``. A `MethodError`
    says that the trace is no task graph or there is no such policy, a `NoPlanError` that what the
    policy keeps on the device does not fit.
    """
    if policy not in POLICIES:
        raise MethodError(f'the policy of vDNN must be "none", "all" or "conv", not {policy!r}')
    return _VdnnRun(problem.trace, menu or Menu(), policy).outcome(problem.platform)


def best_vdnn(problem: Problem, menu: Menu | None = None) -> VdnnOutcome:
    """Return the best of vDNN's policies, as its dynamic policy does.

    A `NoPlanError` says that none of them fits.
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


def vdnn_least(trace: Trace, menu: Menu | None = None, policy: str = "all") -> int:
    """Return the least memory within which a policy of vDNN runs, whatever the algorithms."""
    return _VdnnRun(trace, menu or Menu(), policy).least()


class _VdnnRun:
    def __init__(self, trace: Trace, menu: Menu, policy: str) -> None:
        self.menu = menu
        self.trace = trace
        menu.require_fits(self.trace)
        names = [operation.name for operation in self.trace.operations]
        if not any(name.startswith("FP ") for name in names):
            raise MethodError(
                "vDNN needs a task graph, whose operations are FP, BP1 and BP2 of layers"
            )
        self.layers = [_layer(name) for name in names]
        self.forward = [not name.startswith("BP") for name in names]
        weighted = {_layer(name) for name in names if name.startswith("BP2 ")}
        self.convolutions = {name for name in weighted if not name.endswith(".norm")}
        self.leaving = self._leaving(policy)
        self.returning = self._returning()
        self.there = self._there()

    def _leaving(self, policy: str) -> list[int]:
        """Return the gaps over which a tensor is away; it leaves with the task before the gap."""
        found = []
        for number, gap in enumerate(self.trace.gaps):
            if gap.before < 0 or policy == "none":
                continue
            wanted = policy == "all" or self.layers[gap.before] in self.convolutions
            reads = self.trace.tensors[gap.tensor].uses[0] < gap.before
            if wanted and reads and self.forward[gap.before] and not self.forward[gap.after]:
                found.append(number)
        return found

    def _returning(self) -> dict[int, int]:
        """Return the backward task with which each gap's tensor starts to come back."""
        due: dict[int, list[int]] = {}
        for gap in self.leaving:
            due.setdefault(self.trace.gaps[gap].after, []).append(gap)
        chosen: dict[int, int] = {}
        for task in range(len(self.trace)):
            if self.forward[task]:
                continue
            for later in range(task + 1, len(self.trace)):
                lacking = [gap for gap in due.get(later, ()) if gap not in chosen]
                if lacking:
                    chosen.update(dict.fromkeys(lacking, task))
                    break
                if self.layers[later] in self.convolutions:
                    break
        # What nobody sent for in time comes when it is needed, before its task.
        for later, gaps in due.items():
            for gap in gaps:
                chosen.setdefault(gap, later)
        return chosen

    def _there(self) -> list[int]:
        """Return the bytes that are there during each task, without its workspace."""
        change = [0] * (len(self.trace) + 1)
        for gap in self.leaving:
            first, back = self.trace.gaps[gap].before + 1, self.returning[gap]
            if first < back:
                change[first] -= self.trace.gap_size(gap)
                change[back] += self.trace.gap_size(gap)
        each = zip(self.trace.demand, self.trace.operations, accumulate(change[:-1]), strict=True)
        return [demand - operation.workspace + away for demand, operation, away in each]

    def least(self) -> int:
        needs = (
            there + min(way.workspace for way in self.menu.of.get(task, (operation,)))
            for task, (there, operation) in enumerate(
                zip(self.there, self.trace.operations, strict=True)
            )
        )
        return max(needs)

    def outcome(self, platform: Platform) -> VdnnOutcome:
        trace, choice = self._chosen(platform.memory)
        return VdnnOutcome(self._policy_name(), choice, trace, self._schedule(trace, platform))

    def _policy_name(self) -> str:
        if not self.leaving:
            return "none"
        names = {self.layers[self.trace.gaps[gap].before] for gap in self.leaving}
        return "conv" if names <= self.convolutions else "all"

    def _chosen(self, memory: int) -> tuple[Trace, tuple[int, ...]]:
        """Take the fastest alternative that fits beside what is there."""
        choice = []
        for task, operation in enumerate(self.trace.operations):
            room = memory - self.there[task]
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

    def _schedule(self, trace: Trace, platform: Platform) -> Schedule:
        """Let each task wait for the transfers of the one before."""
        starts, ends, transfers = [], [], []
        now = 0
        for task, duration in enumerate(trace.durations):
            link = now
            sent = [gap for gap, back in self.returning.items() if back == task]
            # What this very task needs comes first, and the task waits for it.
            for gap in sorted(sent, key=lambda gap: trace.gaps[gap].after):
                end = link + platform.transfer_time(trace.gap_size(gap), Kind.PREFETCH)
                transfers.append(Transfer(Kind.PREFETCH, gap, link, end))
                link = end
                if trace.gaps[gap].after == task:
                    now = link
            starts.append(now)
            now += duration
            ends.append(now)
            for gap in self.leaving:
                if trace.gaps[gap].before == task:
                    end = link + platform.transfer_time(trace.gap_size(gap), Kind.OFFLOAD)
                    transfers.append(Transfer(Kind.OFFLOAD, gap, link, end))
                    link = end
            now = max(now, link)
        return Schedule(starts, ends, transfers)


def _layer(name: str) -> str:
    return name.split(" ", 2)[1] if " " in name else name
