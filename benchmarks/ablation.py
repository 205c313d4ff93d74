"""Problems closed by each kind of proof, and by it alone: each is switched off in turn.

    python benchmarks/ablation.py --only 'inception_v3-*-b32-m[05]*' --time-limit 10

Each problem is certified with all that its ladder runs, and if that closes it, once more without
each kind of proof whose rungs had begun. The table says of each kind on how many problems its rungs
ran, how many they closed, how many stay open without it, and the largest gap that then is left.
With ``--off KIND`` each problem is certified once, without these kinds: two such runs are before
and after.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ladder import Item, answer, chosen_problems
from ladder_records import Run, all_ladders, ladder_of

from offcert.campaign.pool import Failure
from offcert.certification.registry import STEPS
from offcert.core.errors import InputError
from offcert.core.options import require_count, require_seconds, require_seed
from offcert.questions.schedule.problem import Problem


@dataclass(frozen=True)
class Trial:
    """One search, without a kind of proof or, if that is empty, with all."""

    off: str
    run: Run

    @property
    def cpu_seconds(self) -> float:
        """Seconds of processor cores."""
        return sum(event.cpu_seconds for event in self.run.events)


def searched_bounds(step: str) -> tuple[str, ...]:
    """Return the kinds of bounds that a step of a ladder searches for."""
    return STEPS[step].bounds


def kinds_begun(run: Run) -> list[str]:
    """Return the kinds of bounds whose rungs had begun."""
    return sorted({kind for e in run.events if e.begun for kind in searched_bounds(e.step)})


def closers(run: Run) -> tuple[str, ...]:
    """Return the kinds of bounds of the rung that closed the problem, if one did."""
    return next((searched_bounds(event.step) for event in run.events if event.closed), ())


def tried(problem: Problem, off: Sequence[str], options: argparse.Namespace) -> Trial:
    """Certify in a process of its own, without some kinds."""
    rungs = tuple(
        rung
        for rung in all_ladders()[ladder_of(problem)]
        if rung.always or not set(rung.method.bounds) & set(off)
    )
    found = answer(Item(problem, rungs, options.time_limit, options.workers, options.seed))
    name = f"{problem.name} without {', '.join(off) or 'nothing'}"
    if isinstance(found, Failure):
        # To leave it out would favour what crashes.
        raise InputError(f"{name}: {found.reason}")
    trial = Trial(", ".join(off), found)
    by = f" by {', '.join(closers(found)) or 'a schedule'}" if found.gap == 0 else ""
    said = f"{found.gap:.4%} open{by}, {trial.cpu_seconds:.1f} s of processors"
    print(f"{name}: {said}", file=sys.stderr, flush=True)
    return trial


def trials_of(problem: Problem, options: argparse.Namespace) -> list[Trial]:
    """Return the search with all kinds, and if it closes the problem those without one each."""
    first = tried(problem, options.off, options)
    kinds = [] if first.run.gap or options.off else kinds_begun(first.run)
    return [first, *(tried(problem, [kind], options) for kind in kinds)]


def table(trials: Sequence[Trial], off: str) -> str:
    """Return a Markdown table, a line a kind, and a sentence about the searches with all."""
    whole = [trial for trial in trials if trial.off == off]
    closed_by = [kind for trial in whole for kind in closers(trial.run)]
    lines = [
        "| kind | ran | closed | open without it | largest gap without it |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for kind in sorted({trial.off for trial in trials} - {off}):
        gaps = [trial.run.gap for trial in trials if trial.off == kind]
        alone = sum(gap > 0 for gap in gaps)
        lines.append(
            f"| {kind} | {len(gaps)} | {closed_by.count(kind)} | {alone} | {max(gaps):.4%} |"
        )
    closed = sum(trial.run.gap == 0 for trial in whole)
    cpu = sum(trial.cpu_seconds for trial in whole)
    said = f"{closed} of {len(whole)} closed in {cpu:.0f} s of processors"
    return "\n".join([*(lines if len(lines) > 2 else []), said])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line's choices; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", help="pattern of names of the library; by default a sample")
    parser.add_argument("--off", action="append", default=[], help="a kind of bound; repeatable")
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        require_seconds(options.time_limit, "--time-limit")
        require_count(options.workers, "--workers")
        require_seed(options.seed, "--seed")
        problems = chosen_problems(options.only, None)
        trials = [trial for problem in problems for trial in trials_of(problem, options)]
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    print(table(trials, ", ".join(options.off)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
