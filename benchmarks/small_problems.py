"""Close small random problems and boxes: how many are proved optimal, and what that takes.

    python benchmarks/small_problems.py --problems 300 --boxes 40
    python benchmarks/small_problems.py --stages 12 --problems 60 --boxes 0 --time-limit 20

Problems are those of the tests: chains like networks, chains with traps, and traces whose tensors
have several gaps, on either link, some with a rate of its own for each direction. A box puts up to
a third more or less around every time; its bound is that of the fastest corner. "Closed" means that
a proof meets the schedule; of a box, that a proof meets what brute force says of that corner.
Solvers' words do not count. Prints a Markdown table, seconds of CPU; what stays open goes to
stderr. In another checkout (``PYTHONPATH``) it measures that one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from offcert.certification.ladder import certify
from offcert.core.result import Evidence
from offcert.core.uncertainty import Spread, Uncertainty
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem
from offcert.verification.document import verify

COLUMNS = ("what", "closed", "certify", "verify", "longest to certify", "longest to verify")


def boxes(count: int, stages: int) -> Iterator[Problem]:
    """Yield problems with several gaps a tensor, each with a box of times around it."""
    from support.problems.random_instances import mixed_problem

    seed = 0
    while count:
        seed += 1
        problem = mixed_problem(seed, stages)
        if len({gap.tensor for gap in problem.trace.gaps}) == len(problem.trace.gaps):
            continue
        rng = random.Random(seed)
        spreads = tuple(
            Spread(rng.choice((Fraction(0), Fraction(1, 3))), Fraction(1, 10), pattern)
            for pattern in ("*[02468]", "*")
        )
        rate = problem.platform.bandwidth
        rates = (rate * rng.choice((1, Fraction(1, 2))), rate * rng.choice((1, Fraction(5, 4))))
        yield replace(problem, uncertainty=Uncertainty(spreads, None, rates))
        count -= 1


def goal_of(problem: Problem, certificate: Certificate) -> int | None:
    """Return the time of the schedule, or the optimum of a box's corner: a bound has to meet it."""
    from support.oracles.schedules import brute_force

    if problem.uncertainty is None:
        return certificate.result.objective
    return brute_force(problem.corner(fastest=True))


def measured(what: str, problems: Iterator[Problem], time_limit: float) -> None:
    """Certify and verify problems, and print a line about them."""
    closed, count = 0, 0
    spent: tuple[list[float], list[float]] = ([], [])
    for problem in problems:
        begun = time.process_time()
        certificate = certify(problem, time_limit=time_limit, attested=False)
        middle = time.process_time()
        verification = verify(certificate.to_json())
        spent[0].append(middle - begun)
        spent[1].append(time.process_time() - middle)
        robust = certificate.robust
        bounds = certificate.result.bounds if robust is None else robust.bounds
        best = max(each.value for each in bounds if each.evidence is Evidence.PROVED)
        goal = goal_of(problem, certificate)
        count += 1
        if verification.valid and best == goal:
            closed += 1
        else:
            print(f"{problem.name}: {best} of {goal}", *verification.faults, file=sys.stderr)
    figures = [f"{figure(times):.2g} s" for figure in (sum, max) for times in spent]
    print(f"| {what} | {closed} of {count} | {' | '.join(figures)} |", flush=True)


def main() -> None:
    """Run the benchmark that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--boxes", type=int, default=40)
    parser.add_argument("--stages", type=int, default=5, help="most stages, two operations each")
    parser.add_argument("--seed", type=int, default=0, help="of the first problem")
    parser.add_argument("--time-limit", type=float, default=5.0)
    options = parser.parse_args()
    sys.path[:0] = [str(Path(__file__).parent.parent / "tests")]
    from support.problems.random_instances import mixed_problem

    print(f"| {' | '.join(COLUMNS)} |\n| --- |{' ---: |' * (len(COLUMNS) - 1)}")
    seeds = range(options.seed, options.seed + options.problems)
    drawn = (mixed_problem(seed, options.stages) for seed in seeds)
    if options.problems:
        measured("problems", drawn, options.time_limit)
    if options.boxes:
        measured("boxes", boxes(options.boxes, options.stages), options.time_limit)


if __name__ == "__main__":
    main()
