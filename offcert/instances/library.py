"""The instance library: problems with the best schedules and bounds known.

One file a family, format ``offcert-library``, version 1: a problem document once, and an entry a
memory limit with its record. An entry's problem is the document with the entry's memory and name,
and with the rates alone if it says so; its hash stands beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offcert.core.documents import Fields, naming, read_json, require_format, show, write_text
from offcert.core.errors import InputError
from offcert.core.messages import cut, meant
from offcert.core.notebook import Shown, html
from offcert.core.result import SolveStatus
from offcert.instances.records import Record, record_from_json, record_to_json
from offcert.questions.schedule.files import problem_digest, problem_from_json, problem_to_json
from offcert.questions.schedule.problem import Problem

if TYPE_CHECKING:
    from filelock import BaseFileLock

LIBRARY_FORMAT = "offcert-library"
# The version of the format. By definition.
LIBRARY_VERSION = 1
FOLDER = Path(__file__).parent / "library"


@dataclass(frozen=True)
class Entry:
    """One problem of the library."""

    label: str  # Text that is appended to the family's name, for example ``"m25"``; may be empty.
    problem: Problem  # Its name is the entry's.
    digest: str  # SHA-256 of the problem, in hexadecimal.
    record: Record  # Best schedule and bounds that are known of it.

    @property
    def name(self) -> str:
        """The name by which the library knows the problem."""
        return self.problem.name


@dataclass(frozen=True)
class Family:
    """One network or chain at several memory limits."""

    name: str  # Also the file's, without ``.json``.
    group: str  # Kind of the problem, for example ``"networks-224"`` or ``"cnn-24"``.
    # A sentence for people; what a program needs to make the problem again is its ``source``.
    origin: str
    problem: Problem  # At an arbitrary memory limit.
    entries: tuple[Entry, ...]  # By increasing memory.


def make_entry(
    base: Problem, family: str, label: str, memory: int, *, alone: bool = False
) -> Entry:
    """Return the entry for a limit, maybe at the rates `alone`; nothing is known about it yet."""
    name = f"{family}-{label}" if label else family
    platform = base.platform.alone if alone else base.platform
    problem = replace(base, name=name, platform=replace(platform, memory=memory))
    return Entry(label, problem, problem_digest(problem), Record())


class Library:
    """The families in a folder; files are read when they are first needed.

    Parameters
    ----------
    folder : str or Path, optional
        By default the library that comes with the package.
    patience : float
        Seconds to wait for another program that writes to the folder; 60 is arbitrary.

    Raises
    ------
    InputError
        From every method that reads a file which is no family, or that is given an unknown name.
    """

    def __init__(self, folder: str | Path | None = None, *, patience: float = 60.0) -> None:
        self.folder, self.patience = FOLDER if folder is None else Path(folder), patience
        if not self.folder.is_dir():
            raise InputError(f"{self.folder} is not a folder with a library")
        self._families: dict[str, Family] = {}
        self._lock: BaseFileLock | None = None

    def __repr__(self) -> str:
        return f"<Library {self.folder}: {len(list(self.folder.glob('[!.]*.json')))} families>"

    def _repr_html_(self) -> str:
        known = ((each.name, each.record) for each in self.entries())
        rows = ((name, f"{record.value}", f"{record.lower_bound}") for name, record in known)
        return html(Shown(f"{self!r}", (), ("problem", "best value", "lower bound"), rows))

    def families(self, *, group: str | None = None, family: str | None = None) -> Iterator[Family]:
        """Yield the families by name.

        Parameters
        ----------
        group, family : str, optional
            Only groups or families that match this pattern, for example ``"cnn-*"``.
        """
        for path in sorted(self.folder.glob("*.json")):
            # A family has its file's name, so the others need not be read. Hidden files are what
            # programs leave that were killed while they wrote.
            if not path.name.startswith(".") and fnmatchcase(path.stem, family or "*"):
                found = self._family(path, group or "*")
                if found is not None:
                    yield found

    def entries(
        self,
        *,
        group: str | None = None,
        family: str | None = None,
        status: SolveStatus | None = None,
        largest: int | None = None,
    ) -> Iterator[Entry]:
        """Yield the entries that pass every filter given.

        Parameters
        ----------
        group, family : str, optional
            As for `families`.
        status : SolveStatus, optional
            Only records of this status, for example ``FEASIBLE`` for what is still open.
        largest : int, optional
            Only traces of at most so many operations.
        """
        for found in self.families(group=group, family=family):
            for entry in found.entries:
                if status not in (None, entry.record.status):
                    continue
                if largest is None or len(entry.problem.trace) <= largest:
                    yield entry

    def names(self) -> list[str]:
        """Return the names of all problems."""
        return [entry.name for entry in self.entries()]

    def entry(self, name: str) -> Entry:
        """Return an entry by name."""
        return self._find(name)[1]

    def family_of(self, name: str) -> Family:
        """Return the family of a problem by the problem's name."""
        return self._find(name)[0]

    def load(self, name: str) -> Problem:
        """Return a problem by name."""
        return self.entry(name).problem

    def record(self, name: str) -> Record:
        """Return the best schedule and bounds known of a problem."""
        return self.entry(name).record

    def find(self, digest: str) -> Entry | None:
        """Return the entry whose problem has a hash, or None."""
        return next((entry for entry in self.entries() if entry.digest == digest), None)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep everybody else from writing to the folder; readers need not wait.

        Raises
        ------
        InputError
            If somebody else does not stop writing, or the folder is read-only.
        """
        from filelock import FileLock, Timeout

        if self._lock is None:
            # One object, so that whoever holds the lock may ask for it again.
            self._lock = FileLock(self.folder / ".lock", timeout=self.patience)
        try:
            self._lock.acquire()
        except Timeout:
            raise InputError(
                f"{self.folder} cannot be written: another program has been writing to it for "
                f"{self.patience:g} s"
            ) from None
        except OSError as error:
            raise InputError(f"{self.folder} cannot be written: {error.strerror}") from None
        try:
            yield
        finally:
            self._lock.release()

    def update(self, name: str, change: Callable[[Entry], Record]) -> Entry:
        """Replace a record by what `change` makes of the entry as it is in the file then.

        Nobody else writes meanwhile; if `change` raises, nothing is written.
        """
        with self.locked():
            self.store(name, change(self.refresh(name)))
        return self.entry(name)

    def refresh(self, name: str) -> Entry:
        """Return an entry by name, from its file as it is now: others may have written to it."""
        self._families.pop(self._find(name)[0].name)
        return self.entry(name)

    def store(self, name: str, record: Record) -> None:
        """Replace a record, better or not: `offcert.certification.records` does."""
        family, changed = self._find(name)
        entries = tuple(
            replace(entry, record=record) if entry is changed else entry for entry in family.entries
        )
        self.write(replace(family, entries=entries))

    def write(self, family: Family) -> None:
        """Write a family to its file, through a temporary one."""
        text = family_to_text(family)
        path = self.folder / f"{family.name}.json"
        with self.locked():
            write_text(path, text)
        self._families[family.name] = family

    def family(self, name: str) -> Family:
        """Return a family by name."""
        path = self.folder / f"{name}.json"
        if Path(name).name != name or not path.is_file():
            raise InputError(
                f"there is no family {show(name)} in the library{meant(name, self._stems())}"
            )
        found = self._family(path)
        assert found is not None
        return found

    def _family(self, path: Path, group: str = "*") -> Family | None:
        """Return the family in a file, unless its group does not match a pattern."""
        family = self._families.get(path.stem)
        if family is None:
            document = read_json(path)
            with naming(path):
                # Others are not made, which takes longer than to read them.
                if not fnmatchcase(Fields(document).get("group", str), group):
                    return None
                family = family_from_json(document)
                if family.name != path.stem:
                    raise InputError(f"family must be the file's name, not {show(family.name)}")
            self._families[path.stem] = family
        return family if fnmatchcase(family.group, group) else None

    def _find(self, name: str) -> tuple[Family, Entry]:
        # The family's file is the name itself or the name without its label.
        for stem in (name, name.rpartition("-")[0]):
            path = self.folder / f"{stem}.json"
            if stem and Path(stem).name == stem and path.is_file():
                family = self.family(stem)
                for entry in family.entries:
                    if entry.name == name:
                        return family, entry
        raise InputError(f"there is no problem {show(name)} in the library{self._meant(name)}")

    def _stems(self) -> list[str]:
        return [path.stem for path in self.folder.glob("*.json")]

    def _meant(self, name: str) -> str:
        """Return which problems, or families of problems, have a name that is close."""
        stem = name.rpartition("-")[0]
        if stem in (stems := self._stems()):
            return meant(name, [entry.name for entry in self.family(stem).entries])
        return meant(name, stems)


def family_to_text(family: Family) -> str:
    """Return a family's file: one line a field and one an entry, so that changes are short."""
    document = {
        "format": LIBRARY_FORMAT,
        "version": LIBRARY_VERSION,
        "family": family.name,
        "group": family.group,
        "origin": family.origin,
        "problem": problem_to_json(family.problem),
    }
    lines = [f"{_compact(name)}: {_compact(value)}" for name, value in document.items()]
    slows = family.problem.platform.slows
    entries = [
        _compact(
            {
                "label": entry.label,
                "memory": entry.problem.platform.memory,
                **({"alone": True} if entry.problem.platform.slows < slows else {}),
                "sha256": entry.digest,
                "record": record_to_json(entry.record),
            }
        )
        for entry in family.entries
    ]
    return "{\n" + ",\n".join(lines) + ',\n"entries": [\n' + ",\n".join(entries) + "\n]}\n"


