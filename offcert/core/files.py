"""Problem files: the format ``offcert-problem``, version 1.

``bandwidth`` is the rate of the link from the device to the host. ``prefetch_bandwidth`` is the one
from the host to the device; it is there only if it differs, so that a problem has one document.
``chain.names`` may be left out by who writes a file by hand: the stages are then called "0", "1",
and so on, and the problem is the same, with the same hash, as with these names written out.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.core.chain import Chain
from offcert.core.documents import (
    Fields,
    canonical_digest,
    parse_rational,
    read_json,
    require_format,
    show,
    write_json,
)
from offcert.core.errors import InputError
from offcert.core.platform import Platform
from offcert.core.problem import Problem, Units
from offcert.core.trace import Operation, Tensor, Trace

PROBLEM_FORMAT = "offcert-problem"
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
    if problem.chain is not None:
        document["chain"] = {name: list(getattr(problem.chain, name)) for name in _CHAIN_FIELDS}
    else:
        document["trace"] = _trace_to_json(problem.trace)
    platform = problem.platform
    document |= {
        "memory": platform.memory,
        "bandwidth": _rational(platform.bandwidth),
        "link": str(platform.link),
        "transfers": str(problem.transfers),
        "units": {"time": problem.units.time, "size": problem.units.size},
    }
    if platform.prefetch_bandwidth is not None:
        document["prefetch_bandwidth"] = _rational(platform.prefetch_bandwidth)
    if problem.source is not None:
        document["source"] = dict(problem.source)
    return document


def _rational(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


def _trace_to_json(trace: Trace) -> dict[str, Any]:
    return {
        "operations": [
            {"name": o.name, "duration": o.duration, "workspace": o.workspace}
            for o in trace.operations
        ],
        "tensors": [
            {"name": t.name, "size": t.size, "uses": list(t.uses), "evictable": t.evictable}
            for t in trace.tensors
        ],
    }


def problem_from_json(document: Any, place: str = "") -> Problem:
    """Return the problem that a JSON value describes.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    fields = Fields(document, place)
    require_format(fields, PROBLEM_FORMAT, PROBLEM_VERSION)
    name = fields.get("name", str)
    has_chain = "chain" in document
    if has_chain == ("trace" in document):
        raise InputError(f'{place or "the problem"} must have either "chain" or "trace"')
    network: Chain | Trace
    if has_chain:
        network = _chain_from_json(fields.get("chain", dict), fields.path("chain"))
    else:
        network = _trace_from_json(fields.get("trace", dict), fields.path("trace"))
    units = Fields(fields.get("units", dict), fields.path("units"))
    back = fields.optional("prefetch_bandwidth", str)
    problem = Problem(
        name=name,
        network=network,
        platform=Platform(
            fields.integer("memory", 0),
            parse_rational(fields.get("bandwidth", str), fields.path("bandwidth")),
            fields.get("link", str),
            None if back is None else parse_rational(back, fields.path("prefetch_bandwidth")),
        ),
        transfers=fields.get("transfers", str),
        units=Units(units.get("time", str), units.get("size", str)),
        source=fields.optional("source", dict),
    )
    units.finish()
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


def _trace_from_json(value: Any, place: str) -> Trace:
    fields = Fields(value, place)
    operations = []
    for item in fields.each("operations"):
        operations.append(
            Operation(
                item.get("name", str), item.integer("duration", 0), item.integer("workspace", 0)
            )
        )
        item.finish()
    tensors = []
    for item in fields.each("tensors"):
        tensors.append(
            Tensor(
                item.get("name", str),
                item.integer("size", 0),
                item.integers("uses", -1),
                item.get("evictable", bool),
            )
        )
        item.finish()
    fields.finish()
    return Trace(operations, tensors)


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
    document = read_json(path)
    try:
        return problem_from_json(document)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def write_problem(path: str | Path, problem: Problem) -> None:
    """Write a problem to a file, through a temporary one."""
    write_json(path, problem_to_json(problem))
