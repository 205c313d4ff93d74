"""The methods for problems in which only transfers are open: annealing, bounds and exact models."""

from __future__ import annotations

from functools import partial

from offcert.certification.method import Effort, Method, Option, number
from offcert.certification.plan_methods import SEQUENTIAL, SINGLE_GAPS
from offcert.certification.search import Search
from offcert.certification.search_steps.bounds import (
    climb_cells,
    climb_fluid,
    climb_fluid_exact,
    climb_interval,
    climb_stage,
    climb_sums,
    descend_dives,
    descend_fluid_ordered,
    descend_neighbourhoods,
)
from offcert.certification.search_steps.descents import descend_local_search, descend_order_search
from offcert.certification.search_steps.labels import (
    climb_heads,
    climb_joined,
    climb_matched,
    climb_outward,
    climb_pivot,
)
from offcert.certification.warm import NO_LIMIT, compiling, small, tiny
from offcert.heuristics.orders.local_search import local_search
from offcert.heuristics.orders.order_search import order_search
from offcert.proofs.registry import PROOFS

# For which networks, where not for any trace.
_NESTED = f"{SINGLE_GAPS}, one within the other"
# What improves a schedule begins with the plainest one.
_BEGINNING = (SEQUENTIAL, 0.0)


def _nothing(search: Search, effort: Effort) -> None:
    """Add nothing to the bounds that are computed at once, which every method gets."""


def _patience(default: str) -> Option:
    said = "coolings in a row without a better schedule after which it ends"
    return Option("patience", said, number(1), default)


@compiling("annealing")
def warm_local_search() -> None:
    """Compile the simulator and annealing over claim sequences."""
    local_search(tiny(), time_limit=0.0)


@compiling("annealing")
def warm_order_search() -> None:
    """Compile annealing over sets, and over sets and orders."""
    order_search(tiny(), time_limit=0.0, on_improvement=lambda schedule: None)


@compiling("pivot program")
def warm_heads() -> None:
    """Compile the search for heads and tails, and what says whether it can be verified."""
    from offcert.formulations.labels.ends.heads import heads_bound
    from offcert.formulations.labels.store import grown, new_store
    from offcert.verification.ends.check import within_reach

    outcome = heads_bound(tiny(), upper_bound=10, time_limit=NO_LIMIT)
    assert outcome.proof is not None
    within_reach(tiny(), outcome.lower_bound, outcome.proof)
    # Only many labels need more room.
    grown(new_store(4, 2, 0))


@compiling("matched heads and tails")
def warm_matched() -> None:
    """Compile the search for heads and tails that move the same."""
    from offcert.formulations.labels.ends.targets import MatchedHeadsSearch

    warm_heads()
    MatchedHeadsSearch(small()).improve(30, NO_LIMIT)


@compiling("outward search")
def warm_outward() -> None:
    """Compile the outward search, the insertion into orders, and the re-run of its bounds."""
    from offcert.formulations.labels.outward.bound import OutwardSearch
    from offcert.heuristics.orders.insertion import with_insertions
    from offcert.verification.outward.check import outward_fault

    problem = tiny()
    with_insertions(problem, [0], [0], [])
    outcome = OutwardSearch(problem).improve(10, NO_LIMIT, lambda schedule: 10)
    outward_fault(problem, outcome.lower_bound, outcome.proof)


@compiling("pivot program")
def warm_pivot() -> None:
    """Compile the pivot dynamic program, and what makes room for more labels."""
    from offcert.formulations.labels.pivot.bound import pivot_bound
    from offcert.formulations.labels.pivot.cut import Cut
    from offcert.formulations.labels.pivot.model import nested
    from offcert.formulations.labels.store import grown

    warm_heads()
    problem = tiny()
    pivot_bound(problem, upper_bound=10, time_limit=NO_LIMIT, max_labels=100)
    grown(Cut(nested(problem), 1).pools[0])


