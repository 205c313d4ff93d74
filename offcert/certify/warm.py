"""Compiling, or loading what was compiled before, outside the clock: limits are about searching."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache

from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.problem import Problem


@dataclass(frozen=True)
class Group:
    """Kernels that one process compiles: those that share inner kernels stand together.

    Attributes
    ----------
    seconds : int
        Of one core that compiling them takes, about.
    modules : tuple of str
        Beginnings of the names of modules whose kernels these are; the longest that fits says it.
    acts : list of callable
        What compiles them.
    """

    seconds: int
    modules: tuple[str, ...]
    acts: list[Callable[[], None]] = field(default_factory=list)


_LABELS = "offcert.formulations.labels"
_SEARCHES = "offcert.heuristics"
# In the order in which they are compiled.
GROUPS: dict[str, Group] = {
    "outward search": Group(10, (f"{_LABELS}.outward",)),
    "pivot program": Group(12, ("offcert.formulations.",)),
    "verification": Group(8, ("offcert.verify.",)),
    "annealing": Group(8, (f"{_SEARCHES}.",)),
    "matched heads and tails": Group(6, (f"{_LABELS}.matched",)),
    "plans": Group(14, ("", f"{_SEARCHES}.checkpoint.")),
    "recomputation": Group(5, (f"{_SEARCHES}.persistent.", f"{_SEARCHES}.rematerialisation.")),
    "joint search": Group(14, (f"{_SEARCHES}.joint.",)),
    "addresses": Group(5, ("offcert.formulations.placement.", f"{_SEARCHES}.placement.")),
}


def _in(group: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Return what makes a function a part of a group, and has it act once."""

    def register(act: Callable[[], None]) -> Callable[[], None]:
        once = cache(act)
        GROUPS[group].acts.append(once)
        return once

    return register


# The problems here are tiny. Any limit would end with the first kernel that has to be compiled, and
# the others would be compiled within the limits of a search.
_NO_LIMIT = math.inf


def _tiny() -> Problem:
    """Return a problem in which one tensor has to leave and return."""
    tensors = [Tensor("v", 1, (0, 2)), Tensor("w", 1, (1,), evictable=False)]
    trace = Trace([Operation(name, 1) for name in "abc"], tensors)
    return Problem("tiny", trace, Platform(1, Fraction(1)))


def _small() -> Problem:
    """Return a problem of which a second level of tensors is searched."""
    trace = Trace(
        [Operation(name, 1) for name in "abcdef"],
        [Tensor("v", 2, (0, 5)), Tensor("w", 3, (1, 4)), Tensor("x", 2, (2,), evictable=False)],
    )
    return Problem("small", trace, Platform(4, Fraction(1)))


@_in("plans")
def warm_plans() -> None:
    """Compile what says how long a plan takes, and an ordered one, on either link."""
    from offcert.heuristics.least_cover import least_cover_plan
    from offcert.heuristics.ordered import ordered_plan
    from offcert.questions.schedule.simulate import simulate

    simulate(_tiny(), least_cover_plan(_tiny()))
    # One tensor returns while the other leaves.
    trace = Trace(
        [Operation(name, 1) for name in "abcd"], [Tensor("v", 1, (0, 2)), Tensor("w", 1, (0, 3))]
    )
    duplex = Problem("duplex", trace, Platform(2, Fraction(1), Link.DUPLEX))
    simulate(duplex, ordered_plan(duplex, range(2)))


