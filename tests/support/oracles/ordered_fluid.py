"""A plain simulation of ordered schedules with interruptible transfers, independent of Algorithm 1.

Like the atomic case: the front runs no-wait in time, the back in reversed time, and the least
makespan is ``max(t_f + t_b, max_o (f_o + g_o))``; but memory is released byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from offcert.core.chain import Chain


def run_side(
    durations: Sequence[int],
    needs: Sequence[Fraction],
    moves: Sequence[tuple[Fraction, int, int]],
    helps: Callable[[int, int], bool],
) -> tuple[list[Fraction], Fraction] | None:
    """Return the starts of the operations and when the link is free, or None if one is stuck.

    `moves` holds, in order, the time of each transfer, the operation that must have ended and the
    one that may not start before it; ``helps(o, m)`` says whether what move `m` releases helps
    operation `o`.
    """
    starts: list[Fraction] = []
    begun: list[Fraction] = []
    link = end = Fraction(0)
    for o, duration in enumerate(durations):
        while len(begun) < len(moves) and moves[len(begun)][1] < o:
            length, after, _ = moves[len(begun)]
            begun.append(max(link, starts[after] + durations[after] if after >= 0 else link))
            link = begun[-1] + length
        missing, start = needs[o], end
        for m, begin in enumerate(begun):
            if helps(o, m) and missing > 0:
                start = max(start, begin + min(missing, moves[m][0]))
                missing -= moves[m][0]
            if moves[m][2] == o:
                start = max(start, begin + moves[m][0])
        if missing > 0:
            return None
        starts.append(start)
        end = start + duration
    assert len(begun) == len(moves)
    return starts, link


def ordered_value(
    chain: Chain,
    memory: int,
    rates: tuple[Fraction, Fraction],
    chosen: Sequence[int],
    early: bool = False,
) -> Fraction | None:
    """Return the least makespan of an ordered schedule that offloads `chosen`, or None.

    `rates` are those of offloads and of prefetches. With `early`, the prefetch of ``x_i`` may begin
    before ``F_i``, which reads it, has ended.
    """
    trace = chain.trace()
    last = len(trace) - 1
    excess = [Fraction(demand - memory) for demand in trace.demand]
    out, back = rates
    front_side = run_side(
        trace.durations,
        [amount / out for amount in excess],
        [(chain.activation[i] / out, i - 1, last - i) for i in chosen],
        lambda o, m: chosen[m] < o < last - chosen[m],
    )
    # Reversed operation r is last - r, so B_i is r = i: the first thing that x_i waits for.
    back_side = run_side(
        trace.durations[::-1],
        [amount / back for amount in excess[::-1]],
        [(chain.activation[i] / back, i, -1 if early else last - i) for i in chosen],
        lambda r, m: chosen[m] < r < last - chosen[m],
    )
    if front_side is None or back_side is None:
        return None
    joined = [
        begin + duration + back_side[0][last - o]
        for o, (begin, duration) in enumerate(zip(front_side[0], trace.durations, strict=True))
    ]
    return max(front_side[1] + back_side[1], *joined)
