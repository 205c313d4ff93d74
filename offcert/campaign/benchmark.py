"""`benchmark`: functions of a user's own, measured beside what is known and proved."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcert.campaign.cells import CERTIFY, CellSettings, grid
from offcert.campaign.pool import Failure, PoolTask, ProcessPool
from offcert.campaign.run import OWN_GRACE, run
from offcert.campaign.selection import Subject, find_subjects
from offcert.campaign.standing import (
    OWN,
    Measured,
    Standing,
    describe_faults,
    describe_standings,
    measured_of,
    profile,
    standings,
)
from offcert.campaign.storage import FAILED, NO_PLAN
from offcert.campaign.table import CampaignTable
from offcert.certification.placing import place
from offcert.certification.registry import GIVEN
from offcert.core.documents import canonical_digest
from offcert.core.errors import InputError
from offcert.core.messages import short_repr
from offcert.core.options import require_count, require_seconds, require_seed, users_function
from offcert.core.threads import cores
from offcert.instances.library import Library
from offcert.questions.placement.files import placement_problem_to_json
from offcert.questions.placement.problem import PlacementProblem
from offcert.questions.schedule.problem import Problem

Function = Callable[..., Any]


@dataclass(frozen=True)
class Benchmark:
    """Methods measured on problems; the text is a table.

    Attributes
    ----------
    measured : tuple of Measured
        A problem and a method each.
    standings : tuple of Standing
        By group and method.
    """

    measured: tuple[Measured, ...]
    standings: tuple[Standing, ...]

    def __str__(self) -> str:
        lines = describe_faults(self.measured)
        return "\n".join([describe_standings(self.standings), *([""] if lines else []), *lines])

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return {
            "standings": [each.to_json() for each in self.standings],
            "measured": [each.to_json() for each in self.measured],
        }

    @property
    def profile(self) -> dict[str, list[float | None]]:
        """Every method's ratios to the best value known, a problem each; None: no answer."""
        return profile(self.measured)


def benchmark(
    methods: Function | str | Iterable[Function | str],
    problems: str | Problem | PlacementProblem | Iterable[str | Problem | PlacementProblem],
    time_limit: float = 60.0,
    *,
    certify: bool = False,
    seed: int = 0,
    jobs: int | None = None,
    library: str | Path | None = None,
) -> Benchmark:
    """Measure functions of one's own, each call in a process of its own that has a limit.

    Parameters
    ----------
    methods : callable, str, or several
        Functions from a `Problem` to a `Plan`, a `Schedule`, a `Strategy`, or a pair of a strategy
        and one of the others; or, for addresses, from a `PlacementProblem` to a `Placement`. None
        stands for no answer. A parameter ``time_limit`` is given the seconds, ``seed`` the seed.
        A text is a method of `offcert.solve` or `offcert.place`, to stand beside.
    problems : Problem, PlacementProblem, str, or several
        A text is a problem's file or ``library:PATTERN``. Schedules or addresses, not both.
    time_limit : float
        Seconds of each call; soon after that it is interrupted, or killed.
    certify : bool
        Whether to certify every problem within the same time, too; of problems of the library there
        are records without it.
    seed : int
        Seed of every method.
    jobs : int, optional
        Processes at a time; by default one for every core.
    library : str or Path, optional
        Folder of another library than the package's.

    Raises
    ------
    InputError
        If an argument is none of these, or two functions have one name.
    """
    time_limit, seed = require_seconds(time_limit, "time_limit"), require_seed(seed, "seed")
    processes = cores() if jobs is None else require_count(jobs, "jobs")
    names = _names([methods] if callable(methods) or isinstance(methods, str) else methods)
    single = isinstance(problems, str | Problem | PlacementProblem)
    given: list[Any] = [problems] if single else list(problems)  # type: ignore[arg-type]
    settings = CellSettings(time_limit, seed)
    placements = [each for each in given if isinstance(each, PlacementProblem)]
    if not placements:
        subjects = _subjects(given, library)
        cells = grid(subjects, [*names, *([CERTIFY] if certify else [])], settings=settings)
        rows = run(cells, CampaignTable(), jobs=processes).rows
        found = measured_of(rows, Library(library))
    elif len(placements) < len(given):
        raise InputError("problems must all be placement problems, or none of them")
    else:
        found = _placements_measured(placements, names, settings, processes)
    return Benchmark(tuple(found), tuple(standings(found)))


def _names(methods: Iterable[Function | str]) -> list[str]:
    """Return the methods as tables call them; what has no name elsewhere is known by it here."""
    names: list[str] = []
    for method in methods:
        if isinstance(method, str):
            names.append(method)
            continue
        if not callable(method):
            raise InputError(f"methods must be functions or names, not {short_repr(method)}")
        kind: Any = method if hasattr(method, "__qualname__") else type(method)
        name = f"{kind.__module__}:{kind.__qualname__}"
        if name in names:
            raise InputError(f"two methods are called {name}; tables could not tell them apart")
        names.append(name)
        if not _importable(name, method):
            GIVEN[name] = method
    return names


def _importable(name: str, method: Function) -> bool:
    if name.startswith("__main__:") or "<" in name:
        return False
    try:
        return users_function(name, "method") is method
    except InputError:
        return False


def _subjects(given: Sequence[Any], library: str | Path | None) -> list[Subject]:
    subjects = []
    for each in given:
        if isinstance(each, str | os.PathLike):
            subjects += find_subjects([str(each)], library)
        elif isinstance(each, Problem):
            subjects.append(Subject(each.name, each))
        else:
            raise InputError(f"problems must be problems or texts, not {short_repr(each)}")
    return subjects


_Item = tuple[PlacementProblem, str, float, int]


def _placements_measured(
    problems: Sequence[PlacementProblem], names: Sequence[str], settings: CellSettings, jobs: int
) -> list[Measured]:
    """Return results of methods on problems of addresses."""
    limit, seed = settings.time_limit, settings.seed
    items = [(problem, name, limit, seed) for problem in problems for name in names]
    tasks = [PoolTask((item,), limit + OWN_GRACE) for item in items]
    start = "fork" if any(name in GIVEN for name in names) else "forkserver"
    pool = ProcessPool(place_one, jobs, start=start)
    with closing(pool.run(tasks)) as answers:
        found = {(id(item[0]), item[1]): answer for item, answer in answers}
    measured = []
    for problem in problems:
        same = {name: found[id(problem), name] for name in names}
        good = [each for each in same.values() if not isinstance(each, Failure)]
        best = min((each[0] for each in good if each[0] is not None), default=None)
        proved = max((each[1] for each in good), default=problem.load)
        digest = canonical_digest(placement_problem_to_json(problem))
        for name, each in same.items():
            value, _, seconds, status, reason = (
                (None, 0, each.seconds, FAILED, each.reason) if isinstance(each, Failure) else each
            )
            facts = (problem.name, digest, OWN, name, status, value, best, proved)
            measured.append(Measured(*facts, seconds, reason))
    return measured


def place_one(item: _Item) -> tuple[int | None, int, float, str, str | None]:
    """Return pool, proved bound, seconds, status and what went wrong of one call."""
    problem, name, time_limit, seed = item
    certificate = place(problem, name, time_limit=time_limit, seed=seed)
    result, notes = certificate.result, certificate.notes
    bound = max(problem.load, result.proved_bound)
    reason = "; ".join(notes.failed.values()) or None
    status = FAILED if reason else str(result.status) if result.pool is not None else NO_PLAN
    return result.pool, bound, result.runtime, status, reason
