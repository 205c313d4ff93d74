"""The methods for problems in which computations may run again, or memory is minimised, by name."""

from __future__ import annotations

from offcert.certify.checkpoint_steps import descend_checkpoints
from offcert.certify.combined_steps import descend_combined
from offcert.certify.effort import Effort
from offcert.certify.joint_bound_steps import bound_computing, climb_joint
from offcert.certify.joint_search_steps import descend_joint
from offcert.certify.joint_steps import descend_plain
from offcert.certify.method import Method
from offcert.certify.rematerialisation_steps import (
    bound_least_memory,
    descend_persistent,
    descend_rematerialisation,
    solve_checkmate,
    solve_retention,
    solve_stages,
)
from offcert.certify.search import Search
from offcert.core.problem import Minimise, Recompute

_NETWORKS = "chains, and networks as profile writes them"
_AGAIN = frozenset({Recompute.CHAIN, Recompute.ANY})
_CHAINS = "chains"
_ANY = frozenset({Recompute.ANY})
_TIME, _MEMORY = frozenset({Minimise.TIME}), frozenset({Minimise.MEMORY})
_EITHER = frozenset(Minimise)


def bound_at_once(search: Search, effort: Effort) -> None:
    """Add the bounds that cost next to nothing, whatever method runs."""
    problem = search.problem
    if problem.minimise is Minimise.TIME:
        bound_computing(search, effort)
    elif problem.recompute is not Recompute.NONE:
        from offcert.formulations.rematerialisation.least_memory import single_run_bound

        search.add(single_run_bound(problem))


JOINT_METHODS = {
    "offload-alone": Method(
        run=descend_plain,
        summary="the best schedule in which nothing runs again, as certify finds it",
        reads=("time_limit", "workers", "target_gap", "seed"),
        network=_NETWORKS,
        recompute=_AGAIN,
        minimise=_TIME,
    ),
    "joint-lp": Method(
        run=climb_joint,
        summary="linear relaxation of moving and computing again together",
        bounds=("joint-lp",),
        reads=("time_limit",),
        network=_NETWORKS,
        recompute=_AGAIN,
        minimise=_TIME,
    ),
    "checkpoints": Method(
        run=descend_checkpoints,
        summary="stored data and segments that run again: published selections, and the best ones",
        network=_CHAINS,
        recompute=_AGAIN,
        minimise=_EITHER,
        chains=True,
    ),
    "persistent": Method(
        run=descend_persistent,
        summary="optimal checkpoints that stay stored, segments inside of segments among them",
        network=_CHAINS,
        reads=("time_limit",),
        recompute=_AGAIN,
        minimise=_EITHER,
        chains=True,
    ),
    "combined": Method(
        run=descend_combined,
        summary="the combined paper's dynamic program, at ever more slots",
        reads=("time_limit",),
        network=_CHAINS,
        recompute=_AGAIN,
        minimise=_EITHER,
        chains=True,
    ),
    "joint-search": Method(
        run=descend_joint,
        summary="annealing over what runs again and what leaves, together",
        reads=("time_limit", "workers", "seed", "target_gap"),
        network=_NETWORKS,
        recompute=_AGAIN,
        minimise=_TIME,
    ),
    "rematerialisation": Method(
        run=descend_rematerialisation,
        summary="search for what is cheap to run again; nothing leaves",
        reads=("time_limit", "seed", "target_gap"),
        network=_NETWORKS,
        recompute=_ANY,
        minimise=_EITHER,
    ),
    "retention-cpsat": Method(
        run=solve_retention,
        summary="intervals over which copies are kept, exact where nothing may leave",
        bounds=("retention-cpsat", "retention-cpsat-memory"),
        reads=("time_limit", "workers", "seed"),
        network=_NETWORKS,
        recompute=_ANY,
        minimise=_EITHER,
    ),
    "recompute-stages": Method(
        run=solve_stages,
        summary="who runs again in which stage, in no order; a bound where nothing may leave",
        bounds=("recompute-stages", "recompute-stages-memory"),
        reads=("time_limit", "workers", "solver"),
        network=_NETWORKS,
        recompute=_ANY,
        minimise=_EITHER,
        offload=frozenset({False}),
    ),
    "checkmate-milp": Method(
        run=solve_checkmate,
        summary="Checkmate's program: the best execution in stages; nothing leaves",
        reads=("time_limit", "workers", "solver"),
        network=_NETWORKS,
        recompute=_ANY,
        minimise=_EITHER,
    ),
    "least-memory": Method(
        run=bound_least_memory,
        summary="bytes that no execution can do without",
        bounds=("least-memory-run", "least-memory-kept", "least-memory-cut"),
        reads=("time_limit",),
        network=_NETWORKS,
        recompute=_AGAIN,
        minimise=_MEMORY,
    ),
}
