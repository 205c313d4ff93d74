"""Problem files, and the reading and writing of JSON that every file format shares."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from offcert.core.chain import Chain
from offcert.core.errors import InputError
from offcert.core.platform import Platform
from offcert.core.problem import Problem, Units
from offcert.core.trace import Operation, Tensor, Trace, require_integer

PROBLEM_FORMAT = "offcert-problem"
PROBLEM_VERSION = 1

# Longer numbers are no bandwidths.
_RATIONAL = re.compile(r"([0-9]{1,40})(?:/([0-9]{1,40}))?")
_CHAIN_FIELDS = (
    "forward",
    "backward",
    "activation",
    "gradient",
    "forward_workspace",
    "backward_workspace",
    "names",
)


def read_json(path: str | Path) -> Any:
    """Return the JSON value in a file.

    Raises
    ------
    InputError
        If the file cannot be read, is not JSON, holds NaN or infinity, or repeats a key.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path} cannot be read: {reason}") from None
    try:
        return json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_unique_keys,
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise InputError(f"{name} is not a number that JSON allows")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InputError(f"{text} is larger than any number can be here")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise InputError(f'the field "{key}" is given twice')
        result[key] = value
    return result


def require_writable(path: str | Path) -> None:
    """Raise before any work is done if a file could not be written in the end.

    Raises
    ------
    InputError
        If the folder does not exist or cannot be written to, or the path is a folder.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {target.parent}")
    if target.is_dir() or not os.access(target.parent, os.W_OK):
        raise InputError(f"{path} cannot be written")


def write_atomically(path: str | Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it, so nothing is half-written.

    Raises
    ------
    InputError
        If the folder does not exist or cannot be written to.
    """
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{target.stem}-", suffix=target.suffix, dir=target.parent
        )
        os.close(handle)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    temporary = Path(name)
    try:
        write(temporary)
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(target)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def write_json(path: str | Path, document: Any) -> None:
    """Write a JSON value, readable by people, through a temporary file."""
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    write_atomically(path, lambda temporary: _write_text(temporary, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


class Fields:
    """Reads a JSON object field by field and complains about what is missing, wrong or left over.

    Parameters
    ----------
    value : object
        What should be a JSON object.
    place : str
        Where it stands in the document; the empty string for the document itself.
    """

    def __init__(self, value: Any, place: str = "") -> None:
        if not isinstance(value, dict):
            raise InputError(f"{place or 'the document'} must be a JSON object, not {_show(value)}")
        self._value = value
        self._place = place
        self._read: set[str] = set()

    def path(self, name: str) -> str:
        """Return the full name of a field."""
        return f"{self._place}.{name}" if self._place else name

    def get(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """Return a field that must be there and have the given JSON type."""
        if name not in self._value:
            raise InputError(f'the field "{self.path(name)}" is missing')
        return self.optional(name, kind)

    def optional(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """Return a field of the given JSON type, or None if it is absent or null."""
        self._read.add(name)
        value = self._value.get(name)
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wrong_bool = isinstance(value, bool) and bool not in kinds
        if value is not None and (wrong_bool or not isinstance(value, kind)):
            names = " or ".join(_JSON_NAMES[k] for k in kinds)
            raise InputError(f"{self.path(name)} must be {names}, not {_show(value)}")
        if value is None and name in self._value and type(None) not in kinds:
            names = " or ".join(_JSON_NAMES[k] for k in kinds)
            raise InputError(f"{self.path(name)} must be {names}, not null")
        return value

    def integer(self, name: str, minimum: int | None = None) -> int:
        """Return an integer field of at least `minimum`."""
        if name not in self._value:
            raise InputError(f'the field "{self.path(name)}" is missing')
        self._read.add(name)
        return require_integer(self._value[name], self.path(name), minimum)

    def integers(self, name: str, minimum: int | None = None) -> tuple[int, ...]:
        """Return a field that is a list of integers of at least `minimum`."""
        values = self.get(name, list)
        return tuple(
            require_integer(value, f"{self.path(name)}[{index}]", minimum)
            for index, value in enumerate(values)
        )

    def each(self, name: str) -> Iterable[Fields]:
        """Yield the objects of a field that is a list of objects."""
        for index, value in enumerate(self.get(name, list)):
            yield Fields(value, f"{self.path(name)}[{index}]")

    def finish(self) -> None:
        """Raise if the object has fields that nobody asked for."""
        for name in self._value:
            if name not in self._read:
                raise InputError(f'the field "{self.path(name)}" is not known')


_JSON_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def _show(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."


def require_format(fields: Fields, name: str, version: int) -> None:
    """Raise unless the document says that it has this format and version."""
    found = fields.get("format", str)
    if found != name:
        raise InputError(f'format must be "{name}", not {_show(found)}')
    number = fields.integer("version")
    if number != version:
        raise InputError(f"version {number} of {name} is not known; this program reads {version}")


def parse_rational(text: str, field: str) -> Fraction:
    """Return the rational written as ``"numerator/denominator"`` or ``"numerator"``."""
    match = _RATIONAL.fullmatch(text)
    if match is None:
        raise InputError(f'{field} must look like "numerator/denominator", not {_show(text)}')
    denominator = int(match[2] or 1)
    if denominator == 0:
        raise InputError(f"{field} must not have a denominator of 0, as {_show(text)} has")
    return Fraction(int(match[1]), denominator)


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
    bandwidth = problem.platform.bandwidth
    document |= {
        "memory": problem.platform.memory,
        "bandwidth": f"{bandwidth.numerator}/{bandwidth.denominator}",
        "link": str(problem.platform.link),
        "transfers": str(problem.transfers),
        "units": {"time": problem.units.time, "size": problem.units.size},
    }
    if problem.source is not None:
        document["source"] = dict(problem.source)
    return document


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
    problem = Problem(
        name=name,
        network=network,
        platform=Platform(
            fields.integer("memory", 0),
            parse_rational(fields.get("bandwidth", str), fields.path("bandwidth")),
            fields.get("link", str),
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
    names = fields.get("names", list)
    for index, name in enumerate(names):
        if not isinstance(name, str):
            raise InputError(f"{place}.names[{index}] must be a string, not {_show(name)}")
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


def canonical_digest(document: Any) -> str:
    """Return the SHA-256, in hexadecimal, of a JSON value.

    The value is written with sorted keys, no white space and ASCII escapes, so the digest does not
    depend on how a file was laid out.

    Raises
    ------
    InputError
        If the value holds NaN or infinity.
    """
    try:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise InputError(f"the document is not valid JSON: {error}") from None
    return hashlib.sha256(text.encode("ascii")).hexdigest()


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
