"""The public attributes of an offload: its steps, its latest one, its memory on the host."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from torch import nn

from offcert.questions.schedule.schedule import Schedule
from offcert.questions.schedule.training_record import HostMemory
from offcert.runtime.device.interface import Device
from offcert.runtime.follow.accounts import Accounts
from offcert.runtime.follow.memory import host_memory_of
from offcert.runtime.follow.run import StepRun
from offcert.runtime.plan.reports import StepReport
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.segments.attach import Segments
from offcert.runtime.streaming.mover_makers import MoverMaker


class Outcome:
    """The results that `offcert.runtime.follow.offload.Offload` shows; that class sets them."""

    step_plans: list[StepPlan]
    _accounts: Accounts
    _mover_maker: MoverMaker[object]
    _model: nn.Module
    _root: nn.Module
    _run: StepRun | None
    _open: object
    _segments: Segments | None
    _device: Device | None

    def __repr__(self) -> str:
        plans = "1 plan" if len(self.step_plans) == 1 else f"{len(self.step_plans)} plans"
        steps = ", ".join(f"{number} {kind}" for kind, number in self.steps.items())
        state = "not entered" if self._open is None else "entered"
        return (
            f"<{type(self).__name__} of {type(self._root).__name__}: {plans}; steps: "
            f"{steps or 'none'}; {state}>"
        )

    @property
    def report(self) -> StepReport:
        """The report of the latest step so far; complete after its backward pass."""
        found = self._accounts.report if self._run is None else self._run.report()
        return replace(found, refused=tuple(self.refused.items())) if self.refused else found

    @property
    def promises(self) -> list[dict[str, float]]:
        """The promises of each plan, by their names, in the order in which plans were made."""
        return self._accounts.promises

    def promise(self, step_plan: StepPlan, numbers: dict[str, float]) -> None:
        """Keep the promises of a plan, and log the report of the first step by it."""
        self._accounts.promise(step_plan, numbers)

    def _rehearsed(self, run: StepRun) -> None:
        """Say that segments have been rehearsed, once all of a plan have."""
        made = run.step_plan
        if self._segments is None or not self._accounts.rehearses(made):
            return
        for each, lookup in zip(self.step_plans, self._segments.lookups, strict=True):
            if each is made:
                self._accounts.rehearsed(made, lookup.proofs)

    @property
    def streams(self) -> bool:
        """Whether copies run beside the computing; on the CPU they are synchronous."""
        return self._device is not None

    @property
    def model(self) -> nn.Module:
        """The network that trains."""
        return self._model

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
        """The memory of the host that all plans together need."""
        return host_memory_of(self.step_plans)

    @property
    def times(self) -> Schedule | None:
        """When operations and transfers of the latest step ran, in nanoseconds; waits for them.

        None unless times are taken note of, and before a step has ended.
        """
        record = self._mover_maker.record
        return record.schedule() if record is not None and record.operations > 0 else None

    def _refuse(self, kind: str, message: str) -> None:
        """Take note of a step that no plan is followed for."""
        self._accounts.refuse(kind, message, alone=self._run is None)

    def _tell(self, kind: str, message: str) -> None:
        self._accounts.tell(kind, message)
