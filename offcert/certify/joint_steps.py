"""The steps of the ladder for problems in which computations may run again."""

from __future__ import annotations

from offcert.certify.effort import Effort
from offcert.certify.search import Search
from offcert.core.schedule import Schedule


def descend_plain(search: Search, effort: Effort) -> None:
    """Offer what offloading alone can do, if that fits into the memory."""
    from offcert.certify.ladder import certify

    search.begin("offloading alone")
    plain = search.problem.plain()
    if plain.trace.least_memory > plain.platform.memory:
        return
    found = certify(
        plain,
        time_limit=effort.seconds,
        workers=effort.workers,
        target_gap=float(search.target_gap),
        seed=effort.seed,
    )
    if isinstance(found.result.schedule, Schedule):
        search.offer(found.result.schedule)
