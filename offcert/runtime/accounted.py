"""What can be asked about a training loop under plans."""

from __future__ import annotations

from collections import Counter
from typing import Any

from offcert.core.schedule import Schedule
from offcert.core.training_record import HostMemory
from offcert.runtime.accounts import Accounts
from offcert.runtime.host_memory import host_memory_of
from offcert.runtime.movers import Movers
from offcert.runtime.program import Program
from offcert.runtime.reports import StepReport
from offcert.runtime.run import StepRun
from offcert.runtime.segments.attach import Segments


class Accounted:
    """Tells of its steps; see `offcert.runtime.offload.Offload`."""

    programs: list[Program]
    _accounts: Accounts
    _movers: Movers[Any]
    _run: StepRun | None
    _segments: Segments | None

    @property
    def report(self) -> StepReport:
        """What the latest step has done so far; complete after its backward pass."""
        return self._accounts.report if self._run is None else self._run.report()

    @property
    def steps(self) -> Counter[str]:
        """How many steps there were of each kind."""
        return self._accounts.steps

    @property
    def refused(self) -> dict[str, str]:
        """Segments that do not run again any more, by name, with the reasons."""
        found = {} if self._segments is None else self._segments.refused
        return {name: str(proof.refused) for name, proof in found.items()}

    @property
    def host(self) -> HostMemory:
        """What all plans together need of the host."""
        return host_memory_of(self.programs)

    @property
    def times(self) -> Schedule | None:
        """When operations and transfers of the latest step ran, in nanoseconds; waits for them.

        None unless times are taken note of, and before a step has ended.
        """
        record = self._movers.record
        return record.schedule() if record is not None and record.operations > 0 else None
