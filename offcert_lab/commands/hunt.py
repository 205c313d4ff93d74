"""The command `hunt`: random problems on which somebody's claims contradict what is proved."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from offcert.cli.arguments import count, integer, seconds
from offcert.cli.output import native_output_to_stderr, require_folder, show
from offcert.cli.parser import EXIT_INVALID, Commands, add_command, add_group
from offcert.cli.progress import progress

if TYPE_CHECKING:
    from offcert_lab.hunts.solvers import SolverHunt

_EXAMPLES = (
    "offcert hunt solvers --problems 1000 -o contradictions",
    "offcert hunt solvers --time-limit 3600 --seed 100000 --json",
)
# Problems of a hunt unless the command says otherwise. Arbitrary.
_PROBLEMS = 100


def add(commands: Commands) -> None:
    """Add the command and its only action."""
    text = "look for claims that contradict what is proved"
    actions = add_group(commands, "hunt", text, "solvers", examples=_EXAMPLES[:1])
    summary = "solve random small problems with CP-SAT, HiGHS and CBC beside exact proofs"
    parser = add_command(actions, "solvers", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "--problems",
        type=count,
        metavar="N",
        help=f"how many (default: {_PROBLEMS}, or as the time limit allows)",
    )
    parser.add_argument(
        "--time-limit", type=seconds, metavar="S", help="end after so many seconds (default: none)"
    )
    parser.add_argument("--seed", type=integer, default=0, metavar="N", help="of the first problem")
    parser.add_argument(
        "-o",
        dest="output",
        metavar="DIR",
        help="folder for contradictions: problem, program (.lp, .mps) and claims (default: none is "
        "kept)",
    )
    parser.set_defaults(prepare=_prepare)


def _prepare(options: argparse.Namespace) -> None:
    """Find out before hours of work whether a contradiction can be kept."""
    if options.output is not None:
        require_folder(options, "contradictions")


def _run(options: argparse.Namespace) -> int:
    from offcert_lab.hunts.solvers import hunt_solvers

    problems = options.problems
    if problems is None and options.time_limit is None:
        problems = _PROBLEMS
    with native_output_to_stderr(), progress(options, _line) as tell:
        found = hunt_solvers(
            seed=options.seed,
            problems=problems,
            seconds=options.time_limit,
            folder=options.output,
            progress=tell,
        )
    document = {
        "problems": found.problems,
        "seed": options.seed,
        "closed": found.closed,
        "contradictions": [each.to_json() for each in found.contradictions],
        "seconds": found.seconds,
    }
    lines = [_line(found)]
    lines += [f"{e.problem.name}: {fault}" for e in found.contradictions for fault in e.faults]
    show(options, document, "\n".join(lines))
    return EXIT_INVALID if found.contradictions else 0


def _line(found: SolverHunt) -> str:
    closed = ", ".join(f"{solver} {number}" for solver, number in found.closed.items())
    return (
        f"{found.problems} problems in {found.seconds:.0f} s; solved to the end by {closed}; "
        f"{len(found.contradictions)} contradictions"
    )