@_in("plans")
def warm_dynprog() -> None:
    """Compile the dynamic program of the offloading paper."""
    from offcert.heuristics.dynprog import dynprog
    from offcert.instances.cnn import cnn_chain

    chain = cnn_chain(8, 0)
    dynprog(chain.with_memory((chain.trace.least_memory + chain.trace.peak_memory) // 2))


@_in("plans")
def warm_checkpoints() -> None:
    """Compile what selects the checkpoints of a chain."""
    from offcert.core.checkpoint_chain import CheckpointChain
    from offcert.heuristics.checkpoint.live_curve import live_selection
    from offcert.heuristics.checkpoint.registry import SELECTIONS

    sizes = (1, 2, 1, 1)
    for method in SELECTIONS.values():
        method.select(sizes)
    live_selection(CheckpointChain((1,) * 3, (1,) * 3, sizes))


@_in("plans")
def warm_combined() -> None:
    """Compile the dynamic program of the combined paper."""
    from offcert.core.checkpoint_chain import CheckpointChain
    from offcert.heuristics.combined.search import combined_plan
    from offcert.questions.schedule.problem import Recompute

    warm_plans()
    chain = CheckpointChain((1,) * 3, (1,) * 3, (1,) * 4)
    problem = Problem("tiny", chain, Platform(4, Fraction(1)), recompute=Recompute.CHAIN)
    combined_plan(problem, 4).atomic(problem)


@_in("recomputation")
def warm_rematerialisation() -> None:
    """Compile persistent checkpointing and the executor that recomputes."""
    from offcert.core.checkpoint_chain import CheckpointChain
    from offcert.heuristics.persistent.persistent import persistent
    from offcert.heuristics.rematerialisation.search import RematerialisationSearch

    chain = CheckpointChain((1,) * 3, (1,) * 3, (1, 2, 1, 1))
    memory = chain.network().trace().peak_memory
    persistent(chain, memory, 10)
    RematerialisationSearch(chain.network()).attempt(memory, 100, (1.0, 1.0, 1.0))


@_in("annealing")
def warm_local_search() -> None:
    """Compile the simulator and annealing over claim sequences."""
    from offcert.heuristics.local_search import local_search

    local_search(_tiny(), time_limit=0.0)


@_in("annealing")
def warm_set_search() -> None:
    """Compile annealing over sets."""
    from offcert.heuristics.set_search import set_search

    set_search(_tiny(), time_limit=0.0, on_improvement=lambda schedule: None)


@_in("annealing")
def warm_order_search() -> None:
    """Compile annealing over sets and orders."""
    from offcert.heuristics.order_search import order_search

    order_search(_tiny(), time_limit=0.0, on_improvement=lambda schedule: None)


@_in("pivot program")
def warm_heads() -> None:
    """Compile the search for heads and tails, and what says whether it can be verified."""
    from offcert.formulations.labels.atomic_heads.bound import heads_bound
    from offcert.formulations.labels.atomic_heads.kernel import grown, new_labels
    from offcert.verify.heads.check import within_reach

    outcome = heads_bound(_tiny(), upper_bound=10, time_limit=_NO_LIMIT)
    ends = (outcome.pivot, outcome.head, outcome.tail)
    within_reach(_tiny(), *ends, counted=outcome.counted, units=outcome.units)
    # Only many labels need more room.
    grown(new_labels(4))


@_in("matched heads and tails")
def warm_matched() -> None:
    """Compile the search for heads and tails that move the same."""
    from offcert.formulations.labels.matched_heads.bound import MatchedProgram

    warm_heads()
    MatchedProgram(_small()).improve(30, _NO_LIMIT)


@_in("outward search")
def warm_outward() -> None:
    """Compile the outward search, the insertion into orders, and the re-run of its bounds."""
    from offcert.formulations.labels.outward.bound import OutwardProgram
    from offcert.heuristics.insertion import with_insertions
    from offcert.verify.outward.check import outward_fault

    tiny = _tiny()
    with_insertions(tiny, [0], [0], [])
    outcome = OutwardProgram(tiny).improve(10, _NO_LIMIT, lambda schedule: 10)
    proof = outcome.proof
    advice = proof.free_below, proof.windows, proof.splits
    outward_fault(tiny, proof.pivot, outcome.lower_bound, *advice)


@_in("pivot program")
def warm_pivot() -> None:
    """Compile the pivot dynamic program, and what makes room for more labels."""
    from offcert.formulations.labels.pivot.arrays import grown
    from offcert.formulations.labels.pivot.bound import pivot_bound
    from offcert.formulations.labels.pivot.cut import Cut
    from offcert.formulations.labels.pivot.model import nested

    warm_heads()
    tiny = _tiny()
    pivot_bound(tiny, upper_bound=10, time_limit=_NO_LIMIT, max_labels=100)
    grown(Cut(nested(tiny), 1).pools[0])


@_in("pivot program")
def warm_pivot_outward() -> None:
    """Compile the pivot program whose other side is followed outward."""
    from offcert.formulations.labels.pivot_outward.bound import PivotOutwardProgram

    warm_pivot()
    warm_outward()
    # With few labels it would not even begin.
    PivotOutwardProgram(_tiny(), max_labels=10**6).improve(10, _NO_LIMIT, lambda schedule: 10)


@_in("verification")
def warm_verification() -> None:
    """Compile what `verify` searches with, whatever it answers here."""
    from offcert.verify.heads.check import ends_fault
    from offcert.verify.matched.check import matched_fault
    from offcert.verify.pivot.check import pivot_fault

    warm_outward()
    small = _small()
    ends_fault(small, 2, (7, 8), ((2,), (2,)), (1, 1))
    # As if head and tail took no time, so that there is something to search, on two levels.
    claim = (0, 0), ((), ()), (1, 1), 15
    matched_fault(small, 2, *claim, unit=1, free_below=0, levels=[(), (2, 3)], spare=1)
    pivot_fault(small, 2, (15, 15), 15)


@_in("joint search")
def warm_joint_search() -> None:
    """Compile the search for what runs again and what leaves."""
    from offcert.core.checkpoint_chain import CheckpointChain
    from offcert.heuristics.joint.search import joint_search
    from offcert.questions.schedule.problem import Recompute

    chain = CheckpointChain([1, 1], [1, 1], [1, 1, 1])
    tiny = Problem("chain", chain, Platform(4, Fraction(1)), recompute=Recompute.ANY)
    joint_search(
        tiny,
        time_limit=_NO_LIMIT,
        coolings=1,
        steps=1,
        transfers=0.0,
        on_improvement=lambda plan: None,
    )


@_in("addresses")
def warm_placement() -> None:
    """Compile what places residences."""
    from offcert.formulations.placement.sections import Sections
    from offcert.formulations.placement.skyline import Skyline
    from offcert.heuristics.placement.ejection import ejection_search
    from offcert.heuristics.placement.in_order import greedy_by_size
    from offcert.questions.placement.problem import Placement, PlacementProblem, Residence

    problem = PlacementProblem("warm", [Residence("a", 1, 0, 2), Residence("b", 1, 1, 3)])
    greedy_by_size(problem)
    # Alone: where stacked boxes are as good as can be, nothing is searched for.
    Skyline(Sections(problem)).attempt(problem.load, until=_NO_LIMIT)
    high = Placement([0, 1])
    disjoint = PlacementProblem("warm", [Residence("a", 1, 0, 1), Residence("b", 1, 1, 2)])
    ejection_search(disjoint, time_limit=_NO_LIMIT, hint=high)
