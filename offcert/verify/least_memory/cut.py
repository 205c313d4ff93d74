"""What has to be there while a computation runs first, at prices for the ticks of other ways.

For what is read later there is a copy on the device, or one elsewhere that takes the link both
ways, or its writer runs once more, which needs what it reads in turn. At any prices for a tick of
computing and a tick of the link, bytes and prices together are at least a least cut; the ticks of
all together are limited by the deadline, so that much is to be subtracted at most.
"""

from __future__ import annotations

from fractions import Fraction

from offcert.core.network import Network
from offcert.core.plan import Kind
from offcert.core.platform import Link
from offcert.core.problem import Problem
from offcert.proofs.kinds import LeastMemoryCut
from offcert.verify.least_memory.flow import Flow
from offcert.verify.least_memory.needs import Needs


def cut_bytes(
    problem: Problem, network: Network, needs: Needs, last_again: list[int], proof: LeastMemoryCut
) -> Fraction:
    """Return bytes that are on the device while the proof's computation runs first.

    Parameters
    ----------
    problem, network, needs
        What is executed.
    last_again : list of int
        For each computation, the last stage in which it might run again.
    proof : LeastMemoryCut
        Its computation and prices; without a deadline the prices are 0.
    """
    turn = proof.computation
    priced = problem.deadline is not None
    computing = proof.computing_price if priced else 0
    moving = proof.moving_price if priced else 0
    graph = _graph(problem, network, needs, last_again, proof, computing, moving)
    budget = 0
    if problem.deadline is not None and needs.spare is not None:
        ways = 2 if problem.platform.link is Link.DUPLEX else 1
        budget = computing * needs.spare
        if problem.offload:
            budget += moving * ways * problem.deadline
    return needs.own[turn] + Fraction(graph.least_cut() - budget, proof.unit)


def _graph(
    problem: Problem,
    network: Network,
    needs: Needs,
    last_again: list[int],
    proof: LeastMemoryCut,
    computing: int,
    moving: int,
) -> Flow:
    """Return the graph: values that are needed, and computations that run again, are behind S."""
    turn, count = proof.computation, len(network)
    graph = Flow(2 + count + len(needs.sizes))
    # What makes a cut as dear as nothing else does.
    never = (
        1
        + sum(needs.sizes) * proof.unit
        + computing * sum(each.duration for each in network.computations)
    )

    def value_node(value: int) -> int:
        return 2 + count + value

    wanted: set[int] = set()
    for reader in range(turn + 1, count):
        wanted |= needs.read[reader]
    for computation in range(turn):
        again = last_again[computation] > turn
        price = computing * network.computations[computation].duration if again else never
        graph.arc(2 + computation, Flow.SINK, price)
        for value in needs.read[computation] if again else ():
            graph.arc(2 + computation, value_node(value), never)
    for value, size in enumerate(needs.sizes):
        writer = needs.writer[value]
        if writer >= turn:
            continue
        if value in wanted:
            graph.arc(Flow.SOURCE, value_node(value), never)
        bytes_ = 0 if value in needs.touched[turn] else proof.unit * size
        if not needs.held[value]:
            link = sum(Fraction(size) / problem.platform.rate(kind) for kind in Kind)
            bytes_ = min(bytes_, int(moving * link))
        graph.arc(value_node(value), Flow.SINK if writer < 0 else 2 + writer, bytes_)
    return graph
