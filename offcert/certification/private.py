"""Libraries of one's own: problems are taken in, with certificates or without."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

from offcert.certification.records import improve
from offcert.core.errors import InputError
from offcert.core.messages import show
from offcert.instances.library import Entry, Family, Library, make_entry
from offcert.questions.schedule.files import PROBLEM_FORMAT, problem_digest, problem_from_json
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.verification.document import verify

_DEFAULT_GROUP = "own"


def add(
    library: Library,
    document: Any,
    *,
    new: bool = False,
    group: str = _DEFAULT_GROUP,
    hardware: str | None = None,
) -> Entry:
    """Take a certificate's better values into a library, and its problem if that is new.

    A problem is known if the library holds it under any name.

    Parameters
    ----------
    library : Library
        Its folder is written to.
    document : object
        A certificate as a JSON value; with `new` also a problem.
    new : bool
        Whether a problem may be taken in that the library does not hold yet.
    group : str
        Of the families that new problems make.
    hardware : str, optional
        On which the certificate was found, for the record.

    Returns
    -------
    Entry
        With the new record; of a problem that was taken in alone, with none.
    """
    if isinstance(document, dict) and document.get("format") == PROBLEM_FORMAT:
        if not new:
            raise InputError(
                "it is a problem without a certificate; new problems are taken in with --new alone"
            )
        return insert(library, problem_from_json(document), group)
    verification = verify(document)
    if not verification.valid:
        raise InputError(f"the certificate does not verify: {verification.reason}")
    certificate = verification.certificate
    entry = known = find_problem(library, certificate.problem)
    if entry is None and new:
        entry = insert(library, certificate.problem, group)
    if entry is None:
        raise InputError(
            f"the certificate is about a problem {show(certificate.problem.name)} that is not in "
            "the library; --new takes it into a library of your own"
        )
    # Its name is the library's from here on.
    renamed = replace(verification, certificate=replace(certificate, problem=entry.problem))
    try:
        return improve(library, renamed, hardware)
    except InputError:
        if known is not None:
            raise
        # It says nothing, as where there is not enough memory; the problem is in all the same.
        return entry


def find_problem(library: Library, problem: Problem) -> Entry | None:
    """Return the entry of a problem, whatever it is called, or None."""
    for entry in library.entries():
        # What is cheap to compare first: a hash reads the whole trace.
        alike = (
            entry.problem.platform == problem.platform
            and entry.problem.transfers == problem.transfers
            and len(entry.problem.trace) == len(problem.trace)
        )
        if alike and problem_digest(replace(problem, name=entry.name)) == entry.digest:
            return entry
    return None


def insert(library: Library, problem: Problem, group: str = _DEFAULT_GROUP) -> Entry:
    """Take a problem into a library, or return the entry that it has there.

    Problems that differ in the memory limit only make one family; its name is the problem's, with
    underscores for what file names should not hold, and with what may run again, what stays and
    what is least, where that is not as usual.
    """
    with library.locked():
        # Others may have written to it until now.
        fresh = Library(library.folder)
        found = find_problem(fresh, problem)
        if found is not None:
            return found
        label = _label(problem)
        name = problem.name.removesuffix(f"-{label}") + _variant(problem)
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-") or "problem"
        entry = make_entry(problem, name, label, problem.platform.memory)
        others: tuple[Entry, ...] = ()
        family = Family(name, group, f'Added as "{problem.name}".', problem, (entry,))
        if (fresh.folder / f"{name}.json").exists():
            family = fresh.family(name)
            others = family.entries
            again = make_entry(family.problem, name, entry.label, problem.platform.memory)
            if again.digest != entry.digest:
                raise InputError(
                    f"the library holds another problem called {show(name)}; rename one of them"
                )
        entries = sorted((*others, entry), key=lambda each: each.problem.platform.memory)
        library.write(replace(family, entries=tuple(entries)))
    return entry


def _variant(problem: Problem) -> str:
    """Return a suffix that tells a problem from others of its network and name; mostly empty."""
    parts = [] if problem.recompute is Recompute.NONE else [str(problem.recompute)]
    parts += [] if problem.offload else ["held"]
    if problem.minimise is Minimise.MEMORY:
        parts.append("memory" if problem.deadline is None else f"memory{problem.deadline}")
    suffix = "".join(f"-{part}" for part in parts)
    return "" if problem.name.endswith(suffix) else suffix


def _label(problem: Problem) -> str:
    """Return a label of a problem's memory limit: a whole percentage, or the limit itself."""
    memory = problem.platform.memory
    for percent in range(101):
        if problem.memory_at(Fraction(percent, 100)) == memory:
            return f"m{percent}"
    return str(memory)
