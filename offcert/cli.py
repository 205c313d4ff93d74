"""The command line: arguments in, one call, result out.

Each command imports what it needs inside its function, so that ``offcert --help`` answers at once
and people who only solve and verify never load torch.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from offcert import __version__
from offcert.cli_arguments import count, gap, seconds, seed
from offcert.cli_compare import add_compare_command
from offcert.cli_curves import add_curve_commands
from offcert.cli_instances import add_instance_commands
from offcert.cli_output import native_output_to_stderr
from offcert.cli_profile import add_profile_command
from offcert.cli_train import add_train_command

if TYPE_CHECKING:
    from offcert.certify.search import Progress
    from offcert.core.problem import Problem
    from offcert.proofs.certificate import Certificate

_EXIT_INVALID = 1
_EXIT_INPUT = 2
_EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns
    -------
    int
        Exit code: 0 for a result (an infeasible problem is one), 1 for a certificate or a training
        run that does not hold, 2 for bad input.
    """
    from offcert.core.errors import OffcertError

    options = _parser().parse_args(arguments)
    try:
        if getattr(options, "output", None) is not None:
            from offcert.core.documents import require_writable

            require_writable(options.output)
        code: int = options.run(options)
        sys.stdout.flush()
    except OffcertError as error:
        print(f"offcert: {error}", file=sys.stderr)
        return _EXIT_INPUT
    except KeyboardInterrupt:
        print("offcert: interrupted", file=sys.stderr)
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever reads has seen enough; the interpreter must not try to write the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"offcert: the output cannot be written: {error.strerror}", file=sys.stderr)
        return _EXIT_INPUT
    return code


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as all else here does."""

    def error(self, message: str) -> NoReturn:
        print(f"offcert: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(_EXIT_INPUT)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="offcert",
        description="Certified offloading plans for neural-network training under a memory limit.",
    )
    parser.add_argument("--version", action="version", version=f"offcert {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add_profile_command(commands, _command, _print)
    for add in (_add_certify, _add_solve, _add_verify):
        add(commands)
    add_train_command(commands, _command, _print)
    _add_plot(commands)
    add_compare_command(commands, _command, _print)
    add_instance_commands(commands, _command, _print)
    add_curve_commands(commands, _command, _print)
    return parser


Commands = Any  # argparse does not name the type that add_subparsers returns


def _command(
    commands: Commands, name: str, summary: str, run: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("problem", metavar="PROBLEM", help="problem file")
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument("--memory", help="limit, for example 40%% or 6GiB; the file's by default")
    limits.add_argument(
        "--device-memory", help="limit with what the trace does not count: parameters and so on"
    )
    parser.add_argument("--bandwidth", help="both ways, for example 12.2GB/s")
    parser.add_argument(
        "--prefetch-bandwidth",
        help="from host to device, if not the same as the other way",
    )
    parser.add_argument("--transfers", help="atomic, interruptible or fractional; default: file's")
    parser.add_argument("--time-limit", type=seconds, default=60.0, metavar="S")
    parser.add_argument("--workers", type=count, default=2, metavar="N")
    parser.add_argument("--target-gap", type=gap, default=0.0, metavar="G")
    parser.add_argument("--seed", type=seed, default=0, metavar="N")
    parser.add_argument("-o", "--output", metavar="CERTIFICATE")


def _add_certify(commands: Commands) -> None:
    parser = _command(commands, "certify", "find a schedule and prove how good it is", _certify)
    _add_limits(parser)


def _add_solve(commands: Commands) -> None:
    parser = _command(commands, "solve", "run one method", _solve)
    parser.add_argument("--method", required=True, metavar="NAME", help="?: list them")
    _add_limits(parser)
    parser.add_argument("--grid", type=count, metavar="TICKS", help="for time-indexed models")
    parser.add_argument("--solver", metavar="NAME", help="linear solver, for example PULP_CBC_CMD")


def _add_verify(commands: Commands) -> None:
    parser = _command(commands, "verify", "check a certificate with independent code", _verify)
    parser.add_argument("certificate", metavar="CERTIFICATE")


def _add_plot(commands: Commands) -> None:
    parser = _command(commands, "plot", "draw the schedule and the memory curve", _plot)
    parser.add_argument("certificate", metavar="CERTIFICATE")
    parser.add_argument("-o", "--output", required=True, metavar="out.png|out.svg")


def _read_problem(options: argparse.Namespace) -> Problem:
    from dataclasses import replace

    from offcert.core.device_memory import memory_beside, uncounted_bytes
    from offcert.core.files import read_problem
    from offcert.core.plan import Kind
    from offcert.core.units import parse_bandwidth, parse_memory, parse_size

    problem = read_problem(options.problem)
    if options.transfers is not None:
        problem = replace(problem, transfers=options.transfers)
    if options.bandwidth is not None:
        problem = problem.with_bandwidth(parse_bandwidth(options.bandwidth, problem.units))
    if options.prefetch_bandwidth is not None:
        back = parse_bandwidth(options.prefetch_bandwidth, problem.units, "prefetch bandwidth")
        problem = problem.with_bandwidth(problem.platform.rate(Kind.OFFLOAD), back)
    if options.memory is not None:
        problem = problem.with_memory(parse_memory(options.memory, problem))
    if options.device_memory is not None:
        size = parse_size(options.device_memory, "device memory")
        problem = problem.with_memory(memory_beside(size, uncounted_bytes(problem)))
    return problem


def _certify(options: argparse.Namespace) -> int:
    from offcert.certify.ladder import certify

    return _search(options, certify)


def _solve(options: argparse.Namespace) -> int:
    from functools import partial

    from offcert.certify.methods import solve

    chosen = partial(solve, method=options.method, grid=options.grid, solver=options.solver)
    return _search(options, chosen)


def _search(options: argparse.Namespace, search: Callable[..., Certificate]) -> int:
    from offcert.certify.interrupts import terminating_interrupts
    from offcert.report.text import certificate_summary, describe_certificate

    problem = _read_problem(options)
    with native_output_to_stderr(), terminating_interrupts():
        certificate = search(
            problem,
            time_limit=options.time_limit,
            workers=options.workers,
            target_gap=options.target_gap,
            seed=options.seed,
            progress=_show_progress if sys.stderr.isatty() else None,
            # However this process ends, the file holds the best that was known.
            keep=None if options.output is None else lambda known: known.write(options.output),
        )
    if options.output is not None:
        certificate.write(options.output)
    _print(options, certificate_summary(certificate), describe_certificate(certificate))
    return 0


def _show_progress(progress: Progress) -> None:
    gap = ""
    if progress.objective:
        gap = f"  gap {100 * (1 - progress.lower_bound / progress.objective):.3f} %"
    print(
        f"{progress.seconds:7.1f} s  bound {progress.lower_bound}  "
        f"best {progress.objective if progress.objective is not None else '-'}{gap}"
        f"  {progress.step}",
        file=sys.stderr,
    )


def _verify(options: argparse.Namespace) -> int:
    from offcert.report.text import describe_verification, verification_summary
    from offcert.verify.document import verify_file

    verification = verify_file(options.certificate)
    _print(options, verification_summary(verification), describe_verification(verification))
    return 0 if verification.valid else _EXIT_INVALID


def _plot(options: argparse.Namespace) -> int:
    from offcert.proofs.certificate import read_certificate
    from offcert.report.gantt import save_gantt

    save_gantt(read_certificate(options.certificate), options.output)
    _print(options, {"written": options.output}, f"wrote {options.output}")
    return 0


def _print(options: argparse.Namespace, document: dict[str, Any], text: str) -> None:
    print(json.dumps(document, allow_nan=False) if options.json else text)


if __name__ == "__main__":
    sys.exit(main())
