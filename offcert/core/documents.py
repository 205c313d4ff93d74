"""Reading and writing JSON documents: what every file format of ours shares."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from offcert.core.errors import InputError
from offcert.core.messages import cut, short_repr, show
from offcert.core.trace import require_integer

Parsed = TypeVar("Parsed")

# Longer numbers are no bandwidths.
RATIONAL = re.compile(r"([0-9]{1,40})(?:/([0-9]{1,40}))?")


@contextmanager
def naming(place: object) -> Iterator[None]:
    """Put `place` and a colon before the message of an `InputError` that the block raises."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """Return the text in a file."""
    try:
        return Path(path).read_text(encoding=encoding)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path} cannot be read: {reason}") from None


def read_json(path: str | Path) -> Any:
    """Return the JSON value in a file."""
    _require_path(path)
    text = read_text(path)
    try:
        document = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_unique_keys,
        )
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid JSON: {error}") from None
    _require_text(path, document)
    return document


def read_document(path: str | Path, parse: Callable[[Any], Parsed]) -> Parsed:
    """Return the object that `parse` builds from the JSON value in a file."""
    document = read_json(path)
    with naming(path):
        return parse(document)


def _require_path(path: object) -> None:
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"path must be a string or a path, not {short_repr(path)}")
    if "\0" in str(path):
        raise InputError(f"{short_repr(str(path))} cannot be the name of a file")


def _require_text(path: str | Path, document: Any) -> None:
    """Refuse half characters, which JSON can spell but nobody can print."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{path} holds text that is no Unicode: {error.reason}") from None


def _refuse_constant(name: str) -> Any:
    raise InputError(f"{name} is not a number that JSON allows")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InputError(f"{cut(text)} is larger than any number can be here")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise InputError(f'the field "{cut(key)}" is given twice')
        result[key] = value
    return result


def require_writable(path: str | Path) -> None:
    """Raise before any work is done if a file could not be written in the end.

    Folders that are missing are made when it is written.
    """
    _require_path(path)
    if not str(path) or str(path).endswith(("/", os.sep)):
        raise InputError(f'"{path}" is not the name of a file that can be written')
    try:
        target = Path(path).resolve()
        there = next(folder for folder in target.parents if os.path.lexists(folder))
        if not there.is_dir():
            raise InputError(f"{path} cannot be written: {there} is no folder")
        if target.exists() and not target.is_file():
            # Renaming a finished file over a device or a folder would destroy it.
            raise InputError(f"{path} cannot be written: it is no regular file")
        if not os.access(there, os.W_OK):
            raise InputError(f"{path} cannot be written: its folder is read-only")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def make_folder(folder: Path) -> None:
    """Make a folder, and those that it lies in, if there is none."""
    _require_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}") from None


def write_atomically(path: str | Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file in a folder of its own beside `path`, then rename it to `path`.

    So nothing is half-written, and who lists the files beside `path` never meets an unfinished one.
    A folder that is missing is made.
    """
    require_writable(path)
    # The file behind a symbolic link is replaced, not the link.
    target = Path(path).resolve()
    make_folder(target.parent)
    folder: str | None = None
    try:
        folder = tempfile.mkdtemp(prefix=f".{target.stem}-", dir=target.parent)
        # Some writers go by the suffix.
        temporary = Path(folder, f"new{target.suffix}")
        write(temporary)
        temporary.replace(target)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def write_json(path: str | Path, document: Any) -> None:
    """Write a JSON value, readable by people, through a temporary file."""
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    write_text(path, text)


def write_text(path: str | Path, text: str) -> None:
    """Write a text in UTF-8, through a temporary file; errors as of `write_atomically`."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes, through a temporary file; errors as of `write_atomically`."""

    def write(part: Path) -> None:
        part.write_bytes(data)

    write_atomically(path, write)


class Fields:
    """Reads a JSON object field by field; refuses one that is missing, wrong or left over.

    Parameters
    ----------
    value : object
        A value that should be a JSON object.
    place : str
        Where it stands in the document; the empty string for the document itself.
    """

    def __init__(self, value: Any, place: str = "") -> None:
        if not isinstance(value, dict):
            raise InputError(f"{place or 'the document'} must be a JSON object, not {show(value)}")
        self._value = value
        self._place = place
        self._read: set[str] = set()

    def path(self, name: str) -> str:
        """Return the full name of a field."""
        return f"{self._place}.{name}" if self._place else name

    def has(self, name: str) -> bool:
        """Return whether a field is there."""
        return name in self._value

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
            raise InputError(f"{self.path(name)} must be {names}, not {show(value)}")
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

    def items(self, name: str) -> Items:
        """Return the values in a field that is a list as fields of their own."""
        return Items(self.get(name, list), self, name)

    def each(self, name: str) -> Iterable[Fields]:
        """Yield the objects of a field that is a list of objects."""
        for index, value in enumerate(self.get(name, list)):
            yield Fields(value, f"{self.path(name)}[{index}]")

    def finish(self) -> None:
        """Raise if the object has fields that nobody asked for."""
        for name in self._value:
            if name not in self._read:
                raise InputError(f'the field "{self.path(cut(name))}" is not known')


class Items(Fields):
    """Reads a list as if it were an object with fields ``"0"``, ``"1"`` and so on.

    Parameters
    ----------
    values : list
        The values in the list.
    owner : Fields
        The object whose field the list is.
    name : str
        Of that field.
    """

    def __init__(self, values: list[Any], owner: Fields, name: str) -> None:
        super().__init__(dict(zip(map(str, range(len(values))), values, strict=True)))
        self._owner = owner
        self._name = name

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the fields."""
        return iter(self._value)

    def __len__(self) -> int:
        """Number of values."""
        return len(self._value)

    def path(self, name: str) -> str:
        """Return where a value stands in the document."""
        return f"{self._owner.path(self._name)}[{name}]"


_JSON_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def require_format(fields: Fields, name: str, version: int, conversion: str = "") -> None:
    """Raise unless a document has this format and version; `conversion` advises on older ones."""
    found = fields.get("format", str)
    if found != name:
        raise InputError(f'format must be "{name}", not {show(found)}')
    number = fields.integer("version")
    if number != version:
        how = f" ({conversion})" if 0 < number < version else ""
        raise InputError(
            f"version {number} of {name} is not known; this program reads {version}{how}"
        )


def parse_rational(text: str, field: str, pattern: re.Pattern[str] = RATIONAL) -> Fraction:
    """Return the rational written as ``"numerator/denominator"`` or ``"numerator"``."""
    match = pattern.fullmatch(text)
    if match is None:
        raise InputError(f'{field} must look like "numerator/denominator", not {show(text)}')
    denominator = int(match[2] or 1)
    if denominator == 0:
        raise InputError(f"{field} must not have a denominator of 0, as {show(text)} has")
    return Fraction(int(match[1]), denominator)


def rational_text(value: Fraction) -> str:
    """Return a rational as documents hold it, as `parse_rational` reads it."""
    return f"{value.numerator}/{value.denominator}"


def canonical_digest(document: Any) -> str:
    """Return the SHA-256, in hexadecimal, of a JSON value.

    The value is written with sorted keys, no white space and ASCII escapes, so the digest does not
    depend on how a file was laid out.
    """
    try:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise InputError(f"the document is not valid JSON: {error}") from None
    return hashlib.sha256(text.encode("ascii")).hexdigest()
