"""What prompts and notebooks print of an object: one line, in human units."""

from dataclasses import replace
from fractions import Fraction

import pytest

from offcert.certification.methods import solve
from offcert.core.chain import Chain
from offcert.core.platform import Platform
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.core.units import Units, format_rate
from offcert.instances.library import Library
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.schedule import Schedule

CHAIN = Chain([3, 4], [4, 2], [10, 2, 1], [0, 0, 0], [0, 8])
PROBLEM = Problem("p", CHAIN, Platform(13, Fraction(2)))
MIB = 2**20
NETWORK = Problem(
    "net 8×3",
    Chain([3 * MIB, 4 * MIB], [4 * MIB, 2 * MIB], [10 * MIB, 2 * MIB, MIB], [0] * 3, [0, 8 * MIB]),
    Platform(14 * MIB, Fraction(61, 5), "duplex", Fraction(1, 100)),
    units=Units("ns", "B"),
)


def test_problems_show_counts_limit_and_link_in_human_units() -> None:
    assert repr(PROBLEM) == (
        "<Problem p: 4 operations, 6 tensors, 1 gaps; memory 13 (11.11 % between 12 and 21); "
        "simplex link 2 units per tick; atomic transfers>"
    )
    assert repr(NETWORK) == (
        "<Problem net 8×3: 4 operations, 6 tensors, 1 gaps; memory 14.00 MiB (22.22 % between "
        "12.00 MiB and 21.00 MiB); duplex link 12.20 GB/s out, 10.00 MB/s back; atomic transfers>"
    )
    assert "memory 11, less than the least possible, 12;" in repr(PROBLEM.with_memory(11))
    assert "memory 21, enough for the peak, 21;" in repr(PROBLEM.with_memory(21))
    long = repr(replace(PROBLEM, name="two\nlines" + 10**6 * "x"))
    assert len(long) < 300
    assert "\n" not in long


def test_what_a_problem_consists_of() -> None:
    assert repr(CHAIN) == "<Chain: 2 stages; forward 7, backward 6, activations 13>"
    assert repr(CHAIN.trace()) == (
        "<Trace: 4 operations, 6 tensors, 1 gaps; compute time 13, memory from 12 to 21>"
    )
    assert repr(PROBLEM.platform) == "<Platform: memory 13, simplex link, 2 per tick>"
    assert repr(NETWORK.platform) == (
        "<Platform: memory 14680064, duplex link, 61/5 out and 1/100 back per tick>"
    )


def test_answers_show_their_claim() -> None:
    certificate = solve(PROBLEM, "pivot", time_limit=5)
    assert repr(certificate) == "<Certificate p at 13: OPTIMAL: 18 (proved)>"
    assert repr(certificate.result) == "<Result OPTIMAL: 18 (proved)>"
    schedule = certificate.result.schedule
    assert isinstance(schedule, Schedule)
    assert repr(schedule) == "<Schedule: 4 operations, 2 transfers, makespan 18>"
    assert repr(schedule.plan(PROBLEM.trace)) == "<Plan: 1 tensors leave, 1 prefetches>"
    relaxed = solve(replace(PROBLEM, transfers=Transfers.INTERRUPTIBLE), "fluid-exact")
    assert repr(relaxed.result.schedule) == (
        "<FluidSchedule: 4 operations, transfers in 2 pieces, makespan 16>"
    )
    assert repr(Schedule([], [], [])) == "<Schedule: 0 operations, 0 transfers>"
    assert repr(solve(NETWORK.with_memory(11 * MIB), "bounds")) == (
        "<Certificate net 8×3 at 11.00 MiB: INFEASIBLE: F0 lacks 1.00 MiB>"
    )


@pytest.mark.parametrize(
    ("status", "scheduled", "values", "expected"),
    [
        ("FEASIBLE", True, (), "FEASIBLE: 16, lower bound 0 (none), gap 100 %"),
        ("FEASIBLE", True, (9, 12), "FEASIBLE: 16, lower bound 12 (attested), gap 25 %"),
        ("UNKNOWN", False, (9,), "UNKNOWN: no schedule, lower bound 9 (proved)"),
    ],
)
def test_a_result_names_the_evidence_of_its_best_bound(
    status: str, scheduled: bool, values: tuple[int, ...], expected: str
) -> None:
    levels = (Evidence.PROVED, Evidence.ATTESTED)
    bounds = tuple(Bound("b", *pair) for pair in zip(values, levels, strict=False))
    schedule = Schedule([0], [16], []) if scheduled else None
    assert repr(Result(SolveStatus(status), schedule, bounds)) == f"<Result {expected}>"
    # Equal values attest each other: the stronger word counts.
    both = (Bound("a", 9, Evidence.ATTESTED), Bound("b", 9, Evidence.PROVED, {"proof": "x" * 999}))
    assert Result(SolveStatus.UNKNOWN, None, both).evidence is Evidence.PROVED
    assert repr(both[1]) == "<Bound b 9, proved>"


def test_a_library_shows_its_folder(tmp_path: object) -> None:
    assert repr(Library(str(tmp_path))) == f"<Library {tmp_path}: 0 families>"


@pytest.mark.parametrize(
    ("rate", "units", "text"),
    [
        (Fraction(61, 5), Units("ns", "B"), "12.20 GB/s"),
        (Fraction(10**5), Units("ns", "B"), "100.00 TB/s"),
        (Fraction(1, 10**12), Units("ns", "B"), "0.00 B/s"),
        (Fraction(3, 2), Units(), "3/2 units per tick"),
        (Fraction(18712, 26711), Units(), "0.7005 units per tick"),
        (Fraction(3), Units("tick", "B"), "3 B per tick"),
    ],
)
def test_rates_for_people(rate: Fraction, units: Units, text: str) -> None:
    assert format_rate(rate, units) == text
