"""The command `generate adversarial`: a search for the problem on which a method does worst."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from offcert.cli.arguments import integer, seconds
from offcert.cli.output import STDOUT, add_target, native_output_to_stderr, put_problem, show
from offcert.cli.parser import EXIT_INVALID, Commands, add_command
from offcert.cli.progress import progress
from offcert.cli.searching import TRANSFERS

if TYPE_CHECKING:
    from offcert.proofs.certificate import Certificate
    from offcert.questions.schedule.problem import Problem
    from offcert_lab.hunts.adversarial.chains import AdversarialChains
    from offcert_lab.hunts.adversarial.checkpoint_chains import AdversarialCheckpoints
    from offcert_lab.hunts.adversarial.hunt import Hunt

# Seconds of a hunt, and of certifying what it found, unless the command says otherwise. Arbitrary.
_DEFAULT_SECONDS = 60.0
_CERTIFY_SECONDS = 60.0
# Knobs of `AdversarialChains`, which knows their defaults; importing it would load solvers.
_NUMBERS = {
    "stages": "fewest stages; minimising goes no further (default: 4)",
    "most": "most stages to search with (default: some more than the fewest)",
    "largest": "largest duration or size (default: 20)",
    "shortest": "shortest duration (default: 1)",
    "tolerance": "per cent of (ratio - 1) that simpler numbers may cost (default: 10)",
}


_EXAMPLES = (
    "offcert generate adversarial --against greedy --time-limit 30 -o problem.json",
    "offcert generate adversarial --against sqrt --steps 500 -o problem.json",
    "offcert generate adversarial --against persistent --by rematerialisation -o problem.json",
)


def add(kinds: Commands) -> None:
    """Add the command to those of ``offcert generate``."""
    summary = "search for the problem on which a method or a bound does worst"
    parser = add_command(kinds, "adversarial", summary, _run, examples=_EXAMPLES)
    parser.add_argument("--against", required=True, metavar="NAME", help="method or bound; ?: list")
    parser.add_argument(
        "--by",
        metavar="NAME",
        help="method or bound to measure it by (default: the optimum; of checkpoints the least "
        "live bytes, or the least time of recomputation)",
    )
    parser.add_argument(
        "--transfers",
        choices=TRANSFERS,
        help="of the problems; checkpoints have none (default: atomic)",
    )
    for name, text in _NUMBERS.items():
        parser.add_argument(f"--{name}", type=integer, metavar="N", help=text)
    parser.add_argument("--seed", type=integer, default=0, metavar="N", help="of what is drawn")
    parser.add_argument(
        "--steps",
        type=integer,
        metavar="N",
        help="end after so many problems, which can be repeated (default: no limit)",
    )
    parser.add_argument(
        "--time-limit",
        type=seconds,
        metavar="S",
        help=f"end after so many seconds (default: {_DEFAULT_SECONDS:g} if no --steps are given)",
    )
    add_target(parser)
    parser.add_argument(
        "--certificate",
        metavar="FILE",
        help="file for the certificate of the problem that is found (default: none is written)",
    )


def _run(options: argparse.Namespace) -> int:
    from offcert_lab.hunts.adversarial.chains import certified

    chains = _chains(options)
    limit = options.time_limit
    if limit is None and options.steps is None:
        limit = _DEFAULT_SECONDS
    certificate = None
    with native_output_to_stderr(), progress(options, _describe_progress) as tell:
        hunt, problem = chains.hunt(
            options.seed, steps=options.steps, time_limit=limit, progress=tell
        )
        if problem is not None:
            certificate = certified(problem, time_limit=_CERTIFY_SECONDS)
    if problem is None or certificate is None:
        contest = hunt.terms.contest
        text = f"{hunt.steps} problems tried, and {contest.against} and {contest.by} never differed"
        if options.target_file == STDOUT and not options.json:
            print(f"offcert: {text}{_no_plan_text(hunt)}", file=sys.stderr)
        else:
            show(options, _summary(hunt, None, None), text + _no_plan_text(hunt))
        return EXIT_INVALID
    if options.certificate is not None:
        certificate.write(options.certificate)
    if not put_problem(problem, options.target_file):
        return 0
    show(options, _summary(hunt, problem, certificate), _text(hunt, problem, certificate))
    return 0


def _chains(options: argparse.Namespace) -> AdversarialChains | AdversarialCheckpoints:
    """Return the search: by the name of whom it is against, on chains that run once or again."""
    from offcert.core.errors import InputError
    from offcert.core.messages import cut, meant
    from offcert_lab.hunts.adversarial import checkpoint_chains as checkpoint_values
    from offcert_lab.hunts.adversarial import values
    from offcert_lab.hunts.adversarial.chains import AdversarialChains
    from offcert_lab.hunts.adversarial.checkpoint_chains import AdversarialCheckpoints

    given = ("against", "by", "transfers", "steps", *_NUMBERS)
    knobs = {name: getattr(options, name) for name in given if getattr(options, name) is not None}
    if options.against in checkpoint_values.NAMES:
        if "transfers" in knobs:
            raise InputError(f"--transfers means nothing against {options.against}")
        return AdversarialCheckpoints(**knobs)
    if options.against not in values.NAMES:
        known = (*values.NAMES, *checkpoint_values.NAMES)
        names = ", ".join(f'"{name}"' for name in known)
        hint = meant(options.against, known)
        raise InputError(f'against must be one of {names}, not "{cut(options.against)}"{hint}')
    return AdversarialChains(**knobs)


def _summary(
    hunt: Hunt, problem: Problem | None, certificate: Certificate | None
) -> dict[str, Any]:
    from offcert.questions.schedule.files import problem_to_json

    summary: dict[str, Any] = {
        "found": problem is not None,
        "steps": hunt.steps,
        "seconds": round(hunt.seconds, 3),
        "minimised": hunt.minimised,
        "interrupted": hunt.interrupted,
        "no_plans": hunt.no_plans,
    }
    if hunt.no_plan is not None:
        transfers = hunt.terms.contest.transfers
        summary["no_plan"] = problem_to_json(hunt.no_plan.problem(transfers, "no-plan"))
    find = hunt.find
    if problem is None or find is None or certificate is None:
        return summary
    result = certificate.result
    return summary | {
        "name": problem.name,
        "stages": find.numbers.stages,
        "against": hunt.terms.contest.against,
        "by": hunt.terms.contest.by,
        "over": find.score.over,
        "under": find.score.under,
        "ratio": float(find.score.ratio),
        "worst_ratio": float(hunt.ratio),
        "optimum": result.objective,
        "lower_bound": result.lower_bound,
        "evidence": None if result.evidence is None else str(result.evidence),
        "status": str(result.status),
    }


def _text(hunt: Hunt, problem: Problem, certificate: Certificate) -> str:
    find, contest = hunt.find, hunt.terms.contest
    assert find is not None
    first, second = (contest.by, contest.against)[:: 1 if contest.is_bound else -1]
    ended = "minimised" if hunt.minimised else "not minimised to the end"
    result = certificate.result
    lines = [
        f"{problem.name}: {first} is {float(find.score.ratio):.4g} times {second}",
        f"  values         {find.score.over} and {find.score.under}",
        f"  numbers        {find.numbers}",
        f"  optimum        {result.objective}, bound {result.lower_bound}, {result.status}"
        f"{result.word}",
        f"  search         {hunt.steps} problems in {hunt.seconds:.1f} s, worst ratio "
        f"{float(hunt.ratio):.4g}, {ended}",
    ]
    return "\n".join(lines) + _no_plan_text(hunt)


def _no_plan_text(hunt: Hunt) -> str:
    if hunt.no_plan is None:
        return ""
    return (
        f"\n  no plan        by {hunt.terms.contest.against} on {hunt.no_plans} problems, "
        f"for example {hunt.no_plan}"
    )


def _describe_progress(hunt: Hunt) -> str:
    find = hunt.find
    known = "nothing yet"
    if find is not None:
        known = f"ratio {float(find.score.ratio):.4f}, {find.numbers.stages} stages"
    return f"{hunt.phase}  {hunt.steps} problems  {known}"
