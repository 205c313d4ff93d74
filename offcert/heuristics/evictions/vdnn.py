"""The static policies of the original vDNN: offload the input of every layer, or of convolutions.

Rhu, Gimelshein, Clemons, Zulfiqar and Keckler, "vDNN", MICRO 2016, §III. What is decided before
running is taken over as it is:

- *Sets.* ``all``: the input ``x_i`` of every layer; ``conv``: of every convolution.
- *Offloads.* ``x_i`` leaves while ``F_i``, its last reader, runs, and is gone when ``F_{i+1}``
  starts.
- *Prefetches.* With each ``B_n``, at most one layer's input starts to come back: that of the
  nearest earlier layer that still lacks it, looking back no further than the nearest convolution.
  Its memory is taken when ``B_n`` starts.

So what is on the device during each operation is fixed. If it does not fit, vDNN runs out of
memory; then there is no plan here either. What is not taken over is how vDNN waits: at the end of
every layer, for the transfer that was started with it (moDNN paper, §5.2.1 and Fig. 4, and the
offloading paper, §2.2, on what that costs). A plan says nothing about waiting, and the simulator
waits for data and memory only; so schedules are never longer than vDNN's own.

*Decisions where the sources leave room.* A layer is a stage of the chain view; a stage's internals
go with the input of the next one. vDNN leaves classifier layers alone; a chain does not say which
those are, so none is left out. The dynamic policy, which tries these two with other convolution
algorithms, needs a choice of algorithms, which a trace does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from offcert.core.errors import MethodError, NoPlanError
from offcert.core.platform import Kind
from offcert.heuristics.evictions.dynprog import ChainView, chain_view
from offcert.heuristics.orders.ordered import (
    OrderedSets,
    ordered_plan,
    require_possible,
    require_single_gaps,
)
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.problem import Problem

VARIANTS = ("all", "half")


def vdnn_sets(view: ChainView, variants: Sequence[str] = VARIANTS) -> Iterator[tuple[int, ...]]:
    """Yield the sets that VDNN tries, from the highest threshold to the lowest.

    Half of the activations are every other one, the first among them, as VDNN++ takes every other
    convolution; the offloading paper only says half.
    """
    chain = view.chain
    ratios = {
        i: Fraction(chain.forward[i], chain.activation[i])
        for i, gaps in enumerate(view.gap_groups)
        if gaps
    }
    for threshold in sorted(set(ratios.values()), reverse=True):
        reached = tuple(i for i, ratio in ratios.items() if ratio >= threshold)
        if "all" in variants:
            yield reached
        if "half" in variants:
            yield reached[::2]


def vdnn(problem: Problem, variants: Sequence[str] = VARIANTS) -> Plan:
    """Return VDNN's plan: the best ordered, no-wait schedule of its sets.

    All activations at or above a threshold are offloaded (``"all"``), every other one of them
    (``"half"``), or whichever is better. Of equally long schedules the one of the highest threshold
    counts; the plan is empty if the peak fits. A `MethodError` says that the problem has no chain
    view or a variant is unknown, a `NoPlanError` that none of the sets frees enough memory.
    """
    unknown = [variant for variant in variants if variant not in VARIANTS]
    if unknown or not variants:
        named = repr(unknown[0]) if unknown else "none"
        raise MethodError(f'VDNN\'s variants are "all" and "half", not {named}')
    view = chain_view(problem)
    sets = OrderedSets(problem, "VDNN")
    if problem.trace.peak_memory <= problem.platform.memory:
        return Plan()
    best: tuple[int, list[int]] | None = None
    for activations in vdnn_sets(view, variants):
        gaps = view.gaps_of(activations)
        makespan = sets.makespan(gaps)
        if makespan is not None and (best is None or makespan < best[0]):
            best = makespan, gaps
    if best is None:
        raise NoPlanError("VDNN found no threshold whose activations free enough memory")
    return ordered_plan(problem, best[1])


POLICIES = ("all", "conv")

# The last part of a stage's name: a convolution ("conv1", "transition1.conv"), or a block of them
# as common networks name it ("layer1.0", "denseblock1", "Mixed_5b").
_CONVOLUTION = re.compile(r"conv[^.]*$|(^|\.)(layer\d+\.\d+|denseblock\d+|mixed_\w+)$", re.I)


def named_convolutions(names: Iterable[str]) -> tuple[int, ...]:
    """Return the stages whose names say that they are convolutions, or blocks of them."""
    return tuple(
        i
        for i, name in enumerate(names)
        if _CONVOLUTION.search(name.removeprefix("F:")) is not None
    )


def vdnn_policy(
    problem: Problem, policy: str = "all", convolutions: Iterable[int] | None = None
) -> Plan:
    """Return the plan of a static vDNN policy, ``"all"`` or ``"conv"``.

    The stages that are convolutions also bound how far back prefetching looks; by default they are
    those whose names say so (`named_convolutions`), and if none is known, it looks back by one
    stage. The plan is empty if the peak fits: the static policies would offload then as well, but
    what chooses among them, the dynamic policy, first tries without.

    A `MethodError` says that the problem has no chain view, the policy is unknown, a stage does not
    exist, or the policy is ``"conv"`` and no stage is known to be a convolution; a `NoPlanError`
    that what the policy keeps on the device does not fit.
    """
    if policy not in POLICIES:
        raise MethodError(f'the policy of vDNN must be "all" or "conv", not {policy!r}')
    require_single_gaps(problem, "vDNN")
    view = chain_view(problem)
    layers = _convolutions(view, convolutions)
    if policy == "conv" and not layers:
        raise MethodError(
            "vDNN's policy conv needs to know which stages are convolutions, "
            "and no name of a stage says so"
        )
    if problem.trace.peak_memory <= problem.platform.memory:
        return Plan()
    require_possible(problem)
    offloaded = [
        i for i, gaps in enumerate(view.gap_groups) if gaps and (policy == "all" or i in layers)
    ]
    triggers = prefetch_triggers(len(view.chain), offloaded, layers or range(len(view.chain)))
    _require_memory(problem, view, triggers)
    moves = [
        Move(Kind.OFFLOAD, gap, i + 1) for i in offloaded for gap in sorted(view.gap_groups[i])
    ]
    for i, trigger in sorted(triggers.items(), key=lambda item: item[1]):
        # Those needed by the earliest operation come first.
        order = sorted(view.gap_groups[i], key=lambda gap: (problem.trace.gaps[gap].after, -gap))
        moves += [Move(Kind.PREFETCH, gap, trigger + 1) for gap in order]
    return Plan(moves)


def prefetch_triggers(
    stages: int, offloaded: Iterable[int], convolutions: Iterable[int]
) -> dict[int, int]:
    """Return the backward operation with which each offloaded input starts to come back."""
    away, barriers = set(offloaded), set(convolutions)
    triggers: dict[int, int] = {}
    for n in range(stages - 1, 0, -1):
        for i in range(n - 1, -1, -1):
            if i in away and i not in triggers:
                triggers[i] = 2 * stages - 1 - n
                break
            if i in barriers:
                break
    return triggers


def _convolutions(view: ChainView, given: Iterable[int] | None) -> frozenset[int]:
    if given is None:
        return frozenset(named_convolutions(view.chain.names))
    layers = frozenset(given)
    for layer in sorted(layers):
        if not 0 <= layer < len(view.chain):
            raise MethodError(
                f"convolutions names stage {layer}, but the stages are 0 to {len(view.chain) - 1}"
            )
    return layers


def _require_memory(problem: Problem, view: ChainView, triggers: dict[int, int]) -> None:
    """Raise `NoPlanError` at the first operation that does not fit beside what vDNN keeps."""
    trace, memory = problem.trace, problem.platform.memory
    for o, demand in enumerate(trace.demand):
        absent = [i for i, trigger in triggers.items() if i < o < trigger]
        kept = demand - sum(trace.gap_size(gap) for gap in view.gaps_of(tuple(absent)))
        if kept > memory:
            raise NoPlanError(
                f"vDNN has {kept} bytes on the device during operation "
                f"{trace.operations[o].name}, and the limit is {memory}"
            )
