"""What no execution can do without: finder and verifier name the same bytes at the same place."""

from __future__ import annotations

import random
from fractions import Fraction

from offcert.core.computations import Computation, Value
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.formulations.combinatorial.relaxations import infeasibility
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.verification.execution import least_need
from support.networks.changing_networks import changing_network
from support.oracles.rematerialisation import RematerialisationOracle
from support.seeds import by_seeds


@by_seeds(0, 300, 300)
def test_one_byte_less_than_the_need_is_too_little_and_is_said_so(seeds: range) -> None:
    places = set()
    for seed in seeds:
        rng = random.Random(seed)
        network = changing_network(rng, 2 + seed % 2)
        again = rng.choice((Recompute.NONE, Recompute.ANY))
        problem = Problem(
            "need", network, Platform(0, Fraction(1)), recompute=again, offload=rng.random() < 0.5
        )
        needed, operation, name = least_need(problem)
        assert infeasibility(problem.with_memory(needed)) is None
        if needed == 0:
            continue
        claim = infeasibility(problem.with_memory(needed - 1))
        assert claim is not None
        assert (claim.needed, claim.operation, claim.name) == (needed, operation, name)
        if again is Recompute.ANY and not problem.offload:
            assert RematerialisationOracle(network).least_time(needed - 1) is None
        places.add((again, min(operation, 1)))
    assert len(places) == 6


def test_where_several_need_as_much_the_first_is_named() -> None:
    computations = [Computation(name, 1, size) for name, size in (("A", 1), ("B", 3), ("C", 3))]
    for values, place in (([], (3, 1, "B")), ([Value("x", 3)], (3, -1, "the start"))):
        each = [*computations, Computation("D", 1, 0, tuple(range(len(values))))]
        network = Network(each, values)
        problem = Problem("ties", network, Platform(9, Fraction(1)), recompute=Recompute.ANY)
        assert least_need(problem) == place
