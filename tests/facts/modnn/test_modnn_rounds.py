"""Rounds of sub-batches as one trace."""

import pytest

from offcert.core.errors import InputError
from offcert.core.trace import Operation, Tensor, Trace
from offcert_lab.modnn.problems import joined


def round_of(size: int, staying: int = 5) -> Trace:
    return Trace(
        [Operation("f", 2), Operation("turn", 1, 1), Operation("b", 3)],
        [
            Tensor("weights", staying, (-1, 2), evictable=False),
            Tensor("x", size, (0, 2)),
        ],
    )


def test_rounds_follow_each_other_and_share_what_stays() -> None:
    whole = joined([round_of(4), round_of(4), round_of(2)])
    assert whole.compute_time == 18
    assert whole.demand == (9, 10, 9, 9, 10, 9, 7, 8, 7)
    assert [(gap.before, gap.after) for gap in whole.gaps] == [(0, 2), (3, 5), (6, 8)]
    assert whole.peak_memory == round_of(4).peak_memory
    assert whole.operations[6].name == "2: f"


def test_what_rounds_may_not_share_is_refused() -> None:
    with pytest.raises(InputError, match="at least one round"):
        joined([])
    with pytest.raises(InputError, match="the same in every round"):
        joined([round_of(4), round_of(4, staying=6)])
    begun = Trace([Operation("o", 1)] * 2, [Tensor("x", 1, (-1, 1))])
    with pytest.raises(InputError, match="x is there at the start of a round"):
        joined([begun])
