"""Commands and objects of the package `offcert-lab`, found by its entry points.

What only studies the field is a package of its own; nothing here imports it. It says what it has in
the groups `COMMANDS`, `GENERATORS` and `PARTS` of entry points.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any

from offcert.core.errors import MissingPackageError

# Groups of entry points: modules of commands with a function ``add``, the same below ``generate``,
# and objects.
COMMANDS, GENERATORS, PARTS = "offcert.commands", "offcert.generators", "offcert.parts"


def lab_points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; none if the lab is not installed.

    An installation that can be edited in place may list what its sources do not have, or no more.
    """
    return {point.name: point for point in entry_points(group=group) if _is_there(point.module)}


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def lab_part(name: str, need: str) -> Any:
    """Return an object of the group `PARTS`; without the lab, the error names what needs it."""
    found = lab_points(PARTS)
    if name not in found:
        raise lab_missing(need)
    return found[name].load()


def lab_missing(need: str) -> MissingPackageError:
    """Return the error that something needs the lab."""
    return MissingPackageError(f"{need} needs another package: pip install offcert-lab")
