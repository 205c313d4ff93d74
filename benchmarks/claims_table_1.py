"""The re-forwarding paper's Table 1 beside live bytes of its networks, and their overhead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cache

from checkpoint_graphs import unread
from claims_printed import OVERHEADS

from offcert.heuristics.checkpoint.arbitrary import arbitrary_graph_solver
from offcert.heuristics.checkpoint.graph_networks import NetworkGraph, graph_of
from offcert.heuristics.checkpoint.selections import SELECTIONS
from papers.checkpoint_graphs.networks import TABLE_1, reforwarding_network
from papers.checkpoint_graphs.training_steps import training_step
from papers.claims.evidence import EvidenceRow
from papers.claims.figures import figure_row

MIB = 2**20
HARDWARE = "v100-pcie"
ROWS = {row.name: row for row in TABLE_1}


@cache
def made_step(name: str) -> NetworkGraph:
    """Return a step of a network of Table 1 with gradients and the places of maxima."""
    row = ROWS[name]
    graph = reforwarding_network(name, row.batch, row.image, indices=True)
    return graph_of(training_step(graph, unread(graph)))


@cache
def chen_bytes(name: str, method: str) -> int:
    """Return the live bytes of a step of Table 1 with what a method for chains stores."""
    row, made = ROWS[name], made_step(name)
    sizes = reforwarding_network(name, row.batch, row.image).sizes
    checkpoints = SELECTIONS[method].select(sizes).checkpoints
    return made.live_bytes(made.graph.select(checkpoints[1:-1]))


@cache
def reforwarding_bytes(name: str) -> tuple[int, int]:
    """Return the live bytes of a step of Table 1, plain and with what Algorithm 5 stores."""
    row, made = ROWS[name], made_step(name)
    solved = arbitrary_graph_solver(reforwarding_network(name, row.batch, row.image))
    chosen = made.graph.select(solved.selection.stored)
    return made.network.trace().peak_memory, made.live_bytes(chosen)


def cut_of(name: str) -> Fraction:
    """Return the memory cut of Table 1, in percent."""
    plain, less = reforwarding_bytes(name)
    return 100 * (1 - Fraction(less, plain))


def table_1_rows() -> Iterator[EvidenceRow]:
    """Yield the columns of Table 1 about re-forwarding."""
    for row in TABLE_1:
        plain, less = (Fraction(each, MIB) for each in reforwarding_bytes(row.name))
        yield figure_row("reforwarding-regular", row.name, row.regular, plain, "MB")
        yield figure_row("reforwarding-memory", row.name, row.reforwarding, less, "MB")
        yield figure_row("reforwarding-cut", row.name, row.cut, cut_of(row.name), "%")


def eighty_rows(name: str = "resnet152") -> Iterator[EvidenceRow]:
    """Yield the abstract's numbers about a network, by the paper's own solver."""
    yield figure_row("reforwarding-eighty", f"{name}, memory", 80, cut_of(name), "%")
    yield figure_row("reforwarding-eighty", f"{name}, time", 40, overhead_of(name), "%")


def chen_rows() -> Iterator[EvidenceRow]:
    """Yield Chen's column of Table 1, and by how much it is more than re-forwarding's."""
    rows = [row for row in TABLE_1 if row.chen is not None]
    for reading, method in (("", "budget"), ("the rule of √n", "sqrt")):
        for row in rows:
            here = Fraction(chen_bytes(row.name, method), MIB)
            yield figure_row("reforwarding-chen", row.name, row.chen or 0, here, "MB", reading)
    for row in rows:
        paper = Fraction(row.chen or 0, row.reforwarding)
        here = Fraction(chen_bytes(row.name, "budget"), chen_bytes(row.name, "reforwarding"))
        yield figure_row("reforwarding-over-chen", row.name, paper, here, "×")


@cache
def overhead_of(name: str) -> Fraction:
    """Return the forward pass by a step of a network of Table 1, by the roofline, in percent."""
    from offcert.runtime.hardware import hardware
    from offcert.runtime.profiling.profile import profile

    row = ROWS[name]
    shape = f"{row.batch}x3x{row.image}x{row.image}"
    card = hardware(HARDWARE, peak=True)
    network = profile(name, shape, clock="modules", hardware=card).computed
    assert network is not None
    again = sum(each.duration for each in network.computations if each.repeatable)
    return 100 * Fraction(again, network.compute_time)


def overhead_rows(names: Iterable[str] = tuple(OVERHEADS)) -> Iterator[EvidenceRow]:
    """Yield the time overheads of Table 1, in percent."""
    for name in names:
        yield figure_row("reforwarding-time", name, OVERHEADS[name], overhead_of(name), "%")
