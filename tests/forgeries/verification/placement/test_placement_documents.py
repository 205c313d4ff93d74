"""Documents about addresses, alone and in certificates: written, read, verified, forged."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import offcert
from offcert.certification.placing import place
from offcert.core.documents import canonical_digest
from offcert.core.errors import InputError
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.proofs.certificate import Certificate, certificate_from_json, read_certificate
from offcert.proofs.placement_certificate import (
    PlacementCertificate,
)
from offcert.questions.placement.problem import (
    Placement,
    PlacementProblem,
    PlacementResult,
    Residence,
)
from offcert.questions.schedule.residences import residences
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.schedule import FluidSchedule, Schedule
from offcert.verification.findings import VerificationOutcome
from offcert.verification.limits import Limits
from offcert.verification.placement import stays
from support.problems.placements import random_placement_problem, scheduled
from support.seeds import by_seeds


def signed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the digest that it has now, as a forger would."""
    content = {name: value for name, value in document.items() if name != "digest"}
    return content | {"digest": canonical_digest(content)}


def as_read(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_both_definitions_of_residences_agree() -> None:
    count = 0
    for certificate in scheduled(400, seed=11, largest=7):
        schedule = certificate.result.schedule
        assert isinstance(schedule, Schedule)
        trace = certificate.executed.trace
        theirs = [
            (stay.kind, stay.index, stay.name, stay.size, stay.start, stay.end)
            for stay in stays(trace, schedule)
        ]
        ours = [
            (of.kind, of.index, each.name, each.size, each.start, each.end)
            for of, each in residences(trace, schedule)
        ]
        assert theirs == ours
        count += 1
    assert count > 80


@pytest.mark.parametrize("seed", range(30))
def test_a_document_of_its_own_round_trips_and_is_valid(seed: int) -> None:
    placed = place(random_placement_problem(seed), time_limit=5)
    document = as_read(placed.to_json())
    again = PlacementCertificate.from_json(document)
    assert again.to_json() == placed.to_json()
    assert again.problem == placed.problem
    assert again.result.placement == placed.result.placement
    verification = offcert.verify(placed)
    assert verification.valid, verification.faults
    assert verification.evidence is Evidence.PROVED
    assert [bound.finding for bound in verification.bounds] == ["computed again"]


def test_certificates_with_addresses_round_trip_and_are_valid() -> None:
    count = 0
    for certificate in scheduled(60, seed=5):
        placed = place(certificate, time_limit=5, alignment=1 + count % 3)
        assert placed.placement is not None
        document = as_read(placed.to_json())
        again = certificate_from_json(document)
        assert again.to_json() == placed.to_json()
        assert again.placement is not None
        assert again.placement.occupants == placed.placement.occupants
        verification = offcert.verify(placed)
        assert isinstance(verification.certificate, Certificate)
        assert verification.valid, verification.faults
        assert [bound.method for bound in verification.placement_bounds] == ["load"]
        # Without its addresses it is the certificate that it was, digest and all.
        assert replace(placed, placement=None).to_json() == certificate.to_json()
        count += 1
    assert count > 10


def example() -> Certificate:
    """Return a certificate with addresses in which a tensor leaves and returns."""
    return next(
        place(certificate, time_limit=5)
        for certificate in scheduled(60, seed=5)
        if certificate.result.schedule.evicted
    )


@pytest.mark.slow
@by_seeds(0, 80, 27)
def test_every_forged_overlap_is_rejected(seeds: range) -> None:
    rng = random.Random(4)
    forged = 0
    for seed in seeds:
        placed = place(random_placement_problem(seed), time_limit=5)
        problem, placement = placed.problem, placed.result.placement
        assert placement is not None
        for first, one in enumerate(problem.residences):
            for second, other in enumerate(problem.residences[:first]):
                if not one.meets(other):
                    continue
                addresses = list(placement.addresses)
                low = addresses[second] - problem.sizes[first] + 1
                high = addresses[second] + problem.sizes[second] - 1
                # Somewhere over the other, on purpose also below 0 and off the alignment.
                addresses[first] = rng.randint(low, high)
                document = placed.to_json() | {"addresses": addresses}
                verification = offcert.verify(signed(document))
                assert verification.outcome is VerificationOutcome.INVALID
                forged += 1
    assert forged >= 96


def test_every_changed_number_of_a_placement_in_a_certificate_is_found() -> None:
    document = as_read(example().to_json())
    seen = set()
    for index, row in enumerate(document["placement"]["residences"]):
        for name, value in row.items():
            changed = as_read(document)
            # Another address is wrong only where something else is, or outside the pool.
            new = "?" if name == "name" else -1 if name == "address" else value + 1
            changed["placement"]["residences"][index][name] = new
            try:
                verification = offcert.verify(signed(changed))
            except InputError:
                # It ends before it begins.
                assert name in ("start", "end")
                continue
            assert verification.outcome is VerificationOutcome.INVALID, (index, name)
            seen.add(name)
    assert {"tensor", "name", "size", "start", "end", "address"} <= seen


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            lambda p: p["residences"].pop(),
            r"placement\..*: the document has none, but the schedule",
        ),
        (lambda p: p["residences"].append(p["residences"][0]), "but the schedule none"),
        (
            lambda p: p.update(objective=p["objective"] - 1),
            "placement.objective: the document says",
        ),
        (lambda p: p.update(status="FEASIBLE"), "placement.status: the document says FEASIBLE"),
        (lambda p: p.update(lower_bound=0), "placement.lower_bound: the document says 0"),
        (lambda p: p["bounds"][0].update(value=10**6), "exceeds the objective"),
        (lambda p: p["bounds"][0].update(value=10**6), "bytes are taken at a time, not 1000000"),
        (lambda p: p["bounds"][0].update(method="prop3"), "no proof is known for a bound of this"),
        (lambda p: p["units"].update(size="B"), "placement.units: must be tick and unit"),
        (lambda p: p.update(capacity=p["objective"] - 1), "beyond the pool of"),
        (lambda p: p.update(alignment=64), "does not begin at a multiple of 64|overlaps"),
    ],
)
def test_forged_fields_are_named(change: Any, fault: str) -> None:
    placed = next(
        found
        for certificate in scheduled(60, seed=5)
        if (found := place(certificate, time_limit=5)).placement.result.status
        is SolveStatus.OPTIMAL
        and len(found.placement.problem.residences) > 3
    )
    document = as_read(placed.to_json())
    change(document["placement"])
    verification = offcert.verify(signed(document))
    assert any(re.search(fault, said) for said in verification.faults), verification.faults


