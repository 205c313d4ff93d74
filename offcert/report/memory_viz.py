"""Plans as memory snapshots of PyTorch, which ``pytorch.org/memory_viz`` opens, and measured ones.

A snapshot is what ``torch.cuda.memory._dump_snapshot`` writes: a pickle of dictionaries, lists,
numbers and texts. Nothing else is accepted when one is read, so that reading one runs no code.
"""

from __future__ import annotations

import io
import pickle
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

from offcert.core.documents import write_bytes
from offcert.core.errors import InputError
from offcert.core.messages import cut, short_repr
from offcert.core.platform import Kind
from offcert.core.units import Units, format_size
from offcert.proofs.certificate import Certificate
from offcert.questions.placement.problem import Occupant, Residence
from offcert.questions.schedule.residences import residences
from offcert.questions.schedule.training_record import Course, TrainingRecord

# Bytes to which PyTorch's allocator rounds every size up. Given by PyTorch.
_GRAIN = 512
# The address of the first byte of a plan. Arbitrary.
_BASE = 2**40
_ALLOCATED, _FREED = "alloc", "free_requested"
_BYTES = Units("ns", "B")


def save_snapshot(certificate: Certificate, path: str | Path) -> None:
    """Write a plan as a memory snapshot."""
    write_bytes(path, pickle.dumps(snapshot(certificate), protocol=4))


def snapshot(certificate: Certificate) -> dict[str, Any]:
    """Return a plan as a memory snapshot: an allocation for every stay of a tensor on the device.

    A frame names the tensor, or whose workspace it is. Addresses are those of the certificate, or
    the lowest that are free at each moment.
    """
    found = _stays(certificate)
    placement = None if certificate.placement is None else certificate.placement.result.placement
    stays = [residence for _, residence in found]
    addresses = _lowest(stays) if placement is None else list(placement.addresses)
    per_microsecond = 1000 if certificate.problem.units.time == "ns" else 1
    return _document(stays, addresses, per_microsecond)


def save_training_snapshot(record: TrainingRecord, path: str | Path) -> None:
    """Write the bytes of a trained step as a memory snapshot."""
    write_bytes(path, pickle.dumps(training_snapshot(record), protocol=4))


def training_snapshot(record: TrainingRecord) -> dict[str, Any]:
    """Return the bytes that were counted in a trained step as a memory snapshot.

    The sum is measured: live bytes at begin and end of each operation, and at most in it. Which of
    them belong to which tensor is not in a report. So a frame names the operation that has made the
    bytes, or the tensors that came back before it; bytes that go are those that came last.
    """
    course = record.measured
    if course is None or not course.peaks:
        raise InputError(
            f"the report of {record.name} has no counted bytes, of which there is a snapshot: "
            "train without --no-count"
        )
    stays = list(_counted(record, course))
    return _document(stays, _lowest(stays), 1000)


def _counted(record: TrainingRecord, course: Course) -> Iterator[Residence]:
    """Yield stays of bytes whose sum is what was counted."""
    alive: list[tuple[str, int, int]] = []
    level, schedule = 0, course.schedule
    back = sorted((e.end, e.gap) for e in schedule.transfers if e.kind is Kind.PREFETCH)

    def change(to: int, moment: int, name: str) -> Iterator[Residence]:
        nonlocal level
        if to > level:
            alive.append((name, to - level, moment))
        while to < level:
            last, size, since = alive.pop()
            gone = min(size, level - to)
            if since < moment:
                yield Residence(last, size, since, moment)
            if gone < size:
                alive.append((last, size - gone, moment))
            level -= gone
        level = to

    for index, operation in enumerate(record.operations[: len(course)]):
        begin, end = schedule.starts[index], schedule.ends[index]
        names = []
        while back and back[0][0] <= begin:
            moved = record.moved.get(back.pop(0)[1])
            names += [] if moved is None else [moved.tensor]
        yield from change(course.at_begin[index], begin, " and ".join(names) or f"for {operation}")
        yield from change(course.peaks[index], begin, f"while {operation} runs")
        yield from change(course.at_end[index], end, f"made by {operation}")
    if len(course):
        yield from change(0, schedule.ends[len(course) - 1] + 1, "")


def _document(
    stays: Sequence[Residence], addresses: Sequence[int], per_microsecond: int
) -> dict[str, Any]:
    """Return stays at addresses as a memory snapshot."""
    size = max((a + stay.size for a, stay in zip(addresses, stays, strict=True)), default=0)
    entries = [
        {
            "action": action,
            "addr": _BASE + addresses[number],
            "size": stays[number].size,
            "stream": 0,
            "time_us": moment // per_microsecond,
            "frames": [{"filename": "plan", "line": 0, "name": stays[number].name}],
        }
        for moment, kind, number in _events(stays)
        for action in (("free_requested", "free_completed") if kind == _FREED else (kind,))
    ]
    block = {"address": _BASE, "size": size, "requested_size": 0, "state": "inactive", "frames": []}
    segment = {
        "device": 0,
        "address": _BASE,
        "total_size": size,
        "allocated_size": size,
        "active_size": 0,
        "requested_size": 0,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [block],
    }
    return {
        "segments": [segment] if size else [],
        "device_traces": [entries],
        "allocator_settings": {},
        "external_annotations": [],
    }


def _stays(certificate: Certificate) -> Sequence[tuple[Occupant, Residence]]:
    schedule = certificate.result.schedule
    if schedule is None:
        raise InputError("the certificate holds no schedule, of which there is no snapshot")
    return residences(certificate.executed.trace, schedule)


