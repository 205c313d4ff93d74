"""Queues of work, events between them, and the time at which each item would end."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from offcert.core.platform import Kind, Platform
from offcert.questions.schedule.slowing import slowed_ends
from offcert.runtime.device.interface import DeviceEvent
from offcert.runtime.simulated.host import HostClock, apart

# Asked whenever a copy that has been handed over may run, and whenever the host asks for an event
# that has happened: whether it does, or is told.
Adversary = Callable[[], bool]


def late() -> bool:
    """Run copies as late as events allow, and tell the host nothing before it waits."""
    return False


def early() -> bool:
    """Run copies as soon as they are handed over, and tell the host of them when it asks."""
    return True


def by_chance(seed: int) -> Adversary:
    """Return an adversary that decides by coins of its own."""
    coins = random.Random(seed)

    def decide() -> bool:
        return coins.random() < 0.5

    return decide


# For each stream, how many of its items are known to have ended.
Knowledge: TypeAlias = list[int]


def learn(knows: Knowledge, other: Knowledge) -> None:
    """Let the first know what the other knows, stream by stream."""
    for stream, count in enumerate(other):
        if count > knows[stream]:
            knows[stream] = count


class Host:
    """The thread that hands work over."""

    def __init__(
        self,
        streams: int,
        adversary: Adversary,
        clock: HostClock | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        self.knows: Knowledge = [0] * streams  # The work that it has waited for
        self.waits = 0  # How often it has
        self.waited_until = 0  # When it last went on after that
        self.adversary = adversary  # Whether copies run that may
        # How long it works; by default it takes no time.
        self.clock = HostClock() if clock is None else clock
        # Of what it hands over; by default one for works whose durations are given.
        self.timeline = Timeline(Platform(0, Fraction(1))) if timeline is None else timeline
        self._waited = 0

    @property
    def time(self) -> int:
        """When it is, in nanoseconds of the device: it has worked, or waited."""
        return self.clock.now() + self._waited

    def learns(self, event: SimulatedEvent) -> None:
        """Take note that it has waited for an event."""
        self.waits += 1
        self._waited += max(0, event.time - self.time)
        self.waited_until = self.time
        learn(self.knows, event.knows)


class SimulatedEvent:
    """A point in the work of a stream."""

    __slots__ = ("knows", "moment", "place", "stream")

    def __init__(self, stream: SimulatedStream) -> None:
        self.stream = stream  # The stream whose event it is
        self.place = stream.given  # How many items of the stream's queue come before it
        self.moment = stream.latest  # When all of them have ended
        # For each stream, the number of works that have ended by then.
        self.knows = stream.knows.copy()

    @property
    def host_clock(self) -> HostClock:
        """The host's clock."""
        return self.stream.host.clock

    @property
    def time(self) -> int:
        """When all before it has ended, as far as is known by now: nanoseconds of the device."""
        host = self.stream.host
        host.timeline.settle(host.time)
        return self.moment.end

    @property
    def happened(self) -> bool:
        """Whether the work before the event has been carried out."""
        return self.stream.done >= self.place

    @property
    @apart(1)
    def reached(self) -> bool:
        """Whether all that came before it is known to have ended."""
        host = self.stream.host
        if all(known >= count for known, count in zip(host.knows, self.knows, strict=True)):
            return True
        if not self.happened or not host.adversary():
            return False
        # The host can know only by having taken as long.
        host.learns(self)
        return True

    @apart(1)
    def wait_here(self) -> None:
        """Carry out what comes before it; the host has waited for that."""
        carry_out(self.stream, self.place)
        self.stream.host.learns(self)


class SimulatedStream:
    """Work that is done in the order in which it was given."""

    def __init__(self, index: int, host: Host) -> None:
        self.index = index  # The index of the stream, among those that know of each other
        self.host = host  # Who hands the work over
        self.latest = TimedWork()  # When all that it has been given ends
        # What is known to have ended before that. Its own entry counts all that it has been given.
        self.knows: Knowledge = [0] * len(host.knows)
        # Items of its queue: handed over, and carried out.
        self.given = 0
        self.done = 0
        self._heeded = 0
        self._heeded_at = 0
        self._queue: deque[SimulatedEvent | Callable[[], None]] = deque()

    @property
    def host_clock(self) -> HostClock:
        """The host's clock."""
        return self.host.clock

    @apart(1)
    def record(self) -> SimulatedEvent:
        """Return an event after all that the stream has been given so far."""
        self.heed_host()
        return SimulatedEvent(self)

    @apart(1)
    def wait(self, event: DeviceEvent) -> None:
        """Let work that is given from now on begin only after an event."""
        assert isinstance(event, SimulatedEvent)
        self._follow(event)
        self._queue.append(event)
        self.given += 1

    def work(self, duration: int) -> int:
        """Take note of work that is given to it, and return its number."""
        self.heed_host()
        if duration:
            self.latest = self.host.timeline.add((self.latest,), lasts=duration)
        return self._numbered()

    def copy(self, kind: Kind, size: int, after: TimedWork | None = None) -> None:
        """Take note of a copy that is given to it, which may have to come after another one."""
        self.heed_host()
        befores = (self.latest,) if after is None else (self.latest, after)
        self.latest = self.host.timeline.copy(befores, kind, size)
        self._numbered()

    def _numbered(self) -> int:
        self.knows[self.index] += 1
        return self.knows[self.index]

    def enqueue(self, job: Callable[[], None]) -> None:
        """Let the work that was noted last be carried out when its turn comes."""
        self._queue.append(job)
        self.given += 1
        if self.host.adversary():
            carry_out(self, self.given)

    def heed_host(self) -> None:
        """Let all work that is queued from now on begin after the host hands it over."""
        host, now = self.host, self.host.time
        if now > self._heeded_at:
            self._heeded_at = now
            self.latest = host.timeline.add((self.latest,), earliest=now)
        if self._heeded != host.waits:
            self._heeded = host.waits
            learn(self.knows, host.knows)

    def _follow(self, event: SimulatedEvent) -> None:
        self.heed_host()
        self.latest = self.host.timeline.add((self.latest, event.moment))
        learn(self.knows, event.knows)

    def advance(self, place: int) -> SimulatedEvent | None:
        """Carry out items up to a place, or up to an event that has to happen first."""
        while self.done < place:
            item = self._queue[0]
            if isinstance(item, SimulatedEvent):
                if not item.happened:
                    return item
                self._queue.popleft()
                self.done += 1
            else:
                self._queue.popleft()
                self.done += 1
                item()
        return None


