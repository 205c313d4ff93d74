import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from offcert.runtime.watch.tracker import LiveBytes


def test_a_storage_counts_once_however_many_views_share_it():
    tracker = LiveBytes()
    with tracker:
        tracker.start()
        base = torch.zeros(10, 10)
        row, column = base[0], base.t()[3].unsqueeze(1)
        assert tracker.live == 400
        del base, row
        assert tracker.live == 400
        del column
        assert tracker.live == 0


def test_expanded_tensor_counts_what_it_has_in_memory():
    tracker = LiveBytes()
    with tracker:
        tracker.start()
        wide = torch.zeros(1).expand(1000)
        assert tracker.live == 4
        assert wide.numel() == 1000


def test_what_existed_before_does_not_count_and_nor_do_its_views():
    parameter = torch.nn.Parameter(torch.zeros(4, 4))
    tracker = LiveBytes()
    with tracker:
        tracker.start()
        view = parameter.t()
        assert tracker.live == 0
        made = view.clone()
        assert tracker.live == made.untyped_storage().nbytes() == 64


def test_in_place_operators_allocate_nothing():
    tracker = LiveBytes()
    with tracker:
        tracker.start()
        value = torch.zeros(100)
        value.add_(1).relu_()
        assert tracker.live == tracker.peak == 400


def test_constructors_below_the_dispatcher_are_seen():
    tracker = LiveBytes()
    with tracker:
        tracker.start()
        value = torch.tensor([1.0, 2.0])
        assert tracker.live == value.untyped_storage().nbytes() == 8


def test_peak_sees_what_dies_before_the_next_event():
    for mode in (None, FakeTensorMode()):
        tracker = LiveBytes()
        with mode or torch.enable_grad(), tracker:
            tracker.start()
            kept = torch.zeros(100)
            kept = (kept + 1) * 2
            assert (tracker.live, tracker.peak) == (400, 1200)
            tracker.start_peak()
            assert tracker.peak == 400


def test_excluded_storages_leave_the_count_and_are_not_subtracted_twice():
    tracker = LiveBytes()
    with tracker:
        tracker.start()
        gradient, other = torch.zeros(100), torch.zeros(1)
        tracker.exclude([gradient])
        assert tracker.live == 4
        tracker.exclude([gradient.view(10, 10)])
        del gradient
        assert tracker.live == 4
        del other
        assert tracker.live == 0


def test_paused_allocations_are_not_counted_but_deaths_are():
    tracker = LiveBytes()
    with tracker:
        tracker.start()
        counted = torch.zeros(100)
        with tracker.paused():
            host = torch.zeros(1000)
            del counted
        assert tracker.live == 0
        del host
        assert tracker.live == 0


def test_storages_of_an_earlier_count_do_not_disturb_a_new_one():
    tracker = LiveBytes()
    with tracker:
        tracker.start()
        old = torch.zeros(100)
        tracker.start()
        new = torch.zeros(10)
        del old
        assert tracker.live == new.untyped_storage().nbytes() == 40


def test_records_know_when_a_storage_was_born_and_died():
    tracker = LiveBytes()
    with tracker:
        tracker.start()
        tracker.now = 3
        value = torch.zeros(5)
        record = tracker.record(value.untyped_storage())
        tracker.now = 7
        assert (record.size, record.born, record.died) == (20, 3, None)
        del value
        assert record.died == 7


def test_an_address_used_before_by_what_does_not_count_is_no_reason_not_to_count():
    tracker = LiveBytes()
    with tracker:
        tracker.start()
        for _ in range(100):
            with tracker.paused():
                foreign = torch.zeros(100)
            foreign.add_(1)
            assert tracker.live == 0
            del foreign
            counted = torch.zeros(100)
            assert tracker.live == 400
            del counted
