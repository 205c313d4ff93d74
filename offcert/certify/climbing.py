"""Running the rungs of a ladder one after the other, until a search is done."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from offcert.certify.method import Effort
from offcert.certify.running import ContradictionError
from offcert.certify.search import Search
from offcert.certify.watchdog import GRACE, LONG_GRACE, watched
from offcert.core.errors import MethodError, PlanError
from offcert.core.named import named
from offcert.proofs.settings import Settings

# A method that does not apply to a problem, or finds no plan, leaves its place to the next one.
_NOTHING = (MethodError, PlanError)


def climb(search: Any, so_far: Callable[[], Any], workers: int, seed: int) -> None:
    """Run the steps of the ladder that suits a problem, as long as a search is not done.

    Parameters
    ----------
    search : Search or PlacementSearch
        To which they add what they find; its question names the ladder.
    so_far : callable
        Returns a certificate of what is known.
    workers : int
        Threads for solvers that can use several.
    seed : int
        Seed of every random choice.
    """
    with search.untimed():
        # All methods are imported with it.
        ladder = named("certify", search.question.ladder)
    for rung in ladder(search.problem):
        if search.impossible or (search.done and not rung.always):
            break
        if not rung.suits(search):
            continue
        seconds = rung.seconds(search.remaining)
        least = 0.0 if rung.always else max(rung.needs, search.shortest_step)
        # Kernels that take all the time that is left help nobody.
        loading = search.last_loading if rung.method.loads and not rung.always else 0.0
        if seconds < least or search.remaining < loading:
            continue
        grace = LONG_GRACE if rung.always else GRACE
        surviving = search.surviving(but=(*_NOTHING, ContradictionError))
        with watched(search, seconds, so_far, grace), suppress(*_NOTHING), surviving:
            rung.method.step(search, Effort(seconds, workers, seed, least=least, climb=climb_part))


def climb_part(search: Search, workers: int, seed: int) -> None:
    """Run the ladder that suits the problem of a search that is a part of another one."""
    so_far = partial(search.certificate, search.question.command, Settings())
    climb(search, so_far, workers, seed)
