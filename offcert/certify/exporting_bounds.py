"""Bounds of certificates written for other people's checkers: as programs, and as VIPR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from offcert.certify.exporting import PROGRAMS, ModelFiles
from offcert.core.errors import InputError
from offcert.core.result import Bound, Evidence
from offcert.formulations.exported.fluid_rows import fluid_argument
from offcert.formulations.exported.joint_rows import joint_argument
from offcert.formulations.exported.vipr import Argument, ViprCertificate
from offcert.proofs.registry import PROOFS
from offcert.questions.schedule.problem import Problem

# What makes a program and its proof of the bounds that can be exported.
ARGUMENTS: dict[str, Callable[[Problem, int, Any, bool], Argument]] = {
    "joint-lp": joint_argument,
    "fluid-lp": fluid_argument,
    "fluid-milp": fluid_argument,
}
VIPR = "vipr"


@dataclass(frozen=True)
class ExportedBound(ModelFiles):
    """A bound as a file.

    Attributes
    ----------
    method : str
        Name of the method.
    value : int
        The bound, in ticks.
    variables, rows : int
        Of the program.
    derivations : int
        Steps of its proof.
    """

    method: str
    value: int
    variables: int
    rows: int
    derivations: int


def export_bound(
    problem: Problem,
    bounds: Sequence[Bound],
    form: str,
    *,
    method: str | None = None,
    every: bool = False,
) -> ExportedBound:
    """Return the best of some bounds that has a linear proof, as a file.

    Parameters
    ----------
    problem : Problem
        Theirs.
    bounds : sequence of Bound
        As a certificate has them.
    form : str
        ``"vipr"`` for program and proof; ``"mps"`` or ``"lp"`` for the program.
    method : str, optional
        A key of `ARGUMENTS`: the kind of bound that is meant.
    every : bool
        Whether the program has every fact, not only those that the proof weighs.

    Raises
    ------
    InputError
        If there is no such bound, or its proof proves less than it says.
    """
    bound = _chosen(bounds, method)
    kind = PROOFS[bound.method]
    misfit = kind.misfit(problem)
    if misfit is not None:
        raise InputError(f"{bound.method} cannot be exported: {misfit}")
    proof = kind.proof.read(bound.details)
    argument = ARGUMENTS[bound.method](problem, bound.value, proof, every)
    certificate = ViprCertificate(argument)
    program = argument.program
    lines = certificate.text() if form == VIPR else PROGRAMS[form](program)
    return ExportedBound(
        files={f".{form}": "\n".join(lines) + "\n"},
        method=bound.method,
        value=bound.value,
        variables=len(program.names),
        rows=len(program.rows),
        derivations=len(certificate.derived),
    )


def _chosen(bounds: Sequence[Bound], method: str | None) -> Bound:
    wanted = ARGUMENTS if method is None else (method,)
    known = [b for b in bounds if b.method in wanted and b.evidence is Evidence.PROVED]
    stored = [bound for bound in known if "proof" in bound.details]
    if not stored:
        there = ", ".join(dict.fromkeys(bound.method for bound in bounds)) or "none"
        why = "the proofs of these are not stored with it" if known else f"its bounds are {there}"
        raise InputError(f"no proved bound {' or '.join(wanted)} can be exported: {why}")
    return max(stored, key=lambda bound: bound.value)
