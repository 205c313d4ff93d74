"""Files of problems on several devices: the format ``offcert-devices-problem``, version 1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from offcert.core.documents import (
    Fields,
    canonical_digest,
    parse_rational,
    rational_text,
    read_document,
    require_format,
    write_json,
)
from offcert.core.errors import InputError
from offcert.core.forms import TEXT, Integer, Record
from offcert.questions.devices.problem import Accumulation, DevicesProblem, Gradient, Place
from offcert.questions.schedule.files import problem_from_json, problem_to_json

DEVICES_FORMAT = "offcert-devices-problem"
# The version of the format. By definition.
DEVICES_VERSION = 1


_GRADIENT = Record(Gradient, name=TEXT, size=Integer(1), ready=Integer(0), last_use=Integer(0))


def devices_to_json(problem: DevicesProblem) -> dict[str, Any]:
    """Return a problem as a JSON value (format ``offcert-devices-problem``, version 1)."""
    accumulation = problem.accumulation
    return {
        "format": DEVICES_FORMAT,
        "version": DEVICES_VERSION,
        "name": problem.name,
        "devices": problem.devices,
        "step": problem_to_json(problem.step),
        "gradients": list(map(_GRADIENT.write, problem.gradients)),
        "accumulation": {
            "place": str(accumulation.place),
            "rate": rational_text(accumulation.rate),
            "cores": accumulation.cores,
        },
    }


def devices_from_json(document: Any, place: str = "") -> DevicesProblem:
    """Return the problem that a JSON value describes.

    Raises
    ------
    InputError
        One sentence that names the first field that is missing, wrong or unknown.
    """
    fields = Fields(document, place)
    require_format(fields, DEVICES_FORMAT, DEVICES_VERSION)
    gradients = _GRADIENT.read_all(fields, "gradients")
    adding = Fields(fields.get("accumulation", dict), fields.path("accumulation"))
    problem = DevicesProblem(
        fields.get("name", str),
        problem_from_json(fields.get("step", dict), fields.path("step")),
        fields.integer("devices", 1),
        gradients,
        Accumulation(
            Place(_place(adding)),
            parse_rational(adding.get("rate", str), adding.path("rate")),
            adding.integer("cores", 1),
        ),
    )
    adding.finish()
    fields.finish()
    return problem


def _place(fields: Fields) -> str:
    found = str(fields.get("place", str))
    if found not in tuple(Place):
        raise InputError(f'{fields.path("place")} must be "host" or "device", not "{found}"')
    return found


def devices_digest(problem: DevicesProblem) -> str:
    """Return the SHA-256, in hexadecimal, of a problem's canonical JSON."""
    return canonical_digest(devices_to_json(problem))


def read_devices_problem(path: str | Path) -> DevicesProblem:
    """Return the problem in a file.

    Raises
    ------
    InputError
        If the file cannot be read or does not describe a problem on several devices.
    """
    return read_document(path, devices_from_json)


def write_devices_problem(path: str | Path, problem: DevicesProblem) -> None:
    """Write a problem to a file, through a temporary one."""
    write_json(path, devices_to_json(problem))
