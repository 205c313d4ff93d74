"""Proved bounds as programs with their proofs, for checkers that others wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offcert.certification.exchange import PROGRAMS, ModelFiles
from offcert.core.errors import InputError
from offcert.core.result import Bound, Evidence
from offcert.proofs.kinds.multipliers import JointProof
from offcert.proofs.registry import PROOFS
from offcert.questions.schedule.problem import Problem
from offcert_lab.checkers.joint_rows import joint_argument
from offcert_lab.checkers.vipr import ViprCertificate

# The kind of bound that can be exported.
METHOD = "joint-lp"
VIPR = "vipr"


@dataclass(frozen=True, kw_only=True)
class ExportedBound(ModelFiles):
    """A bound as a file."""

    value: int  # The bound, in ticks.
    derivations: int  # Steps of its proof.


def export_bound(
    problem: Problem,
    bounds: Sequence[Bound],
    form: str,
    *,
    every: bool = False,
) -> ExportedBound:
    """Return the best of some joint bounds with a stored proof as a file.

    Parameters
    ----------
    problem : Problem
        Theirs.
    bounds : sequence of Bound
        As a certificate has them.
    form : str
        ``"vipr"`` for program and proof; ``"mps"`` or ``"lp"`` for the program.
    every : bool
        Whether the program has every fact, not only those that the proof weighs.

    Raises
    ------
    InputError
        If there is no such bound, or its proof proves less than it says.
    """
    bound = _chosen(bounds)
    misfit = PROOFS[METHOD].misfit(problem)
    if misfit is not None:
        raise InputError(f"{METHOD} cannot be exported: {misfit}")
    argument = joint_argument(problem, bound.value, JointProof.read(bound.details), every)
    certificate = ViprCertificate(argument)
    program = argument.program
    lines = certificate.text() if form == VIPR else PROGRAMS[form](program)
    return ExportedBound(
        files={f".{form}": "\n".join(lines) + "\n"},
        value=bound.value,
        variables=len(program.names),
        rows=len(program.rows),
        derivations=len(certificate.derived),
    )


def _chosen(bounds: Sequence[Bound]) -> Bound:
    known = [b for b in bounds if b.method == METHOD and b.evidence is Evidence.PROVED]
    stored = [bound for bound in known if "proof" in bound.details]
    if not stored:
        there = ", ".join(dict.fromkeys(bound.method for bound in bounds)) or "none"
        why = "the proofs of these are not stored with it" if known else f"its bounds are {there}"
        raise InputError(f"no proved bound {METHOD} can be exported: {why}")
    return max(stored, key=lambda bound: bound.value)
