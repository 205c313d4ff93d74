"""Accounts of a training loop's steps: how many of each kind, reports, warnings."""

from __future__ import annotations

import logging
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from offcert.core.errors import PlanError
from offcert.core.messages import plain
from offcert.runtime.device.interface import Pinning
from offcert.runtime.follow.run import StepRun
from offcert.runtime.plan.reports import StepReport
from offcert.runtime.plan.step_plan import StepPlan
from offcert.runtime.watch.guard import OffloadWarning, SegmentProof

LOG = logging.getLogger("offcert.training")


def say(text: str) -> None:
    """Say in a line what goes on: in the log at INFO, or on a terminal if nothing is logged at all.

    Nothing is said to who sets the level of the logger ``offcert.training`` above INFO.
    """
    LOG.info("%s", text)
    if LOG.level == logging.NOTSET and not LOG.hasHandlers() and sys.stderr.isatty():
        print(f"offcert: {plain(text)}", file=sys.stderr)


class Accounts:
    """Takes stock of steps: how many of each kind, the report of the latest, promises of each plan.

    A `strict` one raises a `PlanError` where it would warn.
    """

    def __init__(self, strict: bool) -> None:
        self.steps: Counter[str] = Counter()
        self.report = StepReport("no step has been run", False)
        self.promises: list[dict[str, float]] = []
        self._strict = strict
        self._moved = self._said = False
        # Plans that have promised something, and of which no step has been told of yet.
        self._promising: list[StepPlan] = []
        # Plans of which segments are still to be rehearsed, if it has been said how many.
        self._rehearsing: list[StepPlan] = []
        self._warned: set[str] = set()
        # What has been said of arenas that were registered while steps ran.
        self._pinned: set[Pinning] = set()

    def begin(self) -> None:
        """Begin anew; what has been warned of is not warned of again."""
        self.steps.clear()
        self._moved = self._said = False

    def promise(self, step_plan: StepPlan, numbers: dict[str, float]) -> None:
        """Keep the promises of a plan; the first step by it is told of."""
        self.promises.append(numbers)
        self._promising.append(step_plan)
        if step_plan.segments:
            self._rehearsing.append(step_plan)

    def rehearses(self, step_plan: StepPlan) -> bool:
        """Whether it is still to be said that segments of a plan have been rehearsed."""
        return any(each is step_plan for each in self._rehearsing)

    def rehearsed(self, step_plan: StepPlan, proofs: Sequence[SegmentProof]) -> None:
        """Say how many segments of a plan run again, once all were rehearsed."""
        if all(each.seen or each.refused for each in proofs):
            self._rehearsing = [each for each in self._rehearsing if each is not step_plan]
            refused = sum(each.refused is not None for each in proofs)
            say(
                f"tested: {len(proofs) - refused} of {len(proofs)} segments of "
                f"{step_plan.problem.name} have made the same again"
            )

    def refuse(self, kind: str, message: str, *, alone: bool) -> None:
        """Take note of a step that no plan is followed for; `alone`: no other is under way."""
        self.steps["unplanned"] += 1
        if alone:
            self.report = StepReport(message, True)
        if self._strict:
            raise PlanError(message)
        self.tell(kind, message)

    def idle(self, step_plan: StepPlan) -> None:
        """Take note of a step under a plan that changes nothing."""
        self.steps["planned"] += 1
        self.report = StepReport(None, True, step_plan.prediction, step_plan.limit)

    def exceeded(self, what: str) -> None:
        """Take note that such a step takes more than its plan says."""
        self.steps.subtract(["planned"])
        self.steps.update(["deviating"])
        self.steps += Counter()
        self.report = replace(self.report, deviation=what)
        if self._strict:
            raise PlanError(f"the step takes more than its plan says: {what}")
        self.tell("deviating", f"a step did not follow its plan: {what}")

    def tell(self, kind: str, message: str) -> None:
        """Warn once of each kind, and of the same thing once."""
        if kind not in self._warned and message not in self._warned:
            self._warned |= {kind, message}
            warnings.warn(
                f"{message}; training goes on with the tensors on the device",
                OffloadWarning,
                stacklevel=3,
            )

    def failed(self, error: Exception, reason: str, run: StepRun | None) -> None:
        """Take note that we have failed in the midst of a step, or outside of any."""
        if self._strict and isinstance(error, PlanError):
            # We have not failed: it is what was asked for.
            raise error
        if run is not None:
            run.fail(reason)
        else:
            self.report = StepReport(reason, True)
        if self._strict:
            raise PlanError(reason) from error
        self.tell("failed", reason)

    def close(self, run: StepRun) -> StepReport:
        """Take stock of a step after which another one begins, or nothing."""
        self._account(run)
        self.report = run.report()
        self._tell_of_pinning(self.report.pinning)
        self._warn(run)
        return self.report

    def ended(self, run: StepRun, *, under_way: bool, latest: bool) -> None:
        """Take stock of a step whose backward pass has ended.

        Its report is still to be taken if it is `under_way`; no step has begun after it if it is
        the `latest`.
        """
        self._account(run)
        if not under_way:
            if latest:
                self.report = run.report()
            self._warn(run)

    def _account(self, run: StepRun) -> None:
        kind = "planned" if run.finished else "unfinished"
        if run.breach is not None:
            kind = "deviating"
        if run.counted_as is not None:
            self.steps.subtract([run.counted_as])
        run.counted_as = kind
        if kind == "planned":
            self._tell_first(run)
        self.steps.update([kind])
        self.steps += Counter()
        self._moved |= run.offloaded_bytes > 0

    def _tell_first(self, run: StepRun) -> None:
        """Say the report of the first step by each plan; a makeshift has no certificate."""
        waiting = [each for each in self._promising if each is not run.step_plan]
        promised = len(waiting) < len(self._promising)
        if promised or not (self._said or self.promises):
            what = "a plan" if promised else "a plan without a certificate"
            say(f"the first step by {what}: {run.report().said}")
        self._promising, self._said = waiting, True

    def _tell_of_pinning(self, pinning: Pinning | None) -> None:
        """Say once of an arena that was registered while steps ran how long that has taken."""
        if pinning is None or not (pinning.threads and pinning.ended):
            return
        if pinning not in self._pinned:
            self._pinned.add(pinning)
            size, whole = (f"{each / 2**20:.0f} MiB" for each in (pinning.registered, pinning.size))
            rate = pinning.registered / max(pinning.seconds, 1e-9) / 1e9
            say(
                f"pinned {size} of {whole} of the host's memory in {pinning.seconds:.1f} s "
                f"({rate:.1f} GB/s) by {pinning.threads} threads, while steps ran"
            )

    def _warn(self, run: StepRun) -> None:
        # A strict step has raised it.
        if run.breach is not None and not self._strict:
            self.tell("deviating", f"a step did not follow its plan: {run.breach}")

    def warn_if_nothing_moved(self, step_plans: Sequence[StepPlan]) -> None:
        """Warn if no step has moved anything although a plan wanted it."""
        wanted = any(not each.moves_nothing for each in step_plans)
        if wanted and not self._moved:
            done = ", ".join(f"{n} {kind}" for kind, n in self.steps.items()) or "none"
            reason = self.report.deviation or "none of them ran a backward pass"
            if self.report.deviation is None and self.report.unfreed:
                held = sum(each.size for each in self.report.unfreed)
                reason = f"the program itself holds {held} bytes that should have left"
            warnings.warn(
                f"nothing was moved under the plan (steps: {done}): {reason}",
                OffloadWarning,
                stacklevel=3,
            )
