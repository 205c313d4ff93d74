"""Problem files: the format ``offcert-problem``, version 1.

``bandwidth`` is the rate of the link from the device to the host. ``prefetch_bandwidth`` is the one
from the host to the device; it is there only if it differs, so that a problem has one document.
``chain.names`` may be left out by who writes a file by hand: the stages are then called "0", "1",
and so on, and the problem is the same, with the same hash, as with these names written out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from offcert.core.chain import Chain
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.documents import (
    Fields,
    canonical_digest,
    read_document,
    require_format,
    show,
    write_json,
)
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.network_json import (
    checkpoint_chain_from_json,
    checkpoint_chain_to_json,
    network_from_json,
    network_to_json,
    trace_from_json,
    trace_to_json,
)
from offcert.core.platform import platform_fields, platform_from_fields, units_from_fields
from offcert.core.trace import Trace
from offcert.core.uncertainty import uncertainty_from_fields, uncertainty_to_json
from offcert.questions.schedule.problem import Minimise, Problem, Recompute

PROBLEM_FORMAT = "offcert-problem"
# The version of the format. By definition.
PROBLEM_VERSION = 1

_CHAIN_FIELDS = (
    "forward",
    "backward",
    "activation",
    "gradient",
    "forward_workspace",
    "backward_workspace",
    "names",
)


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """Return a problem as a JSON value (format ``offcert-problem``, version 1)."""
    document: dict[str, Any] = {
        "format": PROBLEM_FORMAT,
        "version": PROBLEM_VERSION,
        "name": problem.name,
    }
    network = problem.network
    if isinstance(network, Chain):
        document["chain"] = {name: list(getattr(network, name)) for name in _CHAIN_FIELDS}
    elif isinstance(network, CheckpointChain):
        document["checkpoint_chain"] = checkpoint_chain_to_json(network)
    elif isinstance(network, Network):
        document["network"] = network_to_json(network)
    else:
        document["trace"] = trace_to_json(network)
    platform = problem.platform
    document |= platform_fields(platform) | {
        "transfers": str(problem.transfers),
        "units": {"time": problem.units.time, "size": problem.units.size},
    }
    if problem.source is not None:
        document["source"] = dict(problem.source)
    # What is as it was before there was a choice is left out, so that old problems keep their hash.
    if problem.recompute is not Recompute.NONE:
        document["recompute"] = str(problem.recompute)
    if not problem.offload:
        document["offload"] = False
    if problem.minimise is not Minimise.TIME:
        document["minimise"] = str(problem.minimise)
    if problem.deadline is not None:
        document["deadline"] = problem.deadline
    if problem.uncertainty is not None:
        document["uncertainty"] = uncertainty_to_json(problem.uncertainty)
    return document


def problem_from_json(document: Any, place: str = "") -> Problem:
    """Return the problem that a JSON value describes."""
    fields = Fields(document, place)
    require_format(fields, PROBLEM_FORMAT, PROBLEM_VERSION)
    name = fields.get("name", str)
    given = [kind for kind in _NETWORKS if fields.has(kind)]
    if len(given) != 1:
        raise InputError(
            f'{place or "the problem"} must have either "chain" or "trace", or else "network" or '
            '"checkpoint_chain"'
        )
    network = _NETWORKS[given[0]](fields.get(given[0], dict), fields.path(given[0]))
    problem = Problem(
        name=name,
        network=network,
        platform=platform_from_fields(fields),
        transfers=fields.get("transfers", str),
        units=units_from_fields(fields),
        source=fields.optional("source", dict),
        recompute=fields.get("recompute", str) if fields.has("recompute") else Recompute.NONE,
        offload=fields.get("offload", bool) if fields.has("offload") else True,
        minimise=fields.get("minimise", str) if fields.has("minimise") else Minimise.TIME,
        deadline=fields.integer("deadline", 0) if fields.has("deadline") else None,
        uncertainty=uncertainty_from_fields(fields),
    )
    fields.finish()
    return problem


def _chain_from_json(value: Any, place: str) -> Chain:
    fields = Fields(value, place)
    numbers = {name: fields.integers(name, 0) for name in _CHAIN_FIELDS if name != "names"}
    names = fields.optional("names", list)
    for index, name in enumerate(names or ()):
        if not isinstance(name, str):
            raise InputError(f"{place}.names[{index}] must be a string, not {show(name)}")
    fields.finish()
    return Chain(**numbers, names=names)


_NETWORKS: dict[str, Callable[[Any, str], Chain | Trace | Network | CheckpointChain]] = {
    "chain": _chain_from_json,
    "trace": trace_from_json,
    "network": network_from_json,
    "checkpoint_chain": checkpoint_chain_from_json,
}


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
