"""The view of an answer of `doctor` on the report page: sizes, rates, parts of the memory.

The answer is the JSON object that ``offcert doctor --json`` prints and ``-o FOLDER`` keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from offcert.core.errors import InputError
from offcert.core.messages import cut
from offcert.core.units import Units, format_size, format_time
from offcert.report.doctor import rate_said
from offcert.report.page_views import percent_said
from offcert.report.svg import clean

DOCTOR_FORMAT = "offcert-doctor"
# The version of the format. By definition.
DOCTOR_VERSION = 1
_BYTES = Units("ns", "B")
# Bytes by what they are, in words for people; others have their own names.
_PARTS = {
    "saved": "saved for the backward pass",
    "computed": "being computed",
    "workspace": "workspace of one operation",
    "optimiser": "optimiser",
}


def doctor_view(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the view of an answer of `doctor`.

    Parameters
    ----------
    name : str
        Of its file.
    document : mapping
        The answer, as JSON.

    Raises
    ------
    InputError
        If it is of another version, or something is missing.
    """
    if document.get("version") != DOCTOR_VERSION:
        raise InputError(f"{name}: version must be {DOCTOR_VERSION}")
    try:
        sizes = [_size(each) for each in document["sizes"]]
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
    except (KeyError, IndexError, TypeError) as error:
        raise InputError(f"{name} is no complete answer of doctor: {error} is missing") from None


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
        said, tone = f"Fits with a plan up to {_label(most)}", "good"
        if most["fits_without_plan"]:
            said = f"Fits up to {_label(most)}, without a plan"
    return {"tone": tone, "said": said, "mark": "", "checked": ""}


def _tiles(document: Mapping[str, Any], memory: str) -> Iterator[dict[str, Any]]:
    most, best = _found(document, "largest"), _found(document, "fastest")
    yield {"name": "device memory", "value": memory, "note": "", "part": None}
    if most is not None and best is not None:
        yield {"name": "largest that fits", "value": _label(most), "note": "", "part": None}
        bound = best["samples"] * 10**9 / max(best["lower_bound"], 1)
        note = f"at {_label(best)}; no plan reaches more than {rate_said(bound)} there"
        value = f"{rate_said(best['samples_per_second'])} samples/s"
        yield {"name": "fastest", "value": value, "note": note, "part": None}


def _label(each: Mapping[str, Any]) -> str:
    rows = each["asked"].items()
    return cut(", ".join(f"{name} {number}" for name, number in rows) or "the step as it is")


def _size(each: Mapping[str, Any]) -> dict[str, Any]:
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
        "label": _label(each),
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
