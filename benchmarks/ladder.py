"""The ladder's rungs: printed, measured, and fitted.

    python benchmarks/ladder.py print --ladder "long traces"
    python benchmarks/ladder.py measure --time-limit 10 -o out/ladder.json
    python benchmarks/ladder.py fit --ladder "many tensors" --only 'resnet101-*' --time-limit 10

``print`` says of every rung what it runs, for how long, under which conditions, and why: those of
scheduling, and those of problems in which computations may run again, or memory is minimised.

``measure`` certifies problems of the library, by default a sample of few, and says of every rung
how often it ran, why it did not, the seconds that it took, how often it improved the schedule or
the bound, which part it closed of the gap that it found, on average, and how often it closed the
problem. Measuring changes nothing in what `certify` does.

``fit`` gives one rung after the other more or less time (its share, and its bounds in seconds) and
compares in turns, with the same seeds: by the geometric mean of the gaps that are left, or with
``--by time`` of the seconds until they are closed. A difference that is not larger than that of the
ladder from itself is none. What was better is tried once more, all together, with other seeds.
``fit`` proposes; it edits no file.

Each search runs in a process of its own. Seconds of the search's clock depend on what else runs on
the machine, those of processor cores less so.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ladder_fit import Fit, comparison_document, proposals, score_by
from ladder_records import Run, all_ladders, ladder_of, run_of
from ladder_text import contributions, fitted_text, printed, rung_document, summaries

from offcert.campaign.pool import Failure, PoolTask, ProcessPool
from offcert.certification.rung import Rung
from offcert.core.documents import write_json
from offcert.core.errors import InputError
from offcert.core.options import require_count, require_seconds, require_seed
from offcert.instances.library import Library
from offcert.questions.schedule.problem import Problem

# Some of each ladder, of which most stay open for a while.
SAMPLE = (
    "resnet18-224-b32-m25",
    "inception_v3-224-b32-m25",
    "inception_v3-500-b32-m50",
    "vgg19-operators-m10",
    "resnet101-224-b32-m10",
    "resnet152-224-b32-m75",
    "resnet18-modules-m25",
    "resnet34-modules-m2",
    "cnn-24-0-m5",
    "cnn-36-0-m0",
    "core-cnn-40-0",
    "core-broad-32-0",
    "uniform-36-1-m10",
    "adversarial-ordered-interruptible",
    "densenet121-modules-m2",
    "resnet50-operators-m2",
    "resnet50-operators-m10",
    "checkpoint-chain-16-0-m40",
    "recompute-network-8-0-m40",
    "adversarial-checkpoint-sqrt",
)
PRELOADED = ("offcert.campaign.preload_search",)
# A search may take this many times its limit, and this many seconds more, to compile and to end.
PATIENCE, GRACE = 3, 240.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Item:
    """The task of a process: a problem, the rungs to climb or None for today's, and limits."""

    problem: Problem
    rungs: tuple[Rung, ...] | None
    time_limit: float
    workers: int
    seed: int


def work(item: Item) -> Run:
    """Certify, with everything compiled before."""
    from offcert.campaign.cells import CERTIFY
    from offcert.campaign.run import warm_up

    warm_up(CERTIFY)
    options = {"workers": item.workers, "seed": item.seed}
    return run_of(item.problem, item.rungs, time_limit=item.time_limit, **options)


def answer(item: Item) -> Run | Failure:
    """Return the answer of a process of its own."""
    pool = ProcessPool(work, 1, preload=PRELOADED)
    patience = PATIENCE * item.time_limit + GRACE
    return next(found for _, found in pool.run([PoolTask((item,), patience)]))


def chosen_ladders(name: str | None) -> dict[str, tuple[Rung, ...]]:
    """Return the ladder of this name, or all."""
    ladders = all_ladders()
    if name is None:
        return ladders
    if name not in ladders:
        raise InputError(f"--ladder {name!r} is none of {', '.join(map(repr, ladders))}")
    return {name: ladders[name]}


def chosen_problems(only: str | None, ladder: str | None) -> list[Problem]:
    """Return the library's problems that match a pattern, or the sample, of one ladder or all."""
    found = [
        entry.problem
        for entry in Library().entries()
        if (entry.name in SAMPLE if only is None else fnmatchcase(entry.name, only))
        and (ladder is None or ladder_of(entry.problem) == ladder)
    ]
    if not found:
        of = "" if ladder is None else f" of the ladder {ladder!r}"
        raise InputError(f"no problem{of} in the library matches --only {only or SAMPLE!r}")
    return sorted(found, key=lambda problem: len(problem.trace))


def measure(
    problems: Sequence[Problem], say: Say, ask: Callable[[Item], Run | Failure], **options: Any
) -> tuple[list[Run], dict[str, str]]:
    """Return a run of each problem, and of those that failed the reason."""
    runs, failed = [], {}
    begun = time.monotonic()
    for number, problem in enumerate(problems, start=1):
        found = ask(Item(problem, None, **options))
        head = f"{time.monotonic() - begun:7.1f} s  {number}/{len(problems)} {problem.name}"
        if isinstance(found, Failure):
            failed[problem.name] = found.reason
            say(f"{head}: {found.reason}")
            continue
        runs.append(found)
        say(f"{head}: {found.ladder}, gap {100 * found.gap:.3g} % in {found.seconds:.1f} s")
    return runs, failed


