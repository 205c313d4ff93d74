"""One side with a known set out: both searches leave out no way that matters."""

from contextlib import suppress
from itertools import product

import numpy as np
import pytest

from offcert.core.errors import MethodError
from offcert.formulations.labels.outward.evaluation import Evaluator, _Asked
from offcert.formulations.labels.outward.model import cut
from offcert.formulations.labels.outward.split import one_set
from offcert.formulations.labels.outward.sums import whole
from offcert.verification.outward.search import FOUND, search
from offcert.verification.outward.tables import Asked, cut_at
from support.oracles.outward import SideOracle
from support.problems.outward import cases, no_pause

FAR = 10**6
ROOM = 20_000


@pytest.mark.slow
@pytest.mark.parametrize("duplex", [False, True])
def test_departures_first_loses_nothing(duplex: bool) -> None:
    asked = left = equal = 0
    for problem, _, operation, _, _ in cases(range(250), 4, duplex=duplex):
        with suppress(MethodError):
            pivot = cut(problem, operation, 1)
            verified = cut_at(problem, operation, 1)
            evaluator = Evaluator(pivot, no_pause)
            sets = list(product(*(range(most + 1) for most in pivot.most)))
            for counts in sets[:: max(1, len(sets) // 4)]:
                region = one_set(whole(pivot), counts, pivot.sizes)
                for index, side in enumerate(pivot.sides):
                    ticks = int((side.back * np.array(counts)).sum())
                    whole_side = _Asked(region.least, (ticks, ticks), ROOM, to_end=True)
                    way = evaluator._way(index, region, FAR, whole_side, (0, 0))
                    moved = region.least
                    question = Asked(moved, moved, 0, -1, ticks, FAR, moved, to_end=True)
                    out = np.array(counts, dtype=np.int64)
                    status, length, _, _ = search(verified.sides[index], out, out, question, ROOM)
                    oracle = SideOracle(side, counts, 2)
                    least = oracle.least_end(FAR)
                    assert (way is None) == (status != FOUND)
                    if least is None:
                        continue
                    assert way is not None
                    assert way.length == length
                    leaves = sum(not step.returns for step in way.steps)
                    # Over two links an operation may wait for less than it has to.
                    assert way.length <= least
                    if leaves <= 2 and not duplex:
                        assert way.length == least, (problem.name, operation, counts, index)
                    asked += 1
                    equal += way.length == least
                    left += leaves > 0
    assert asked > 200
    print(asked, equal, left)
    assert equal > 0.95 * asked
    assert left > 20
