"""Records of a library: problems are taken in, and better values of certificates that verify."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from offcert.certification.search import UnsoundError
from offcert.core.errors import InputError, PlanError
from offcert.core.messages import show
from offcert.core.result import Bound, Evidence
from offcert.core.strategy import Strategy
from offcert.instances.library import Entry, Family, Library, make_entry
from offcert.instances.records import Improvement, KnownBound, Record, strategy_of
from offcert.proofs.certificate import Certificate
from offcert.proofs.registry import witness
from offcert.questions.schedule.check import check
from offcert.questions.schedule.files import PROBLEM_FORMAT, problem_digest, problem_from_json
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.schedule import FluidSchedule
from offcert.questions.schedule.simulate import simulate
from offcert.verification.document import Verification, verify

_RANKS = list(Evidence)
# Characters of the longest proof that a record of the library keeps, so that the library is read
# whole in a moment. Arbitrary.
LONGEST_PROOF = 2000
# The group of families that come of problems that are taken in.
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

    `document` is a certificate as a JSON value; with `new`, also a problem, of which the entry has
    no record. New problems make families of a `group`. The record says on which `hardware` the
    certificate was found.
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


def improve(library: Library, verification: Verification, hardware: str | None = None) -> Entry:
    """Take a verified certificate's better values into the library that holds its problem."""
    if not verification.valid:
        raise InputError(f"the certificate does not verify: {verification.reason}")
    certificate = verification.certificate
    entry = library.find(problem_digest(certificate.problem))
    if entry is None:
        raise InputError(
            f'the certificate is about a problem "{certificate.problem.name}" that is not in the '
            "library"
        )
    return library.update(entry.name, lambda entry: _improved(entry, certificate, hardware))


def _improved(entry: Entry, certificate: Certificate, hardware: str | None) -> Record:
    record = merged(entry, certificate)
    if _merits(record) == _merits(entry.record):
        raise InputError(
            f"the record of {entry.name} is {_describe(entry.record)}, which the certificate does "
            "not improve"
        )
    today = datetime.now(UTC).date().isoformat()
    return replace(record, improved=Improvement(today, hardware))


def merged(entry: Entry, certificate: Certificate) -> Record:
    """Return an entry's record with every value that a certificate improves.

    Raises `UnsoundError` if a proved bound exceeds the value of a valid schedule.
    """
    by = _author(certificate)
    old, result = entry.record, certificate.result
    value, plan, value_by, strategy = old.value, old.plan, old.value_by, old.strategy
    if result.objective is not None and (value is None or result.objective < value):
        value, plan, strategy = _value_and_plan(certificate)
        value_by = by
    bounds = [*old.bounds, *(KnownBound(_shortened(bound), by) for bound in result.bounds)]
    for known in bounds:
        if value is not None and known.bound.value > value and _proved(known.bound):
            raise UnsoundError(
                f"{entry.name}: the bound {known.bound.value} of {known.bound.method} exceeds the "
                f"value {value} of a valid schedule"
            )
    # A claim that a valid schedule refutes is dropped.
    sound = [known for known in bounds if value is None or known.bound.value <= value]
    return Record(value, plan, value_by, tuple(_worth_keeping(sound)), strategy)


def _value_and_plan(certificate: Certificate) -> tuple[int, Plan | None, Strategy | None]:
    """Return the value, or its plan's if that is less, and plan and strategy if they attain it.

    A schedule that no plan of atomic transfers reproduces keeps its value without a plan, and so
    does one of an execution that no strategy makes.
    """
    problem, result = certificate.problem, certificate.result
    schedule, value = result.schedule, result.objective
    assert schedule is not None
    assert value is not None
    if isinstance(schedule, FluidSchedule):
        return value, None, None
    strategy = None
    if result.execution is not None:
        network = problem.computed
        strategy = None if network is None else strategy_of(result.execution, network)
        if strategy is None:
            return value, None, None
    executed = certificate.executed
    try:
        plan = schedule.plan(executed.trace)
        simulated = simulate(executed, plan)
    except PlanError:
        return value, None, None
    if check(executed, simulated) or simulated.makespan > schedule.makespan:
        return value, None, None
    if problem.minimise is Minimise.TIME:
        value = simulated.makespan
    return value, plan, strategy


def _worth_keeping(bounds: list[KnownBound]) -> list[KnownBound]:
    """Return the best bound, what cross-attests it, and the best proved one if that is another."""
    if not bounds:
        return []

    def merit(known: KnownBound) -> tuple[int, int]:
        return known.bound.value, -_RANKS.index(known.bound.evidence)

    # The first of equals is kept: whoever was there before stays the author.
    kept = [max(bounds, key=merit)]
    # Of a proved bound it is worth knowing, too, that solvers reach it without the proof.
    for index, known in enumerate(bounds):
        other = witness([k.bound for k in bounds], index)
        if known.bound.value == kept[0].bound.value and _cross_attested(known.bound) and other:
            kept += [k for k in bounds if (k is known or k.bound is other) and k not in kept]
            break
    proved = [known for known in bounds if _proved(known.bound)]
    if proved and not _proved(kept[0].bound):
        kept.append(max(proved, key=merit))
    return kept


def _shortened(bound: Bound) -> Bound:
    """Return a bound with those details that say who claims it or how to compute it again.

    A proof of many pages stays in its certificate; the record then says how long it was.
    """
    if not _proved(bound):
        named = {key: bound.details[key] for key in ("solver", "version") if key in bound.details}
        return replace(bound, details=named)
    length = len(json.dumps(dict(bound.details)))
    return bound if length <= LONGEST_PROOF else replace(bound, details={"omitted": length})


def _proved(bound: Bound) -> bool:
    return bound.evidence is Evidence.PROVED


def _cross_attested(bound: Bound) -> bool:
    return bound.evidence is Evidence.CROSS_ATTESTED


def _merits(record: Record) -> tuple[Any, ...]:
    best = record.best
    evidence = None if best is None else best.bound.evidence
    bounds = record.lower_bound, record.proved_bound, record.cross_attested_bound
    return record.value, evidence, *bounds


def _describe(record: Record) -> str:
    best = record.best
    bound = "with no bound" if best is None else f"bound {best.bound.value} ({best.bound.evidence})"
    twice = "" if record.cross_attested_bound is None else ", cross-attested too"
    return f"value {record.value}, {bound}{twice}"


def _author(certificate: Certificate) -> str:
    version = certificate.versions.get("offcert")
    limit, seed = certificate.settings.time_limit, certificate.settings.seed
    parts = [certificate.method]
    parts += [f"offcert {version}"] if isinstance(version, str) else []
    parts += [f"{limit:g} s"] if limit is not None else []
    parts += [f"seed {seed}"] if seed is not None else []
    return ", ".join(parts)


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