def test_addresses_of_another_schedule_are_refused() -> None:
    placed = example()
    schedule = placed.result.schedule
    assert isinstance(schedule, Schedule)
    later = Schedule(
        [start + 1 for start in schedule.starts],
        [end + 1 for end in schedule.ends],
        [replace(each, start=each.start + 1, end=each.end + 1) for each in schedule.transfers],
    )
    moved = replace(placed, result=replace(placed.result, schedule=later))
    verification = offcert.verify(moved)
    assert any("placement.residences" in fault for fault in verification.faults)
    none = replace(placed, result=Result(SolveStatus.UNKNOWN, None))
    assert "no schedule of whole transfers" in "".join(offcert.verify(none).faults)


def test_a_schedule_in_pieces_is_not_placed() -> None:
    placed = example()
    schedule = placed.result.schedule
    assert isinstance(schedule, Schedule)
    pieces = FluidSchedule(schedule.starts, schedule.ends, [])
    for result, sentence in (
        (replace(placed.result, schedule=pieces), "moves tensors in pieces cannot be placed"),
        (Result(SolveStatus.UNKNOWN, None), "holds no schedule"),
    ):
        with pytest.raises(InputError, match=sentence):
            place(replace(placed, result=result))


@pytest.mark.parametrize("capacity", [9, 10, 11, 12])
def test_what_fits_a_capacity_is_said(capacity: int, tmp_path: Path) -> None:
    """Two of 5 bytes at a time, and 1 byte at the end: the load is 10."""
    rows = [Residence("a", 5, 0, 2), Residence("b", 5, 1, 3), Residence("c", 1, 3, 4)]
    placed = place(PlacementProblem("p", rows, capacity), time_limit=5)
    assert placed.result.status is (
        SolveStatus.INFEASIBLE if capacity < 10 else SolveStatus.OPTIMAL
    )
    assert (placed.result.placement is None) == (capacity < 10)
    placed.write(tmp_path / "p.json")
    assert PlacementCertificate.read(tmp_path / "p.json").to_json() == placed.to_json()
    assert offcert.verify(tmp_path / "p.json").valid


