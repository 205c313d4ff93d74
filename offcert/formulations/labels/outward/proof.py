"""What a verifier has to be told to find the same bound again: where, and how to divide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offcert.formulations.labels.outward.model import CutProblem
from offcert.formulations.labels.outward.split import Split, SplitKind
from offcert.formulations.labels.outward.tree import WINDOWS, Node, Tree


@dataclass(frozen=True)
class OutwardProof:
    """Advice on a bound.

    Attributes
    ----------
    pivot : int
        Where schedules are cut.
    free_below : tuple of int
        Bytes of the smallest tensors that are counted, at first and later.
    windows : tuple of int
        What part of the bytes that the pivot needs is followed, at first and later.
    splits : list of list
        The division of each region, before what it is divided into; an empty list for none.
    """

    pivot: int
    free_below: tuple[int, ...]
    windows: tuple[int, ...]
    splits: list[list[Any]]


def proof_of(tree: Tree, bound: int) -> OutwardProof:
    """Return what shows that no schedule is shorter than `bound`, which the tree has proved."""
    pivots = [evaluator.pivot for evaluator in tree.evaluators]
    splits: list[list[Any]] = []
    waiting: list[Node] = tree.roots[::-1]
    while waiting:
        node = waiting.pop()
        if node.split is None or node.length >= bound:
            splits.append([])
            continue
        splits.append(_as_list(node.split, pivots[node.detail], len(node.children)))
        waiting += reversed(node.children)
    return OutwardProof(pivots[0].operation, tree.details, WINDOWS, splits)


def _as_list(split: Split, pivot: CutProblem, parts: int) -> list[Any]:
    match split.kind:
        case SplitKind.CLASS:
            values: list[Any] = [pivot.sizes[split.size_class], split.value]
        case SplitKind.BYTES | SplitKind.TICKS:
            values = [split.value]
        case SplitKind.SETS:
            values = [list(counts) for counts in split.sets]
        case SplitKind.WINDOW:
            values = []
        case SplitKind.DETAIL:
            values = [parts]
    return [split.kind.value, *values]