BOUNDS = Method(
    run=_nothing,
    summary="the bounds that are computed, not searched for",
    bounds=tuple(name for name, kind in PROOFS.items() if kind.at_once),
)
_ANNEALING = Method(
    run=descend_local_search,
    warm=(warm_local_search,),
    after=(_BEGINNING,),
    summary="annealing over sets and orders",
    reads=("time_limit", "seed", "target_gap"),
    options=(_patience("12"),),
)
_HEADS = Method(
    run=climb_heads,
    warm=(warm_heads,),
    summary="heads and tails with whole tensors",
    bounds=("atomic-heads",),
    reads=("time_limit", "seed"),
)
SCHEDULE_METHODS = {
    "local-search": _ANNEALING,
    "order-search": Method(
        run=descend_order_search,
        warm=(warm_order_search,),
        summary="annealing over sets and both orders of ordered schedules",
        reads=("time_limit", "seed", "target_gap"),
        options=(_patience("4"),),
        network="traces with an ordered schedule",
    ),
    "fluid-milp": Method(
        run=climb_fluid,
        summary="aggregated interruptible relaxation",
        bounds=("fluid-milp",),
        reads=("time_limit",),
    ),
    "fluid-exact": Method(
        run=climb_fluid_exact,
        summary="exact for interruptible and fractional transfers, a bound for atomic ones",
        bounds=("fluid-exact",),
        reads=("time_limit",),
    ),
    "fluid-ordered": Method(
        run=descend_fluid_ordered,
        summary="the same with all offloads before all prefetches",
        reads=("time_limit",),
        relaxed_only=True,
    ),
    "exact-sums": Method(
        run=climb_sums,
        summary="sums of whole tensors where most has to be absent",
        bounds=("exact-sums",),
        reads=("time_limit",),
    ),
    "atomic-heads": _HEADS,
    "matched-heads": Method(
        run=climb_matched,
        warm=(warm_matched,),
        after=(_BEGINNING,),
        summary="heads and tails that move the same tensors",
        bounds=("matched-heads",),
        reads=("time_limit", "target_gap"),
    ),
    "matched-heads-joined": Method(
        run=climb_joined,
        warm=(warm_matched,),
        after=(_BEGINNING,),
        summary="the same, as if every tensor had one gap",
        bounds=("matched-heads-joined",),
        reads=("time_limit", "target_gap"),
        network="traces with a tensor of several gaps",
    ),
    "outward": Method(
        run=climb_outward,
        warm=(warm_outward,),
        after=(_BEGINNING,),
        summary="both sides of a cut, from the pivot outward",
        bounds=("outward",),
        reads=("time_limit", "workers"),
    ),
    "pivot": Method(
        run=climb_pivot,
        warm=(warm_pivot,),
        after=(_BEGINNING,),
        summary="pivot dynamic program, exact",
        bounds=("pivot",),
        reads=("time_limit",),
        network=_NESTED,
    ),
    "stage-milp": Method(
        run=climb_stage,
        after=(_BEGINNING,),
        summary="who is absent when, without times",
        bounds=("stage-milp",),
        reads=("time_limit", "workers", "solver"),
    ),
    "time-indexed-cpsat": Method(
        run=partial(climb_cells, "time-indexed-cpsat"),
        after=(_BEGINNING, (_ANNEALING, 0.1)),
        summary="starts on a grid, told the best schedule, by clauses; exact on grids of one tick",
        bounds=("time-indexed-cpsat",),
        reads=("time_limit", "workers", "seed", "grid"),
    ),
    "time-indexed-milp": Method(
        run=partial(climb_cells, "time-indexed-milp"),
        after=(_BEGINNING, (_ANNEALING, 0.1)),
        summary="starts on a grid, told the best schedule, linear; exact on grids of one tick",
        bounds=("time-indexed-milp",),
        reads=("time_limit", "workers", "grid", "solver"),
    ),
    "pure-cpsat": Method(
        run=partial(climb_cells, "pure-cpsat"),
        summary="the time-indexed model alone: starts on a grid and nothing else, by clauses",
        bounds=("pure-cpsat",),
        reads=("time_limit", "workers", "seed", "grid"),
    ),
    "pure-milp": Method(
        run=partial(climb_cells, "pure-milp"),
        summary="the time-indexed model alone: starts on a grid and nothing else, linear",
        bounds=("pure-milp",),
        reads=("time_limit", "workers", "grid", "solver"),
    ),
    "interval-dives": Method(
        run=descend_dives,
        after=(_BEGINNING, (_HEADS, 0.1)),
        summary="interval model, asked for schedules that meet the bound of heads and tails",
        bounds=("interval-cpsat", "atomic-heads"),
        reads=("time_limit", "workers", "seed", "target_gap"),
    ),
    "interval-neighbourhoods": Method(
        run=descend_neighbourhoods,
        after=(_BEGINNING, (_ANNEALING, 0.1)),
        summary="interval model, asked for better schedules near the best one",
        bounds=("interval-cpsat",),
        reads=("time_limit", "workers", "seed", "target_gap"),
    ),
    "interval-cpsat": Method(
        run=climb_interval,
        after=(_BEGINNING,),
        summary="interval model, exact",
        bounds=("interval-cpsat",),
        reads=("time_limit", "workers", "seed"),
    ),
}
