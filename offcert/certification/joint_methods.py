"""The methods for problems in which computations may run again, or memory is minimised, by name."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from offcert.certification.method import NONE, Effort, Method, Option, number, numbers
from offcert.certification.schedule_methods import (
    warm_local_search,
    warm_order_search,
)
from offcert.certification.search import Search
from offcert.certification.search_steps.joint import (
    bound_computing,
    claim_joint,
    climb_joint,
    close_joint,
    descend_joint,
    descend_plain,
)
from offcert.certification.search_steps.rematerialisation import (
    bound_least_memory,
    descend_checkpoints,
    descend_combined,
    descend_graphs,
    descend_persistent,
    descend_rematerialisation,
    solve_checkmate,
    solve_retention,
    solve_stages,
)
from offcert.certification.warm import NO_LIMIT, compiling, warm_plans
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.platform import Platform
from offcert.heuristics.combined.search import combined_plan
from offcert.questions.schedule.problem import Minimise, Problem, Recompute


@compiling("plans")
def warm_checkpoints() -> None:
    """Compile the kernels that select the checkpoints of a chain."""
    from offcert.heuristics.checkpoint.live_curve import live_selection
    from offcert.heuristics.checkpoint.selections import SELECTIONS

    sizes = (1, 2, 1, 1)
    for method in SELECTIONS.values():
        method.select(sizes)
    live_selection(CheckpointChain((1,) * 3, (1,) * 3, sizes))


@compiling("plans")
def warm_combined() -> None:
    """Compile the dynamic program of the combined paper."""
    warm_plans()
    chain = CheckpointChain((1,) * 3, (1,) * 3, (1,) * 4)
    problem = Problem("tiny", chain, Platform(4, Fraction(1)), recompute=Recompute.CHAIN)
    combined_plan(problem, 4).atomic(problem)


@compiling("recomputation")
def warm_rematerialisation() -> None:
    """Compile persistent checkpointing and the executor that recomputes."""
    from offcert.heuristics.checkpoint.persistent import persistent
    from offcert.heuristics.rematerialisation.search import RematerialisationSearch

    chain = CheckpointChain((1,) * 3, (1,) * 3, (1, 2, 1, 1))
    memory = chain.network().trace().peak_memory
    persistent(chain, memory, 10)
    RematerialisationSearch(chain.network()).attempt(memory, 100, (1.0, 1.0, 1.0))


@compiling("joint search")
def warm_joint_search() -> None:
    """Compile the search for programs and moves."""
    from offcert.heuristics.joint.search import joint_search

    chain = CheckpointChain([1, 1], [1, 1], [1, 1, 1])
    problem = Problem("chain", chain, Platform(4, Fraction(1)), recompute=Recompute.ANY)
    joint_search(
        problem,
        time_limit=NO_LIMIT,
        coolings=1,
        steps=1,
        transfers=0.0,
        on_improvement=lambda plan: None,
    )


_NETWORKS = "chains, and networks as profile writes them"
_AGAIN = frozenset({Recompute.CHAIN, Recompute.ANY})
_ANY = frozenset({Recompute.ANY})
_MEMORY, _EITHER = frozenset({Minimise.MEMORY}), frozenset(Minimise)

# Least time, unless they say otherwise; what only chains allow; what knows no transfers.
_of_networks = partial(Method, network=_NETWORKS, recompute=_AGAIN)
_of_chains = partial(Method, network="chains", recompute=_AGAIN, minimise=_EITHER, chains=True)
_of_recomputation = partial(Method, network=_NETWORKS, recompute=_ANY, minimise=_EITHER)


def bound_at_once(search: Search, effort: Effort) -> None:
    """Add the bounds that cost next to nothing, whatever method runs."""
    problem = search.problem
    if problem.minimise is Minimise.TIME:
        bound_computing(search, effort)
    elif problem.recompute is not Recompute.NONE:
        from offcert.formulations.rematerialisation.least_memory import single_run_bound

        search.add(single_run_bound(problem))


JOINT_METHODS = {
    "offload-alone": _of_networks(
        run=descend_plain,
        summary="the best schedule in which nothing runs again, as certify finds it",
        reads=("time_limit", "workers", "target_gap", "seed"),
    ),
    "joint-lp": _of_networks(
        run=climb_joint,
        summary="linear relaxation of moving and computing again together",
        bounds=("joint-lp",),
        reads=("time_limit",),
    ),
    "joint-stages": _of_networks(
        run=claim_joint,
        summary="moving and running again in stages, with runs and copies as wholes",
        bounds=("joint-stages",),
        reads=("time_limit",),
    ),
    "joint-labels": Method(
        run=close_joint,
        summary="every way to move and compute again, searched to the end; for small problems",
        recompute=frozenset(Recompute),
        bounds=("joint-labels", "joint-labels-memory"),
        minimise=_EITHER,
        reads=("time_limit",),
    ),
    "checkpoints": _of_chains(
        run=descend_checkpoints,
        warm=(warm_checkpoints,),
        summary="stored data and segments that run again: published selections, and the best ones",
    ),
    "persistent": _of_chains(
        run=descend_persistent,
        warm=(warm_rematerialisation,),
        summary="optimal checkpoints that stay stored, segments inside of segments among them",
        reads=("time_limit",),
        options=(Option("slots", "into how many slots memory is divided", number(1), "500"),),
    ),
    "combined": _of_chains(
        run=descend_combined,
        warm=(warm_combined,),
        summary="the combined paper's dynamic program, at ever more slots",
        reads=("time_limit",),
        options=(
            Option(
                "slots",
                "into how many slots memory is divided, in turn while time is left",
                numbers(1),
                "20+50+100+200",
            ),
        ),
    ),
    "joint-search": _of_networks(
        run=descend_joint,
        warm=(
            warm_plans,
            warm_order_search,
            warm_local_search,
            warm_joint_search,
        ),
        summary="annealing over what runs again and what leaves, together",
        reads=("time_limit", "workers", "seed", "target_gap"),
        options=(
            Option("coolings", "coolings after which it ends; none: no limit", number(1), NONE),
            Option("steps", "of a round of a cooling; none: as many as suit it", number(1), NONE),
        ),
    ),
    "arbitrary-graph": _of_recomputation(
        run=descend_graphs,
        summary="the re-forwarding paper's solver for arbitrary graphs, for all its max terms",
        reads=("time_limit",),
    ),
    "rematerialisation": _of_recomputation(
        run=descend_rematerialisation,
        warm=(warm_rematerialisation,),
        summary="search for what is cheap to run again; nothing leaves",
        reads=("time_limit", "seed", "target_gap"),
    ),
    "retention-cpsat": _of_recomputation(
        run=solve_retention,
        summary="intervals over which copies are kept, exact where nothing may leave",
        bounds=("retention-cpsat", "retention-cpsat-memory"),
        reads=("time_limit", "workers", "seed"),
    ),
    "recompute-stages": _of_recomputation(
        run=solve_stages,
        summary="who runs again in which stage, in no order; a bound where nothing may leave",
        bounds=("recompute-stages", "recompute-stages-memory"),
        reads=("time_limit", "workers", "solver"),
        offload=frozenset({False}),
    ),
    "checkmate-milp": _of_recomputation(
        run=solve_checkmate,
        summary="Checkmate's program: the best execution in stages; nothing leaves",
        reads=("time_limit", "workers", "solver"),
    ),
    "least-memory": _of_networks(
        run=bound_least_memory,
        summary="bytes that no execution can do without",
        bounds=("least-memory-run", "least-memory-kept", "least-memory-cut"),
        reads=("time_limit",),
        minimise=_MEMORY,
    ),
}
