"""The command `devices`: one step on several devices that share a link."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from offcert.cli.arguments import count, source
from offcert.cli.parser import Commands, add_command
from offcert.cli.searching import (
    add_search,
    progress_line,
    search_and_say,
    search_settings,
)
from offcert.core.units import format_time, parse_bandwidth

if TYPE_CHECKING:
    from offcert.questions.devices.problem import DevicesProblem

_EXAMPLES = (
    "offcert devices problem.json --devices 4 --memory 6GB -o certificate.json",
    "offcert devices problem.json --rule fifo --json",
)
# Settings of a search on several devices; `certify` has more.
_SETTINGS = ("time_limit", "workers", "seed")


def add(commands: Commands) -> None:
    """Add the command."""
    summary = "schedule a data-parallel step on several devices, and prove how good that is"
    parser = add_command(commands, "devices", summary, _run, examples=_EXAMPLES)
    parser.add_argument(
        "problem",
        type=source,
        metavar="PROBLEM",
        help="problem file for several devices",
    )
    parser.add_argument("--devices", type=count, metavar="N", help="how many (default: the file's)")
    parser.add_argument(
        "--memory",
        metavar="LIMIT",
        help="of each device: a size such as 6GiB, or 40%% of the way from the least that is "
        "feasible to the peak (default: the file's)",
    )
    _add_accumulation(parser)
    parser.add_argument(
        "--rule",
        choices=("fifo", "activations-first", "gradients-first", "longest-tail"),
        help="follow one rule of who uses the link next; fifo is the moDNN paper's (default: all, "
        "and a search over orders)",
    )
    add_search(parser, *_SETTINGS)
    parser.add_argument(
        "--problem-output",
        metavar="PROBLEM",
        help="file for the problem as the options make it (default: none is written)",
    )


def _add_accumulation(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--place",
        choices=("host", "device"),
        help="who adds gradients up: the host during the step, or the first device after it "
        "(default: the file's)",
    )
    parser.add_argument(
        "--rate",
        metavar="RATE",
        help="at which one core of the host, or the device, adds gradients: 4GB/s, or size units "
        "per tick (default: the file's)",
    )
    parser.add_argument(
        "--cores", type=count, metavar="N", help="of the host that add (default: the file's)"
    )


def _run(options: argparse.Namespace) -> int:
    from offcert.certification.devices import certify_devices
    from offcert.proofs.questions import DEVICES
    from offcert.questions.devices.problem import read_devices_problem, write_devices_problem

    problem = _changed(read_devices_problem(options.problem), options)
    if options.problem_output is not None:
        write_devices_problem(options.problem_output, problem)
    units = problem.step.units
    settings = search_settings(options, *_SETTINGS)
    return search_and_say(
        options,
        partial(certify_devices, problem, rule=options.rule, **settings),
        DEVICES.text.load().said,
        lambda news: progress_line(news, lambda ticks: format_time(ticks, units)),
    )


def _changed(problem: DevicesProblem, options: argparse.Namespace) -> DevicesProblem:
    """Return the problem as the options change it."""
    from offcert.questions.devices.problem import Accumulation, AdditionPlace

    if options.devices is not None:
        problem = problem.with_devices(options.devices)
    if options.memory is not None:
        problem = replace(problem, step=problem.step.with_memory(options.memory))
    adding = problem.accumulation
    place = adding.place if options.place is None else AdditionPlace(options.place)
    rate = adding.rate
    if options.rate is not None:
        rate = parse_bandwidth(options.rate, problem.step.units, "--rate")
    cores = options.cores or (adding.cores if place is AdditionPlace.HOST else 1)
    return problem.with_accumulation(Accumulation(place, rate, cores))
