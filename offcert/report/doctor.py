"""Diagnoses of a training step at several sizes: text, JSON, and the view on the report page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from offcert.certification.diagnosis import Diagnoses, Diagnosis
from offcert.core.errors import InputError
from offcert.core.messages import aligned, cut
from offcert.core.notebook import Shown
from offcert.core.units import Units, format_size, format_time
from offcert.report.execution import times_said
from offcert.report.page_views import percent_said
from offcert.report.svg import clean
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


DOCTOR_FORMAT = "offcert-doctor"
# The version of the format. By definition.
DOCTOR_VERSION = 1
# Bytes by what they are, in words for people; others have their own names.
_PARTS = {
    "saved": "saved for the backward pass",
    "computed": "being computed",
    "workspace": "workspace of one operation",
    "optimiser": "optimiser",
}


def doctor_view(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the view of an answer of `doctor`, given the name of its file and its JSON value."""
    if document.get("version") != DOCTOR_VERSION:
        raise InputError(f"{name}: version must be {DOCTOR_VERSION}")
    try:
        sizes = [_size_view(each) for each in document["sizes"]]
        memory = format_size(document["sizes"][0]["device_memory"], _BYTES)
        title = clean(cut(str(document.get("title") or "training step"), 120))
        return {
            "kind": "doctor",
            "choice": f"{name}: sizes",
            "title": title,
            "about": _about(document, memory),
            "status": _status(document),
            "tiles": list(_tiles(document, memory)),
            "facts": list(_facts(document)),
            "limit": document["sizes"][0]["device_memory"],
            "sizes": sizes,
        }
    except KeyError as error:
        reason = f"{error} is missing"
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError) as error:
        reason = cut(str(error))
    raise InputError(f"{name} is no complete answer of doctor: {reason}")


def _about(document: Mapping[str, Any], memory: str) -> str:
    """Return the question that was asked: which card, with which kernel of attention."""
    card = f" on {document['hardware']}" if document["hardware"] else ""
    kernel = f", attention by {document['attention']}" if document["attention"] else ""
    asked = f"Does a training step fit into {memory}{card}, and how fast is it{kernel}?"
    return clean(cut(asked, 200))


def _facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for note in document["notes"]:
        yield "assumed", clean(str(note))
    if document["interrupted"]:
        yield "interrupted", "not all sizes were looked at for as long as they might have been"


def _found(document: Mapping[str, Any], which: str) -> Mapping[str, Any] | None:
    asked = document[which]
    return next((each for each in document["sizes"] if each["asked"] == asked), None)


def _status(document: Mapping[str, Any]) -> dict[str, str]:
    most, best = _found(document, "largest"), _found(document, "fastest")
    if most is None or best is None:
        said, tone = "No plan was found at any of these sizes", "bad"
    elif all(each["fits_without_plan"] for each in document["sizes"]):
        said, tone = "All these sizes fit without a plan", "good"
    else:
        said, tone = f"Fits with a plan up to {_size_label(most)}", "good"
        if most["fits_without_plan"]:
            said = f"Fits up to {_size_label(most)}, without a plan"
    return {"tone": tone, "said": said, "mark": "", "checked": ""}


def _tiles(document: Mapping[str, Any], memory: str) -> Iterator[dict[str, Any]]:
    most, best = _found(document, "largest"), _found(document, "fastest")
    yield {"name": "device memory", "value": memory, "note": "", "part": None}
    if most is not None and best is not None:
        yield {"name": "largest that fits", "value": _size_label(most), "note": "", "part": None}
        bound = best["samples"] * 10**9 / max(best["lower_bound"], 1)
        note = f"at {_size_label(best)}; no plan reaches more than {rate_said(bound)} there"
        value = f"{rate_said(best['samples_per_second'])} samples/s"
        yield {"name": "fastest", "value": value, "note": note, "part": None}


def _size_label(each: Mapping[str, Any]) -> str:
    rows = each["asked"].items()
    return cut(", ".join(f"{name} {number}" for name, number in rows) or "the step as it is")


def _size_view(each: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the table, the parts of its peak, and the ways to train at this size."""
    if each["fits_without_plan"]:
        tone, said = "good", "fits without a plan"
    elif each["short"] is not None and each["step"] is not None:
        tone, said = "bad", f"short of {each['short']}"
    elif each["step"] is not None:
        tone, said = "good", "fits with a plan"
    else:
        tone, said = "bad", "cannot fit" if each["why_not"] is not None else "no plan found"
    parts = [(_PARTS.get(name, name), size) for name, size in each["at_peak"].items() if size]
    return {
        "label": _size_label(each),
        "tone": tone,
        "said": said,
        "why": clean(str(each["why_not"] or "")),
        "peak": each["peak"],
        "peak_said": format_size(each["peak"], _BYTES),
        "at": clean(cut(str(each["peak_operation"]), 80)),
        "parts": [(clean(name), size, format_size(size, _BYTES)) for name, size in parts],
        "step": "" if each["step"] is None else format_time(each["step"], _BYTES),
        "computing": format_time(each["computing"], _BYTES),
        "rate": "" if each["step"] is None else rate_said(each["samples_per_second"]),
        "away": "" if each["gap"] is None else _away(each["gap"]),
        "host": format_size(each["host_bytes"], _BYTES) if each["host_bytes"] else "",
        "ways": list(_ways(each)),
    }


def _away(gap: float) -> str:
    return f"at most {percent_said(100 * gap)}" if gap else "none is better"


def _ways(each: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the ways to train at a size, with their bytes of the device and the time of a step."""
    before, needed = (budget["needed"] for budget in each["budgets"][:2])
    rows: list[tuple[str, int, int, bool]] = [
        ("no plan", each["peak"], each["computing"], each["fits_without_plan"])
    ]
    for way in each["other_ways"]:
        rows.append((way["name"], before + way["peak"], way["step"], way["fits"]))
    if each["step"] is not None and needed is not None:
        planned = each["short"] is None
        rows.append(("the best plan found", before + needed, each["step"], planned))
    for name, size, step, fits in sorted(rows, key=lambda row: -row[1]):
        yield {
            "name": clean(name),
            "size": size,
            "size_said": format_size(size, _BYTES),
            "step": step,
            "step_said": format_time(step, _BYTES),
            "rate": rate_said(each["samples"] * 10**9 / max(1, step)),
            "fits": fits,
        }
