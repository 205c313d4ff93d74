"""Texts of the commands: one JSON object for programs, a few lines for people.

Of a problem they name the operation that sets its least memory, and what would lower it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from offcert.core.computations import Computation
from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.platform import Kind
from offcert.core.result import SolveStatus
from offcert.core.trace import Operation
from offcert.core.units import format_gap, format_size, format_time
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.device_memory import describe_uncounted, uncounted_bytes
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, format_objective
from offcert.report.execution import (
    choices_facts,
    choices_summary,
    reruns_of,
    times_lines,
    within,
)
from offcert.report.findings import (
    Text,
    checked_bounds,
    claimed_bounds,
    known_summary,
    notes_lines,
    notes_summary,
)
from offcert.report.forecasts import behind_host, host_lines, robust_lines, robust_summary
from offcert.report.placement_text import placed_summary, valid_placement_lines
from offcert.verification.document import Verification

_CHUNKS = (
    "--tail-chunks 8 of profile and doctor computes head and loss in chunks of tokens, which takes "
    "less; gradients are the same up to rounding"
)


def least_summary(problem: Problem) -> dict[str, Any]:
    """Return which operation sets the least memory, and the bytes of its own workspace."""
    operations, most = _largest(problem)
    return {"operation": operations[most].name, "workspace": operations[most].workspace}


def _largest(problem: Problem) -> tuple[Sequence[Operation | Computation], int]:
    """Return the operations, and which needs most where all else is absent that may be."""
    network = problem.computed
    if problem.recompute is Recompute.NONE or network is None:
        needed = problem.trace.least_demand
        return problem.trace.operations, max(range(len(needed)), key=needed.__getitem__)
    alone = network.own_memory
    return network.computations, max(range(len(alone)), key=alone.__getitem__)


def least_lines(problem: Problem) -> list[str]:
    """Return for people which operation sets the least memory, and what would lower it."""
    found = least_summary(problem)
    name, workspace = cut(found["operation"], 80), found["workspace"]
    own = f", {format_size(workspace, problem.units)} of it its workspace" if workspace else ""
    lines = [f"  that needs     {name}{own}"]
    remedy = tail_remedy(problem)
    return [*lines, f"                 {remedy}"] if remedy is not None else lines


def tail_remedy(problem: Problem) -> str | None:
    """Return advice that lowers the least memory if a language model's loss sets it, or None.

    It does if the largest operation is where the forward pass turns to the backward pass, from the
    layer that makes the logits on.
    """
    source = problem.source or {}
    options = source.get("options")
    options = options if isinstance(options, dict) else {}
    config = options.get("config")
    if "tail_chunks" in options or not isinstance(config, dict):
        return None
    operations, most = _largest(problem)
    names = [operation.name for operation in operations]
    heads = [index for index, name in enumerate(names) if name == "F:lm_head"]
    turn = next((index for index, name in enumerate(names) if name.startswith("B:")), len(names))
    if not heads or not heads[-1] <= most or names[most] not in names[heads[-1] : turn + 1]:
        return None
    return _CHUNKS


_CLOCKS = {
    "modules": "modules: what happens between two events at leaf modules",
    "operators": "operators, one by one",
    "graphs": "graphs: what TorchInductor would fuse in the graphs of torch.compile",
}
_TENSORS = {
    "fake": "fake tensors, which have no data",
    "real": "real tensors, because the program looks at values",
}


def origin_summary(problem: Problem) -> dict[str, Any]:
    """Return clock, kind of tensors, device and uncounted bytes, as far as the problem has them."""
    source = problem.source or {}
    capture = _capture(problem)
    found = {
        "clock": source.get("clock"),
        "tensors": capture.get("tensors"),
        "device": capture.get("device"),
        "uncounted": _uncounted(problem),
    }
    return {name: value for name, value in found.items() if value is not None}


def origin_lines(problem: Problem) -> list[str]:
    """Return for people where a problem comes from: clock, times, tensors, uncounted bytes."""
    found = origin_summary(problem)
    lines = []
    if "clock" in found:
        lines.append(f"  clock          {_CLOCKS.get(found['clock'], found['clock'])}")
    lines += times_lines(problem, 15)
    if "tensors" in found:
        tensors = _TENSORS.get(found["tensors"], found["tensors"])
        lines.append(f"  captured on    {tensors}; device: {found.get('device')}")
    if "uncounted" in found:
        sizes = found["uncounted"]
        total = format_size(sum(sizes.values()), problem.units)
        lines.append(f"  not counted    {total}: {describe_uncounted(sizes)}")
        if "optimiser" not in sizes:
            lines.append("                 and the optimiser's state, which is not known")
    return lines


def _capture(problem: Problem) -> dict[str, Any]:
    found = (problem.source or {}).get("capture")
    return found if isinstance(found, dict) else {}


def _uncounted(problem: Problem) -> dict[str, int] | None:
    try:
        return uncounted_bytes(problem)
    except InputError:
        return None


def problem_summary(problem: Problem) -> dict[str, Any]:
    """Return a problem's key figures as JSON values; sizes in its units, times in ticks."""
    trace = problem.trace
    return {
        "name": problem.name,
        "operations": len(trace),
        "gaps": len(trace.gaps),
        "evictable_tensors": _evictable(problem),
        "compute_time": trace.compute_time,
        "least_memory": problem.least_memory,
        "least_memory_set_by": least_summary(problem),
        "peak_memory": problem.peak_memory,
        "memory": problem.platform.memory,
        "bandwidth": str(problem.platform.rate(Kind.OFFLOAD)),
        "prefetch_bandwidth": str(problem.platform.rate(Kind.PREFETCH)),
        **choices_summary(problem),
        **origin_summary(problem),
    }


