"""Sizes of a step on a device: what fits, what takes the memory, and which one is best."""

from collections.abc import Callable
from fractions import Fraction

import pytest

import offcert
from offcert.certify.doctor import Diagnosis, Size, diagnose, fastest, largest
from offcert.core.computations import Computation, Value
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.core.units import Units
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.report.training import describe_doctor, doctor_summary
from offcert.verify.document import verify


def step(samples: int, **uncounted: int) -> Problem:
    """Return a step whose input waits while a workspace is taken: 2 bytes a sample, then 3."""
    network = Network(
        [
            Computation("F:h.0", 1 + samples, writes=(0,)),
            Computation("F:loss", 5, 3 * samples, repeatable=False),
            Computation("B:h.0", 2, reads=(0,), writes=(1,), repeatable=False),
        ],
        [Value("x", 2 * samples), Value("dx", samples, evictable=False)],
    )
    source = {"uncounted": {"parameters": 10, "optimiser": 20, "buffers": 0} | uncounted}
    units = Units("ns", "B")
    return Problem("step", network, Platform(0, Fraction(1)), units=units, source=source)


def size(samples: int, **uncounted: int) -> Size:
    return Size({"batch": samples}, samples, lambda: step(samples, **uncounted))


def test_what_fits_what_is_planned_and_what_cannot_fit() -> None:
    plain, planned, never = diagnose([size(1), size(4), size(8)], 45, time_limit=30.0, workers=1)
    # Beside 30 bytes there are 15: one sample takes 2 and a workspace of 3, and nothing waits.
    assert plain.fits
    assert (plain.peak, plain.at_peak["saved"], plain.at_peak["workspace"]) == (35, 2, 3)
    assert plain.step == plain.bound == plain.computing == 9
    # Four take 8 bytes and 12 of workspace; to run again is shorter (5) than to move (8 + 8).
    assert (planned.fits, planned.peak) == (False, 50)
    assert planned.problem.recompute is Recompute.ANY
    assert (planned.computing, planned.step, planned.bound, planned.host_bytes) == (12, 17, 17, 0)
    assert planned.rate == Fraction(4 * 10**9, 17)
    assert planned.certificate is not None
    assert verify(planned.certificate).valid
    # The workspace of eight samples alone takes 24 bytes, nine more than there are.
    assert never.step is None
    assert never.why_not is not None
    assert "F:loss needs 24 B" in never.why_not
    assert largest([plain, planned, never]) is planned
    assert fastest([plain, planned, never]) is planned


def test_ways_that_need_no_plan_stand_beside() -> None:
    (found,) = diagnose([size(4)], 45, time_limit=30.0, workers=1)
    checkpointed, saved = found.others
    # The layer runs again after the loss: its 8 bytes and 4 of the gradient are less than 12.
    assert (checkpointed.step, checkpointed.peak, checkpointed.host) == (5 + 5 + 5 + 2, 12, 0)
    # Operators wait until 8 bytes have left, and until they are back.
    assert (saved.step, saved.peak, saved.host) == (5 + 8 + 5 + 8 + 2, 12, 8)
    assert checkpointed.fits
    assert saved.fits
    text = describe_doctor([found], "step")
    assert "batch 4, every layer checkpointed  17 ns" in text
    assert doctor_summary([found])["sizes"][0]["other_ways"][1]["step"] == 28


def test_a_search_begins_with_the_fastest_way_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    known = []

    def certify(problem: Problem, **options: object) -> Certificate:
        known.append(options["known"])
        return offcert.certify(problem, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("offcert.certify.doctor.certify", certify)
    for recompute, device_memory, step_of_known in ((True, 45, 17), (False, 45, 28), (True, 41, 0)):
        diagnose([size(4)], device_memory, time_limit=5.0, workers=1, recompute=recompute)
        found = known.pop()
        assert (found.result.objective if found else 0) == step_of_known


def test_what_leaves_takes_memory_of_the_host() -> None:
    (found,) = diagnose([size(4)], 45, time_limit=30.0, workers=1, recompute=False)
    assert found.problem.recompute is Recompute.NONE
    assert (found.step, found.host_bytes) == (5 + 8 + 5 + 8 + 2, 8)


def test_a_device_that_the_model_alone_fills() -> None:
    (found,) = diagnose([size(1)], 29, time_limit=5.0)
    assert (found.certificate, found.step, found.bound, found.rate) == (None, None, None, 0)
    assert found.why_not is not None
    assert found.why_not.startswith("parameters 10 B, optimiser 20 B take 30 B of the 29 B")


def test_copies_of_buffers_count_where_something_may_run_again() -> None:
    again, once = (
        diagnose([size(1, buffers=2)], 60, time_limit=5.0, recompute=recompute)[0]
        for recompute in (True, False)
    )
    assert again.beside == {"parameters": 10, "optimiser": 20, "buffers": 2, "copies of buffers": 4}
    assert again.peak == once.peak + 4


def test_the_text_and_the_summary_say_the_same() -> None:
    found = diagnose([size(1), size(4), size(8)], 45, time_limit=30.0, workers=1)
    text = describe_doctor(found, "step")
    assert "largest that fits: batch 4" in text
    assert "the peak at batch 4 is F:loss: parameters 10 B, optimiser 20 B, saved 8 B" in text
    assert "batch 8: F:loss needs 24 B even when all else has left, 9 B more" in text
    summary = doctor_summary(found)
    assert (summary["largest"], summary["fastest"]) == ({"batch": 4}, {"batch": 4})
    assert [each["step"] for each in summary["sizes"]] == [9, 17, None]
    assert describe_doctor([], "step") == "interrupted before anything was found"


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: diagnose([], 10), "at least one size"),
        (lambda: diagnose([size(1)], 0), "device memory must be at least 1"),
        (lambda: diagnose([size(1)], 10, time_limit=0), "time_limit"),
    ],
)
def test_bad_input_is_told(make: Callable[[], list[Diagnosis]], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        make()


def test_an_unknown_optimiser_state_is_told() -> None:
    problem = step(1)
    assert problem.source is not None
    del problem.source["uncounted"]["optimiser"]
    with pytest.raises(InputError, match="optimiser's state"):
        diagnose([Size({}, 1, lambda: problem)], 100)


def test_an_interrupt_ends_with_what_is_known() -> None:
    def stop() -> Problem:
        raise KeyboardInterrupt

    found = diagnose([size(1), Size({"batch": 2}, 2, stop), size(4)], 45, time_limit=30.0)
    assert [each.samples for each in found] == [1]


def test_the_budget_that_is_short_is_named() -> None:
    options = {"time_limit": 30.0, "workers": 1, "recompute": False}
    planned, never = diagnose([size(4), size(8)], 45, host_memory=8, **options)
    # Eight bytes leave; workspaces of eight samples take 24 of the 15 that parameters leave.
    assert planned.short is None
    assert never.short == "device memory for activations and workspaces, 15 B: 9 B"
    (host,) = diagnose([size(4)], 45, host_memory=7, **options)
    assert host.short == "host memory for pinned copies, 7 B: 1 B"
    assert largest([host]) is fastest([host]) is None
    assert "batch 4 is short of host memory for pinned copies" in describe_doctor([host], "step")
    (device,) = diagnose([size(4)], 25, **options)
    assert device.short == "device memory before anything is computed: 5 B; optimiser takes 20 B"
