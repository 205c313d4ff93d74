"""Exported interval models solved by MiniZinc, where it is installed, beside known optima.

``python benchmarks/minizinc.py --solver gecode`` prints a line a problem: the optimum that is
proved, what MiniZinc's solver found from the files, and what its schedule is worth when it is
imported. It needs the program ``minizinc``, for example Debian's package of that name.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import offcert
from offcert.certification.exchange import export, import_schedule
from offcert.instances.cnn import UniformChains


def problems(count: int) -> list[offcert.Problem]:
    """Return small problems, simplex and duplex in turn."""
    found = []
    for seed in range(count):
        problem = UniformChains(stages=2 + seed % 3).problem(seed).with_memory("20%")
        if seed % 2:
            platform = problem.platform
            link = offcert.Platform(platform.memory, platform.bandwidth, link="duplex")
            problem = offcert.Problem(f"{problem.name}-duplex", problem.network, link)
        found.append(problem)
    return found


def measured(problem: offcert.Problem, command: list[str], seconds: float) -> tuple[str, bool]:
    """Return a line about a problem, and whether nothing in it contradicts what is proved."""
    certificate = offcert.certify(problem, time_limit=10)
    result = certificate.result
    made = export(problem, "mzn", grid=1)
    with tempfile.TemporaryDirectory() as folder:
        model, data = made.write(Path(folder, "model.mzn"))
        limit = ["--time-limit", str(int(1000 * seconds))]
        run = [*command, *limit, str(model), str(data)]
        done = subprocess.run(run, capture_output=True, text=True, check=True)
        table = Path(folder, "schedule.csv")
        table.write_text(done.stdout)
        claims = re.findall(r"% objective (\d+) ticks", done.stdout)
        if not claims:
            return f"{problem.name:28} {result.objective:6} no solution in time", True
        closed = "==========" in done.stdout
        found = import_schedule(problem, table)
        legal = found.faults[0] if found.faults else "legal"
        value = int(claims[-1])
        assert result.objective is not None
        right = not found.faults and value >= result.lower_bound
        right = right and (not closed or value <= result.objective)
    word = "optimal, it says" if closed else "stopped"
    return f"{problem.name:28} {result.objective:6} {value:6} {word}, {legal}", right


def main() -> int:
    """Solve, print, and return whether something contradicts something else."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minizinc", default="minizinc", help="the program")
    parser.add_argument("--solver", default="gecode", help="as minizinc --solvers lists them")
    parser.add_argument("--problems", type=int, default=12, help="how many")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds for each")
    options = parser.parse_args()
    if shutil.which(options.minizinc) is None:
        print(f"{options.minizinc} is not installed: nothing is measured", file=sys.stderr)
        return 2
    command = [options.minizinc, "--solver", options.solver]
    print(f"{'problem':28} {'proved':>6} {'found':>6}")
    wrong = 0
    for problem in problems(options.problems):
        line, right = measured(problem, command, options.time_limit)
        print(line if right else f"{line}  CONTRADICTION", flush=True)
        wrong += not right
    print(f"{options.problems} problems, {wrong} contradictions")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
