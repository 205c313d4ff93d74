"""Sizes of a step on a device: what fits, what takes the memory, and which one is best."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from xml.etree import ElementTree

import pytest

import offcert
from offcert.certification.diagnosis import Diagnoses, Diagnosis, MemoryNeed
from offcert.certification.doctor import DoublingSearch, Size, diagnose
from offcert.core.computations import Computation, Value
from offcert.core.errors import InputError
from offcert.core.network import Network
from offcert.core.platform import Platform
from offcert.core.units import Units
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.report.doctor import describe_doctor, doctor_summary
from offcert.verification.document import verify


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
    found = diagnose([size(1), size(4), size(8)], 45, time_limit=30.0, workers=1)
    plain, planned, never = found
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
    assert found.largest is found.fastest is planned
    assert (len(found), found[1], found[-1], found[:2]) == (3, planned, never, (plain, planned))


def test_ways_that_need_no_plan_stand_beside() -> None:
    diagnosed = diagnose([size(4)], 45, time_limit=30.0, workers=1)
    (found,) = diagnosed
    checkpointed, saved = found.others
    # The layer runs again after the loss: its 8 bytes and 4 of the gradient are less than 12.
    assert (checkpointed.step, checkpointed.peak, checkpointed.host) == (5 + 5 + 5 + 2, 12, 0)
    # Operators wait until 8 bytes have left, and until they are back.
    assert (saved.step, saved.peak, saved.host) == (5 + 8 + 5 + 8 + 2, 12, 8)
    assert checkpointed.fits
    assert saved.fits
    text = describe_doctor(diagnosed)
    assert "batch 4, every layer checkpointed  17 ns" in text
    assert doctor_summary(diagnosed)["sizes"][0]["other_ways"][1]["step"] == 28


def test_a_search_begins_with_the_fastest_way_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    known = []

    def certify(problem: Problem, **options: object) -> Certificate:
        known.append(options["known"])
        return offcert.certify(problem, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("offcert.certification.doctor.certify", certify)
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
    text = repr(replace(found, title="step", notes=("a note",)))
    assert text.startswith("step in 45 B\na note\n")
    assert "largest that fits: batch 4" in text
    assert "the peak at batch 4 is F:loss: parameters 10 B, optimiser 20 B, saved 8 B" in text
    assert "batch 8: F:loss needs 24 B even when all else has left, 9 B more" in text
    summary = doctor_summary(found)
    assert (summary["largest"], summary["fastest"]) == ({"batch": 4}, {"batch": 4})
    assert [each["step"] for each in summary["sizes"]] == [9, 17, None]
    assert str(Diagnoses(())) == "interrupted before anything was found"


def test_a_notebook_shows_a_table() -> None:
    found = diagnose([size(1), size(8)], 45, time_limit=5.0, workers=1)
    root = ElementTree.fromstring(replace(found, notes=("<a> & b",))._repr_html_())
    rows = [[cell.text or "" for cell in row] for row in root.iter("tr")]
    assert ["batch 1", "35 B, fits", "9 ns", "9 ns"] in [row[:4] for row in rows]
    assert ["batch 8", "70 B, too much", "cannot fit", "16 ns"] in [row[:4] for row in rows]
    assert ["", "<a> & b"] in rows
    assert "interrupted before anything was found" in Diagnoses(())._repr_html_()


@pytest.mark.parametrize(
    ("device_memory", "looked_at", "most"),
    [(45, [1, 2, 4, 8, 6, 5], 5), (33, [1, 2], 1), (31, [1], None)],
)
def test_sizes_grow_until_one_does_not_fit(
    device_memory: int, looked_at: list[int], most: int | None
) -> None:
    """Beside 30 bytes, a workspace takes 3 a sample."""
    found = diagnose([DoublingSearch(size)], device_memory, time_limit=30.0, workers=1)
    assert [each.samples for each in found] == looked_at
    assert (found.largest.samples if found.largest else None) == most
    assert found.asked == len(looked_at)


def test_large_sizes_are_found_to_a_sixteenth() -> None:
    found = diagnose([DoublingSearch(size), size(3)], 30 + 3 * 100, time_limit=30.0, workers=1)
    assert [each.samples for each in found] == [1, 2, 4, 8, 16, 32, 64, 128, 96, 112, 104, 100, 3]
    assert found.largest is not None
    assert found.largest.samples == 100


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: diagnose([], 10), "at least one size"),
        (lambda: diagnose([size(1)], 0), "device memory must be at least 1"),
        (lambda: diagnose([size(1)], 10, time_limit=0), "time_limit"),
    ],
)
def test_bad_input_is_told(make: Callable[[], Diagnoses], fault: str) -> None:
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
    # Of sizes that were not looked at nothing is known: the largest one is that of the others.
    assert "interrupted: 2 of 3 sizes were not looked at" in describe_doctor(found)
    assert doctor_summary(found)["interrupted"]
    assert "interrupted" not in describe_doctor(replace(found, asked=1))


def test_the_budget_that_is_short_is_named() -> None:
    options = {"time_limit": 30.0, "workers": 1, "recompute": False}
    planned, never = diagnose([size(4), size(8)], 45, host_memory=8, **options)
    # Eight bytes leave; workspaces of eight samples take 24 of the 15 that parameters leave.
    assert planned.short is None
    activations = "device memory for activations and workspaces"
    assert never.short == MemoryNeed(activations, 24, 15)
    assert str(never.short) == f"{activations}: 24 B needed, 15 B available"
    found = diagnose([size(4)], 45, host_memory=7, **options)
    (host,) = found
    assert host.short == MemoryNeed("host memory for pinned copies", 8, 7)
    assert found.largest is found.fastest is None
    assert "batch 4 is short of host memory for pinned copies: 8" in describe_doctor(found)
    assert doctor_summary(found)["sizes"][0]["short"] == "host memory for pinned copies"
    found = diagnose([size(4)], 25, **options)
    (device,) = found
    text = "device memory before anything is computed: 30 B needed, 25 B available"
    assert str(device.short) == text
    assert f"batch 4 is short of {text}; optimiser takes 20 B" in describe_doctor(found)


def test_the_step_of_the_optimiser_has_to_fit_too() -> None:
    def stepping() -> Problem:
        problem = step(1)
        assert problem.source is not None
        problem.source["optimiser_step"] = 9
        return problem

    # Beside 30 bytes the training step takes 5, and that of the optimiser 9.
    for device_memory, fits in ((39, True), (38, False)):
        found = diagnose([Size({"batch": 1}, 1, stepping)], device_memory, time_limit=5.0)
        (only,) = found
        assert (only.fits, only.planned, found.largest is only) == (fits, fits, fits)
        name = "device memory for the optimiser's step"
        assert only.budgets[-1] == MemoryNeed(name, 39, device_memory)
        assert (f"batch 1 is short of {name}: 39 B" in describe_doctor(found)) is not fits


def five_copies() -> Problem:
    """Return a step of which five tensors of 128 bytes have to leave for a workspace."""
    numbers = tuple(range(5))
    network = Network(
        [
            Computation("F:h.0", 10, writes=numbers),
            Computation("F:loss", 5, 1000, repeatable=False),
            Computation("B:h.0", 10, reads=numbers, repeatable=False),
        ],
        [Value(f"x{number}", 128) for number in numbers],
    )
    source = {"uncounted": {"optimiser": 0}}
    return Problem("five", network, Platform(0, Fraction(1)), units=Units("ns", "B"), source=source)


def test_pageable_memory_is_a_budget_of_its_own() -> None:
    def all_found(pinned: int, pageable: int) -> Diagnoses:
        options = {"host_memory": pinned, "pageable_memory": pageable, "recompute": False}
        return diagnose([Size({"batch": 1}, 1, five_copies)], 1000, time_limit=5.0, **options)

    def found(pinned: int, pageable: int) -> Diagnosis:
        return all_found(pinned, pageable)[0]

    # All 640 bytes leave. Of 512 that are pinned, 128 are for copies on their way: three copies
    # stay there, and two go on to pageable memory.
    enough = found(512, 256)
    assert [each.needed for each in enough.budgets[:4]] == [0, 1000, 512, 256]
    assert enough.short is None
    assert all_found(512, 256).largest is not None
    diagnosed = all_found(512, 255)
    short = diagnosed[0]
    assert short.short == MemoryNeed("pageable host memory", 256, 255)
    assert diagnosed.largest is None
    summary = doctor_summary(diagnosed)["sizes"][0]
    assert summary["short"] == "pageable host memory"
    assert summary["budgets"][3] == {
        "name": "pageable host memory",
        "needed": 256,
        "available": 255,
    }
    # All may be pinned; where none could be on its way, pinned memory is short.
    assert [each.needed for each in found(640, 0).budgets[2:4]] == [640, 0]
    assert found(200, 640).short == MemoryNeed("host memory for pinned copies", 256, 200)
    # What `save_on_cpu` moves is not pinned.
    for pageable in (639, 640):
        (saved,) = [way for way in found(640, pageable).others if way.name == "save_on_cpu"]
        assert (saved.host, saved.fits) == (640, pageable == 640)
