"""Parts of `make gpu`: measured problems, and certificates for them.

`profiles` needs the card, and writes ``problems/NETWORK.json`` and what the card reaches,
``card.toml`` (for ``--hardware``). `certificates` needs none: with the problems, and the rows of
checkpointing, it may run on another machine, and the folder goes back.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from gpu_meter import HARDWARE, Bench
from gpu_part import Part
from gpu_rows import CHECKPOINTED, JOINT, MOVING, WAYS, Row

from offcert.core.platform import Kind
from offcert.questions.schedule.carried import with_host
from offcert.questions.schedule.files import read_problem, write_problem
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.training_record import AllocatorPeaks

# Of the memory of plans where the peak of checkpointing has not been measured. Arbitrary.
SHARE = Fraction(1, 4)


def profiles(part: Part) -> None:
    """Measure each network's step, and write it as a problem."""
    part.folder.mkdir(parents=True, exist_ok=True)
    if not (part.folder / "card.toml").exists() or part.again:
        from offcert.runtime.hardware.choice import measured_card
        from offcert.runtime.hardware.files import write_hardware

        write_hardware(part.folder / "card.toml", measured_card())
    for network in part.wanted("profile"):
        path = part.problem(network)
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.row(network, "profile") as found:
            bench = Bench(network)
            problem = _measured(bench)
            write_problem(path, problem)
            found.update(device=bench.name, **columns(problem))


def _measured(bench: Bench) -> Problem:
    from offcert.runtime.profiling.profile import profile

    # The problem counts gradients apart: the step begins without them.
    bench.model.zero_grad(set_to_none=True)
    if not bench.simulated:
        return profile(bench.step, measure=True, recompute="none")
    device = bench.device()
    return profile(bench.step, measure=True, device=device, hardware=HARDWARE, recompute="none")


def columns(problem: Problem) -> dict[str, Any]:
    """Return the columns of a row about a problem that was measured."""
    trace, source = problem.trace, problem.source or {}
    rates = [f"{float(problem.platform.rate(kind)):.1f}" for kind in Kind]
    note = f"{len(trace)} operations, link {' and '.join(rates)} GB/s"
    measured = source["measurement"]
    if "unforeseen" in measured:
        note += f", {measured['unforeseen']['bytes']:,} bytes saved that were not foreseen"
    told = measured.get("allocator")
    if told is not None:
        planned = trace.peak_memory + sum(source["uncounted"].values())
        peaks = AllocatorPeaks(0, told["peak_allocated"], told["peak_reserved"])
        note += f"; {peaks.beside(planned, planned)}"
    launches = measured.get("launch_ns")
    if launches is not None and measured.get("step_ns"):
        # The goal: within 2 %.
        part = with_host(trace.durations, launches) / measured["step_ns"]
        note += f"; operations and their host add up to {100 * part:.1f} % of the step"
    return {
        "measured_ms": trace.compute_time / 1e6,
        "host_ms": None if launches is None else sum(launches) / 1e6,
        "hosted_ms": None if launches is None else with_host(trace.durations, launches) / 1e6,
        "peak_allocated": trace.peak_memory,
        "note": note,
    }


def certificates(part: Part) -> None:
    """Look for plans that move, and for such that compute again as well, at an equal peak."""
    from offcert.certification.ladder import certify

    for kind, recompute in ((JOINT, Recompute.ANY), (MOVING, Recompute.NONE)):
        for network in part.wanted(kind):
            if not part.problem(network).exists():
                print(f"{network}: no problem; PART=profiles measures it", flush=True)
                continue
            with part.row(network, kind) as found:
                problem = read_problem(part.problem(network))
                found["limit"] = limit = limit_of(part, network, problem)
                if problem.computed is not None:
                    problem = replace(problem, recompute=recompute)
                seconds = max(1.0, min(part.search_seconds, part.left))
                at = problem.with_memory(limit)
                made = certify(at, time_limit=seconds, target_gap=1e-3, seed=0)
                result = made.result
                found["bound_ms"] = _ms(result.proved_bound)
                found["forecast_ms"] = _ms(result.objective)
                found["note"] = str(result.status)
                if result.schedule is not None:
                    path = part.certificate(network, kind)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    made.write(path)


def limit_of(part: Part, network: str, problem: Problem) -> int:
    """Return the peak of checkpointing, or the least in which plans that only move may do."""
    row: Row | None = part.rows.find(WAYS, network, CHECKPOINTED)
    plain = problem.plain()
    if row is None or row.peak_allocated is None:
        return plain.memory_at(SHARE)
    return max(row.peak_allocated, plain.least_memory)


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e6
