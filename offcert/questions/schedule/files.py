"""Problem files: the format ``offcert-problem``, version 1.

``bandwidth`` is the rate of the link from the device to the host. ``prefetch_bandwidth`` is the one
from the host to the device; it is there only if it differs, so that a problem has one document.
``chain.names`` may be left out by who writes a file by hand: the stages are then called "0", "1",
and so on, and the problem is the same, with the same hash, as with these names written out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offcert.core.chain import Chain
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.documents import (
    Fields,
    canonical_digest,
    read_document,
    require_format,
    write_json,
)
from offcert.core.errors import InputError
from offcert.core.forms import FLAG, OBJECT, Absent, Integer, Member, Record
from offcert.core.network import Network
from offcert.core.network_json import CHAIN, CHECKPOINT_CHAIN, NETWORK, TRACE
from offcert.core.platform import PLATFORM, UNITS, Platform
from offcert.core.trace import Trace
from offcert.core.uncertainty import UNCERTAINTY
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers

PROBLEM_FORMAT = "offcert-problem"
# The version of the format. By definition.
PROBLEM_VERSION = 1

# What is as it was before there was a choice is left out, so that old problems keep their hash.
_CHOICES: Record[Any] = Record(
    dict,
    transfers=Member(Transfers),
    units=UNITS,
    source=Absent(OBJECT),
    recompute=Absent(Member(Recompute), Recompute.NONE),
    offload=Absent(FLAG, True),
    minimise=Absent(Member(Minimise), Minimise.TIME),
    deadline=Absent(Integer(0)),
    uncertainty=UNCERTAINTY,
)
# The field that holds the network, by its type.
_NETWORKS: dict[type, tuple[str, Record[Any]]] = {
    Chain: ("chain", CHAIN),
    Trace: ("trace", TRACE),
    Network: ("network", NETWORK),
    CheckpointChain: ("checkpoint_chain", CHECKPOINT_CHAIN),
}


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """Return a problem as a JSON value (format ``offcert-problem``, version 1)."""
    field, record = _NETWORKS[type(problem.network)]
    return {
        "format": PROBLEM_FORMAT,
        "version": PROBLEM_VERSION,
        "name": problem.name,
        field: record.write(problem.network),
        **PLATFORM.write(problem.platform),
        **_CHOICES.write(problem),
    }


def problem_from_json(document: Any, place: str = "") -> Problem:
    """Return the problem that a JSON value describes."""
    fields = Fields(document, place)
    require_format(fields, PROBLEM_FORMAT, PROBLEM_VERSION)
    name = fields.get("name", str)
    given = [each for each in _NETWORKS.values() if fields.has(each[0])]
    if len(given) != 1:
        raise InputError(
            f'{place or "the problem"} must have either "chain" or "trace", or else "network" or '
            '"checkpoint_chain"'
        )
    ((field, record),) = given
    problem = Problem(
        name=name,
        network=record.read_in(fields, field),
        platform=Platform(**PLATFORM.values(fields)),
        **_CHOICES.values(fields),
    )
    fields.finish()
    return problem


def problem_digest(problem: Problem) -> str:
    """Return the SHA-256, in hexadecimal, of a problem's canonical JSON."""
    return canonical_digest(problem_to_json(problem))


def read_problem(path: str | Path) -> Problem:
    """Return the problem in a file.

    Raises
    ------
    InputError
        If the file cannot be read or does not describe a problem.
    """
    return read_document(path, problem_from_json)


def write_problem(path: str | Path, problem: Problem) -> None:
    """Write a problem to a file, through a temporary one."""
    write_json(path, problem_to_json(problem))
