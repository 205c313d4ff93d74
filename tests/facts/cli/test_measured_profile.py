"""What `offcert profile --measure` says for people beside the problem."""

from fractions import Fraction

from offcert.cli.profile import _measured_lines
from offcert.core.platform import Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.core.units import Units
from offcert.questions.schedule.problem import Problem


def _problem(source):
    trace = Trace([Operation("F", 1), Operation("B", 1)], [Tensor("x", 4, (0, 1))])
    return Problem("p", trace, Platform(8, Fraction(1)), units=Units("ns", "B"), source=source)


def test_the_link_and_what_was_not_foreseen_are_told():
    link = {
        "alone": [54_000_000_000, 53_000_000_000],
        "together": [50_000_000_000, 49_500_000_000],
        "computing": [48_125_000_000, 47_000_000_000],
    }
    unforeseen = {"storages": 3, "bytes": 3 * 2**20}
    found = _problem({"measurement": {"link": link, "unforeseen": unforeseen}})
    assert _measured_lines(found) == [
        "  link alone     54.00 GB/s out, 53.00 GB/s back",
        "  both at once   50.00 GB/s out, 49.50 GB/s back",
        "  computing      48.12 GB/s out, 47.00 GB/s back",
        "  not foreseen   3 storages, 3.00 MiB, saved on this device only",
    ]


def test_a_step_whose_device_waits_for_the_host_is_said_to_be_host_bound():
    late = _problem({"measurement": {"launch_ns": [10_000_000, 5_000_000]}})
    busy = 2
    assert _measured_lines(late) == [
        f"  host           15.00 ms to hand the step over; host-bound: {(15e6 - busy) / 1e6:.2f} "
        "of 15.00 ms idle"
    ]
    # The first operation ends at 1, the other by then, too: the host is ahead.
    ahead = _problem({"measurement": {"launch_ns": [1, 1]}})
    assert _measured_lines(ahead) == ["  host           0.00 ms to hand the step over"]
    for wrong in ([1], [1, -1], [1, True], "fast", None):
        assert _measured_lines(_problem({"measurement": {"launch_ns": wrong}})) == []


def test_of_what_was_not_measured_nothing_is_told():
    assert _measured_lines(_problem({"by": "hand"})) == []
    none = {"measurement": {"link": {"alone": [10**9, 10**9]}, "unforeseen": {"storages": 0}}}
    assert len(_measured_lines(_problem(none))) == 1
