"""What the outward search works out once for all successors of a label, against its definition."""

import random

import numpy as np
import pytest

from offcert.core.errors import MethodError
from offcert.formulations.labels.outward.evaluation import new_question
from offcert.formulations.labels.outward.model import CutProblem, OutwardSide, cut
from offcert.formulations.labels.outward.outlook import (
    Outlook,
    SideQuestion,
    can_be,
    look,
    look_at_cut,
    more_out,
    new_outlook,
    overdue,
    prepare,
)
from support.problems.random_instances import mixed_problem


def pivots(seed: int) -> list[CutProblem]:
    problem = mixed_problem(seed, 7)
    found = []
    for operation in range(len(problem.trace)):
        try:
            found.append(cut(problem, operation, 0))
        except MethodError:
            continue
    return found


def asked(pivot: CutProblem, index: int, rng: random.Random) -> SideQuestion:
    """A question about a side, of any region."""
    high = np.array([rng.randint(0, most) for most in pivot.most])
    low = np.array([rng.randint(0, int(most)) for most in high])
    numbers = np.array([0, int(high @ pivot.sizes), 0, -1, 0, 0, 0, 0, 0, 0, 0])
    question = new_question(pivot.sides[index])._replace(low=low, high=high, asked=numbers)
    prepare(pivot.sides[index], question)
    return question


@pytest.mark.parametrize("seed", range(40))
def test_a_successor_is_told_what_a_look_from_it_would_tell(seed: int) -> None:
    rng = random.Random(seed)
    for pivot in pivots(seed):
        for index, side in enumerate(pivot.sides):
            question, outlook = asked(pivot, index, rng), new_outlook(side)
            look_at_cut(question, outlook)
            # Every look starts from the one before.
            for _ in range(3):
                outlook.now[:] = [rng.randint(-2, int(most)) for most in question.high]
                look(side, question, outlook)
                c, change = rng.randrange(side.size.size), rng.choice([1, -1])
                outlook.now[c] += change
                compare(side, question, outlook, c, change)


def compare(
    side: OutwardSide, question: SideQuestion, outlook: Outlook, c: int, change: int
) -> None:
    """Compare what is told of a successor, of whose class `c` one more or less is back."""
    sizes = side.size.tolist()
    left = (question.high - outlook.now).tolist()
    surely = (question.low - outlook.now).tolist()
    assert more_out(outlook, c, change) == (outlook.now.min() < 0)
    for k in range(side.need.size):
        out, absent = side.out[:, k].tolist(), side.absent[:, k].tolist()
        known = (
            (outlook.absent, sizes, absent),
            (outlook.out, sizes, out),
            (outlook.ticks, side.back.tolist(), out),
        )
        for rows, weights, limits in known:
            told = can_be(int(rows[k]), weights[c], change, left[c], limits[c])
            parts = zip(weights, left, limits, strict=True)
            assert told == sum(weight * min(n, limit) for weight, n, limit in parts)
        told = overdue(int(outlook.overdue[k]), sizes[c], change, surely[c], out[c])
        parts = zip(sizes, surely, out, strict=True)
        assert told == sum(size * max(0, n - limit) for size, n, limit in parts)
