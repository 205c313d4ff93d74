"""Both forecasts of a certificate: of the device alone, and behind the host that was measured."""

from dataclasses import replace
from fractions import Fraction

from offcert.certification.ladder import certify
from offcert.core.platform import Link, Platform
from offcert.core.trace import Operation, Tensor, Trace
from offcert.core.units import Units
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.plan import Plan
from offcert.questions.schedule.problem import Problem
from offcert.report.forecasts import behind_host, host_lines
from offcert.report.text import certificate_summary, describe_certificate
from offcert.verification.replay import replay


def problem(launches: list[int] | None) -> Problem:
    """Return a step in which a tensor of 6 bytes leaves after 2 ns and returns before 9 ns."""
    trace = Trace(
        [Operation("F", 2), Operation("middle", 7, 3), Operation("B", 4)],
        [Tensor("x", 6, (0, 2))],
    )
    source = None if launches is None else {"measurement": {"launch_ns": launches}}
    units = Units("ns", "B")
    platform = Platform(6, Fraction(2), Link.DUPLEX, Fraction(3))
    return Problem("p", trace, platform, units=units, source=source)


def certified(launches: list[int] | None) -> Certificate:
    return certify(problem(launches), time_limit=5)


def test_a_host_that_is_ahead_is_not_waited_for() -> None:
    # Out until 5, while nothing else runs; the middle until 12, back until 14, B until 18.
    found = certified([1, 1, 1])
    assert found.result.objective == 18
    assert certificate_summary(found)["with_host"] == {"makespan": 18, "idle": 0, "launches": 3}
    assert host_lines(found) == ["  with host    18 ns; it is never waited for"]


def test_a_host_that_is_behind_makes_a_step_longer() -> None:
    # F ends when it has been handed over, at 10, so everything comes 8 later; B is handed over at
    # 12, which is early enough.
    found = certified([10, 1, 1])
    host = behind_host(found)
    assert host is not None
    assert (host.alone, host.behind, host.idle, host.launches) == (18, 26, 8, 12)
    assert "  with host    26 ns; host-bound: 8 ns of 26 ns idle" in describe_certificate(found)
    # The last one, and that alone.
    late = behind_host(certified([1, 1, 48]))
    assert late is not None
    assert (late.behind, late.idle) == (50, 32)


def test_what_is_not_known_is_not_said() -> None:
    found = certified(None)
    assert behind_host(found) is None
    assert "with_host" not in certificate_summary(found)
    assert host_lines(found) == []


def test_the_schedule_behind_the_host_is_one_of_longer_operations() -> None:
    found = certified([10, 30, 1])
    schedule = found.result.schedule
    assert schedule is not None
    plan = schedule.plan(found.executed.trace)
    assert isinstance(plan, Plan)
    behind = replay(found.executed, plan, (10, 40, 41))
    longer = [end - start for start, end in zip(behind.starts, behind.ends, strict=True)]
    trace = found.executed.trace
    operations = [replace(o, duration=d) for o, d in zip(trace.operations, longer, strict=True)]
    slow = replace(found.executed, network=Trace(operations, trace.tensors))
    assert replay(slow, plan) == behind
