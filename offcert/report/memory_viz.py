"""Plans as memory snapshots of PyTorch, which ``pytorch.org/memory_viz`` opens.

A snapshot is what ``torch.cuda.memory._dump_snapshot`` writes: a pickle of dictionaries, lists,
numbers and texts.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from offcert.certification.placing import place
from offcert.core.documents import write_bytes
from offcert.core.errors import InputError
from offcert.proofs.certificate import Certificate
from offcert.questions.placement.problem import PlacementProblem
from offcert.questions.schedule.residences import residences

# The address of the first byte of a plan. Arbitrary.
_BASE = 2**40


def save_snapshot(certificate: Certificate, path: str | Path) -> None:
    """Write a plan as a memory snapshot."""
    write_bytes(path, pickle.dumps(snapshot(certificate), protocol=4))


def snapshot(certificate: Certificate) -> dict[str, Any]:
    """Return a plan as a memory snapshot: an allocation for every stay of a tensor on the device.

    A frame names the tensor, or whose workspace it is. Addresses are those of the certificate, or
    the lowest that are free at each moment.
    """
    schedule = certificate.result.schedule
    if schedule is None:
        raise InputError("the certificate holds no schedule, of which there is no snapshot")
    stays = [residence for _, residence in residences(certificate.executed.trace, schedule)]
    placement = None if certificate.placement is None else certificate.placement.result.placement
    if placement is None:
        placement = place(PlacementProblem("", stays), "first-fit").result.placement
        assert placement is not None
    addresses = placement.addresses
    per_microsecond = 1000 if certificate.problem.units.time == "ns" else 1
    # At a moment, memory is given back before some is taken.
    ends = ((stay.end, 0, number) for number, stay in enumerate(stays))
    begins = ((stay.start, 1, number) for number, stay in enumerate(stays))
    entries = [
        {
            "action": action,
            "addr": _BASE + addresses[number],
            "size": stays[number].size,
            "stream": 0,
            "time_us": moment // per_microsecond,
            "frames": [{"filename": "plan", "line": 0, "name": stays[number].name}],
        }
        for moment, taken, number in sorted((*ends, *begins))
        for action in (("alloc",) if taken else ("free_requested", "free_completed"))
    ]
    size = max((a + stay.size for a, stay in zip(addresses, stays, strict=True)), default=0)
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
