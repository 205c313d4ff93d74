"""Running the rungs of a ladder one after the other, until a search is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from offcert.certification.interrupts import GRACE, LONG_GRACE, watched
from offcert.certification.method import Effort
from offcert.certification.rung import Rung
from offcert.certification.running import ContradictionError
from offcert.certification.search import Search
from offcert.certification.warm import Compiling
from offcert.core.errors import MethodError, PlanError
from offcert.core.kernel_cache import NotCompiledError, only_loading
from offcert.proofs.any_certificate import Settings

# A method that does not apply to a problem, or finds no plan, leaves its place to the next one.
_NOTHING = (MethodError, PlanError)
# Seconds between two looks whether kernels have been compiled meanwhile. Arbitrary.
_SECONDS_BETWEEN = 0.25


def climb(search: Any, so_far: Callable[[], Any], workers: int, seed: int) -> None:
    """Run the steps of the ladder that suits a problem, as long as a search is not done.

    The question of the search names the ladder; `so_far` returns a certificate of what is known.
    """
    missing: NotCompiledError | None = None
    for rung in _ladder(search):
        if _is_over(search, rung):
            if _has_answer(search):
                break
            continue
        try:
            _run(rung, search, so_far, workers, seed)
        except NotCompiledError as error:
            missing = missing or error
    if missing is not None:
        raise missing


def climb_at_once(search: Any, so_far: Callable[[], Any], workers: int, seed: int) -> None:
    """Run the same steps as `climb`, but wait for no kernel that has never been compiled.

    A step that needs such kernels waits for its turn until another process has compiled them, and
    the others go on. Only for a first answer, if none of the others has found one, is anything
    compiled here.
    """
    compiling = Compiling()
    # What steps wait for.
    waiting: dict[Rung, str] = {}

    def run(rung: Rung) -> None:
        before = waiting.pop(rung, None)
        try:
            with only_loading():
                _run(rung, search, so_far, workers, seed)
        except NotCompiledError as error:
            search.say_compiling(error.kernel, "compiling beside the search, once")
            missing = compiling.ask(error)
            if missing != before:
                waiting[rung] = missing

    def run_ready() -> None:
        for rung, missing in list(waiting.items()):
            if missing in compiling.finished and not _is_over(search, rung):
                run(rung)

    try:
        for rung in _ladder(search):
            run_ready()
            if not _is_over(search, rung):
                run(rung)
            elif _has_answer(search):
                break
        for rung in [each for each in waiting if each.always or each.fallback]:
            if not _has_answer(search):
                # Whatever it takes.
                del waiting[rung]
                _run(rung, search, so_far, workers, seed)
        while waiting and not search.done:
            if not compiling.finished.isdisjoint(waiting.values()):
                run_ready()
            elif compiling.busy:
                time.sleep(min(_SECONDS_BETWEEN, search.remaining))
            else:
                break
    finally:
        compiling.close()


def _ladder(search: Any) -> Iterable[Rung]:
    with search.untimed():
        # All methods are imported with it.
        ladder = search.question.ladder.load()
    rungs: Iterable[Rung] = ladder(search.problem)
    return rungs


def _has_answer(search: Any) -> bool:
    """Whether no step that always runs has to find a first answer."""
    return search.impossible or search.objective is not None


def _is_over(search: Any, rung: Rung) -> bool:
    return search.impossible or (search.done and not _must_run(search, rung))


def _must_run(search: Any, rung: Rung) -> bool:
    return rung.always or (rung.fallback and search.objective is None)


def _run(rung: Rung, search: Any, so_far: Callable[[], Any], workers: int, seed: int) -> None:
    """Run a step if it suits the search at this point and there is time for it.

    Raises `NotCompiledError` if it needs a kernel that is not there, and none is to be compiled.
    """
    if not rung.suits(search):
        return
    seconds = rung.seconds(search.remaining, search.slowness)
    must_run = _must_run(search, rung)
    least = 0.0 if must_run else max(rung.needs, search.shortest_step)
    # Kernels that take all the time that is left help nobody.
    loading = search.last_loading if rung.method.loads and not must_run else 0.0
    if seconds < least or search.remaining < loading:
        return
    grace = LONG_GRACE if must_run else GRACE
    surviving = search.surviving(but=(*_NOTHING, ContradictionError))
    try:
        with watched(search, seconds, so_far, grace), surviving:
            rung.method.step(search, Effort(seconds, workers, seed, least=least, climb=climb_part))
    except NotCompiledError:
        raise
    except _NOTHING:
        pass


def climb_part(search: Search, workers: int, seed: int) -> None:
    """Run the ladder that suits the problem of a search that is a part of another one."""
    so_far = partial(search.certificate, search.question.command, Settings())
    climb(search, so_far, workers, seed)
