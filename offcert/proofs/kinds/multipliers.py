"""Bounds by linear programs: claims on interruptible transfers, and proofs on joint problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from offcert.core.forms import FLAG, TEXT, Integers, formed, integers
from offcert.core.later import Later
from offcert.core.list_forms import Each
from offcert.proofs.kinds.computed import Computed
from offcert.proofs.proof import ALL, WHOLE_OR_PAUSING, ClaimKind, Proof, ProofKind
from offcert.questions.schedule.problem import Minimise, Recompute

if TYPE_CHECKING:
    import offcert.verification.joint.verifier

FLUID_CLAIMS = (
    ClaimKind(
        "fluid-milp",
        ("HiGHS",),
        "interruptible problem, aggregated over tensors, each whole or not at all",
        page="fluid",
        transfers=WHOLE_OR_PAUSING,
    ),
    ClaimKind(
        "fluid-exact",
        ("HiGHS",),
        "interruptible or fractional problem, exactly; a bound for whole tensors",
        page="fluid",
        transfers=ALL,
    ),
)


@dataclass(frozen=True, kw_only=True)
class JointProof(Proof):
    """Multipliers of facts about executions, cut at the first runs of some computations.

    Attributes
    ----------
    moments : tuple of int
        Where they are cut: for a computation `o`, ``2o`` is the start of its first run, ``2o + 1``
        its end. Increasing.
    spans : tuple of tuple of int
        Stretches between two boundaries over which runs again are counted once; the beginning is
        boundary 0, then come the moments, then the end.
    whole : bool
        Whether the room that runs leave is rounded down to what whole values take.
    proof : str
        Multipliers, packed; see `offcert.proofs.joint_document`.
    """

    moments: tuple[int, ...] = integers(0)
    spans: tuple[tuple[int, ...], ...] = formed(Each(Integers(0)))
    whole: bool = formed(FLAG)
    proof: str = formed(TEXT)


JOINT = (
    ProofKind(
        "joint-lp",
        JointProof,
        Later(lambda: offcert.verification.joint.verifier.joint_lp),
        "linear relaxation of moving and computing again together, by its multipliers",
        page="joint",
        transfers=ALL,
        recompute=True,
    ),
    ProofKind(
        "joint-labels",
        Computed,
        Later(lambda: offcert.verification.joint.verifier.joint_labels),
        "every way to move and compute again, searched to the end; for small problems",
        page="joint-labels",
        searched=True,
        transfers=ALL,
        recompute=True,
    ),
    ProofKind(
        "joint-labels-memory",
        Computed,
        Later(lambda: offcert.verification.joint.verifier.joint_labels_memory),
        "bytes, by the same search within one byte less",
        page="joint-labels",
        searched=True,
        transfers=ALL,
        recompute=True,
        minimise=Minimise.MEMORY,
    ),
)
JOINT_CLAIMS = (
    ClaimKind(
        "joint-stages",
        ("HiGHS",),
        "moving and running again in stages, with runs and copies as wholes",
        page="joint",
        transfers=ALL,
        recompute=frozenset({Recompute.CHAIN, Recompute.ANY}),
    ),
)
