"""Solvers that read a program from a file by themselves, and write what they found."""

import re
import subprocess
import warnings
from pathlib import Path

import pulp
from ortools.linear_solver.python import model_builder
from scipy.optimize._highspy import _core


def highs(model: Path, solution: Path, style: int = 0) -> float:
    """Solve a file with HiGHS as SciPy has it, which reads files by itself.

    It writes the solution in one of its styles: raw, for people, as GLPK does for programs or for
    people, and without zeros.
    """
    solver = _core._Highs()
    solver.setOptionValue("output_flag", False)
    assert solver.readModel(str(model)) == _core.HighsStatus.kOk
    solver.run()
    solver.writeSolution(str(solution), style)
    return float(solver.getObjectiveValue())


def cbc(model: Path, solution: Path) -> float:
    """Solve a file with the program CBC that PuLP brings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = pulp.PULP_CBC_CMD(msg=False).path
    run = [path, str(model), "-solve", "-solution", str(solution)]
    subprocess.run(run, capture_output=True, check=True)
    first = solution.read_text().splitlines()[0]
    match = re.fullmatch(r"Optimal - objective value (\S+)", first.strip())
    assert match, first
    return float(match[1])


def cpsat(model: Path, solution: Path) -> float:
    """Solve an MPS file with CP-SAT as it is by default, which reads files by itself."""
    program = model_builder.Model()
    assert program.import_from_mps_file(str(model))
    solver = model_builder.Solver("sat")
    assert solver.solve(program) == model_builder.SolveStatus.OPTIMAL
    values = (f"{each.name} {solver.value(each)}" for each in program.get_variables())
    solution.write_text("\n".join(values) + "\n")
    return float(solver.objective_value)
