"""When everything begins and ends that the streams of a simulated device were given."""

from __future__ import annotations

from collections.abc import Sequence

from offcert.core.platform import Kind, Platform
from offcert.questions.schedule.slowing import slowed_ends


class Moment:
    """The end of a piece of work, which begins after others."""

    __slots__ = ("_befores", "_earliest", "_until", "begin", "end", "kind", "lasts", "size")

    def __init__(
        self,
        befores: Sequence[Moment] = (),
        earliest: int = 0,
        lasts: int = 0,
        until: int = 0,
        kind: Kind | None = None,
        size: int = 0,
    ) -> None:
        self._befores = tuple(befores)
        self._earliest = earliest
        self._until = until
        self.lasts = lasts
        self.kind = kind
        self.size = size
        # Nanoseconds of the device; of copies that slow each other down as far as is known
        # (`Timeline.settle`).
        self.begin = self.end = 0
        self.follow()

    def follow(self) -> None:
        """Begin at the latest of what comes before; nothing ends before it is handed over."""
        self.begin = max((each.end for each in self._befores), default=0)
        self.begin = max(self.begin, self._earliest)
        self.end = max(self.begin + self.lasts, self._until)

    def stay(self) -> None:
        """Let its times be final: what comes before is forgotten."""
        self._befores = ()


class Timeline:
    """The times of all work, in the order in which it is handed over.

    Where the directions of the platform's link slow each other down, a copy may end later because
    of one that is handed over after it; so nothing is certain before it is asked for.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._open: list[Moment] = []
        # Copies that have ended, but while others were under way whose end is open.
        self._past: list[Moment] = []
        self._settled = True

    def add(
        self, befores: Sequence[Moment], *, earliest: int = 0, lasts: int = 0, until: int = 0
    ) -> Moment:
        """Return when work ends that begins after some moments, but not before a time."""
        return self._taken(Moment(befores, earliest, lasts, until))

    def copy(self, befores: Sequence[Moment], kind: Kind, size: int) -> Moment:
        """Return when a copy ends that begins after some moments."""
        lasts = self._platform.transfer_time(size, kind)
        return self._taken(Moment(befores, 0, lasts, 0, kind, size))

    def _taken(self, made: Moment) -> Moment:
        if self._platform.slows:
            self._open.append(made)
            self._settled = False
        else:
            made.stay()
        return made

    def settle(self, now: int) -> None:
        """Let copies last as long as the other direction lets them, as far as that is known.

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

    def _slowed(self, copies: Sequence[Moment]) -> list[int]:
        jobs = []
        for each in (*self._past, *copies):
            assert each.kind is not None
            jobs.append((each.kind, each.begin, each.size))
        return slowed_ends(self._platform, jobs)[len(self._past) :]

    def _close(self, copies: Sequence[Moment], now: int) -> None:
        """Keep no more than what may still change, and what has slowed it down."""
        self._open = [each for each in self._open if each.end > now]
        first = min((each.begin for each in copies if each.end > now), default=now)
        ended = [*self._past, *(each for each in copies if each.end <= now)]
        self._past = []
        # How long each has lasted depends on those that were under way with it, and so on.
        for each in sorted(ended, key=lambda one: one.end, reverse=True):
            each.stay()
            if each.end > first:
                first = min(first, each.begin)
                self._past.append(each)
