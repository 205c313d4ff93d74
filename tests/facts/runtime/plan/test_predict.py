import pytest

from offcert.core.errors import InputError, PlanError
from offcert.core.platform import Kind
from offcert.core.trace import Operation, Tensor, Trace
from offcert.questions.schedule.plan import Move, Plan
from offcert.questions.schedule.schedule import FluidSchedule, Schedule, Transfer
from offcert.runtime.plan.predict import predict, rounding

OFF, BACK = Kind.OFFLOAD, Kind.PREFETCH
# Six operations; "a" has the gaps 0 -> 3 and 3 -> 5, "b" is never moved.
TRACE = Trace(
    [Operation(f"o{i}", 10, workspace=i) for i in range(6)],
    [
        Tensor("a", 100, (0, 3, 5)),
        Tensor("b", 7, (-1, 2), evictable=False),
        Tensor("c", 20, (1, 4)),
    ],
)


def test_without_a_plan_the_curve_is_the_sum_of_what_is_alive():
    predicted = predict(TRACE, Plan())
    assert predicted.at_begin == (7, 107, 127, 120, 120, 100)
    assert predicted.at_end == (107, 127, 120, 120, 100, 0)
    assert predicted.peaks == (107, 128, 129, 123, 124, 105)
    assert predicted.peak == 129
    assert predicted.peaks == TRACE.demand


def test_an_evicted_gap_leaves_and_returns_where_the_plan_says():
    predicted = predict(TRACE, Plan([Move(OFF, 0, 2), Move(BACK, 0, 3)]))
    assert predicted.releases == ((), (), (0,), (), (), ())
    assert predicted.claims == ((), (), (), (0,), (), ())
    assert predicted.at_begin == (7, 107, 27, 120, 120, 100)
    assert predicted.at_end == (107, 127, 20, 120, 100, 0)
    assert predicted.peaks == (107, 128, 29, 123, 124, 105)


def test_a_tensor_with_a_host_copy_leaves_again_at_once():
    plan = Plan([Move(OFF, 0, 1), Move(BACK, 0, 3), Move(BACK, 1, 5)])
    predicted = predict(TRACE, plan)
    assert predicted.releases == ((), (0,), (), (), (0,), ())
    assert predicted.claims == ((), (), (), (0,), (), (0,))
    assert predicted.at_end == (107, 27, 20, 120, 0, 0)


def test_a_schedule_predicts_what_its_decisions_predict():
    starts = [0, 10, 25, 60, 70, 80]
    ends = [10, 20, 35, 70, 80, 90]
    schedule = Schedule(starts, ends, [Transfer(OFF, 0, 5, 25), Transfer(BACK, 0, 40, 60)])
    assert predict(TRACE, schedule) == predict(TRACE, Plan([Move(OFF, 0, 2), Move(BACK, 0, 3)]))


@pytest.mark.parametrize(
    "moves",
    [
        [Move(OFF, 0, 3), Move(BACK, 0, 3), Move(BACK, 0, 3)],
        [Move(OFF, 0, 2), Move(BACK, 0, 1)],
        [Move(OFF, 0, 0), Move(BACK, 0, 3)],
        [Move(OFF, 0, 1), Move(BACK, 0, 4)],
        [Move(BACK, 0, 3)],
    ],
    ids=["repeated", "back before gone", "gone before written", "back too late", "never gone"],
)
def test_a_plan_that_makes_no_sense_is_refused(moves):
    with pytest.raises(PlanError):
        predict(TRACE, Plan(moves))


def test_a_schedule_in_pieces_is_refused():
    with pytest.raises(InputError, match="in 0 pieces, but training moves them whole"):
        predict(TRACE, FluidSchedule((0, 10), (10, 20), ()))


def test_an_allocator_gives_out_whole_granules():
    tensors = [
        # Two storages: 12 and 4 bytes more.
        Tensor("a", 24, (0, 2), True),
        # One: 12 more; it is no more there when c is.
        Tensor("b", 4, (0, 1)),
        Tensor("c", 17, (2, 3)),
        Tensor("d", 32, (1, 2)),
    ]
    operations = [
        Operation(name, 1, workspace) for name, workspace in zip("uvwx", (0, 1, 0, 16), strict=True)
    ]
    trace = Trace(operations, tensors)
    storages = [(0, 12), (0, 12), (3, 32), (None, 5)]
    # a 8, b 12, c 15: during v there are a and b, and workspace of one byte.
    assert rounding(trace, storages, 16) == 8 + 12 + 15
    assert rounding(trace, [], 16) == 8 + 12 + 15
    # Each storage is rounded alone.
    assert rounding(trace, [(0, 8), (0, 8), (0, 8)], 16) == 24 + 12 + 15
    assert rounding(trace, storages, 1) == 0