def family_from_json(document: Any) -> Family:
    """Return the family that a JSON value describes."""
    fields = Fields(document)
    require_format(fields, LIBRARY_FORMAT, LIBRARY_VERSION)
    name = fields.get("family", str)
    group = fields.get("group", str)
    origin = fields.get("origin", str)
    problem = problem_from_json(fields.get("problem", dict), "problem")
    entries: list[Entry] = []
    for item in fields.each("entries"):
        entry = _entry_from_json(item, problem, name)
        if any(entry.name == other.name for other in entries):
            raise InputError(f"{item.path('label')} repeats {show(entry.label)}")
        entries.append(entry)
    fields.finish()
    if not entries:
        raise InputError("entries must not be empty")
    return Family(name, group, origin, problem, tuple(entries))


def _entry_from_json(item: Fields, base: Problem, family: str) -> Entry:
    label = item.get("label", str)
    if "-" in label:
        raise InputError(f'{item.path("label")} must hold no "-", as {show(label)} does')
    alone = item.has("alone") and item.get("alone", bool)
    entry = make_entry(base, family, label, item.integer("memory", 0), alone=alone)
    digest = item.get("sha256", str)
    if digest != entry.digest:
        raise InputError(
            f"{item.path('sha256')} must be the hash of the problem {cut(entry.name)}, "
            f"{entry.digest}, not {show(digest)}"
        )
    # The trace is the same for every entry of a family, so the problem that has it is taken.
    fields = Fields(item.get("record", dict), item.path("record"))
    record = record_from_json(fields, base)
    item.finish()
    return replace(entry, record=record)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


@cache
def default_library() -> Library:
    """Return the library that comes with the package."""
    return Library()


def names() -> list[str]:
    """Return the names of all problems that come with the package."""
    return default_library().names()


def load(name: str) -> Problem:
    """Return a problem that comes with the package."""
    return default_library().load(name)


def record(name: str) -> Record:
    """Return the best schedule and bounds known of a problem that comes with the package."""
    return default_library().record(name)


def entries(**filters: Any) -> Iterator[Entry]:
    """Yield the entries of the package's library that pass the filters of `Library.entries`."""
    return default_library().entries(**filters)
