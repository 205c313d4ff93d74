"""`PlanFolder`: the folder of plans of one training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from offcert.certify.kept_plans import KeptPlans
from offcert.core.errors import InputError
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem
from offcert.training.search import Found


class PlanFolder:
    """Plans that are kept in a folder, if there is one, and which of those followed come from it.

    `tell` is told in a sentence why a plan is not used, or not kept.
    """

    def __init__(self, plans: KeptPlans | None, tell: Callable[[str], None]) -> None:
        self._plans, self._tell = plans, tell
        self._found: list[Certificate] = []

    def find(self, problem: Problem, room: int | None) -> Found | None:
        """Return a plan for a problem, or None; parameters as for `KeptPlans.digest`."""
        if self._plans is None:
            return None
        certificate = self._plans.find(problem, room, self._tell)
        if certificate is None:
            return None
        self._found.append(certificate)
        return Found(certificate)

    def keep(self, certificate: Certificate, asked: Problem, room: int | None) -> None:
        """Keep a plan that was searched for, under what was asked; `room` as for `find`."""
        if self._plans is None or self.folder_of(certificate) is not None:
            return
        try:
            problem = replace(certificate.problem, recompute=asked.recompute)
            self._plans.keep(certificate, problem, room)
        except InputError as error:
            self._tell(f"the plan is not kept: {error}")

    def folder_of(self, certificate: Certificate | None) -> Path | None:
        """Return the folder in which a certificate was found; None if it was searched for."""
        if self._plans is None or not any(each is certificate for each in self._found):
            return None
        return self._plans.folder
