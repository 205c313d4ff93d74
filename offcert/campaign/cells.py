"""Cells of a campaign: a problem at a memory limit, a method, and its settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from offcert._version import __version__
from offcert.campaign.selection import Means, Subject, percent_of, read_limits, varied
from offcert.campaign.storage import Row
from offcert.certification.method import SEPARATOR, Choice
from offcert.certification.methods import METHODS, method_called
from offcert.certification.registry import GIVEN, code_digest, is_own
from offcert.core.documents import canonical_digest
from offcert.core.errors import InputError
from offcert.core.messages import cut, meant
from offcert.core.platform import Kind
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.problem import Minimise, Problem, Recompute

CERTIFY = "certify"
# Hexadecimal digits of a row's key: 128 bits of a hash, too many for two keys to meet by chance.
# Derived.
_KEY_LENGTH = 32


@dataclass(frozen=True)
class CellSettings:
    """Settings that methods may read; parameters as for `offcert.certification.ladder.certify`."""

    time_limit: float = 60.0
    seed: int = 0
    workers: int = 1
    target_gap: float = 0.0

    def read_by(self, method: str) -> dict[str, Any]:
        """Return the settings that a method reads: others do not make another computation."""
        everything = asdict(self)
        if method == CERTIFY:
            return everything
        reads = method_called(method).method.reads
        read = {name: everything[name] for name in reads if name in everything}
        # What a user changes is another computation.
        return read | {"code": code_digest(method)} if is_own(method) else read


@dataclass(frozen=True)
class Point:
    """A problem at one limit."""

    name: str  # Name of the problem without the limit.
    problem: Problem  # At the limit.
    digest: str  # SHA-256 of the problem's document, in hexadecimal.

    @cached_property
    def facts(self) -> Row:
        """The table's columns about the problem."""
        problem = self.problem
        return {
            "problem": self.name,
            "digest": self.digest,
            **_origin(problem),
            "memory": problem.platform.memory,
            "memory_percent": percent_of(problem),
            "minimum_memory": problem.least_memory,
            "peak_memory": problem.peak_memory,
            "compute_time": problem.trace.compute_time,
            **_rates(problem),
            **_means(problem),
        }


def _rates(problem: Problem) -> Row:
    out, back = (str(problem.platform.rate(kind)) for kind in (Kind.OFFLOAD, Kind.PREFETCH))
    return {"bandwidth": out, "prefetch_bandwidth": back if back != out else None}


def _means(problem: Problem) -> Row:
    """Return whether computations may run again and tensors leave; empty where as usual."""
    usual = problem.recompute is Recompute.NONE and problem.offload
    if usual:
        return {}
    return {"recompute": str(problem.recompute), "offload": "yes" if problem.offload else "no"}


def _origin(problem: Problem) -> Row:
    """Return network, image and batch where a profile says them."""
    source = problem.source or {}
    shape = source.get("input")
    image = batch = None
    if isinstance(shape, list) and all(isinstance(size, int) for size in shape) and shape:
        batch = shape[0]
        image = shape[-1] if len(shape) == 4 else None
    network = source.get("model")
    return {
        "network": network if isinstance(network, str) else None,
        "image": image,
        "batch": batch,
    }


@dataclass(frozen=True)
class Cell:
    """The subject of one row of the table: a problem at a limit, and a method."""

    point: Point  # A problem at one limit.
    method: str  # ``"certify"``, or a method with its options as `Choice.text` writes them.
    settings: CellSettings = CellSettings()  # The campaign's.

    @cached_property
    def key(self) -> str:
        """The hash of all that a row depends on, 32 hexadecimal digits: equal for equal work."""
        document = {
            "problem": self.point.digest,
            "method": self.method,
            "settings": self.settings.read_by(self.method),
            "version": __version__,
        }
        return canonical_digest(document)[:_KEY_LENGTH]

    @property
    def batchable(self) -> bool:
        """Whether it takes no time worth a process of its own: it reads no settings at all."""
        choice = self.choice
        return choice is not None and not choice.method.reads

    @property
    def own(self) -> bool:
        """Whether the method is a function of a user's own."""
        return is_own(self.method)

    @property
    def given(self) -> bool:
        """Whether only this program knows the method."""
        return self.method in GIVEN

    @property
    def choice(self) -> Choice | None:
        """The method with its options; None for ``certify``."""
        return None if self.method == CERTIFY else method_called(self.method)

    def row(self, facts: Row) -> Row:
        """Return the row of the table, given what the computation found."""
        settings = self.settings.read_by(self.method)
        return {
            "key": self.key,
            **self.point.facts,
            "method": self.method,
            "settings": json.dumps(settings, sort_keys=True, separators=(",", ":")),
            **facts,
            "version": __version__,
        }


def grid(
    problems: Iterable[Problem | Subject],
    methods: Sequence[str],
    limits: Sequence[str | int] | None = None,
    settings: CellSettings | None = None,
    allow: Sequence[Means] | None = None,
    recompute: Recompute | None = None,
) -> list[Cell]:
    """Return every problem at every limit with every method, each computation once.

    Parameters
    ----------
    problems : iterable of Problem or Subject
        A problem goes by its name.
    methods : sequence of str
        ``"certify"`` or names of `offcert.certification.methods.METHODS`, with options behind them:
        ``"dynprog:slots=2000"``; or functions of one's own: ``"package.module:function"``.
    limits : sequence of str or int, optional
        As `offcert.questions.schedule.problem.parse_memory` reads them, or bytes; by default each
        problem's own. Limits that are the same number of bytes give one cell.
    settings : CellSettings, optional
        The same for all.
    allow : sequence of Means, optional
        Every problem with each of these; by default as each problem says itself. Then limits are
        the same bytes for all of them; see `offcert.campaign.selection.varied`.
    recompute : Recompute, optional
        Kind of recomputation where it is allowed; only with `allow`.
    """
    methods = [_written(method) for method in methods]
    chosen = settings or CellSettings()
    cells: dict[str, Cell] = {}
    for subject, sizes in _subjects(problems, limits, allow, recompute):
        for memory in sizes:
            limited = subject.at(memory)
            point = Point(subject.name, limited, problem_digest(limited))
            for method in methods:
                cell = Cell(point, method, chosen)
                cells.setdefault(cell.key, cell)
    return list(cells.values())


def _written(method: str) -> str:
    """Return a method as cells name it, each computation in one way."""
    name, colon, _ = method.partition(SEPARATOR)
    if name == CERTIFY:
        if colon:
            raise InputError(f'method {CERTIFY} has no options, so not "{cut(method)}"')
        return method
    if name not in METHODS and not is_own(method):
        names = ", ".join((CERTIFY, *METHODS))
        hint = meant(name, (CERTIFY, *METHODS))
        raise InputError(f'methods must be of {names}, not "{cut(method)}"{hint}')
    return method_called(method).text


def _subjects(
    problems: Iterable[Problem | Subject],
    limits: Sequence[str | int] | None,
    allow: Sequence[Means] | None,
    recompute: Recompute | None,
) -> list[tuple[Subject, list[int]]]:
    """Return the problems of the cells, with the limits of each in bytes."""
    subjects = [
        problem if isinstance(problem, Subject) else Subject(problem.name, problem)
        for problem in problems
    ]
    for subject in subjects:
        if subject.problem.minimise is Minimise.MEMORY:
            raise InputError(
                f'"{cut(subject.name)}" minimises memory; what is compared is time within limits'
            )
    if allow is not None:
        return varied(subjects, allow, recompute, limits)
    return [
        (each, list(each.own_limits()) if limits is None else read_limits(limits, each.problem))
        for each in subjects
    ]
