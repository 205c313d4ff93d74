"""One problem with several means against too little memory: offloading, recomputation, or both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum

from offcert.campaign.selection import Subject
from offcert.core.errors import InputError
from offcert.core.messages import cut, meant
from offcert.core.network import Network
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.problem import Problem, Recompute, parse_memory


class Means(StrEnum):
    """Means against a lack of memory that a variant of a problem allows."""

    OFFLOAD = "offload"
    RECOMPUTE = "recompute"
    BOTH = "both"


def parse_means(text: str) -> list[Means]:
    """Return the means that a text lists, separated by commas, each once.

    Raises
    ------
    InputError
        If one of them is none.
    """
    found = []
    for part in text.split(","):
        name = part.strip()
        if name not in tuple(Means):
            hint = meant(name, tuple(Means))
            raise InputError(f'allow must be of {", ".join(Means)}, not "{cut(name)}"{hint}')
        found.append(Means(name))
    return list(dict.fromkeys(found))


def variant(problem: Problem, means: Means, recompute: Recompute = Recompute.ANY) -> Problem:
    """Return a problem in which exactly these means are open.

    Parameters
    ----------
    problem : Problem
        Given as a chain or network if anything is to run again.
    means : Means
        The means that are allowed.
    recompute : Recompute
        Kind of recomputation where it is allowed: ``CHAIN`` is for chains.

    Raises
    ------
    InputError
        If the problem is a trace, which does not say what can be computed from what.
    """
    if means is Means.OFFLOAD:
        return replace(problem, recompute=Recompute.NONE, offload=True)
    if problem.computed is None:
        raise InputError(
            f'"{cut(problem.name)}" is a trace, which does not say what can run again: --allow '
            "offload is all that it allows"
        )
    if recompute is Recompute.CHAIN and isinstance(problem.network, Network):
        raise InputError(f'"{cut(problem.name)}" is a network: --recompute chain is for chains')
    return replace(problem, recompute=recompute, offload=means is Means.BOTH)


def varied(
    subjects: Iterable[Subject],
    means: Sequence[Means],
    recompute: Recompute | None = None,
    limits: Sequence[str | int] | None = None,
) -> list[tuple[Subject, list[int]]]:
    """Return every subject with every means, and the limits in bytes of each.

    The limits are the same bytes for all means, so that they can be compared; percentages are those
    of the variant in which most may be done.

    Parameters
    ----------
    subjects : iterable of Subject
        Of which a problem's own choices do not matter.
    means : sequence of Means
        At least one.
    recompute : Recompute, optional
        Kind of recomputation where it is allowed; by default the problem's own choice, or any.
    limits : sequence of str or int, optional
        As for `offcert.campaign.cells.grid`.

    Raises
    ------
    InputError
        As `variant` and `parse_memory`.
    """
    found = []
    for subject in subjects:
        chosen = recompute
        if chosen is None:
            own = subject.problem.recompute
            chosen = Recompute.ANY if own is Recompute.NONE else own
        variants = [_same_or(subject, variant(subject.problem, each, chosen)) for each in means]
        # What recomputation can do without comes first: from there the percentages count.
        widest = min(variants, key=lambda each: each.problem.least_memory).problem
        sizes = subject.own_limits()
        if limits is not None:
            read = (
                each if isinstance(each, int) else parse_memory(each, widest) for each in limits
            )
            sizes = tuple(dict.fromkeys(read))
        found += [(each, list(sizes)) for each in variants]
    return found


def _size(limit: str | int, problem: Problem) -> int:
    return limit if isinstance(limit, int) else parse_memory(limit, problem)


def _same_or(subject: Subject, problem: Problem) -> Subject:
    """Return the subject itself if it is this problem: a library's entries have their own names."""
    if problem_digest(problem) == problem_digest(subject.problem):
        return subject
    return Subject(subject.name, problem)