class ComputeStream(SimulatedStream):
    """The stream of operators, which run when they are called: it has nothing left to do."""

    def __init__(self, index: int, host: Host) -> None:
        super().__init__(index, host)
        self.operated = 0  # The number of its item that stands for the latest operators
        self._told = 0

    @apart(1)
    def wait(self, event: DeviceEvent) -> None:
        """Carry out what comes before an event."""
        assert isinstance(event, SimulatedEvent)
        self._follow(event)
        carry_out(event.stream, event.place)

    @apart()
    def ran(self, *durations: int) -> None:
        """Take note that operations have run, one after the other.

        Nobody has told when the host handed each of them over: since it was last told, evenly. None
        begins before the host begins to hand it over, or ends before it has.
        """
        now = self.host.time
        since = max(self._told, self.host.waited_until)
        for number, duration in enumerate(durations):
            begin, end = (
                since + (now - since) * part // len(durations) for part in (number, number + 1)
            )
            self.latest = self.host.timeline.add(
                (self.latest,), earliest=begin, lasts=duration, until=end
            )
            self.operated = self._numbered()
        self._told = now
        self.heed_host()


def carry_out(stream: SimulatedStream, place: int) -> None:
    """Carry out a stream's work up to a place, and first the work that it waits for."""
    goals = [(stream, place)]
    while goals:
        event = goals[-1][0].advance(goals[-1][1])
        if event is None:
            goals.pop()
        else:
            # An event is recorded before a wait for it is handed over, so this comes to an end.
            goals.append((event.stream, event.place))


@dataclass(slots=True, eq=False)
class TimedWork:
    """The end of a piece of work, which begins after others."""

    befores: Sequence[TimedWork] = ()
    earliest: int = 0
    lasts: int = 0
    until: int = 0
    kind: Kind | None = None
    size: int = 0
    # Nanoseconds of the device; of copies that slow each other down as far as is known
    # (`Timeline.settle`).
    begin: int = 0
    end: int = 0

    def __post_init__(self) -> None:
        self.follow()

    def follow(self) -> None:
        """Begin at the latest of what comes before; nothing ends before it is handed over."""
        self.begin = max((each.end for each in self.befores), default=0)
        self.begin = max(self.begin, self.earliest)
        self.end = max(self.begin + self.lasts, self.until)


class Timeline:
    """The times of all work, in the order in which it is handed over.

    Where the directions of the platform's link slow each other down, a copy may end later because
    of one that is handed over after it; so nothing is certain before it is asked for.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._open: list[TimedWork] = []
        # Copies that have ended, but while others were under way whose end is open.
        self._past: list[TimedWork] = []
        self._settled = True

    def add(
        self, befores: Sequence[TimedWork], *, earliest: int = 0, lasts: int = 0, until: int = 0
    ) -> TimedWork:
        """Return when work ends that begins after some moments, but not before a time."""
        return self._taken(TimedWork(befores, earliest, lasts, until))

    def copy(self, befores: Sequence[TimedWork], kind: Kind, size: int) -> TimedWork:
        """Return when a copy ends that begins after some moments."""
        lasts = self._platform.transfer_time(size, kind)
        return self._taken(TimedWork(befores, 0, lasts, 0, kind, size))

    def _taken(self, made: TimedWork) -> TimedWork:
        if self._platform.slows:
            self._open.append(made)
            self._settled = False
        else:
            # Its times are final.
            made.befores = ()
        return made

    def settle(self, now: int) -> None:
        """Compute how long copies last that slow each other down, as far as that is known.

        Nothing that is handed over from here on begins before `now`.
        """
        if self._settled:
            return
        copies = [each for each in self._open if each.kind is not None]
        while True:
            # Up to the first wrong time of a round the next one is right, so there is an end.
            ends = self._slowed(copies)
            if all(each.end == end for each, end in zip(copies, ends, strict=True)):
                break
            for each, end in zip(copies, ends, strict=True):
                each.lasts = end - each.begin
            for each in self._open:
                each.follow()
        self._settled = True
        self._close(copies, now)

    def _slowed(self, copies: Sequence[TimedWork]) -> list[int]:
        jobs = []
        for each in (*self._past, *copies):
            assert each.kind is not None
            jobs.append((each.kind, each.begin, each.size))
        return slowed_ends(self._platform, jobs)[len(self._past) :]

    def _close(self, copies: Sequence[TimedWork], now: int) -> None:
        """Keep no more than what may still change, and what has slowed it down."""
        self._open = [each for each in self._open if each.end > now]
        first = min((each.begin for each in copies if each.end > now), default=now)
        ended = [*self._past, *(each for each in copies if each.end <= now)]
        self._past = []
        # How long each has lasted depends on those that were under way with it, and so on.
        for each in sorted(ended, key=lambda one: one.end, reverse=True):
            each.befores = ()
            if each.end > first:
                first = min(first, each.begin)
                self._past.append(each)
