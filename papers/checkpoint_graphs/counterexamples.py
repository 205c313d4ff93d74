"""The smallest instances on which what two papers say of their algorithms fails.

Smallest: no graph with fewer vertices fails, then none with fewer bytes, then none with fewer
edges. Everything here is found again, and compared with all selections there are, by
`tests/oracles/papers/test_selection_counterexamples.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcert.questions.selection.graph import CheckpointGraph
from papers.checkpoint_graphs.random_graphs import shortcut_path


@dataclass(frozen=True)
class GraphCounterexample:
    """A graph on which the arbitrary-graph solver is not optimal.

    Attributes
    ----------
    name : str
        Name for people.
    graph : CheckpointGraph
        The instance.
    stated : int
        Bytes that the solver's selection takes.
    optimum : int
        Bytes that the best selection takes.
    stored : tuple of int
        A best selection.
    """

    name: str
    graph: CheckpointGraph
    stated: int
    optimum: int
    stored: tuple[int, ...]


@dataclass(frozen=True)
class ChainCounterexample:
    """A chain on which an algorithm of the selection paper errs if it is followed to the letter.

    Attributes
    ----------
    algorithm : int
        Its number.
    sizes : tuple of int
        The data ``d_0 … d_n``.
    stated : int
        The bytes that the algorithm returns as printed.
    optimum : int
        The least of Eq. (6) for Algorithm 3, of Eq. (9) for 5 and 6.
    reason : str
        The printed line that is wrong.
    """

    algorithm: int
    sizes: tuple[int, ...]
    stated: int
    optimum: int
    reason: str


GRAPHS = (
    # The solver stores 3, where the graph falls into two, and with it 1 or 2; or nothing.
    GraphCounterexample(
        "detour",
        CheckpointGraph([0, 1, 1, 1, 0], [(0, 1), (0, 3), (1, 2), (2, 3), (3, 4)]),
        stated=3,
        optimum=2,
        stored=(2,),
    ),
    GraphCounterexample("shortcuts-9", shortcut_path(9), stated=9, optimum=5, stored=(3, 6)),
    GraphCounterexample("shortcuts-16", shortcut_path(16), stated=16, optimum=7, stored=(5, 9, 13)),
)

CHAINS = (
    ChainCounterexample(3, (1, 1, 1, 1), 3, 4, "Eq. (8) lets the output lie in the last segment"),
    ChainCounterexample(
        3, (1, 1, 2, 1, 1), 6, 5, "the loop takes i into its queue only after M(i)"
    ),
    ChainCounterexample(5, (1, 1), 1, 3, "M(1) leaves out the input, which is a checkpoint"),
    ChainCounterexample(6, (1, 1, 1, 1, 2), 6, 5, "j + 1 may have left the queue"),
)
