"""Schedules in pieces inside certificates: written exactly, read back, verified, forged in vain."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from offcert.certification.ladder import certify
from offcert.certification.methods import solve
from offcert.core.documents import canonical_digest
from offcert.core.errors import InputError
from offcert.core.platform import Platform
from offcert.core.result import SolveStatus
from offcert.core.trace import Operation, Tensor, Trace
from offcert.proofs.certificate import certificate_from_json, read_certificate
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import FluidSchedule, Schedule
from offcert.verification.document import verify, verify_file
from support.problems.random_instances import counterexample, random_problem


def problem() -> Problem:
    """Thirds of bytes and of ticks; 2 of x and y must be off the device during o1."""
    operations = [Operation("o0", 3), Operation("o1", 2, 9), Operation("o2", 1)]
    network = Trace(operations, [Tensor("x", 5, (0, 2)), Tensor("y", 3, (0, 2))])
    return Problem("p", network, Platform(10, Fraction(7, 3)), Transfers.FRACTIONAL)


def resealed(tampered: dict[str, Any]) -> dict[str, Any]:
    content = {name: value for name, value in tampered.items() if name != "digest"}
    return content | {"digest": canonical_digest(content)}


def faults(tampered: dict[str, Any]) -> list[str]:
    try:
        return [text for text in verify(resealed(tampered)).faults if text[:6] != "digest"]
    except InputError as error:
        return [str(error)]


@pytest.mark.parametrize("transfers", [Transfers.FRACTIONAL, Transfers.INTERRUPTIBLE])
def test_a_schedule_in_pieces_survives_a_round_trip(transfers: Transfers, tmp_path: Path) -> None:
    certificate = certify(replace(problem(), transfers=transfers), time_limit=20)
    assert isinstance(certificate.result.schedule, FluidSchedule)
    assert certificate.result.status is SolveStatus.OPTIMAL
    certificate.write(tmp_path / "c.json")
    assert verify_file(tmp_path / "c.json").faults == []
    again = read_certificate(tmp_path / "c.json")
    assert again.result.schedule == certificate.result.schedule
    assert again.to_json() == certificate.to_json()
    first = json.loads((tmp_path / "c.json").read_text())["schedule"]["pieces"][0]
    assert first.keys() == {"kind", "tensor", "name", "gap", "start", "end", "size"}
    assert Fraction(first["size"]) <= Fraction(7, 3) * (
        Fraction(first["end"]) - Fraction(first["start"])
    )


def test_no_forged_piece_goes_unnoticed() -> None:
    original = certify(problem(), time_limit=20).to_json()
    assert verify(original).faults == []
    for index, piece in enumerate(original["schedule"]["pieces"]):
        for name, value in piece.items():
            forgeries: list[Any] = {
                "kind": ["prefetch" if value == "offload" else "offload", "sideways", 3],
                "tensor": [1 - piece["tensor"], 9, -1],
                "name": ["z", 0],
                "gap": [[0, 1], [0], None],
            }.get(name, [])
            if name in ("start", "end", "size"):
                exact = Fraction(value)
                unreduced = f"{2 * exact.numerator}/{2 * exact.denominator}"
                forgeries = [unreduced, str(exact + 100), float(exact), f"-{value}", "1/0"]
            for forgery in forgeries:
                tampered = copy.deepcopy(original)
                tampered["schedule"]["pieces"][index][name] = forgery
                assert faults(tampered), (index, name, forgery)
        tampered = copy.deepcopy(original)
        del tampered["schedule"]["pieces"][index]
        assert faults(tampered), index
    for index in range(3):
        tampered = copy.deepcopy(original)
        tampered["schedule"]["operations"][index]["start"] -= 1
        tampered["schedule"]["operations"][index]["end"] -= 1
        assert faults(tampered), index


def test_pieces_do_not_pass_for_atomic_transfers() -> None:
    forged = certify(problem(), time_limit=20).to_json()
    forged["problem"]["transfers"] = "atomic"
    assert any("but the problem has atomic transfers" in text for text in faults(forged))


def test_transfers_and_pieces_exclude_each_other() -> None:
    document = certify(problem(), time_limit=20).to_json()
    document["schedule"]["transfers"] = []
    with pytest.raises(InputError, match='either "transfers" or "pieces"'):
        certificate_from_json(document)
    del document["schedule"]["transfers"], document["schedule"]["pieces"]
    with pytest.raises(InputError, match='either "transfers" or "pieces"'):
        certificate_from_json(document)


def test_whole_transfers_stay_as_they_are_where_pieces_gain_nothing() -> None:
    """An atomic schedule that meets a proved bound needs no pieces."""
    roomy = replace(problem(), platform=Platform(17, Fraction(7, 3)))
    certificate = certify(roomy, time_limit=20)
    assert isinstance(certificate.result.schedule, Schedule)
    assert certificate.result.status is SolveStatus.OPTIMAL


def test_what_bounds_ordered_schedules_is_no_bound_of_the_certificate() -> None:
    relaxed = replace(counterexample(), transfers=Transfers.INTERRUPTIBLE)
    ordered = solve(relaxed, "fluid-ordered")
    assert ordered.result.objective == 251
    assert ordered.notes.ordered_lower_bound == 251
    assert ordered.notes.ordered_objective == 251
    assert ordered.result.lower_bound <= 219
    assert verify(ordered.to_json()).faults == []
    exact = solve(relaxed, "fluid-exact")
    assert exact.result.objective == exact.result.lower_bound == 219
    assert verify(exact.to_json()).faults == []


def test_methods_say_what_they_need() -> None:
    with pytest.raises(InputError, match="needs interruptible or fractional transfers, not atomic"):
        solve(counterexample(), "fluid-ordered")
    operations = [Operation(f"o{i}", 1, 8 if i in (1, 3) else 0) for i in range(5)]
    network = Trace(operations, [Tensor("x", 4, (0, 2)), Tensor("y", 4, (2, 4))])
    stuck = Problem("p", network, Platform(8, Fraction(1)), Transfers.INTERRUPTIBLE)
    certificate = solve(stuck, "fluid-ordered")
    assert "all offloads before all prefetches" in str(certificate.notes.no_plan)
    assert certificate.result.schedule is None


def test_atomic_problems_get_a_bound_from_the_exact_program() -> None:
    atomic = random_problem(7, 4)
    certificate = solve(atomic, "fluid-exact")
    assert certificate.result.schedule is None
    assert "fluid-exact" in {bound.method for bound in certificate.result.bounds}
    assert verify(certificate.to_json()).faults == []
