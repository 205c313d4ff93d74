"""The search: labels at moments, best first, until everything has run.

A label says what is on the device and on the host, what runs and what is under way, and when these
end. Everything starts when something else ends, so the search goes from end to end. At each it
decides, in this order: what runs (several that take no time may), what leaves, what comes back.
What is given up to make room is decided when room is taken; more that fits is never worse.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import product

from offcert.core.platform import Kind
from offcert.formulations.labels.joint.link import LinkBound
from offcert.formulations.labels.joint.model import IDLE, NOTHING, JointModel, Label, OpenRun, bits

# At a moment: what may run is open; what may leave; what may come back; nothing more begins.
RUNNING, LEAVING, COMING, WAITING = range(4)
# Labels between two looks at the clock. Arbitrary.
_SELDOM = 256


@dataclass(frozen=True)
class Outcome:
    """The outcome of a search."""

    bound: int | None  # Ticks that every execution takes at least; None if there is no execution.
    path: tuple[Label, ...]  # A shortest execution, label by label; empty if none was found.
    finished: bool  # Whether nothing is left open below the limit.
    labels: int  # How many were looked at.


def search(
    model: JointModel,
    memory: int,
    limit: int | None = None,
    *,
    seconds: float = float("inf"),
    most: int = 2**62,
) -> Outcome:
    """Return a shortest execution, or the bound so far when time or labels run out.

    Parameters
    ----------
    model : JointModel
        The problem.
    memory : int
        Bytes.
    limit : int, optional
        Ticks: only shorter executions are of interest.
    seconds, most : float, int
        Seconds and labels that may be spent.
    """
    return _Search(model, memory, limit).run(seconds, most)


class _Search:
    def __init__(self, model: JointModel, memory: int, limit: int | None) -> None:
        self.model, self.memory, self.limit = model, memory, limit
        self.labels: list[Label] = []
        self.parents: list[int] = []
        self.forgotten: list[bool] = []
        self.heap: list[tuple[int, int, int]] = []
        self.alike: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        self.known: dict[tuple[int, int], int | None] = {}
        self.link = None
        if model.once is not None and model.platform is not None:
            self.link = LinkBound(model, model.once, model.platform, memory)
        if model.total(model.start) <= memory:
            self._keep(
                Label(0, RUNNING, 0, model.start, 0, 0, IDLE, 0, NOTHING, 0, NOTHING, 0), NOTHING
            )

    def run(self, seconds: float, most: int) -> Outcome:
        end, looked = time.monotonic() + seconds, 0
        while self.heap:
            at_least, _, index = heappop(self.heap)
            if self.forgotten[index]:
                continue
            looked += 1
            label = self.labels[index]
            if label.frontier == len(self.model.durations) and label.running is IDLE:
                return Outcome(label.time, self._path(index), True, looked)
            late = looked % _SELDOM == 0 and time.monotonic() > end
            if late or len(self.labels) > most:
                return Outcome(at_least, (), False, looked)
            for following in self._following(label):
                self._keep(following, index)
        return Outcome(self.limit, (), True, looked)

    def _path(self, index: int) -> tuple[Label, ...]:
        path = []
        while index != NOTHING:
            path.append(self.labels[index])
            index = self.parents[index]
        return tuple(reversed(path))

    def _keep(self, label: Label, parent: int) -> None:
        """Remember a label unless it is late, hopeless, or another is no worse in anything."""
        under_way = 1 << label.leaving if label.leaving != NOTHING else 0
        useful = self.model.useful[label.frontier]
        held = useful | label.running.busy | label.pinned | under_way
        label = label._replace(
            device=label.device & held, host=label.host & self.model.hosted[label.frontier]
        )
        needed = self._needed(label)
        if needed is None:
            return
        at_least = max(label.time, label.run_end) + needed
        if self.link is not None:
            at_least = max(at_least, self.link.end(label))
        if self.limit is not None and at_least >= self.limit:
            return
        key = (
            label.frontier,
            *label.running,
            label.leaving,
            label.coming,
        )
        if self._is_covered(key, label):
            return
        self.labels.append(label)
        self.parents.append(parent)
        self.forgotten.append(False)
        heappush(self.heap, (at_least, -label.frontier, len(self.labels) - 1))

    def _is_covered(self, key: tuple[int, ...], label: Label) -> bool:
        """Return whether whatever follows a label can follow another, no later; or note it.

        One covers another if it is later in nothing, and has as much on the device and the host,
        of which no more has to stay. What is there besides can be given up.
        """
        moment = label.time, label.stage, label.run_end, label.left_at, label.back_at
        time_, stage, run_end, left_at, back_at = moment
        device, host, pinned = label.device, label.host, label.pinned
        alike = self.alike.setdefault(key, [])
        covered = []
        for place, (t, s, r, out, back, d, h, p, index) in enumerate(alike):
            early = t <= time_ and s <= stage and r <= run_end and out <= left_at
            if early and back <= back_at and not (device & ~d or host & ~h or p & ~pinned):
                return True
            late = time_ <= t and stage <= s and run_end <= r and left_at <= out
            if late and back_at <= back and not (d & ~device or h & ~host or pinned & ~p):
                self.forgotten[index] = True
                covered.append(place)
        for place in reversed(covered):
            alike[place] = alike[-1]
            alike.pop()
        alike.append((*moment, device, host, pinned, len(self.labels)))
        return False

    def _needed(self, label: Label) -> int | None:
        available = label.device | label.host
        if label.leaving != NOTHING:
            available |= 1 << self.model.settled[label.leaving]
        if label.coming != NOTHING:
            available |= 1 << label.coming
        key = label.frontier, available
        if key not in self.known:
            self.known[key] = self.model.at_least(*key)
        return self.known[key]

    def _following(self, label: Label) -> Iterator[Label]:
        if label.stage == RUNNING:
            yield from self._runs(label)
        if label.stage <= LEAVING:
            yield from self._departures(label)
        if label.stage <= COMING:
            yield from self._returns(label)
        yield from self._later(label)

    def _later(self, label: Label) -> Iterator[Label]:
        """Yield the label at the moment when the next run or transfer under way ends."""
        ends = [
            end
            for begun, end in (
                (label.running.computation, label.run_end),
                (label.leaving, label.left_at),
                (label.coming, label.back_at),
            )
            if begun != NOTHING
        ]
        if not ends:
            return
        now = min(ends)
        label = label._replace(time=now, stage=RUNNING)
        if label.running is not IDLE and label.run_end == now:
            label = label._replace(running=IDLE, run_end=0)
        if label.leaving != NOTHING and label.left_at == now:
            left = 1 << self.model.settled[label.leaving]
            label = label._replace(host=label.host | left, leaving=NOTHING, left_at=0)
        if label.coming != NOTHING and label.back_at == now:
            back = 1 << label.coming
            label = label._replace(
                device=label.device | back,
                pinned=label.pinned | back,
                coming=NOTHING,
                back_at=0,
            )
        yield label

    def _departures(self, label: Label) -> Iterator[Label]:
        if label.leaving != NOTHING or (self.model.simplex and label.coming != NOTHING):
            return
        there = label.device & ~label.pinned & ~label.running.fresh
        for content in bits(there & self.model.leaves & self.model.useful[label.frontier]):
            if not label.host >> self.model.settled[content] & 1:
                ticks = self.model.ticks[Kind.OFFLOAD][content]
                yield label._replace(stage=COMING, leaving=content, left_at=label.time + ticks)

    def _returns(self, label: Label) -> Iterator[Label]:
        if label.coming != NOTHING or (self.model.simplex and label.leaving != NOTHING):
            return
        model = self.model
        stays = label.running.busy | label.pinned | model.stays[label.frontier]
        fixed = label.device & stays
        if label.leaving != NOTHING:
            fixed |= 1 << label.leaving
        room = self.memory - label.running.workspace - model.total(fixed)
        for content in bits(label.host & ~label.device):
            back_at = label.time + model.ticks[Kind.PREFETCH][content]
            for kept in model.largest(label.device & ~fixed, room - model.sizes[content]):
                yield label._replace(
                    stage=WAITING, device=fixed | kept, coming=content, back_at=back_at
                )

    def _runs(self, label: Label) -> Iterator[Label]:
        """Yield the labels after a run has begun; a run that takes no time has ended then."""
        if label.running is not IDLE:
            return
        model = self.model
        for computation in range(min(label.frontier + 1, len(model.durations))):
            if computation < label.frontier and not model.repeatable[computation]:
                continue
            ticks = model.durations[computation]
            for begun, running in self._starts(label, computation):
                frontier = label.frontier + (computation == label.frontier)
                if ticks:
                    yield begun._replace(
                        frontier=frontier,
                        stage=LEAVING,
                        running=running,
                        run_end=label.time + ticks,
                        latest=running,
                    )
                else:
                    yield begun._replace(frontier=frontier, latest=running)

    def _starts(self, label: Label, computation: int) -> Iterator[tuple[Label, OpenRun]]:
        """Yield every way to begin a run: what it reads and keeps, and what is given up."""
        model = self.model
        choices = [list(bits(mask & label.device)) for mask in model.reads[computation]]
        changes = model.changes[computation]
        if not all(label.device & model.changeable(before) for before, _ in changes):
            return
        changed = self._changed(label, computation)
        after = sum(1 << content for _, content in changes)
        for read in product(*choices):
            busy = after | sum(1 << content for content in read)
            unread = changed._replace(pinned=changed.pinned & ~busy)
            for mode in model.modes[computation]:
                for beside, kept in self._beside(unread, mode.kept):
                    running = OpenRun(computation, busy | kept, kept, mode.workspace)
                    yield from self._fitting(beside, running)

    def _changed(self, label: Label, computation: int) -> Label:
        """Return the label once a run has made its changes in place."""
        model = self.model
        device, host, leaving = label.device, label.host, label.leaving
        for before, after in model.changes[computation]:
            # Of an empty value the settled copy is changed, if there is one: it may stand for many.
            many = device & 1 << model.settled[before] & ~(1 << before)
            if model.sizes[before] or not many:
                device &= ~(1 << before)
            if device >> after & 1:
                # What was in that state before is not changed any more.
                device |= 1 << model.settled[after]
                leaving = model.settled[after] if leaving == after else leaving
            device |= 1 << after
            if leaving == before:
                leaving = after
            # What has left may be the copy that is changed, which then counts in its last state.
            if host >> model.settled[before] & 1:
                host |= 1 << model.settled[after]
        return label._replace(device=device, host=host, leaving=leaving)

    def _beside(self, label: Label, kept: int) -> Iterator[tuple[Label, int]]:
        """Yield a label and what a run keeps, where it makes a second copy of what is there.

        Of what is to be changed both may be of use: one to be changed, the other settled.
        """
        model = self.model
        device, leaving = label.device, label.leaving
        twins = [c for c in bits(kept & device) if model.settled[c] != c]
        for content in twins:
            device = device & ~(1 << content) | 1 << model.settled[content]
            if leaving == content:
                leaving = model.settled[content]
        yield label._replace(device=device, leaving=leaving), kept
        if label.leaving in twins:
            # The one that is leaving is changed later, the new one settled.
            settled = 1 << model.settled[label.leaving]
            device = device & ~settled | label.device & settled | 1 << label.leaving
            yield (
                label._replace(device=device),
                kept & ~(1 << label.leaving) | settled,
            )

    def _fitting(self, label: Label, running: OpenRun) -> Iterator[tuple[Label, OpenRun]]:
        """Yield labels with as many contents as fit beside a run that begins."""
        model, kept = self.model, running.fresh
        pinned = label.pinned
        if label.leaving != NOTHING:
            pinned |= 1 << label.leaving
        fixed = label.device & (pinned | running.busy & ~kept)
        room = self.memory - running.workspace - model.total(fixed | kept)
        # Of what is leaving, or has just come back, there are two copies if it is made again.
        room -= model.total(kept & pinned & label.device)
        if label.coming != NOTHING:
            room -= model.sizes[label.coming]
        for stays in model.largest(label.device & ~fixed & ~kept, room):
            yield label._replace(device=fixed | kept | stays), running
