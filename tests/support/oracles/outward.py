"""One side of a cut with a known set out, followed outward in every way there is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from offcert.formulations.labels.outward.model import OutwardSide

Counts = tuple[int, ...]


@dataclass(frozen=True)
class _State:
    """How many of each class are back, and when the link is free and operations have ended.

    Over one link `out`, when the way out is free, is the same as `free`. An operation starts when
    it is `ready` or later: what is due before it has returned.
    """

    back: Counts
    free: int
    out: int
    ready: tuple[int, ...]
    ends: tuple[int, ...]


class SideOracle:
    """Tries all sequences of returns and departures, and all times at which returns may begin.

    A return begins when the link is free or when an operation ends. What has run, has not ended by
    then and lacks what returns is taken back, with all that comes after it.

    Parameters
    ----------
    side : OutwardSide
        The side.
    out : tuple of int
        What is out at the cut, by class.
    departures : int
        So many tensors leave besides, at most.
    """

    def __init__(self, side: OutwardSide, out: Counts, departures: int) -> None:
        self.side, self.out, self.departures = side, out, departures
        self.best = 0

    def least_end(self, limit: int) -> int | None:
        """Return when the side ends at the earliest; None if that is after a limit."""
        self.best = limit + 1
        seen: set[tuple[_State, int]] = set()
        ready = (0,) * len(self.side.need)
        waiting = [(self._run(_State((0,) * len(self.out), 0, 0, ready, ()), 0), 0)]
        while waiting:
            state, left = waiting.pop()
            if (state, left) in seen or state.free >= self.best:
                continue
            seen.add((state, left))
            if state.back == self.out and len(state.ends) == len(self.side.need):
                self.best = min(self.best, max(state.free, *state.ends, 0))
            waiting += [(after, left) for after in self._returns(state)]
            if left < self.departures:
                waiting += [(after, left + 1) for after in self._leaves(state, left)]
        return self.best if self.best <= limit else None

    def _returns(self, state: _State) -> list[_State]:
        found = []
        for c, (back, out) in enumerate(zip(state.back, self.out, strict=True)):
            if back == out:
                continue
            after = _changed(state.back, c, 1)
            free = max(state.free, state.out)
            for begin in {free, *(end for end in state.ends if end > free)}:
                kept = [
                    k
                    for k, end in enumerate(state.ends)
                    if end > begin and not self._fits(after, k)
                ]
                ends = state.ends[: min(kept, default=len(state.ends))]
                end = begin + int(self.side.back[c])
                out = end if self.side.shared else state.out
                # An operation before which fewer must be out waits for this one.
                most = self.out[c] - back
                ready = tuple(
                    max(time, end) if most > limit else time
                    for time, limit in zip(state.ready, self.side.out[c], strict=True)
                )
                found.append(self._run(_State(after, end, out, ready, ends), end))
        return found

    def _leaves(self, state: _State, left: int) -> list[_State]:
        """Follow departures; the first may be under way at the cut of a duplex link."""
        found = []
        for c, out in enumerate(self.out):
            now = out - state.back[c] + 1
            if now > self.side.here[c]:
                continue
            kept = 0
            while kept < len(state.ends) and now <= self.side.out[c, kept]:
                kept += 1
            after = _changed(state.back, c, -1)
            at_once = left == 0 and not self.side.shared
            end = state.out + (0 if at_once else int(self.side.away[c]))
            free = end if self.side.shared else state.free
            left_at = _State(after, free, end, state.ready, state.ends[:kept])
            found.append(self._run(left_at, end))
        return found

    def _run(self, state: _State, moved: int) -> _State:
        """Run what can be run once a transfer has ended, which it has at `moved`."""
        ends = list(state.ends)
        while len(ends) < len(self.side.need):
            k = len(ends)
            late = any(
                out - back > self.side.out[c, k]
                for c, (out, back) in enumerate(zip(self.out, state.back, strict=True))
            )
            if late or not self._fits(state.back, k):
                break
            duration = int(self.side.prefix[k + 1] - self.side.prefix[k])
            ends.append(max(moved, *ends[-1:], state.ready[k]) + duration)
        return replace(state, ends=tuple(ends))

    def _fits(self, back: Counts, k: int) -> bool:
        absent = sum(
            int(size) * min(out - now, int(self.side.absent[c, k]))
            for c, (size, out, now) in enumerate(zip(self.side.size, self.out, back, strict=True))
        )
        return bool(self.side.need[k] <= max(0, absent))


def _changed(back: Counts, c: int, change: int) -> Counts:
    return (*back[:c], back[c] + change, *back[c + 1 :])