def test_infeasible_and_unknown_are_not_mixed_up() -> None:
    problem = PlacementProblem("p", [Residence("a", 5, 0, 2)], 4)
    claim = Bound("load", 5, Evidence.PROVED)
    for status, bounds, placement, right in (
        (SolveStatus.INFEASIBLE, (claim,), None, True),
        (SolveStatus.UNKNOWN, (claim,), None, False),
        (SolveStatus.UNKNOWN, (), None, True),
        (SolveStatus.INFEASIBLE, (), None, False),
        (SolveStatus.OPTIMAL, (claim,), Placement([0]), False),
    ):
        pool = None if placement is None else 5
        result = PlacementResult(status, placement, pool, bounds)
        assert offcert.verify(PlacementCertificate(problem, result, method="x")).valid == right


def test_solvers_that_agree_attest_each_other_only_if_they_may() -> None:
    problem = PlacementProblem("p", [Residence("a", 5, 0, 2)])
    word = Bound("somebody", 5, Evidence.CROSS_ATTESTED, {"solver": "X"})
    result = PlacementResult(SolveStatus.OPTIMAL, Placement([0]), 5, (word, word))
    faults = offcert.verify(PlacementCertificate(problem, result, method="x")).faults
    assert any("no other formulation on another solver" in fault for fault in faults)


def test_a_document_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    place(random_placement_problem(1), time_limit=5).write(tmp_path / "p.json")
    with pytest.raises(offcert.OffcertError, match="only 10 may be read"):
        offcert.verify(tmp_path / "p.json", Limits(document=10))
    with pytest.raises(InputError, match=r"p\.json: it is a certificate of addresses, not"):
        read_certificate(tmp_path / "p.json")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"addresses": [0]}, "addresses must be .*, one a residence, not 1"),
        ({"addresses": "x"}, 'addresses must be a list or null, not "x"'),
        ({"version": 2}, "version 2 of offcert-placement is not known"),
        ({"more": 1}, 'the field "more" is not known'),
        ({"status": "FINE"}, "status must be one of"),
    ],
)
def test_what_is_no_document_is_refused_by_name(change: dict[str, Any], sentence: str) -> None:
    document = place(random_placement_problem(1), time_limit=5).to_json() | change
    with pytest.raises(InputError, match=sentence):
        offcert.verify(document)


def test_what_a_document_derives_is_compared_with_what_it_should_be() -> None:
    problem = PlacementProblem("p", [Residence("a", 3, 0, 2), Residence("b", 4, 1, 3)])
    document = as_read(place(problem, time_limit=5).to_json())
    assert offcert.verify(document).valid
    wrong = (("objective", 6), ("lower_bound", 6), ("gap", "1/2"), ("problem_sha256", "0" * 64))
    for name, value in wrong:
        faults = offcert.verify(signed(document | {name: value})).faults
        assert [each.partition(":")[0] for each in faults] == [name]
    assert offcert.verify(document | {"method": "magic"}).faults == [
        "digest: the document was changed after it was written"
    ]
    document["bounds"][0]["details"] = {"more": 1}
    (fault,) = offcert.verify(signed(document)).faults
    assert fault.startswith("bounds[0] (load): ")
