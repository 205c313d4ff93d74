"""Diagnoses of a training step at several sizes, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from offcert.certify.diagnosis import Diagnoses, Diagnosis
from offcert.core.messages import aligned, cut
from offcert.core.notebook import Shown
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


def doctor_summary(found: Diagnoses) -> dict[str, Any]:
    """Return all diagnoses as a JSON object, with the largest size and the fastest one."""
    most, best = found.largest, found.fastest
    source = found[0].problem.source or {} if found else {}
    return {
        "format": "offcert-doctor",
        "version": 1,
        "title": found.title,
        "hardware": source.get("hardware"),
        "attention": source.get("attention"),
        "notes": list(found.notes),
        "sizes": [diagnosis_summary(each) for each in found],
        "largest": None if most is None else dict(most.asked),
        "fastest": None if best is None else dict(best.asked),
        "interrupted": _interruption(found) is not None,
    }


def describe_doctor(found: Diagnoses) -> str:
    """Return all diagnoses as a table, with what takes the memory and what is best."""
    if not found:
        return "interrupted before anything was found"
    table = aligned([_HEADER, *(_row(each) for each in found)])
    others = [row for each in found for row in _other_rows(each)]
    rest = [aligned([_OTHERS_HEADER, *others])] if others else []
    return "\n".join([_head(found), *found.notes, table, *_lines(found), *rest, _peak_line(found)])


def shown_doctor(found: Diagnoses) -> Shown:
    """Return all diagnoses as a table for a notebook, with what is best."""
    if not found:
        return Shown("interrupted before anything was found")
    facts = [("", line) for line in (*found.notes, *_lines(found), _peak_line(found))]
    return Shown(_head(found), facts, _HEADER, [_row(each) for each in found])


def _head(found: Diagnoses) -> str:
    """Return the model, the card, its kernel of attention, and the memory, in one line."""
    source = found[0].problem.source or {}
    card = f" on {cut(str(source['hardware']))}" if "hardware" in source else ""
    kernel = f", attention by {cut(str(source['attention']))}" if "attention" in source else ""
    kernel += ", which keeps all scores" if source.get("attention") == "math" else ""
    return f"{found.title}{card} in {format_size(found[0].device_memory, _BYTES)}{kernel}"


def _lines(found: Diagnoses) -> list[str]:
    """Return sentences about times, about sizes that cannot be had, and about the best ones."""
    times, interrupted = times_said(found[0].problem), _interruption(found)
    lines = [] if times is None else [f"times {times}"]
    lines += [f"{_label(each)}: {each.why_not}" for each in found if each.why_not is not None]
    lines += [f"{_label(each)} is short of {_short(each)}" for each in found if each.short]
    lines += sorted({remedy for each in found if (remedy := _remedy(each)) is not None})
    lines += [] if interrupted is None else [interrupted]
    return lines + _best_lines(found)


def _interruption(found: Diagnoses) -> str | None:
    """Return a sentence about an interrupt and the sizes that it left; None without one."""
    if found.asked > len(found):
        return f"interrupted: {found.asked - len(found)} of {found.asked} sizes were not looked at"
    certificate = found[-1].certificate if found else None
    if certificate is not None and certificate.notes.interrupted:
        return f"interrupted: at {_label(found[-1])} this is the best that was known then"
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
        rate_said(float(each.rate)),
        f"{100 * each.certificate.result.gap:.3g} %",
        format_size(each.host_bytes, _BYTES),
    )


def _other_rows(each: Diagnosis) -> Iterator[tuple[str, ...]]:
    for way in each.others:
        rate = each.samples * 10**9 / max(1, way.step)
        yield (
            f"{_label(each)}, {way.name}",
            format_time(way.step, _BYTES),
            rate_said(rate),
            format_size(way.peak + sum(each.beside.values()), _BYTES),
            "fits" if way.fits else "too much",
            format_size(way.host, _BYTES),
        )


def rate_said(rate: float) -> str:
    """Return samples a second for people."""
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"


def _label(each: Diagnosis) -> str:
    return ", ".join(f"{name} {number}" for name, number in each.asked.items()) or "as it is"


def _best_lines(found: Diagnoses) -> list[str]:
    most, best = found.largest, found.fastest
    if most is None or best is None:
        return ["no plan at any of these sizes"]
    lines = [f"largest that fits: {_label(most)}"]
    assert best.bound is not None
    limit = best.samples * 10**9 / max(best.bound, 1)
    lines.append(
        f"fastest: {_label(best)}, {rate_said(float(best.rate))} samples/s "
        f"(proved: no plan has more than {rate_said(limit)} there)"
    )
    return lines


def _remedy(each: Diagnosis) -> str | None:
    """Return advice that lowers the least memory of a size that cannot fit, or None."""
    tried = each.certificate is not None and each.step is None
    return tail_remedy(each.problem) if tried else None


def _peak_line(found: Diagnoses) -> str:
    each = found.largest or found[-1]
    parts = [f"{name} {format_size(size, _BYTES)}" for name, size in each.at_peak.items() if size]
    return f"the peak at {_label(each)} is {_peak_name(each)}: {', '.join(parts)}"


def _peak_name(each: Diagnosis) -> str:
    return each.problem.plain().trace.operations[each.peak_operation].name
