"""VDNN as the offloading paper defines it, for chains without layer types (§6.1).

VDNN++ (Shriram, Garg and Kulkarni, IPDPS 2019) offloads the inputs of all convolutions or of every
other one, because a convolution computes long for the size of its input. Without layer types, the
offloading paper takes that reason itself as the criterion: activations whose ratio of forward time
to size, ``u_F / |x|``, reaches a threshold. VDNN is the best of all thresholds, each with all of
these activations and with half of them.

The policies of the original vDNN are in `vdnn_policy`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from offcert.core.errors import MethodError, NoPlanError
from offcert.core.plan import Plan
from offcert.core.problem import Problem
from offcert.heuristics.chain_view import ChainView, chain_view
from offcert.heuristics.ordered import ordered_plan
from offcert.heuristics.ordered_sets import OrderedSets

VARIANTS = ("all", "half")


def vdnn_sets(view: ChainView, variants: Sequence[str] = VARIANTS) -> Iterator[tuple[int, ...]]:
    """Yield the sets that VDNN tries, from the highest threshold to the lowest.

    Parameters
    ----------
    view : ChainView
        A network as a chain.
    variants : sequence of str
        As for `vdnn`. Half of the activations are every other one, the first among them, as
        VDNN++ takes every other convolution; the offloading paper only says half.

    Yields
    ------
    tuple of int
        Activations of the chain, increasing.
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

    Parameters
    ----------
    problem : Problem
        A chain, or a trace that has a chain view and at most one gap a tensor.
    variants : sequence of str
        Whether all activations at or above a threshold are offloaded (``"all"``), every other one
        of them (``"half"``), or whichever is better.

    Returns
    -------
    Plan
        Empty if the peak fits. Of equally long schedules, the one of the highest threshold.

    Raises
    ------
    MethodError
        If the problem has no chain view, or a variant is unknown.
    NoPlanError
        If none of the sets frees enough memory.
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
