"""The registry of bounds: under which name each stands in a certificate, and what supports it.

Everything that treats kinds of bounds differently asks here: the search when it writes a bound,
verification when it reads one, attestation, the list of methods, tests and documentation. A new
kind of proof is a dataclass in `offcert.proofs.kinds`, an entry here, and a verifier.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcert.core.platform import Link
from offcert.proofs.kinds import (
    AtomicHeads,
    Computed,
    ExactSums,
    FluidProof,
    JointProof,
    LargeTensors,
    LeastMemoryCut,
    MatchedHeads,
    MemoryByTime,
    Outward,
    Pivot,
    PivotOutward,
)
from offcert.proofs.proof import Claimable, Provable
from offcert.questions.schedule.problem import Minimise, Problem, Recompute, Transfers

_ALL = frozenset(Transfers)
_ATOMIC = frozenset({Transfers.ATOMIC})
_WHOLE_OR_PAUSING = _ALL - {Transfers.FRACTIONAL}
_BOTH = frozenset(Link)
_SIMPLEX = frozenset({Link.SIMPLEX})
_UNIT = {Minimise.TIME: "time", Minimise.MEMORY: "memory"}


@dataclass(frozen=True)
class ProofKind(Provable):
    """A kind of bound on schedules that can be established again without a solver.

    Attributes
    ----------
    transfers, links : frozenset
        For which problems the argument holds.
    recompute : bool
        Whether the argument holds if computations may run again.
    minimise : Minimise
        What the value is about.
    """

    transfers: frozenset[Transfers] = _ATOMIC
    links: frozenset[Link] = _BOTH
    recompute: bool = False
    minimise: Minimise = Minimise.TIME

    def misfit(self, problem: Problem) -> str | None:
        """Return why the argument does not hold for a problem, or None."""
        if problem.minimise is not self.minimise:
            return f"it bounds {_UNIT[self.minimise]}, and the problem minimises {problem.minimise}"
        if problem.recompute is not Recompute.NONE and not self.recompute:
            return "no proof is known for a bound of this kind where computations may run again"
        if problem.transfers not in self.transfers:
            return f"no proof is known for a bound of this kind with {problem.transfers} transfers"
        if problem.platform.link not in self.links:
            return f"no proof is known for a bound of this kind on a {problem.platform.link} link"
        return None


@dataclass(frozen=True)
class ClaimKind(Claimable):
    """A kind of bound on schedules that rests on the word of a solver.

    Attributes
    ----------
    transfers, recompute, offload : frozenset
        For which problems the claim is a bound.
    minimise : Minimise
        What the value is about.
    """

    transfers: frozenset[Transfers] = _ATOMIC
    recompute: frozenset[Recompute] = frozenset({Recompute.NONE})
    minimise: Minimise = Minimise.TIME
    offload: frozenset[bool] = frozenset({True, False})

    def misfit(self, problem: Problem) -> str | None:
        """Return why the claim is no bound for a problem, or None."""
        if problem.minimise is not self.minimise:
            return f"it bounds {_UNIT[self.minimise]}, and the problem minimises {problem.minimise}"
        if problem.recompute not in self.recompute:
            return f'such a claim is no bound where "{problem.recompute}" may run again'
        if problem.offload not in self.offload:
            return "such a claim is no bound where tensors may leave"
        fits = problem.transfers in self.transfers
        return None if fits else f"such a claim is no bound with {problem.transfers} transfers"


_PROOFS = (
    ProofKind(
        "prop3",
        Computed,
        "fractional:prop3",
        "computing time, or what must move at the worst operation, both ways",
        page="prop3",
        transfers=_ALL,
    ),
    ProofKind(
        "prop3-subset-sum",
        Computed,
        "fractional:prop3_whole",
        "the same, what must move rounded up to what whole tensors make up",
        page="whole-tensors",
        transfers=_WHOLE_OR_PAUSING,
    ),
    ProofKind(
        "fractional",
        Computed,
        "fractional:fractional",
        "the optimum if any part of any tensor may move",
        page="fractional",
        transfers=_ALL,
    ),
    ProofKind(
        "fractional-subset-sum",
        Computed,
        "fractional:fractional_whole",
        "the same, what must be absent rounded up to what whole tensors make up",
        page="whole-tensors",
    ),
    ProofKind(
        "fractional-large-tensors",
        LargeTensors,
        "fractional:large_tensors",
        "the same, with large tensors as wholes and small ones in parts",
        page="large-tensors",
    ),
    ProofKind(
        "fractional-large-tensors-returns",
        LargeTensors,
        "fractional:large_tensors_returns",
        "the same on what is left when returns that stop the device are cut out",
        page="forced-returns",
        links=_SIMPLEX,
    ),
    ProofKind(
        "exact-sums",
        ExactSums,
        "sums:exact_sums",
        "every sum of whole tensors that may be absent where most has to be",
        page="exact-sums",
    ),
    ProofKind(
        "fluid-lp",
        FluidProof,
        "fluid.verifier:fluid_lp",
        "linear relaxation of the interruptible problem, by its multipliers",
        page="fluid",
        families=("HiGHS",),
        transfers=_ALL,
    ),
    ProofKind(
        "fluid-milp",
        FluidProof,
        "fluid.verifier:fluid_milp",
        "interruptible problem, tensors whole or not at all, by cases with multipliers",
        page="fluid",
        families=("HiGHS",),
        transfers=_WHOLE_OR_PAUSING,
    ),
    ProofKind(
        "atomic-heads",
        AtomicHeads,
        "heads.check:atomic_heads",
        "the least time before a pivot, and from it on, with whole tensors",
        page="heads",
        searched=True,
    ),
    ProofKind(
        "matched-heads",
        MatchedHeads,
        "matched.verifier:matched_heads",
        "head and tail that move the same tensors",
        page="matched",
        searched=True,
    ),
    ProofKind(
        "matched-heads-joined",
        MatchedHeads,
        "matched.verifier:matched_heads_joined",
        "the same, as if every tensor had one gap",
        page="matched",
        searched=True,
    ),
    ProofKind(
        "pivot",
        Pivot,
        "pivot.check:pivot",
        "pivot dynamic program: both sides of a cut searched to a limit",
        page="pivot",
        searched=True,
        links=_SIMPLEX,
    ),
    ProofKind(
        "pivot-outward",
        PivotOutward,
        "pivot_outward.check:pivot_outward",
        "one side of a cut searched to a limit, the other from the pivot outward",
        page="pivot-outward",
        searched=True,
        links=_SIMPLEX,
    ),
    ProofKind(
        "outward",
        Outward,
        "outward.check:outward",
        "both sides of a cut followed from the pivot outward, part by part",
        page="outward",
        searched=True,
        links=_SIMPLEX,
    ),
    ProofKind(
        "joint-lp",
        JointProof,
        "joint.verifier:joint_lp",
        "linear relaxation of moving and computing again together, by its multipliers",
        page="joint",
        transfers=_ALL,
        recompute=True,
    ),
    ProofKind(
        "joint-labels",
        Computed,
        "joint_labels.verifier:joint_labels",
        "every way to move and compute again, searched to the end; for small networks",
        page="joint-labels",
        searched=True,
        transfers=_ALL,
        recompute=True,
    ),
    ProofKind(
        "joint-labels-memory",
        Computed,
        "joint_labels.verifier:joint_labels_memory",
        "bytes, by the same search within one byte less",
        page="joint-labels",
        searched=True,
        transfers=_ALL,
        recompute=True,
        minimise=Minimise.MEMORY,
    ),
    ProofKind(
        "least-memory-run",
        Computed,
        "least_memory.verifier:single_run",
        "bytes of the run that needs most, or of what is there at the start",
        page="least-memory",
        transfers=_ALL,
        recompute=True,
        minimise=Minimise.MEMORY,
    ),
    ProofKind(
        "least-memory-kept",
        Computed,
        "least_memory.verifier:kept",
        "bytes below which what cannot be made again in time would have to stay, and does not fit",
        page="least-memory",
        transfers=_ALL,
        recompute=True,
        minimise=Minimise.MEMORY,
    ),
    ProofKind(
        "least-memory-cut",
        LeastMemoryCut,
        "least_memory.verifier:cut",
        "bytes that are there during one run, at prices for running again and for moving",
        page="least-memory",
        transfers=_ALL,
        recompute=True,
        minimise=Minimise.MEMORY,
    ),
    ProofKind(
        "least-memory-by-time",
        MemoryByTime,
        "recheck:by_time",
        "the bytes within which a bound on time exceeds the deadline",
        page="least-memory",
        searched=True,
        transfers=_ALL,
        recompute=True,
        minimise=Minimise.MEMORY,
    ),
)

_CLAIMS = (
    ClaimKind(
        "fluid-exact",
        ("HiGHS",),
        "interruptible or fractional problem, exactly; a bound for whole tensors",
        page="fluid",
        transfers=_ALL,
    ),
    ClaimKind(
        "stage-milp",
        ("HiGHS", "CBC"),
        "who is absent during which operation, without times",
        page="models",
    ),
    ClaimKind(
        "time-indexed-cpsat", ("CP-SAT",), "starts on a grid of time, by clauses", page="models"
    ),
    ClaimKind(
        "time-indexed-milp",
        ("HiGHS", "CBC"),
        "starts on a grid of time, as a linear model",
        page="models",
    ),
    ClaimKind(
        "disjunctive-milp",
        ("HiGHS", "CBC"),
        "orders of transfers, as a linear model",
        page="models",
    ),
    ClaimKind("interval-cpsat", ("CP-SAT",), "interval variables", page="models"),
    ClaimKind(
        "joint-stages",
        ("HiGHS",),
        "moving and running again in stages, with runs and copies as wholes",
        page="joint",
        transfers=_ALL,
        recompute=frozenset({Recompute.CHAIN, Recompute.ANY}),
    ),
    *(
        ClaimKind(
            f"{name}{suffix}",
            families,
            f"{unit} of recomputation alone, {summary}",
            page="rematerialisation",
            transfers=_ALL,
            recompute=again,
            minimise=minimise,
            offload=frozenset({False}),
        )
        for name, families, summary, again in (
            (
                "retention-cpsat",
                ("CP-SAT",),
                "by intervals over which copies are kept",
                frozenset({Recompute.ANY}),
            ),
            (
                "recompute-stages",
                ("HiGHS", "CBC"),
                "who runs again in which stage, in no order",
                frozenset({Recompute.ANY}),
            ),
        )
        for suffix, unit, minimise in (
            ("", "time", Minimise.TIME),
            ("-memory", "bytes", Minimise.MEMORY),
        )
    ),
)

PROOFS: dict[str, ProofKind] = {kind.method: kind for kind in _PROOFS}
CLAIMS: dict[str, ClaimKind] = {kind.method: kind for kind in _CLAIMS}

# What our own searches claim where verification could not search as much.
OWN = "offcert"


def kind_of(method: str) -> ProofKind | ClaimKind | None:
    """Return what is known of bounds with a name, or None of an unknown one."""
    return PROOFS.get(method) or CLAIMS.get(method)
