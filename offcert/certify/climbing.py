"""Running the rungs of a ladder one after the other, until a search is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from offcert.certify.effort import Effort
from offcert.certify.rung import Rung
from offcert.certify.search import Search
from offcert.certify.watchdog import GRACE, LONG_GRACE, watched
from offcert.core.errors import MethodError
from offcert.proofs.certificate import Certificate


def climb(
    search: Search,
    rungs: Sequence[Rung],
    so_far: Callable[[], Certificate],
    workers: int,
    seed: int,
) -> None:
    """Run the steps of a ladder, as long as a search is not done."""
    for rung in rungs:
        if search.infeasibility is not None or (search.done and not rung.always):
            break
        if not rung.suits(search):
            continue
        seconds = rung.seconds(search.remaining)
        if seconds < rung.needs:
            continue
        grace = LONG_GRACE if rung.always else GRACE
        # A method that does not apply to this network leaves its place to the next one.
        with watched(search, seconds, so_far, grace), suppress(MethodError), search.surviving():
            rung.run(search, Effort(seconds, workers, seed))
