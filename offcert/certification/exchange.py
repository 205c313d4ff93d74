"""Models of problems for other solvers, and schedules that come back from elsewhere, certified."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from offcert.certification.joint_methods import bound_at_once
from offcert.certification.ladder import certify
from offcert.certification.method import Effort
from offcert.certification.running import UnsoundError
from offcert.certification.schedule_tables import read_schedule
from offcert.certification.search import Search, chooses_execution
from offcert.certification.search_steps.bounds import climb_combinatorial
from offcert.core.documents import make_folder, read_text, write_text
from offcert.core.errors import InputError, MethodError, OffcertError, PlanError
from offcert.core.execution import Execution
from offcert.core.result import Evidence
from offcert.core.trace import require_integer
from offcert.formulations.common.outcome import rough_plans
from offcert.formulations.common.time_grid import choose_grid
from offcert.formulations.exported.cells import Cells, Keeps, require_exportable
from offcert.formulations.exported.integer_program import (
    CellModel,
    IntegerProgram,
    RetentionProgram,
    lp,
    mps,
    opb,
    read_solution,
)
from offcert.formulations.exported.interval import MODEL, Instance
from offcert.heuristics.evictions.rules import greedy, sequential
from offcert.instances.library import Library
from offcert.instances.records import Record
from offcert.proofs.any_certificate import Settings
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.check import check, peak
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Minimise, Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.simulate import simulate
from offcert.verification.execution import legality_faults

TIME_INDEXED, INTERVAL, RETENTION = "time-indexed", "interval", "retention"
# The model that each format holds.
FORMATS = {
    "mps": TIME_INDEXED,
    "lp": TIME_INDEXED,
    "opb": TIME_INDEXED,
    "mzn": INTERVAL,
    "csv": INTERVAL,
}
PROGRAMS: dict[str, Callable[[IntegerProgram], Iterator[str]]] = {"mps": mps, "lp": lp, "opb": opb}
# Variables of a program whose grid nobody has chosen. Arbitrary.
_VARIABLES = 20_000


@dataclass(frozen=True)
class ModelFiles:
    """A problem as a model, in text."""

    # What each file holds, by its ending: ``".mps"``; ``".mzn"`` and ``".dzn"``; or, of tables,
    # ``"/operations.csv"`` and so on.
    files: Mapping[str, str]
    # Of a program.
    variables: int | None = None
    rows: int | None = None

    def write(self, path: str | Path) -> list[Path]:
        """Write the files and return their names; tables go into a folder."""
        target = Path(path)
        tables = any(ending.startswith("/") for ending in self.files)
        if not tables and target.suffix not in self.files:
            raise InputError(f"{path} must end in {next(iter(self.files))}")
        written = []
        for ending, text in self.files.items():
            name = target / ending[1:] if tables else target.with_suffix(ending)
            if tables:
                make_folder(target)
            write_text(name, text)
            written.append(name)
        return written


@dataclass(frozen=True, kw_only=True)
class Exported(ModelFiles):
    """A problem as a model whose times are rounded to cells."""

    cells: Cells  # How they are rounded
    exact: bool  # Whether nothing was rounded


def export_retention(problem: Problem, form: str) -> ModelFiles:
    """Return a linear program of which copies are kept and which computations run again.

    Nothing may leave in the problem. The format is ``"mps"`` or ``"lp"``: not all of its variables
    are 0 or 1.
    """
    if form not in ("mps", "lp"):
        raise InputError(f"format must be mps or lp for the model {RETENTION}, not {form}")
    try:
        program = RetentionProgram(problem).program()
    except MethodError as error:
        raise InputError(str(error)) from None
    text = "\n".join(PROGRAMS[form](program)) + "\n"
    return ModelFiles({f".{form}": text}, len(program.names), len(program.rows))


def export(
    problem: Problem,
    form: str,
    *,
    model: str | None = None,
    grid: int | None = None,
    keeps: str = Keeps.BOUND,
    horizon: int | None = None,
) -> Exported:
    """Return a problem as a model for other solvers.

    The problem is one of whole transfers, in which everything runs once and time is minimised;
    `form` is a key of `FORMATS`, and the model by default the one that it is for. `grid` are ticks
    a cell; by default the coarsest that rounds nothing, or one that leaves a program of moderate
    size. `keeps` says what stays valid where times are rounded: ``"bound"`` or ``"schedule"``.
    Schedules of more than `horizon` ticks, by default what a heuristic attains, are not described.
    """
    if form not in FORMATS:
        raise InputError(f'format must be one of {", ".join(FORMATS)}, not "{form}"')
    if model not in (None, FORMATS[form]):
        raise InputError(f"format {form} is for the model {FORMATS[form]}, not {model}")
    if keeps not in tuple(Keeps):
        raise InputError(f'what stays valid must be {" or ".join(Keeps)}, not "{keeps}"')
    require_exportable(problem)
    known = _attained(problem)
    horizon = known if horizon is None else require_integer(horizon, "horizon", 1)
    if grid is None:
        grid = choose_grid(problem, max(horizon, known), _VARIABLES)
    cells = Cells(require_integer(grid, "grid", 1), Keeps(keeps), horizon)
    exact = cells.exact(problem)
    if form in PROGRAMS:
        program = CellModel(problem, cells).program()
        files = {f".{form}": "\n".join(PROGRAMS[form](program)) + "\n"}
        size = len(program.names), len(program.rows)
        return Exported(files, *size, cells=cells, exact=exact)
    instance = Instance.of(problem, cells)
    if form == "csv":
        files = {f"/{name}.csv": text for name, text in instance.tables().items()}
    else:
        lines = (f"% {problem.name}", *instance.dzn())
        files = {".mzn": MODEL, ".dzn": "\n".join(lines) + "\n"}
    return Exported(files, cells=cells, exact=exact)


def _attained(problem: Problem) -> int:
    """Return the ticks of a schedule; `sequential` always makes one."""
    best = simulate(problem, sequential(problem)).makespan
    with suppress(OffcertError):
        best = min(best, simulate(problem, greedy(problem)).makespan)
    return best


METHOD = "import"
# Bytes of memory where it is minimised, and so no limit. Arbitrary: more than any device has.
_AMPLE = 2**60


@dataclass(frozen=True)
class Imported:
    """A schedule from elsewhere, put to the test."""

    # Every reason why it is none of its problem; then there is no certificate.
    faults: tuple[str, ...]
    certificate: Certificate | None  # With the schedule, and bounds that are proved
    record: Record  # The library's of this problem; empty if it has none


def import_schedule(
    problem: Problem,
    path: str | Path,
    *,
    time_limit: float | None = None,
    library: Library | None = None,
    decisions: bool = False,
) -> Imported:
    """Check a schedule that something else has made, and certify it.

    The file is a table as `read_schedule` reads it; or, ending in ``.sol``, what a solver says of
    an exported program. With `decisions`, times say no more than an order: what starts when is
    found anew. Bounds are searched for in the time limit; by default only those are added that cost
    next to nothing, and what the library (by default the package's) has proved.
    """
    if Path(path).suffix.lower() == ".sol":
        execution, plans = _solved(problem, path)
    else:
        execution, schedule = read_schedule(problem, path)
        executed = problem if execution is None else problem.executed(execution)
        plans = rough_plans(executed.trace, schedule) if decisions else []
    if plans:
        executed = problem if execution is None else problem.executed(execution)
        if problem.minimise is Minimise.MEMORY:
            executed = executed.with_memory(_AMPLE)
        found = _followed(executed, plans)
        if isinstance(found, str):
            fault = f"its order of transfers cannot be followed: {found}"
            return Imported((fault,), None, _record(problem, library or Library()))
        schedule = found
    return examined(problem, execution, schedule, time_limit=time_limit, library=library)


def _solved(problem: Problem, path: str | Path) -> tuple[Execution | None, list[Plan]]:
    """Return the execution and the plans that follow a solver's solution of an exported program."""
    text = read_text(path)
    try:
        cells, values = read_solution(text)
        if cells is None:
            return RetentionProgram(problem).executed(values), [Plan()]
        return None, CellModel(problem, cells).plans(values)
    except (InputError, MethodError) as error:
        raise InputError(f"{path}: {error}") from None


def _followed(problem: Problem, plans: Iterable[Plan]) -> Schedule | str:
    """Return the shortest schedule that follows one of some plans, or why there is none."""
    found, reason = [], ""
    for plan in plans:
        try:
            found.append(simulate(problem, plan))
        except PlanError as error:
            reason = reason or str(error)
    return min(found, key=lambda schedule: schedule.makespan, default=reason)


def examined(
    problem: Problem,
    execution: Execution | None,
    schedule: Schedule,
    *,
    time_limit: float | None = None,
    library: Library | None = None,
) -> Imported:
    """Check a schedule and certify it, as `import_schedule` does with one from a file."""
    record = _record(problem, library or Library())
    memory = None
    executed = problem if execution is None else problem.executed(execution)
    if problem.minimise is Minimise.MEMORY:
        executed = executed.with_memory(_AMPLE)
    faults = [] if execution is None else legality_faults(problem, execution)
    faults = faults or check(executed, schedule)
    if not faults and problem.minimise is Minimise.MEMORY:
        memory = peak(executed, schedule)
        late = problem.deadline is not None and schedule.makespan > problem.deadline
        faults = [f"it takes {schedule.makespan}, more than {problem.deadline}"] if late else []
    if faults:
        return Imported(tuple(faults), None, record)
    search = Search(problem, 1.0 if time_limit is None else time_limit)
    search.begin(METHOD)
    search.offer_executed(execution, schedule, memory)
    if search.schedule is None:
        raise UnsoundError("the schedule is legal, but the program could not carry it out")
    _bound(search, time_limit, record)
    return Imported((), search.certificate(METHOD, Settings(time_limit=time_limit)), record)


def _bound(search: Search, time_limit: float | None, record: Record) -> None:
    """Add the bounds that are known or cost little, and those that a search finds in its time."""
    effort = Effort(search.remaining, 1, 0)
    if chooses_execution(search.problem):
        bound_at_once(search, effort)
    else:
        climb_combinatorial(search, effort, late_too=True)
    for known in record.bounds:
        bound = known.bound
        kept = bound.evidence is Evidence.PROVED and "omitted" not in bound.details
        if kept and bound not in search.bounds:
            search.add(bound)
    if time_limit is not None and search.lower_bound < (search.objective or 0):
        for bound in certify(search.problem, time_limit=time_limit).result.bounds:
            search.add(bound)


def _record(problem: Problem, library: Library) -> Record:
    try:
        entry = library.entry(problem.name)
    except InputError:
        return Record()
    return entry.record if entry.digest == problem_digest(problem) else Record()