def _evictable(problem: Problem) -> int:
    return len({gap.tensor for gap in problem.trace.gaps})


def describe_problem(problem: Problem) -> str:
    """Return a problem's key figures for people."""
    trace, units = problem.trace, problem.units
    moved = sum(trace.gap_size(gap) for gap in range(len(trace.gaps)))
    evictable = _evictable(problem)
    limit = []
    if problem.minimise is Minimise.TIME:
        limit = [f"  memory limit   {format_size(problem.platform.memory, units)}"]
    return "\n".join(
        [
            f"{problem.name}: {len(trace)} operations, {evictable} tensors that may leave",
            *origin_lines(problem),
            *(f"  {name:<15}{said}" for name, said in choices_facts(problem)),
            f"  compute time   {format_time(trace.compute_time, units)}",
            f"  least memory   {format_size(problem.least_memory, units)}",
            *least_lines(problem),
            f"  peak memory    {format_size(problem.peak_memory, units)}",
            *limit,
            f"  moving it all  {_both_ways(problem, moved)}",
        ]
    )


def _both_ways(problem: Problem, size: int) -> str:
    out, back = (
        problem.platform.transfer_time(size, kind) for kind in (Kind.OFFLOAD, Kind.PREFETCH)
    )
    both = f"{format_time(out + back, problem.units)} both ways"
    if out == back:
        return both
    parts = [format_time(time, problem.units) for time in (out, back)]
    return f"{both}: {parts[0]} out, {parts[1]} back"


