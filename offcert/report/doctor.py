"""Diagnoses of a training step at several sizes, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from offcert.certify.doctor import Diagnosis, fastest, largest
from offcert.core.messages import aligned
from offcert.core.units import Units, format_size, format_time
from offcert.report.execution import times_said
from offcert.report.text import tail_remedy

_BYTES = Units("ns", "B")
_HEADER = ("", "without a plan", "step", "computing", "samples/s", "proved within", "host")
_OTHERS_HEADER = ("needs no plan", "step", "samples/s", "device", "", "host")


def diagnosis_summary(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as a JSON object; times in nanoseconds, sizes in bytes."""
    certificate = diagnosis.certificate
    return {
        "asked": dict(diagnosis.asked),
        "samples": diagnosis.samples,
        "device_memory": diagnosis.device_memory,
        "fits_without_plan": diagnosis.fits,
        "peak": diagnosis.peak,
        "peak_operation": _peak_name(diagnosis),
        "at_peak": diagnosis.at_peak,
        "computing": diagnosis.computing,
        "step": diagnosis.step,
        "lower_bound": diagnosis.bound,
        "samples_per_second": float(diagnosis.rate),
        "host_bytes": diagnosis.host_bytes,
        "status": None if certificate is None else str(certificate.result.status),
        "gap": None if diagnosis.step is None else certificate.result.gap,  # type: ignore[union-attr]
        "why_not": diagnosis.why_not,
        "host_memory": diagnosis.host_memory,
        "other_ways": [asdict(each) for each in diagnosis.others],
        "pageable_memory": diagnosis.pageable_memory,
        "budgets": [asdict(each) for each in diagnosis.budgets],
        "short": None if diagnosis.short is None else diagnosis.short.name,
    }


def doctor_summary(diagnoses: Sequence[Diagnosis], asked: int = 0) -> dict[str, Any]:
    """Return all diagnoses as a JSON object, with the largest size and the fastest one.

    `asked` is the number of sizes that were asked for, of which an interrupt may have left some.
    """
    most, best = largest(diagnoses), fastest(diagnoses)
    return {
        "sizes": [diagnosis_summary(each) for each in diagnoses],
        "largest": None if most is None else dict(most.asked),
        "fastest": None if best is None else dict(best.asked),
        "interrupted": _interruption(diagnoses, asked) is not None,
    }


def describe_doctor(diagnoses: Sequence[Diagnosis], title: str, asked: int = 0) -> str:
    """Return all diagnoses as a table, with what takes the memory and what is best.

    `asked` is the number of sizes that were asked for, of which an interrupt may have left some.
    """
    if not diagnoses:
        return "interrupted before anything was found"
    table = aligned([_HEADER, *(_row(each) for each in diagnoses)])
    memory = format_size(diagnoses[0].device_memory, _BYTES)
    lines = [f"{title} in {memory}", table]
    times = times_said(diagnoses[0].problem)
    lines += [] if times is None else [f"times {times}"]
    lines += [f"{_label(each)}: {each.why_not}" for each in diagnoses if each.why_not is not None]
    lines += [f"{_label(each)} is short of {_short(each)}" for each in diagnoses if each.short]
    lines += sorted({remedy for each in diagnoses if (remedy := _remedy(each)) is not None})
    interrupted = _interruption(diagnoses, asked)
    lines += [interrupted] if interrupted is not None else []
    lines += _best_lines(diagnoses)
    others = [row for each in diagnoses for row in _other_rows(each)]
    lines += [aligned([_OTHERS_HEADER, *others])] if others else []
    return "\n".join([*lines, _peak_line(largest(diagnoses) or diagnoses[-1])])


def _interruption(diagnoses: Sequence[Diagnosis], asked: int) -> str | None:
    """Return a sentence about an interrupt and the sizes that it left; None without one."""
    if asked > len(diagnoses):
        return f"interrupted: {asked - len(diagnoses)} of {asked} sizes were not looked at"
    certificate = diagnoses[-1].certificate if diagnoses else None
    if certificate is not None and certificate.notes.interrupted:
        return f"interrupted: at {_label(diagnoses[-1])} this is the best that was known then"
    return None


def _short(each: Diagnosis) -> str:
    """Return the budget that is short, and the largest part of what is there before all else."""
    if each.certificate is not None:
        return str(each.short)
    most = max(each.beside, key=each.beside.__getitem__)
    return f"{each.short}; {most} takes {format_size(each.beside[most], _BYTES)}"


def _row(each: Diagnosis) -> tuple[str, ...]:
    plain = f"{format_size(each.peak, _BYTES)}, {'fits' if each.fits else 'too much'}"
    computing = format_time(each.computing, _BYTES)
    if each.step is None:
        said = "none found" if each.why_not is None else "cannot fit"
        return (_label(each), plain, said, computing, "", "", "")
    assert each.certificate is not None
    return (
        _label(each),
        plain,
        format_time(each.step, _BYTES),
        computing,
        _rate(float(each.rate)),
        f"{100 * each.certificate.result.gap:.3g} %",
        format_size(each.host_bytes, _BYTES),
    )


def _other_rows(each: Diagnosis) -> Iterator[tuple[str, ...]]:
    for way in each.others:
        rate = each.samples * 10**9 / max(1, way.step)
        yield (
            f"{_label(each)}, {way.name}",
            format_time(way.step, _BYTES),
            _rate(rate),
            format_size(way.peak + sum(each.beside.values()), _BYTES),
            "fits" if way.fits else "too much",
            format_size(way.host, _BYTES),
        )


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"


def _label(each: Diagnosis) -> str:
    return ", ".join(f"{name} {number}" for name, number in each.asked.items()) or "as it is"


def _best_lines(diagnoses: Sequence[Diagnosis]) -> list[str]:
    most, best = largest(diagnoses), fastest(diagnoses)
    if most is None or best is None:
        return ["no plan at any of these sizes"]
    lines = [f"largest that fits: {_label(most)}"]
    assert best.bound is not None
    limit = best.samples * 10**9 / max(best.bound, 1)
    lines.append(
        f"fastest: {_label(best)}, {_rate(float(best.rate))} samples/s "
        f"(proved: no plan has more than {_rate(limit)} there)"
    )
    return lines


def _remedy(each: Diagnosis) -> str | None:
    """Return advice that lowers the least memory of a size that cannot fit, or None."""
    tried = each.certificate is not None and each.step is None
    return tail_remedy(each.problem) if tried else None


def _peak_line(each: Diagnosis) -> str:
    parts = [f"{name} {format_size(size, _BYTES)}" for name, size in each.at_peak.items() if size]
    return f"the peak at {_label(each)} is {_peak_name(each)}: {', '.join(parts)}"


def _peak_name(each: Diagnosis) -> str:
    return each.problem.plain().trace.operations[each.peak_operation].name