def trial_of(options: argparse.Namespace, say: Say) -> Callable[..., Run]:
    """Return a function that climbs rungs on a problem, in a process of its own."""

    def trial(rungs: Sequence[Rung], problem: Problem, seed: int) -> Run:
        limits = options.time_limit, options.workers, seed
        found = answer(Item(problem, tuple(rungs), *limits))
        if isinstance(found, Failure):
            # To leave it out would favour whichever ladder crashes.
            raise InputError(f"{problem.name}, seed {seed}: {found.reason}")
        say(f"  {problem.name}, seed {seed}: gap {100 * found.gap:.3g} %, {found.seconds:.1f} s")
        return found

    return trial


def run_print(options: argparse.Namespace, say: Say) -> None:
    """Print the ladders."""
    ladders = chosen_ladders(options.ladder)
    if options.json:
        documents = {
            name: [rung_document(place, rung) for place, rung in enumerate(rungs, start=1)]
            for name, rungs in ladders.items()
        }
        print(json.dumps(documents, indent=2))
        return
    print("\n\n".join(f"{name}\n{printed(rungs)}" for name, rungs in ladders.items()))


def run_measure(options: argparse.Namespace, say: Say) -> None:
    """Measure, print a table, and write it."""
    chosen_ladders(options.ladder)
    problems = chosen_problems(options.only, options.ladder)
    limits = {name: getattr(options, name) for name in ("time_limit", "workers", "seed")}
    runs, failed = measure(problems, say, answer, **limits)
    found = summaries(runs)
    print("\n\n".join(f"{name}\n{contributions(rows)}" for name, rows in found.items()))
    if options.output is not None:
        documents = [run.document() for run in runs]
        facts = limits | {"failed": failed, "ladders": found, "runs": documents}
        write_json(options.output, facts)


def positions_of(ladders: dict[str, tuple[Rung, ...]], rung: int | None) -> dict[str, list[int]]:
    """Return which rungs of each ladder are asked for: one of one ladder, or all."""
    if rung is None:
        return {name: list(range(1, len(rungs) + 1)) for name, rungs in ladders.items()}
    if len(ladders) > 1:
        raise InputError("--rung needs --ladder: every ladder has rungs of its own")
    for name, rungs in ladders.items():
        if not 1 <= rung <= len(rungs):
            raise InputError(f"--rung {rung}: the ladder {name!r} has rungs 1 to {len(rungs)}")
    return {name: [rung] for name in ladders}


def run_fit(options: argparse.Namespace, say: Say) -> None:
    """Fit, print what came of it, and write it."""
    found: dict[str, Any] = {}
    ladders = chosen_ladders(options.ladder)
    positions = positions_of(ladders, options.rung)
    problems = chosen_problems(options.only, options.ladder)
    for name, rungs in ladders.items():
        of = [problem for problem in problems if ladder_of(problem) == name]
        if not of:
            continue
        score = score_by(options.by, options.time_limit)
        asked = tuple(options.factors), options.repetitions, options.seed
        fit = Fit(of, trial_of(options, say), score, *asked, say)
        fitted = fit.run(rungs, positions[name])
        print(fitted_text(name, fitted, fit), flush=True)
        found[name] = {
            "problems": [problem.name for problem in of],
            "tried": [tried.document() for tried in fitted.tried],
            "check": comparison_document(fitted.check),
            "proposed": proposals(rungs, fitted.rungs) if fitted.holds else [],
        }
    if options.output is not None:
        names = ("by", "time_limit", "workers", "seed", "repetitions", "factors")
        facts = {name: getattr(options, name) for name in names}
        write_json(options.output, facts | {"ladders": found})


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options, checked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True)
    for name, run in {"print": run_print, "measure": run_measure, "fit": run_fit}.items():
        command = commands.add_parser(name)
        command.set_defaults(run=run, output=None)
        command.add_argument("--ladder", help="only the ladder of this name")
        if name == "print":
            command.add_argument("--json", action="store_true")
            continue
        command.add_argument("--only", help="pattern of problem names; by default a sample")
        command.add_argument("--time-limit", type=float, default=10.0)
        command.add_argument("--workers", type=int, default=1)
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("-o", "--output", type=Path)
        if name == "fit":
            command.add_argument("--rung", type=int, help="only the rung at this position")
            command.add_argument("--factors", type=float, nargs="+", default=[0.5, 2.0])
            command.add_argument("--repetitions", type=int, default=2)
            command.add_argument("--by", choices=("gap", "time"), default="gap")
    options = parser.parse_args(arguments)
    if options.run is not run_print:
        require_seconds(options.time_limit, "--time-limit")
        require_count(options.workers, "--workers")
        require_seed(options.seed, "--seed")
    if options.run is run_fit:
        require_count(options.repetitions, "--repetitions")
        for factor in options.factors:
            if not (0 < factor < math.inf and factor != 1):
                raise InputError(f"--factors: {factor:g} is not positive and other than 1")
    if options.output is not None and not options.output.parent.is_dir():
        raise InputError(f"{options.output} cannot be written: there is no such folder")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line's choices; return the exit code."""
    try:
        options = parsed(arguments)
        options.run(options, lambda text: print(text, file=sys.stderr, flush=True))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