def certificate_summary(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate's claims as JSON values."""
    result = certificate.result
    infeasibility = result.infeasibility
    summary: dict[str, Any] = {
        "objective": result.objective,
        "lower_bound": result.lower_bound,
        "evidence": None if result.evidence is None else str(result.evidence),
        "proved_bound": result.proved_bound,
        "gap": None if result.objective is None else result.gap,
        "status": str(result.status),
        "runtime": result.runtime,
        "bounds": claimed_bounds(result.bounds),
        "offloaded": offloaded_names(certificate),
        "memory": certificate.problem.platform.memory,
        **robust_summary(certificate),
    }
    reruns = reruns_of(certificate)
    if reruns is not None:
        summary["execution"] = reruns.to_json()
    host = behind_host(certificate)
    if host is not None:
        summary["with_host"] = host.to_json()
    if certificate.problem.minimise is Minimise.MEMORY:
        schedule = result.schedule
        summary["makespan"] = None if schedule is None else schedule.makespan
    if infeasibility is not None:
        summary["infeasibility"] = asdict(infeasibility)
    return summary | notes_summary(certificate.notes)


def offloaded_names(certificate: Certificate) -> list[str]:
    """Return the names of the tensors that leave the device, in the order of the trace."""
    schedule, trace = certificate.result.schedule, certificate.executed.trace
    if schedule is None:
        return []
    tensors = sorted({trace.gaps[gap].tensor for gap in schedule.evicted})
    return [trace.tensors[tensor].name for tensor in tensors]


def describe_certificate(certificate: Certificate) -> str:
    """Return a certificate's claims for people."""
    result, problem = certificate.result, certificate.problem
    joint = " at" if problem.minimise is Minimise.TIME else ","
    lines = [f"{problem.name}{joint} {within(certificate)}: {result.status}{result.word}"]
    if result.infeasibility is not None:
        lines.append(f"  {result.infeasibility.said(problem.units)}")
        remedy = tail_remedy(problem)
        lines += [] if remedy is None else [f"  {remedy}"]
        return "\n".join([*lines, *_recompute_hint(certificate)])
    if result.objective is not None:
        lines += _found_lines(certificate)
    elif choices_summary(problem):
        lines.append("  no schedule  is known")
        lines += _own_checkpoints(problem)
    lines += notes_lines(certificate.notes)
    lines.append(f"  found in     {result.runtime:.1f} s")
    for bound in result.bounds:
        value = format_objective(bound.value, problem, result.objective)
        lines.append(f"  bound {value:>14}  {bound.method} ({bound.evidence})")
    return "\n".join([*lines, *_recompute_hint(certificate)])


def _own_checkpoints(problem: Problem) -> list[str]:
    """Return a line, if the model checkpoints by itself, on why no plan is known."""
    least = problem.trace.least_memory
    own = any(operation.name.startswith("R:") for operation in problem.trace.operations)
    if not own or problem.platform.memory >= least:
        return []
    return [
        "  the model runs modules again by itself, between which no plan can do so; moving alone "
        f"needs {format_size(least, problem.units)}. For less memory switch its own checkpointing "
        "off (gradient_checkpointing, torch.utils.checkpoint), and profile it again"
    ]


def _recompute_hint(certificate: Certificate) -> list[str]:
    """Say that computations could run again, too, where nothing may and that could save time."""
    problem, result = certificate.problem, certificate.result
    network = problem.computed
    plain = problem.recompute is Recompute.NONE and problem.minimise is Minimise.TIME
    if not plain or network is None or result.objective == problem.trace.compute_time:
        return []
    again = sum(computation.repeatable for computation in network.computations)
    if not again:
        return []
    text = f"  --recompute any lets {again} of {len(network)} operations run again, too"
    least = replace(problem, recompute=Recompute.ANY).least_memory
    if least < problem.least_memory:
        sizes = (format_size(size, problem.units) for size in (least, problem.least_memory))
        text += "; the largest alone takes {}, moving alone needs {}".format(*sizes)
    return [text]


def _found_lines(certificate: Certificate) -> list[str]:
    """Return lines about a schedule: its time or memory, its gap, the tensors that it moves."""
    result, problem = certificate.result, certificate.problem
    lines = []
    assert result.objective is not None
    if problem.minimise is Minimise.MEMORY:
        memory = format_objective(result.objective, problem, result.lower_bound)
        lines.append(f"  memory       {memory}")
    if result.schedule is not None:
        ticks = result.schedule.makespan
        slowdown = ticks / max(1, problem.trace.compute_time)
        # Where memory is minimised, the bound is no time.
        least = result.lower_bound if problem.minimise is Minimise.TIME else None
        time = format_time(ticks, problem.units, least)
        lines.append(f"  step time    {time} ({slowdown:.3f} times the compute time)")
        lines += host_lines(certificate)
    bound = format_objective(result.lower_bound, problem, result.objective)
    lines.append(f"  lower bound  {bound}{result.word}")
    lines.append(f"  gap          {format_gap(result.gap)}{result.word}")
    lines += robust_lines(certificate)
    moved = len(offloaded_names(certificate))
    lines.append(f"  offloaded    {moved} tensor{'' if moved == 1 else 's'}")
    reruns = reruns_of(certificate)
    if reruns is not None:
        lines.append(f"  recomputed   {reruns.said(problem.units)}")
    return [*lines, *times_lines(problem)]


def _checked(verification: Verification[Certificate]) -> dict[str, Any]:
    known = known_summary(verification)
    bounds = known.pop("bounds")
    reruns = reruns_of(verification.certificate)
    execution = {} if reruns is None else {"execution": reruns.to_json()}
    placement = {}
    if verification.certificate.placement is not None:
        placed = checked_bounds(verification.placement_bounds)
        placement["placement"] = placed_summary(verification.certificate) | {"bounds": placed}
    robust = robust_summary(verification.certificate, verification.robust_bounds)
    host = behind_host(verification.certificate)
    behind = {} if host is None else {"with_host": host.to_json()}
    return {**known, **execution, "bounds": bounds, **placement, **robust, **behind}


def _describe_valid(verification: Verification[Certificate]) -> str:
    certificate = verification.certificate
    result, problem = certificate.result, certificate.problem
    lines = [f"VALID: {result.status}"]
    if result.status is not SolveStatus.INFEASIBLE and verification.evidence is not None:
        what = "makespan" if problem.minimise is Minimise.TIME else "memory"
        bound_of_all = format_objective(result.lower_bound, problem, result.objective)
        found = "none"
        if result.objective is not None:
            found = format_objective(result.objective, problem, result.lower_bound)
        lines.append(f"  {what} {found}, lower bound {bound_of_all} ({verification.evidence})")
    lines += [*host_lines(certificate), *robust_lines(certificate)]
    lines += [*_execution_lines(certificate), *times_lines(problem)]
    for bound in verification.bounds:
        value = format_objective(bound.value, problem, result.objective)
        lines.append(f"  bound {value:>14}  {bound.method}: {bound.evidence}, {bound.finding}")
    for bound in verification.robust_bounds:
        value = format_objective(bound.value, problem)
        lines.append(f"  bound {value:>14}  {bound.method} at the fastest: {bound.finding}")
    return "\n".join([*lines, *valid_placement_lines(verification)])


def _execution_lines(certificate: Certificate) -> list[str]:
    """Return lines about the execution of a valid certificate."""
    reruns, problem = reruns_of(certificate), certificate.problem
    if reruns is None:
        return []
    stays = ""
    if problem.recompute is Recompute.CHAIN:
        stays = "; what is stored stays until its backward operation"
    return [
        f"  execution {len(reruns.execution.runs)} operations, each with its inputs{stays}",
        f"  recomputed {reruns.said(problem.units)}",
    ]


SCHEDULE: Text = Text(certificate_summary, describe_certificate, _checked, _describe_valid)
