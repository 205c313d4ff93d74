"""The report of the demonstration: certificate, verification and training on one page."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from offcert.core.documents import read_json
from offcert.core.errors import InputError
from offcert.core.units import format_gap, format_size, format_time
from offcert.proofs.certificate import Certificate, read_certificate
from offcert.questions.schedule.problem import format_objective
from offcert.questions.schedule.schedule import FluidSchedule
from offcert.report.execution import reruns_of
from offcert.report.forecasts import host_said


def write_summary(folder: Path) -> str:
    """Return the report on what ``make demo`` left in a folder, as Markdown.

    Parameters
    ----------
    folder : Path
        Holds ``certificate.json``, ``verification.json``, ``plan.png`` and ``training.json``.

    Raises
    ------
    InputError
        If one of them is missing or broken.
    """
    certificate = read_certificate(folder / "certificate.json")
    verification = read_json(folder / "verification.json")
    training = read_json(folder / "training.json")
    return "\n".join(
        [
            f"# {certificate.problem.name}",
            "",
            *_plan_lines(certificate),
            "",
            *_bound_lines(verification),
            "",
            "![the plan](plan.png)",
            "",
            *_training_lines(training, certificate),
            "",
        ]
    )


def _plan_lines(certificate: Certificate) -> list[str]:
    problem, result = certificate.executed, certificate.result
    trace, units = problem.trace, problem.units
    plain = certificate.problem.trace
    if result.schedule is None or result.objective is None:
        return [f"No plan: {result.status}."]
    moved = {trace.gaps[gap].tensor for gap in result.schedule.evicted}
    size = sum(trace.tensors[tensor].size for tensor in moved)
    if isinstance(result.schedule, FluidSchedule):
        size = round(result.schedule.offloaded_size)
    reruns = reruns_of(certificate)
    host = host_said(certificate)
    again = [] if reruns is None else [f"- recomputed: {reruns.said(units)}"]
    return [
        f"- memory: {format_size(plain.peak_memory, units)} without a plan, "
        f"{format_size(problem.platform.memory, units)} allowed",
        f"- offloaded: {len(moved)} of {len(trace.gaps)} tensors, {format_size(size, units)}",
        *again,
        f"- step: {format_time(result.schedule.makespan, units)}, of which "
        f"{format_time(plain.compute_time, units)} is computing everything once",
        *([] if host is None else [f"- step with its host: {host}"]),
        f"- {_least(result.word)} {format_objective(result.lower_bound, certificate.problem)}"
        f": {result.status}, gap {format_gap(result.gap)}{result.word}",
    ]


def _least(word: str) -> str:
    """Return the words before a bound: that it is proved, or that a solver says so."""
    said = "a solver says that no plan takes less than"
    return said if word else "no plan can take less than"


def _bound_lines(verification: dict[str, Any]) -> list[str]:
    lines = [
        f"The certificate is {'valid' if verification['valid'] else 'INVALID'}.",
        "",
        "| lower bound | ticks | evidence | verification |",
        "| --- | ---: | --- | --- |",
    ]
    lines += [
        f"| {bound['method']} | {bound['value']} | {bound['evidence']} | {bound['finding']} |"
        for bound in verification["bounds"]
    ]
    return lines


def _training_lines(training: dict[str, Any], certificate: Certificate) -> list[str]:
    units = certificate.problem.units
    steps = training["steps"]
    return [
        f"Training {training['name']} by this plan, beside plain training, {len(steps)} step(s):",
        "",
        f"- losses, gradients, parameters and buffers bitwise equal: {training['bitwise_equal']}",
        f"- live bytes as predicted at every event: {training['follows_prediction']}",
        f"- peak {format_size(training['peak'], units)}, limit "
        f"{format_size(training['limit'], units)}, without a plan "
        f"{format_size(training['unplanned_peak'], units)}",
        f"- left the device: {format_size(steps[-1]['offloaded_bytes'], units)} a step",
    ]


def main() -> int:
    """Print the report on a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="where make demo has left its files")
    try:
        print(write_summary(parser.parse_args().folder))
    except (InputError, ValueError, json.JSONDecodeError) as error:
        print(f"benchmarks.demonstration: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
