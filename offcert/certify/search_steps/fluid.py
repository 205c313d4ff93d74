"""Bounds from the fluid relaxation, as a search takes them: proved where that is affordable."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from offcert.certify.search import Search
from offcert.core.result import Bound
from offcert.formulations.combinatorial.relaxations import required_absent
from offcert.formulations.fluid.dual import Multipliers
from offcert.formulations.fluid.milp import FluidBound, fluid_bound
from offcert.formulations.fluid.tree import Branch, Leaf, ProvedTree, prove
from offcert.proofs.claims import proved, searched
from offcert.proofs.fluid_document import KINDS, TooLongError, pack
from offcert.proofs.kinds.multipliers import FluidProof
from offcert.questions.schedule.problem import Problem, Transfers

# Share of the time that HiGHS may take to tell whether a tree can pay. Arbitrary.
_SOLVER_SHARE = 0.5
# A tree gets so many seconds, or so many times the time of HiGHS if that is more: one that needs
# longer would not pay. Arbitrary.
_TREE_SECONDS = 10.0
_TREE_TIMES = 20.0


def as_bound(problem: Problem, method: str, tree: ProvedTree, whole: bool) -> Bound:
    """Return a bound with its proof, unless that is longer than verification reads."""
    try:
        proof = FluidProof(whole=whole, proof=pack(document(problem, tree)))
    except TooLongError:
        return searched(method, tree.value, {"whole": whole})
    return proved(method, tree.value, proof)


def document(problem: Problem, proof: ProvedTree) -> dict[str, Any]:
    """Return a proof as the JSON value that `fluid_document` describes."""

    def node(item: Branch | Leaf) -> int | list[int]:
        if isinstance(item, Branch):
            gap = problem.trace.gaps[item.gap]
            return [gap.tensor, gap.before, gap.after]
        return item.multipliers if item.impossible < 0 else [item.impossible]

    return {
        "multipliers": [_multipliers(item) for item in proof.multipliers],
        "tree": [node(item) for item in proof.tree],
    }


def _multipliers(item: Multipliers) -> dict[str, Any]:
    rows = {
        kind: [[operation, weight] for operation, weight in enumerate(row) if weight]
        for kind, row in zip(KINDS, item.weights, strict=True)
    }
    return {"over": item.over, **rows}


def climb_lp(search: Search, seconds: float) -> None:
    """Prove the bound of the linear program, which holds for every kind of transfers."""
    proof = prove(search.problem, branching=False, time_limit=seconds)
    search.add(as_bound(search.problem, "fluid-lp", proof, whole=False))
    if proof.interrupted:
        raise KeyboardInterrupt


def climb_milp(search: Search, seconds: float, attest: Callable[[FluidBound], None]) -> None:
    """Prove the linear program's bound, ask HiGHS what branching can add, and prove that too.

    Parameters
    ----------
    search : Search
        Told of every bound that is proved.
    seconds : float
        Time limit.
    attest : callable
        Told of HiGHS's claim if no proof reaches it.
    """
    problem, began = search.problem, time.monotonic()
    whole = problem.transfers is Transfers.ATOMIC
    fractional = problem.transfers is Transfers.FRACTIONAL
    # A tensor that may move in part leaves nothing to branch on.
    method = "fluid-lp" if fractional else "fluid-milp"
    root = prove(problem, whole=whole, branching=False, time_limit=seconds)
    left = seconds - (time.monotonic() - began)
    if fractional or root.interrupted or left <= 0 or _suffices(search, root.value):
        search.add(as_bound(problem, method, root, whole))
        if root.interrupted:
            raise KeyboardInterrupt
        return
    required = required_absent(problem, whole)
    asked = time.monotonic()
    try:
        claim = fluid_bound(problem, time_limit=_SOLVER_SHARE * left, required=required)
    except KeyboardInterrupt:
        search.add(as_bound(problem, method, root, whole))
        raise
    taken = time.monotonic() - asked
    if claim.error is not None:
        search.note_failure(claim.error)
    proof, target = root, claim.value
    if target > max(root.value, search.proved_bound):
        target = target if search.objective is None else min(target, search.objective)
        left = min(seconds - (time.monotonic() - began), max(_TREE_SECONDS, _TREE_TIMES * taken))
        proof = prove(problem, whole=whole, target=target, time_limit=left)
    if proof.value >= claim.value or proof.value > search.proved_bound:
        search.add(as_bound(problem, method, proof, whole))
    if proof.value < claim.value:
        attest(claim)
    if proof.interrupted:
        raise KeyboardInterrupt


def _suffices(search: Search, value: int) -> bool:
    """Whether the target gap is reached with this lower bound."""
    objective = search.objective
    return objective is not None and objective - value <= search.target_gap * objective
