"""`KeptPlans`: certificates in a folder, found again by what they are for.

A file is named by the digest of what is asked: what is executed, its sizes, the limits, and the
machine. Where times are measured they differ from run to run, and do not count. A file is written
beside its place and moved there, so that no reader sees a part of it, and of two processes that
write at once the later one's file stays. Nothing in the folder is believed: what is found is
verified, and has to be about the very step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from offcert.core.documents import canonical_digest, read_json
from offcert.core.errors import InputError
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.files import problem_to_json
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.verification.document import verify

# Fields of a problem that say how it is called and written, not what is asked.
_SAID = ("name", "format", "version")
# Fields that differ from one measurement of the same step to the next.
_RATES = ("bandwidth", "prefetch_bandwidth", "busy_bandwidth", "busy_prefetch_bandwidth")
_MEASURED = ("duration", *_RATES, "link", "sharing")


def asked(problem: Problem, *, times: bool) -> dict[str, Any]:
    """Return the parts of a problem that decide its answer, as a JSON value to be compared.

    The name does not count, and of the source only how it was captured. Nor do durations and rates
    without `times`: where they are measured, they are others every time.
    """
    document = problem_to_json(problem)
    document["source"] = (problem.source or {}).get("capture")
    for name in _SAID:
        document.pop(name, None)
    return document if times else _without(document, _MEASURED)


class KeptPlans:
    """Certificates of plans in a folder.

    The folder is made if it does not exist. `machine` is the one whose times are measured, such as
    the name of a GPU; empty if times are those of a model, which are the same everywhere and have
    to be equal.
    """

    def __init__(self, folder: str | Path, machine: str) -> None:
        self.folder, self._machine = Path(folder), machine
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"plans cannot be kept in {folder}: {error.strerror}") from None

    def digest(self, problem: Problem, room: int | None) -> str:
        """Return the digest of the problem, room and machine that are asked for.

        `room` are bytes of the host's memory that a plan may take.
        """
        return canonical_digest(self._asked(problem, room))

    def find(
        self, problem: Problem, room: int | None, refuse: Callable[[str], None]
    ) -> Certificate | None:
        """Return the certificate of a plan for a problem, or None; parameters as for `digest`.

        `refuse` is told in a sentence why a file that is there is not used.
        """
        path = self._path(problem, room)
        if not path.exists():
            return None
        try:
            document = read_json(path)
            certificate = Certificate.from_json(document)
            verification = verify(document)
        except InputError as error:
            refuse(f"the plan in {path} is not used: {error}")
            return None
        if not verification.valid:
            refuse(f"the plan in {path} is not used: {verification.faults[0]}")
        elif not self._is_for(certificate.problem, problem):
            refuse(f"the plan in {path} is not used: it is for another step")
        elif certificate.result.schedule is not None:
            return certificate
        return None

    def keep(self, certificate: Certificate, problem: Problem, room: int | None) -> None:
        """Write a certificate to its place; parameters as for `digest`.

        If a plan with running again was asked for, it may be one without.
        """
        certificate.write(self._path(problem, room))

    def _is_for(self, made: Problem, asked: Problem) -> bool:
        """Whether a plan for one problem is one for another; less may run again in it."""
        if made.recompute not in (Recompute.NONE, asked.recompute):
            return False
        same = replace(made, recompute=asked.recompute)
        return self._asked(same, None) == self._asked(asked, None)

    def _path(self, problem: Problem, room: int | None) -> Path:
        return self.folder / f"{self.digest(problem, room)}.json"

    def _asked(self, problem: Problem, room: int | None) -> dict[str, Any]:
        """Return the problem, the room and the machine of a plan as a JSON value."""
        document = asked(problem, times=not self._machine)
        return {"problem": document, "room": room, "machine": self._machine}


def _without(value: Any, names: tuple[str, ...]) -> Any:
    """Return a JSON value without fields of some names, at any depth."""
    if isinstance(value, dict):
        return {key: _without(each, names) for key, each in value.items() if key not in names}
    if isinstance(value, list):
        return [_without(each, names) for each in value]
    return value