def _events(stays: Sequence[Residence]) -> list[tuple[int, str, int]]:
    """Return moments, actions and numbers of stays: at a moment, memory is given back first."""
    begins = ((stay.start, 1, number) for number, stay in enumerate(stays))
    ends = ((stay.end, 0, number) for number, stay in enumerate(stays))
    ordered = sorted((*begins, *ends))
    return [(moment, _ALLOCATED if taken else _FREED, i) for moment, taken, i in ordered]


def _lowest(stays: Sequence[Residence]) -> list[int]:
    """Return for every stay the lowest address that is free when it begins."""
    addresses = [0] * len(stays)
    live: list[tuple[int, int, int]] = []
    for _, kind, number in _events(stays):
        size = stays[number].size
        if kind == _FREED:
            live.remove((addresses[number], addresses[number] + size, number))
            continue
        lowest = 0
        for begin, end, _ in live:
            if begin - lowest >= size:
                break
            lowest = end
        addresses[number] = lowest
        insort(live, (lowest, lowest + size, number))
    return addresses


class _Plain(pickle.Unpickler):
    """Reads numbers, texts, lists and dictionaries, and nothing that would run."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse whatever is no plain value."""
        raise InputError(f"it holds {cut(module)}.{cut(name)}, which no memory snapshot does")


def read_snapshot(path: str | Path) -> list[Mapping[str, Any]]:
    """Return the allocator's events in a measured snapshot, of the device with the most."""
    try:
        found = _Plain(io.BytesIO(Path(path).read_bytes())).load()
        traces = found["device_traces"]
        entries: list[Mapping[str, Any]] = list(max(traces, key=len, default=()))
        kinds = {(type(entry["action"]), type(entry["size"])) for entry in entries}
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except InputError as error:
        raise InputError(f"{path} is no memory snapshot: {error}") from None
    except Exception as error:
        raise InputError(f"{path} is no memory snapshot: {short_repr(error)}") from None
    if kinds != {(str, int)}:
        raise InputError(
            f"{path} has no history: torch.cuda.memory._record_memory_history() begins one"
        )
    return entries


@dataclass(frozen=True)
class HistoryComparison:
    """How far a measured snapshot follows a plan."""

    # Events that came as planned, one after the other, and all events of the plan.
    followed: int
    planned: int
    # Events on the way whose size no tensor of the plan has: what computing takes besides.
    others: int
    # Events that the plan has next, of which one would have followed it; empty if all came.
    expected: tuple[str, ...]
    instead: str | None  # The event that came instead; None at the end of the snapshot.

    def __str__(self) -> str:
        text = f"{self.followed} of {self.planned} events as planned"
        if not self.expected:
            return text
        return f"{text}; then {' or '.join(self.expected)} was due, but " + (
            "the snapshot ends" if self.instead is None else f"there is {self.instead}"
        )


def compare(certificate: Certificate, entries: Iterable[Mapping[str, Any]]) -> HistoryComparison:
    """Say how far a measured history follows a plan, and which event is the first that does not.

    Events are told by their sizes, rounded as the allocator does; of events of the plan at one
    moment any order will do. Sizes that no tensor of the plan has are left out, most workspaces
    among them; a workspace as large as some tensor is taken for an event that deviates.

    Parameters
    ----------
    certificate : Certificate
        With a schedule of whole transfers.
    entries : iterable of mapping
        As from `read_snapshot`: one step of training.
    """
    found = [stay for occupant, stay in _stays(certificate) if occupant.kind == "tensor"]
    sizes = {_rounded(stay.size) for stay in found}
    measured = [e for e in entries if e["action"] in (_ALLOCATED, _FREED)]
    waiting = [e for e in measured if _rounded(e["size"]) in sizes]
    events, followed, place = _events(found), 0, 0
    for _, group in groupby(events, key=lambda event: event[0]):
        due = [(kind, number) for _, kind, number in group]
        missing = Counter((kind, _rounded(found[number].size)) for kind, number in due)
        while missing:
            entry = waiting[place] if place < len(waiting) else None
            key = None if entry is None else (entry["action"], _rounded(entry["size"]))
            if key is None or key not in missing:
                expected = tuple(
                    _said(kind, found[number])
                    for kind, number in due
                    if (kind, _rounded(found[number].size)) in missing
                )
                others = len(measured) - len(waiting)
                instead = None if entry is None else _said_of(entry)
                return HistoryComparison(followed, len(events), others, expected, instead)
            missing -= Counter([key])
            followed, place = followed + 1, place + 1
    return HistoryComparison(followed, len(events), len(measured) - len(waiting), (), None)


def _rounded(size: int) -> int:
    return -(-size // _GRAIN) * _GRAIN


def _said(kind: str, stay: Residence) -> str:
    what = "memory for" if kind == _ALLOCATED else "the end of"
    return f"{what} {cut(stay.name)} ({format_size(stay.size, _BYTES)})"


def _said_of(entry: Mapping[str, Any]) -> str:
    what = "memory of" if entry["action"] == _ALLOCATED else "the end of"
    text = f"{what} {format_size(entry['size'], _BYTES)}"
    return f"{text} in {where}" if (where := next(_frames(entry), "")) else text


def _frames(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the frames of the program as texts, the innermost first."""
    for frame in entry.get("frames") or ():
        name, file, line = (frame.get(key, "") for key in ("name", "filename", "line"))
        yield cut(f"{name} ({file}:{line})" if line else f"{name}", 100)
