"""The selection of a campaign: problems from files and from the library, and limits from text.

One problem may be selected with several means: offloading, recomputation, or both.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

from offcert.core.errors import InputError
from offcert.core.messages import cut, meant
from offcert.core.network import Network
from offcert.core.units import parse_size
from offcert.instances.library import Library
from offcert.questions.schedule.files import problem_digest, read_problem
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, parse_memory

LIBRARY_PREFIX = "library:"
_PERCENT = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?")
_SIZED = re.compile(r"[0-9.]+\s*([kKMGT]i?)?B")
# Memory limits that one range may name; more is taken for a slip of the pen. Arbitrary.
_MOST_LIMITS = 10_000


@dataclass(frozen=True)
class Subject:
    """A problem to be looked at with several limits."""

    name: str  # Without a limit.
    problem: Problem  # Its own memory is the limit where no other is asked for.
    # What stands for the problem at some limits, in bytes: a library's entries have names of their
    # own, and a certificate must be about the entry to be taken into the library.
    variants: Mapping[int, Problem] = field(default_factory=dict)

    def at(self, memory: int) -> Problem:
        """Return the problem at a limit in bytes."""
        return self.variants.get(memory) or self.problem.with_memory(memory)

    def own_limits(self) -> tuple[int, ...]:
        """Return the limits in bytes where none is asked for, increasing."""
        return tuple(sorted(self.variants)) or (self.problem.platform.memory,)


def find_subjects(texts: Iterable[str], folder: str | Path | None = None) -> list[Subject]:
    """Return the problems in files, or of the library's families that ``library:PATTERN`` names."""
    library = Library(folder)
    found: dict[str, Subject] = {}
    for text in texts:
        for subject in _named(text, library):
            other = found.setdefault(subject.name, subject)
            if problem_digest(other.problem) != problem_digest(subject.problem):
                raise InputError(
                    f'two different problems are called "{subject.name}", the second in {text}; '
                    "the table could not tell them apart"
                )
    return list(found.values())


def _named(text: str, library: Library) -> list[Subject]:
    if not text.startswith(LIBRARY_PREFIX):
        return [Subject(Path(text).stem, read_problem(text))]
    pattern = text.removeprefix(LIBRARY_PREFIX)
    families = list(library.families(family=pattern))
    timed = [each for each in families if each.problem.minimise is Minimise.TIME]
    if timed and len(timed) < len(families):
        left = len(families) - len(timed)
        warnings.warn(
            f"{left} families that minimise memory are left out: what is compared is time within "
            "limits",
            stacklevel=2,
        )
    subjects = [
        Subject(
            family.name,
            family.problem,
            {entry.problem.platform.memory: entry.problem for entry in reversed(family.entries)},
        )
        for family in timed or families
    ]
    if not subjects:
        raise InputError(f'no family of the library matches "{pattern}"')
    return subjects


def parse_limits(text: str) -> list[str]:
    """Return the limits that a text lists, each as `schedule.problem.parse_memory` reads it.

    Parameters
    ----------
    text : str
        Limits and ranges ``first:last:step`` (last included) of percentages or sizes, separated by
        commas: ``"0:100:5"``, ``"4GiB:16GiB:2GiB"``, ``"25%,4GiB"``.
    """
    limits: list[str] = []
    for part in text.split(","):
        limits += _range(part.strip()) if ":" in part else [part.strip()]
    return list(dict.fromkeys(limits))


def read_limits(limits: Iterable[str | int], problem: Problem) -> list[int]:
    """Return limits of a problem in bytes, each once."""
    found = (each if isinstance(each, int) else parse_memory(each, problem) for each in limits)
    return list(dict.fromkeys(found))


def _range(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(":")]
    sized = len(parts) == 3 and all(map(_SIZED.fullmatch, parts))
    if not sized:
        parts = [part.removesuffix("%").rstrip() for part in parts]
        if len(parts) != 3 or not all(map(_PERCENT.fullmatch, parts)):
            raise InputError(
                'memory must be a range such as "0:100:5", in percent, or "4GiB:16GiB:2GiB", not '
                f'"{cut(text)}"'
            )
    numbers = (parse_size(part, "memory") if sized else part for part in parts)
    first, last, step = map(Fraction, numbers)
    if step == 0 or last < first:
        raise InputError(f'the memory range "{text}" must go up in steps of more than 0')
    count = (last - first) // step + 1
    if count > _MOST_LIMITS:
        raise InputError(
            f'the memory range "{text}" has {count} limits; {_MOST_LIMITS} are the most'
        )
    return [f"{_decimal(first + index * step)}{'B' if sized else '%'}" for index in range(count)]


def _decimal(value: Fraction) -> str:
    # Sums of numbers with at most six decimals have no more of them.
    digits = f"{value.numerator * 10**6 // value.denominator:07d}"
    return f"{digits[:-6]}.{digits[-6:]}".rstrip("0").rstrip(".")


def percent_of(problem: Problem) -> float | None:
    """Return where a problem's memory stands between the least (0) and the peak (100).

    The shortest decimal fraction that stands for exactly this limit, so that 25 % stays 25 although
    limits are whole bytes; it depends on nothing but the problem. None where least and peak are the
    same and the limit is below them.
    """
    memory, least, peak = problem.platform.memory, problem.least_memory, problem.peak_memory
    if least == peak:
        return 100.0 if memory >= peak else None
    exact = Fraction(100 * (memory - least), peak - least)
    for digits in range(16):
        percent = Fraction(-((-exact.numerator * 10**digits) // exact.denominator), 10**digits)
        if problem.memory_at(percent / 100) == memory:
            return float(percent)
    return float(exact)


class Means(StrEnum):
    """Means against a lack of memory that a variant of a problem allows."""

    OFFLOAD = "offload"
    RECOMPUTE = "recompute"
    BOTH = "both"


def parse_means(text: str) -> list[Means]:
    """Return the means that a text lists, separated by commas, each once."""
    found = []
    for part in text.split(","):
        name = part.strip()
        if name not in tuple(Means):
            hint = meant(name, tuple(Means))
            raise InputError(f'allow must be of {", ".join(Means)}, not "{cut(name)}"{hint}')
        found.append(Means(name))
    return list(dict.fromkeys(found))


def variant(problem: Problem, means: Means, recompute: Recompute = Recompute.ANY) -> Problem:
    """Return a problem, given as a chain or network, in which exactly these means are open.

    Recomputation of the kind ``CHAIN`` is for chains.
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
            sizes = tuple(read_limits(limits, widest))
        found += [(each, list(sizes)) for each in variants]
    return found


def _same_or(subject: Subject, problem: Problem) -> Subject:
    """Return the subject itself if it is this problem: a library's entries have their own names."""
    if problem_digest(problem) == problem_digest(subject.problem):
        return subject
    return Subject(subject.name, problem)
