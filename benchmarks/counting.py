"""Bounds of a weighted sum of rows on exported 0-1 programs, beside known optima.

``python benchmarks/counting.py`` prints a line a problem: the time of computing, the optimum, what
counting proves if schedules up to the heuristics' are described, and if twice as long ones are.
``--veripb PATH`` has VeriPB 0.3 of 2022 read the proofs, which knows version 1 of the format only:
`pol` is called `p` there, and that the sum says the bound is asked for by `e`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import offcert
from offcert.instances.cnn import UniformChains
from offcert.instances.library import Library
from offcert_lab.checkers.counting import CountedFiles, export_counted


def problems() -> list[offcert.Problem]:
    """Return small problems whose optimum is quickly proved."""
    library = Library()
    drawn = [UniformChains(stages=2 + s % 2).problem(s).with_memory("20%") for s in range(6)]
    names = ("three-partition-2-100-no", "three-partition-2-100-yes")
    return [*drawn, *(library.load(name) for name in names)]


def old_proof(made: CountedFiles, larger: int = 0) -> str:
    """Return the proof in version 1 of the format, perhaps of a larger bound than is proved."""
    header, formula, rule, _, conclusion, _ = made.files[".pbp"].splitlines()
    value = int(conclusion.split()[2]) + larger
    objective = next(
        line for line in made.files[".opb"].splitlines() if line.startswith("min:")
    ).removeprefix("min:")
    number = int(formula.split()[1]) + 1
    claim = f"e {number} {objective.removesuffix(';').strip()} >= {value} ;"
    lines = [header.replace("2.0", "1.2"), formula, rule.replace("pol", "p"), claim]
    return "\n".join(lines) + "\n"


def accepts(program: str, opb: str, proof: str) -> bool:
    """Return whether VeriPB accepts a proof."""
    with tempfile.TemporaryDirectory() as folder:
        model, path = Path(folder, "model.opb"), Path(folder, "proof.pbp")
        model.write_text(opb)
        path.write_text(proof)
        done = subprocess.run(
            [program, str(model), str(path)], capture_output=True, text=True, check=False
        )
    return "Verification succeeded" in done.stdout


def main() -> int:
    """Export, print, and return whether something was refused or is too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--veripb", help="the program, version 0.3")
    options = parser.parse_args()
    print(f"{'problem':28} {'computing':>9} {'optimum':>8} {'counted':>8} {'longer':>8}")
    wrong = 0
    for problem in problems():
        best = offcert.certify(problem, time_limit=10).result.objective
        made = export_counted(problem)
        longer = export_counted(problem, horizon=2 * made.made.cells.horizon)
        word = ""
        for each in (made, longer):
            right = best is not None and each.least <= best
            if options.veripb:
                opb = each.files[".opb"]
                right &= accepts(options.veripb, opb, old_proof(each))
                right &= not accepts(options.veripb, opb, old_proof(each, larger=1))
                word = "  VeriPB accepts" if right else "  REFUSED"
            wrong += not right
        numbers = f"{problem.trace.compute_time:9} {best:8} {made.least:8} {longer.least:8}"
        print(f"{problem.name:28} {numbers}{word}", flush=True)
    print(f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
