"""The command `generate`: a problem of some kind from a seed."""

from __future__ import annotations

import argparse
from dataclasses import fields
from fractions import Fraction
from functools import partial
from typing import Any

from offcert.cli import lab
from offcert.cli.arguments import integer
from offcert.cli.output import add_target, put_problem, show
from offcert.cli.parser import Commands, add_command, add_group
from offcert.core.lab import GENERATORS
from offcert.core.messages import cut
from offcert.questions.schedule.problem import Problem, parse_memory

_EXAMPLES = ("offcert generate cnn --stages 24 --memory 25% --seed 1 -o problem.json",)


# Characters of the longest text that is read as a number; longer ones are no ratios. Arbitrary.
_LONGEST_NUMBER = 40


def add(commands: Commands) -> None:
    """Add the command and one of its own for each kind."""
    from offcert.instances.kinds import KINDS

    summary = "make a problem of some kind from a seed"
    kinds = add_group(commands, "generate", summary, "KIND", examples=_EXAMPLES)
    for kind, cls in KINDS.items():
        parser = add_command(
            kinds,
            kind,
            cls.summary,
            partial(_run, kind),
            examples=(f"offcert generate {kind} --seed 1 -o problem.json",),
        )
        for item in fields(cls):
            _add_knob(parser, item)
        parser.add_argument("--seed", type=integer, default=0, metavar="N", help="of what is drawn")
        if cls.takes_memory:
            parser.add_argument(
                "--memory",
                default="0%",
                metavar="LIMIT",
                help="a percentage of the way from the least that is feasible to the peak, or a "
                "number of units",
            )
        else:
            parser.add_argument(
                "--values",
                type=_integers,
                metavar="A,B,…",
                help="the numbers to divide (default: drawn from the seed)",
            )
        add_target(parser)
    lab.add(kinds, GENERATORS, "offcert generate")


def _add_knob(parser: argparse.ArgumentParser, item: Any) -> None:
    text = item.metadata["help"]
    options: dict[str, Any] = {"dest": f"knob_{item.name}", "default": item.default, "help": text}
    if isinstance(item.default, bool):
        options["action"] = argparse.BooleanOptionalAction
    elif isinstance(item.default, Fraction):
        options |= {"type": _rational, "metavar": "A/B"}
    elif isinstance(item.default, int):
        options |= {"type": integer, "metavar": "N"}
    else:
        options["choices"] = item.metadata["choices"]
    parser.add_argument(f"--{item.name.replace('_', '-')}", **options)


def _integers(text: str) -> list[int]:
    return [integer(part) for part in text.split(",")]


def _rational(text: str) -> Fraction:
    try:
        if len(text) <= _LONGEST_NUMBER:
            return Fraction(text)
    except (ValueError, ZeroDivisionError):
        pass
    raise argparse.ArgumentTypeError(f'must look like "3/2" or "1.5", not {cut(text)}')


def _run(kind: str, options: argparse.Namespace) -> int:
    problem = _generated(options, kind)
    if not put_problem(problem, options.target_file):
        return 0
    from offcert.report.text import describe_problem, problem_summary

    solution = (problem.source or {}).get("solution")
    text = describe_problem(problem)
    if solution is not None:
        there = "a" if solution["answer"] == "yes" else "no"
        text += f"\n  answer         {solution['answer']}: {there} schedule of length "
        text += f"{solution['makespan']} exists"
    summary = problem_summary(problem) | ({"solution": solution} if solution else {})
    show(options, summary, text)
    return 0


def _generated(options: argparse.Namespace, kind: str) -> Problem:
    from offcert.instances.kinds import generator, reduced

    if getattr(options, "values", None) is not None:
        return reduced(kind, options.values, getattr(options, "knob_transfers", "atomic"))
    prefix = "knob_"
    knobs = {
        name.removeprefix(prefix): value
        for name, value in vars(options).items()
        if name.startswith(prefix)
    }
    problem = generator(kind, knobs).problem(options.seed)
    if hasattr(options, "memory"):
        problem = problem.with_memory(parse_memory(options.memory, problem))
    return problem
