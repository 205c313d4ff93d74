"""The search behind `verifier`: it looks for any execution that is shorter than a limit.

It goes from start to start. Runs and transfers start one after the other; each as soon as those
before it have started and what it needs is there: what it reads, the device or the link, and room.
Whatever memory is given up for that room is chosen when it is taken. So a beginning of a schedule
is known by what is where, when something started last, and when that which is under way ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import product
from typing import NamedTuple

from offcert.questions.schedule.problem import Recompute
from offcert.verification.joint.contents import Contents, Held
from offcert.verification.joint.moves import Moves
from offcert.verification.limits import Allowance, BeyondLimitsError

# Situations that are held if the caller says nothing, situations between two looks at the clock
# (arbitrary), and the mark of no value (by definition).
MOST_LABELS = 2_000_000
_SELDOM = 500
_NONE = -1


class Situation(NamedTuple):
    """The values on the device and on the host when something has just started."""

    clock: int  # When that was, in ticks
    begun: int  # How many computations have begun their first runs
    # Contents on the device, also if they are being made, and on the host.
    here: Held
    there: Held = 0
    due: Held = 0  # Contents that have come back to be read, and were not read yet
    # Contents that the last run reads or makes, and those that it makes.
    busy: Held = 0
    made: Held = 0
    workspace: int = 0  # Bytes of it
    free: int = 0  # When it ends
    # The content on its way out, and the tick at which it has left.
    going: int = _NONE
    gone: int = 0
    # The content on its way back, and the tick at which it is there.
    coming: int = _NONE
    back: int = 0

    @property
    def alike(self) -> tuple[int, ...]:
        """The part that two situations must have in common for one to replace the other."""
        return self.begun, self.busy, self.made, self.workspace, self.going, self.coming

    def replaces(self, other: Situation) -> bool:
        """Return whether all that can follow an alike situation can follow this one, no later.

        It is later in nothing. All that is there in the other is there, and may be given up if it
        may there.
        """
        return (
            self.clock <= other.clock
            and self.free <= other.free
            and not other.here & ~self.here
            and not other.there & ~self.there
            and self.gone <= other.gone
            and self.back <= other.back
            and not self.due & ~other.due
        )


class JointLabels:
    """The search for executions within a memory limit that end before a time limit.

    Without a `limit` in ticks, executions of any length are searched for.
    """

    def __init__(self, contents: Contents, memory: int, limit: int | None) -> None:
        self.contents, self.memory, self.limit = contents, memory, limit
        self.known: dict[tuple[int, ...], list[Situation]] = {}
        self.waiting: list[tuple[int, int, Situation]] = []
        self.replaced: set[Situation] = set()
        self.number = 0
        problem, self.moves = contents.problem, None
        if problem.recompute is Recompute.NONE and contents.timed:
            self.moves = Moves(problem.trace, problem.platform, memory)

    def shorter(self, allowance: Allowance) -> int | None:
        """Return the ticks of an execution that ends before the limit, or None if there is none.

        Raises `BeyondLimitsError` if neither is known when time or memory run out.
        """
        most = allowance.labels(MOST_LABELS)
        if self.contents.size_of(self.contents.start) <= self.memory:
            self._hold(Situation(0, 0, self.contents.start))
        while self.waiting:
            _, _, situation = heappop(self.waiting)
            if situation in self.replaced:
                continue
            if situation.begun == len(self.contents.work):
                return max(situation.clock, situation.free)
            for following in self._following(situation):
                self._hold(following)
            if self.number % _SELDOM == 0:
                allowance.require_time()
            if self.number > most:
                raise BeyondLimitsError(f"more than {most} labels would have to be held")
        return None

    def _hold(self, found: Situation) -> None:
        """Remember a situation, unless it is too late or one that is known replaces it."""
        contents = self.contents
        wanted = contents.wanted(found.begun)
        going = _bit(found.going)
        found = found._replace(
            here=found.here & (wanted | found.busy | found.due | going),
            there=found.there & contents.wanted_there(found.begun),
        )
        left = contents.least_left(found.begun, self._somewhere(found))
        if left is None:
            return
        earliest = max(found.clock, found.free) + left
        if self.moves is not None:
            earliest = max(earliest, self._with_moves(found, self.moves))
        if self.limit is not None and earliest >= self.limit:
            return
        others = self.known.setdefault(found.alike, [])
        if any(other.replaces(found) for other in others):
            return
        kept = [found]
        for other in others:
            if found.replaces(other):
                self.replaced.add(other)
            else:
                kept.append(other)
        self.known[found.alike] = kept
        self.number += 1
        heappush(self.waiting, (earliest, -self.number, found))

    def _with_moves(self, found: Situation, moves: Moves) -> int:
        """Return when all is over at the earliest, given the transfers that have to come."""
        here, there = found.here | _bit(found.coming), found.there | _bit(found.going)
        out, back, turns = moves.still(found.begun, here, there)
        gone, returned = max(found.clock, found.gone), max(found.clock, found.back)
        device = max(found.clock, found.free) + moves.to_end[found.begun]
        if self.contents.one_way:
            return max(device, max(gone, returned) + turns)
        return max(device, gone + out, returned + back)

    def _late(self, ended: int, begun: int) -> bool:
        """Return whether first runs alone take too long after what ends at a time."""
        return self.limit is not None and ended + self.contents.first_runs(begun) >= self.limit

    def _somewhere(self, found: Situation) -> Held:
        """Return the contents that are on the device, on the host, or on the way between them."""
        going = 0
        if found.going != _NONE:
            going = _bit(self.contents.each[found.going].spare)
        return found.here | found.there | going | _bit(found.coming)

    def _following(self, now: Situation) -> Iterator[Situation]:
        yield from self._runs(now)
        yield from self._departures(now)
        yield from self._returns(now)

    def _at(self, now: Situation, clock: int) -> Situation:
        """Return a situation at a later time: what ends by then has ended."""
        here, there, due = now.here, now.there, now.due
        busy, made, workspace, free = now.busy, now.made, now.workspace, now.free
        going, gone, coming, back = now.going, now.gone, now.coming, now.back
        if free <= clock:
            busy = made = workspace = free = 0
        if going != _NONE and gone <= clock:
            there |= _bit(self.contents.each[going].spare)
            going, gone = _NONE, 0
        if coming != _NONE and back <= clock:
            here |= _bit(coming)
            due |= _bit(coming)
            coming, back = _NONE, 0
        return Situation(
            clock,
            now.begun,
            here,
            there,
            due,
            busy,
            made,
            workspace,
            free,
            going,
            gone,
            coming,
            back,
        )

    def _departures(self, now: Situation) -> Iterator[Situation]:
        contents = self.contents
        link = max(now.clock, now.gone, now.back if contents.one_way else 0)
        here = now.here & ~now.due & contents.wanted(now.begun)
        for place, item in enumerate(contents.each):
            if not item.movable or not here >> place & 1:
                continue
            start = max(link, now.free) if now.made >> place & 1 else link
            then = self._at(now, start)
            if not then.there >> item.spare & 1:
                yield then._replace(going=place, gone=start + item.out)

    def _returns(self, now: Situation) -> Iterator[Situation]:
        contents = self.contents
        link = max(now.clock, now.back, now.gone if contents.one_way else 0)
        arriving = 0 if now.going == _NONE else _bit(contents.each[now.going].spare)
        for place, item in enumerate(contents.each):
            if not ((now.there | arriving) & ~now.here) >> place & 1:
                continue
            start = link if now.there >> place & 1 else max(link, now.gone)
            for then in self._with_room(now, start, item.size, contents.lasting[now.begun]):
                if not then.here >> place & 1:
                    yield then._replace(coming=place, back=then.clock + item.back)

    def _with_room(
        self, now: Situation, start: int, size: int, untouched: Held
    ) -> Iterator[Situation]:
        """Yield situations from a time on in which there is room for so many bytes.

        What is in use is no room before it is out of use: later, more may be given up. Of what may
        be, as much stays as fits.
        """
        contents = self.contents
        for clock in sorted({start, *(end for end in (now.free, now.gone) if end > start)}):
            then = self._at(now, clock)
            fixed = then.here & (then.busy | then.due | _bit(then.going) | untouched)
            taken = contents.size_of(fixed) + then.workspace
            if then.coming != _NONE:
                taken += contents.each[then.coming].size
            loose = then.here & ~fixed
            for stays in self._most(loose, self.memory - taken - size):
                yield then._replace(here=fixed | stays)
                if stays == loose:
                    # Nothing has to go: waiting is for nothing.
                    return

    def _most(self, loose: Held, room: int) -> list[Held]:
        """Return the largest parts of what may be given up that fit, each in nothing larger."""
        if room < 0:
            return []
        each = self.contents.each
        if self.contents.size_of(loose) <= room:
            return [loose]
        # Each with the room that it leaves, and the least size of what it leaves out.
        parts = [(0, room, room + 1)]
        for place, item in enumerate(each):
            if loose >> place & 1:
                parts = [
                    choice
                    for part, left, least in parts
                    for choice in (
                        (part | 1 << place, left - item.size, least),
                        (part, left, min(least, item.size)),
                    )
                    if choice[1] >= 0
                ]
        return [part for part, left, least in parts if least > left]

    def _runs(self, now: Situation) -> Iterator[Situation]:
        contents = self.contents
        for number, work in enumerate(contents.work[: now.begun + 1]):
            if number < now.begun and not work.again:
                continue
            begun = now.begun + (number == now.begun)
            for then, read in self._ready(now, number):
                for held, kept, workspace in self._ways(then, number):
                    yield from self._begun(held, begun, number, read, kept, workspace)

    def _ready(self, now: Situation, number: int) -> Iterator[tuple[Situation, Held]]:
        """Yield when a computation may run at the earliest, and which copies it reads."""
        work = self.contents.work[number]
        soonest = self._at(now, max(now.clock, now.free))
        for then in (soonest, self._at(now, max(soonest.clock, now.back))):
            if not all(self._changeable(then, before) for before, _ in work.changes):
                continue
            for read in product(*work.reads):
                # Waiting for what comes back is for what reads it.
                waited = then is not soonest and now.coming not in read
                if not waited and all(then.here >> place & 1 for place in read):
                    yield then, sum(_bit(place) for place in read)
            if soonest.coming == _NONE:
                return

    def _changeable(self, then: Situation, content: int) -> bool:
        return any(then.here >> place & 1 for place in self.contents.to_change(content))

    def _ways(self, then: Situation, number: int) -> Iterator[tuple[Situation, Held, int]]:
        """Yield situations after a run's changes in place, with what it keeps and its workspace.

        If it makes another copy of contents that are still to be changed, one of both is spare.
        """
        each, work = self.contents.each, self.contents.work[number]
        here, there, going = then.here, then.there, then.going
        for before, after in work.changes:
            # A spare copy of an empty value stands for any number of them.
            if each[before].size or not here & _bit(each[before].spare) & ~_bit(before):
                here &= ~_bit(before)
            if here >> after & 1:
                # A copy that is beside one that is changed is not changed any more.
                here |= _bit(each[after].spare)
                going = each[after].spare if going == after else going
            here |= _bit(after)
            going = after if going == before else going
            if there >> each[before].spare & 1:
                there |= _bit(each[after].spare)
        changed = then._replace(here=here, there=there, going=going)
        for kept, workspace in work.ways:
            yield self._twins(changed, kept, going), kept, workspace
            if going != _NONE and (kept & here) >> going & 1 and each[going].spare != going:
                # Or what is under way is changed, and what is made is spare.
                spare = _bit(each[going].spare)
                others = self._twins(changed, kept & ~_bit(going), going)
                yield others, kept & ~_bit(going) | spare, workspace

    def _twins(self, then: Situation, kept: Held, going: int) -> Situation:
        """Return the situation in which contents that are about to be made again are spare."""
        here = then.here
        for place, item in enumerate(self.contents.each):
            if item.spare != place and (kept & then.here) >> place & 1:
                here = here & ~_bit(place) | _bit(item.spare)
                going = item.spare if going == place else going
        return then._replace(here=here, going=going)

    def _begun(
        self, then: Situation, begun: int, number: int, read: Held, kept: Held, workspace: int
    ) -> Iterator[Situation]:
        """Yield the situations in which a run has just begun."""
        contents, work = self.contents, self.contents.work[number]
        if self._late(then.clock + work.ticks, begun):
            return
        used = read | sum(_bit(after) for _, after in work.changes)
        due = then.due & ~used
        # What is made again is there twice if the copy before is due, or leaving.
        twice = kept & (due | _bit(then.going))
        before = then._replace(here=then.here & (~kept | twice), due=due)
        size = workspace + contents.size_of(kept)
        for start in self._with_room(before, then.clock, size, used):
            free = start.clock + work.ticks
            run = start._replace(begun=begun, here=start.here | kept)
            if work.ticks:
                run = run._replace(busy=used | kept, made=kept, workspace=workspace, free=free)
            yield run


def _bit(place: int) -> Held:
    return 1 << place if place != _NONE else 0
