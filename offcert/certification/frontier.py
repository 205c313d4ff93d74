"""The frontier of a problem: the least time known, and the bound proved, limit by limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from offcert.certification.ladder import certify
from offcert.certification.search import SearchProgress
from offcert.core.errors import InputError
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Minimise, Problem


@dataclass(frozen=True)
class FrontierProgress:
    """The argument of a progress callback.

    Attributes
    ----------
    number, limits : int
        Number of the limit that is looked at, counted from 1, and how many there are.
    problem : Problem
        At this limit.
    news : SearchProgress
        The progress of its search.
    """

    number: int
    limits: int
    problem: Problem
    news: SearchProgress


def frontier(
    problem: Problem,
    limits: Sequence[int],
    *,
    time_limit: float = 60.0,
    workers: int = 2,
    target_gap: float = 0.0,
    seed: int = 0,
    progress: Callable[[FrontierProgress], None] | None = None,
    keep: Callable[[Certificate], None] | None = None,
    found: Callable[[Problem], Certificate | None] | None = None,
) -> Iterator[Certificate]:
    """Yield a certificate for each limit, by increasing memory.

    Every search begins with the schedule of the limit before: it fits, and nothing that takes less
    memory is ever forgotten.

    Parameters
    ----------
    problem : Problem
        Its own limit does not matter.
    limits : sequence of int
        Bytes, in any order.
    time_limit, workers, target_gap, seed
        Of each search; see `offcert.certification.ladder.certify`.
    progress : callable, optional
        Told of every step and improvement.
    keep : callable, optional
        As for `certify`.
    found : callable, optional
        Asked before each search for a certificate of the problem at that limit from before; that is
        taken instead if it is at least as good as the schedule of the limit before.

    Notes
    -----
    An interrupt ends the search at hand; its certificate says so, and is the last.
    """
    if problem.minimise is Minimise.MEMORY:
        raise InputError("a curve over memory needs time as the objective, not memory")
    chosen = sorted(set(limits))
    before: Certificate | None = None
    for number, memory in enumerate(chosen, start=1):
        limited = problem.with_memory(memory)
        certificate = None if found is None else found(limited)
        if certificate is None or _is_worse(certificate, before):
            tell = None
            if progress is not None:
                tell = partial(_tell, progress, number, len(chosen), limited)
            certificate = certify(
                limited,
                time_limit=time_limit,
                workers=workers,
                target_gap=target_gap,
                seed=seed,
                progress=tell,
                keep=keep,
                known=before,
            )
        yield certificate
        if certificate.notes.interrupted:
            return
        if certificate.result.schedule is not None:
            before = certificate


def _is_worse(certificate: Certificate, before: Certificate | None) -> bool:
    """Whether the certificate within less memory also takes less time."""
    least = None if before is None else before.result.objective
    if least is None:
        return False
    return certificate.result.objective is None or certificate.result.objective > least


def _tell(
    progress: Callable[[FrontierProgress], None],
    number: int,
    limits: int,
    problem: Problem,
    news: SearchProgress,
) -> None:
    progress(FrontierProgress(number, limits, problem, news))
