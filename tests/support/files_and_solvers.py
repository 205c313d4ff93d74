"""Solvers that read a program from a file by themselves, and write what they found."""

import re
import subprocess
import warnings
from pathlib import Path

import pulp
from scipy.optimize._highspy import _core


def highs(model: Path, solution: Path) -> float:
    """Solve a file with HiGHS as SciPy has it, which reads files by itself."""
    solver = _core._Highs()
    solver.setOptionValue("output_flag", False)
    assert solver.readModel(str(model)) == _core.HighsStatus.kOk
    solver.run()
    solver.writeSolution(str(solution), 0)
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
