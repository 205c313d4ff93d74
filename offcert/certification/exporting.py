"""Problems written as models that other solvers read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from offcert.core.documents import make_folder, write_text
from offcert.core.errors import InputError, MethodError, OffcertError
from offcert.core.trace import require_integer
from offcert.formulations.common.time_grid import choose_grid
from offcert.formulations.exported.cells import Cells, Keeps, require_exportable
from offcert.formulations.exported.integer_program import (
    CellModel,
    IntegerProgram,
    RetentionProgram,
)
from offcert.formulations.exported.interval import MODEL, Instance
from offcert.formulations.exported.text import lp, mps, opb
from offcert.heuristics.evictions.rules import greedy, sequential
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.simulate import simulate

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
    """A model as text.

    Attributes
    ----------
    files : mapping of str to str
        What each file holds, by its ending: ``".mps"``; ``".mzn"`` and ``".dzn"``; or, of tables,
        ``"/operations.csv"`` and so on.
    """

    files: Mapping[str, str]

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


@dataclass(frozen=True)
class Exported(ModelFiles):
    """A problem as a model.

    Attributes
    ----------
    cells : Cells
        How its times are rounded.
    exact : bool
        Whether nothing was rounded.
    variables, rows : int or None
        Of a program.
    """

    cells: Cells
    exact: bool
    variables: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class ExportedRetention(ModelFiles):
    """A problem of recomputation alone as a program.

    Attributes
    ----------
    variables, rows : int
    """

    variables: int
    rows: int


def export_retention(problem: Problem, form: str) -> ExportedRetention:
    """Return a linear program of which copies are kept and which computations run again.

    Parameters
    ----------
    problem : Problem
        In which nothing may leave and anything may run again; time or memory is minimised.
    form : str
        ``"mps"`` or ``"lp"``: not all of its variables are 0 or 1.
    """
    if form not in ("mps", "lp"):
        raise InputError(f"format must be mps or lp for the model {RETENTION}, not {form}")
    try:
        program = RetentionProgram(problem).program()
    except MethodError as error:
        raise InputError(str(error)) from None
    text = "\n".join(PROGRAMS[form](program)) + "\n"
    return ExportedRetention({f".{form}": text}, len(program.names), len(program.rows))


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

    Parameters
    ----------
    problem : Problem
        Of whole transfers, in which everything runs once and time is minimised.
    form : str
        A key of `FORMATS`.
    model : str, optional
        By default the one that the format is for.
    grid : int, optional
        Ticks a cell; by default the coarsest that rounds nothing, or one that leaves a program of
        moderate size.
    keeps : str
        Kind of value that stays valid where times are rounded: ``"bound"`` or ``"schedule"``.
    horizon : int, optional
        Ticks; longer schedules are not described. By default what a heuristic attains.
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
        return Exported(files, cells, exact, *size)
    instance = Instance.of(problem, cells)
    if form == "csv":
        files = {f"/{name}.csv": text for name, text in instance.tables().items()}
        return Exported(files, cells, exact)
    lines = (f"% {problem.name}", *instance.dzn())
    return Exported({".mzn": MODEL, ".dzn": "\n".join(lines) + "\n"}, cells, exact)


def _attained(problem: Problem) -> int:
    """Return the ticks of a schedule; `sequential` always makes one."""
    best = simulate(problem, sequential(problem)).makespan
    with suppress(OffcertError):
        best = min(best, simulate(problem, greedy(problem)).makespan)
    return best
