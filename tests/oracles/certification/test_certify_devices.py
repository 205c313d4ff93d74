"""Certificates for several devices: never below the optimum, never above it, and verified."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import offcert
from offcert.certification import devices, interrupts
from offcert.certification.devices import certify_devices, shared_link
from offcert.certification.interrupts import ending_whole, ending_with
from offcert.certification.ladder import certify
from offcert.certification.running import SearchProgress
from offcert.core.documents import canonical_digest
from offcert.core.errors import InputError
from offcert.core.platform import Kind, Link, Platform
from offcert.core.result import Bound, Evidence, SolveStatus
from offcert.core.trace import Operation, Tensor, Trace
from offcert.formulations.devices.bounds import devices_bounds
from offcert.formulations.devices.cpsat import solve_devices
from offcert.heuristics.devices import best_by_rules, improve
from offcert.proofs.any_certificate import Notes, Settings
from offcert.proofs.certificate import Certificate
from offcert.proofs.devices_certificate import (
    DEVICE,
    MODEL,
    RESOURCE,
    DevicesCertificate,
    Resource,
    ResourceProof,
)
from offcert.questions.devices.problem import (
    Accumulation,
    AdditionPlace,
    DevicesProblem,
    Gradient,
    JobKind,
)
from offcert.questions.schedule.problem import Problem
from offcert.questions.schedule.schedule import Schedule
from offcert.report.question_texts import devices_summary
from offcert.verification.devices_bounds import resource_fault
from offcert.verification.document import verify
from offcert.verification.limits import Limits
from support.oracles.devices import devices_optimum
from support.problems.devices import random_devices, small_devices, three_layers, tiny_devices
from support.seeds import by_seeds


def document_of(certificate: DevicesCertificate) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(certificate.to_json()))
    return document


def forged(document: dict[str, Any], change) -> list[str]:
    """Return what verification says of a document that was changed and given a new digest."""
    changed = json.loads(json.dumps(document))
    change(changed)
    del changed["digest"]
    changed["digest"] = canonical_digest(changed)
    return verify(changed).faults


@pytest.mark.slow
def test_tiny_problems_against_brute_force() -> None:
    optimal = 0
    for seed in range(14):
        problem = tiny_devices(seed)
        certificate = certify_devices(problem, time_limit=1)
        assert certificate.objective is not None
        optimum = devices_optimum(problem, certificate.objective)
        assert optimum is not None
        assert certificate.lower_bound <= optimum <= certificate.objective
        optimal += certificate.status is SolveStatus.OPTIMAL
        assert verify(document_of(certificate)).valid
    assert optimal == 14


def test_the_model_agrees_with_brute_force_without_bounds() -> None:
    for seed in range(30, 55):
        problem = tiny_devices(seed)
        if 0 in problem.step.trace.durations:
            # What takes no time takes no memory in the model.
            continue
        answer = solve_devices(problem, 60, time_limit=5)
        assert answer.bound is not None
        assert answer.schedule is not None
        optimum = devices_optimum(problem, answer.schedule.makespan)
        assert answer.schedule.makespan == optimum == answer.bound.value


@by_seeds(0, 40, 40)
def test_bounds_are_what_the_verifier_finds_and_no_more(seeds: range) -> None:
    kinds = set()
    for seed in seeds:
        problem = random_devices(seed)
        for bound in devices_bounds(problem):
            if bound.method != RESOURCE:
                continue
            proof = ResourceProof.read(bound.details)
            kinds.add((proof.resource, bool(proof.multipliers), proof.after is not None))
            assert resource_fault(problem, 0, bound.value, proof) is None
            assert resource_fault(problem, 0, bound.value + 1, proof) is not None
    # Every resource, with and without activations.
    assert len(kinds) >= 7


def test_three_layers_are_optimal_by_the_link() -> None:
    certificate = certify_devices(three_layers(), time_limit=1)
    assert certificate.objective == certificate.lower_bound == 34
    best = max(certificate.bounds, key=lambda bound: bound.value)
    assert best.evidence is Evidence.PROVED
    assert best.details["resource"] == "link"


# Which jobs use a resource, with one place or the other.
USERS = {
    Resource.LINK: tuple(kind for kind in JobKind if kind is not JobKind.ADD),
    Resource.OUT: (JobKind.SEND, JobKind.COLLECT),
    Resource.BACK: (JobKind.RETURN, JobKind.FORWARD),
    Resource.ADDER: (JobKind.ADD,),
}


def random_proof(rng: random.Random, problem: DevicesProblem) -> ResourceProof:
    """Draw what might be a proof: some jobs, and multipliers, an operation, or neither."""
    resource = rng.choice(tuple(Resource))
    kinds = USERS[resource] if rng.random() < 0.8 else tuple(JobKind)
    gradients, operations = range(len(problem.gradients)), range(len(problem.step.trace))
    jobs = {
        kind: tuple(each for each in gradients if rng.random() < 0.6)
        for kind in kinds
        if rng.random() < 0.4
    }
    multipliers, after = {}, None
    shape = rng.randrange(3)
    if shape == 0:
        numbers = [Fraction(1, 2), *map(Fraction, (1, 1, 1, 2, 3))]
        multipliers = {each: rng.choice(numbers) for each in operations if rng.random() < 0.5}
    elif shape == 1:
        after = rng.choice(operations)
    return ResourceProof(resource, jobs, multipliers, after)


@pytest.mark.slow
def test_random_proofs_never_exceed_what_is_possible() -> None:
    """Whatever a proof names, what it establishes is a lower bound."""
    established = 0
    for seed in (*range(12), 36, 49):
        problem = small_devices(seed)
        certificate = certify_devices(problem, time_limit=1, workers=1)
        alone = 0 if certificate.alone is None else certificate.alone.value
        assert certificate.objective is not None
        rng = random.Random(seed)
        for _ in range(400):
            proof = random_proof(rng, problem)
            fault = resource_fault(problem, alone, certificate.objective + 1, proof)
            assert fault is not None, (seed, proof)
            established += fault.startswith(f"it establishes {certificate.objective} only")
    # Many reach it.
    assert established > 100


@pytest.mark.parametrize(
    ("proof", "fault"),
    [
        (ResourceProof(Resource.LINK, {}, {}), "there is no resource link on this link"),
        (ResourceProof(Resource.ADDER, {}, {1: Fraction(1)}), "activations are nothing that is"),
        (ResourceProof(Resource.ADDER, {}, {}, 1), "activations are nothing that is added up"),
        (ResourceProof(Resource.OUT, {}, {}, 1), "nothing comes back that way"),
        (ResourceProof(Resource.OUT, {JobKind.COLLECT: ()}, {}), "no collect uses the out"),
        (ResourceProof(Resource.OUT, {JobKind.RETURN: ()}, {}), "no return uses the out"),
        (ResourceProof(Resource.BACK, {JobKind.SEND: ()}, {}), "no send uses the back"),
        (ResourceProof(Resource.BACK, {JobKind.FORWARD: ()}, {}), "no forward uses the back"),
        (ResourceProof(Resource.ADDER, {JobKind.SEND: ()}, {}), "no send uses the adder"),
    ],
)
def test_work_that_a_resource_does_not_do_proves_nothing(proof: ResourceProof, fault: str) -> None:
    # They claim no more than a bound of 0.
    assert str(resource_fault(three_layers(link=Link.DUPLEX), 0, 0, proof)).startswith(fault)
    single = three_layers(1, Link.DUPLEX)
    for kind in JobKind:
        alone = ResourceProof(Resource.BACK, {kind: ()}, {})
        assert resource_fault(single, 0, 0, alone) == f"no {kind} uses the back"


def pair_of(operations, tensors, link, memory, rates, count, *gradients) -> DevicesProblem:
    """Return a problem on `count` devices from numbers."""
    trace = Trace(
        [Operation(f"o{index}", *each) for index, each in enumerate(operations)],
        [Tensor(f"t{index}", *each) for index, each in enumerate(tensors)],
    )
    out, back, add = map(Fraction, rates)
    step = Problem("forged", trace, Platform(memory, out, link, back))
    named = [Gradient(f"g{index}", *each) for index, each in enumerate(gradients)]
    return DevicesProblem("forged", step, count, named, Accumulation(AdditionPlace.HOST, add))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "proof", "best", "proved"),
    [
        # As if the gradient of a single device were sent and its weights returned.
        (
            pair_of(
                [(3, 2), (3, 0), (0, 0), (1, 0), (0, 0)],
                [(1, (-1, 1, 3, 4))],
                Link.SIMPLEX,
                2,
                (2, 4, 3),
                1,
                (4, 3, 2),
            ),
            ResourceProof(Resource.LINK, {}, {}, 0),
            9,
            8,
        ),
        # As if what one gap saves were all that evicting the tensor saves.
        (
            pair_of(
                [(6, 0), (0, 2), (2, 0), (2, 0), (1, 0), (1, 2)],
                [(3, (0, 2, 4))],
                Link.DUPLEX,
                3,
                (2, 4, 3),
                3,
                (2, 4, 4),
            ),
            ResourceProof(Resource.OUT, {}, {1: Fraction(3), 2: Fraction(2), 3: Fraction(1)}),
            23,
            19,
        ),
        # As if the way out, which is another link, cost what the way back has.
        (
            pair_of(
                [(0, 4), (4, 0), (1, 0), (3, 0)],
                [(6, (-1, 1, 2))],
                Link.DUPLEX,
                6,
                (1, 1, 1),
                1,
                (9, 2, 3),
                (9, 3, 3),
            ),
            ResourceProof(Resource.BACK, {}, {0: Fraction(3), 2: Fraction(1, 2)}),
            20,
            20,
        ),
        # As if the operation after a gradient is ready came before it is sent,
        (
            pair_of(
                [(6, 0), (2, 4), (0, 0), (3, 2), (4, 2)],
                [(3, (-1, 2, 3))],
                Link.DUPLEX,
                5,
                (3, 4, 3),
                3,
                (4, 3, 4),
            ),
            ResourceProof(Resource.BACK, {}, {}, 1),
            23,
            21,
        ),
        # or that after the last use of weights before they return.
        (
            pair_of(
                [(1, 2), (0, 4), (5, 0), (5, 2), (6, 4)],
                [(4, (-1, 0, 2, 3))],
                Link.DUPLEX,
                6,
                (1, 1, 2),
                3,
                (1, 0, 3),
            ),
            ResourceProof(
                Resource.BACK,
                {},
                {0: Fraction(1), 1: Fraction(2), 2: Fraction(1), 3: Fraction(1, 2), 4: Fraction(1)},
            ),
            32,
            32,
        ),
    ],
)
def test_forged_proofs_about_activations_are_refused(
    problem: DevicesProblem, proof: ResourceProof, best: int, proved: int
) -> None:
    certificate = certify_devices(problem, time_limit=1, workers=1)
    assert certificate.objective == certificate.lower_bound == best
    fault = resource_fault(problem, 0, best + 1, proof)
    assert fault == f"it establishes {proved} only, not {best + 1}"


def test_forged_certificates_are_refused(tmp_path) -> None:
    problem = random_devices(8, largest=3)
    certificate = certify_devices(problem, time_limit=1)
    document = document_of(certificate)
    assert verify(document).valid

    def larger(changed: dict[str, Any]) -> None:
        for bound in changed["bounds"]:
            bound["value"] += 1
        changed["lower_bound"] += 1

    assert forged(document, larger)
    for place, value in (
        ("objective", document["objective"] - 1),
        ("status", "OPTIMAL" if document["status"] != "OPTIMAL" else "FEASIBLE"),
        ("gap", "1/2"),
        ("problem_sha256", "0" * 64),
    ):
        assert forged(document, lambda changed, p=place, v=value: changed.update({p: v}))
    assert forged(document, lambda changed: changed["schedule"]["jobs"].pop())
    assert forged(document, lambda changed: changed["schedule"]["steps"].pop())

    def earlier(changed: dict[str, Any]) -> None:
        for each in changed["schedule"]["jobs"]:
            each["start"] -= 1
            each["end"] -= 1

    assert forged(document, earlier)
    # Without a new digest nothing may change at all.
    assert verify(document | {"found_by": "somebody"}).faults
    # An attested bound is not proved by saying so, and what is alone has to be.
    alone = {"method": "prop3", "value": 10**6, "evidence": "proved", "details": {}}
    assert forged(document, lambda changed: changed.update(alone=alone))
    assert forged(document, lambda changed: changed.update(alone=alone | {"evidence": "attested"}))
    path = tmp_path / "certificate.json"
    certificate.write(path)
    assert offcert.verify(path).valid
    assert offcert.verify(certificate).evidence is not None
    assert DevicesCertificate.read(path).objective == certificate.objective
    assert DevicesCertificate.read(path) == certificate
    with pytest.raises(InputError, match="version 7"):
        verify(document | {"version": 7})
    with pytest.raises(InputError, match=r'version 1 .* reads 2 \(version 1 lacks "method" and'):
        verify(document | {"version": 1})


def test_details_that_make_no_sense_are_refused() -> None:
    problem = three_layers()
    certificate = certify_devices(problem, time_limit=1)
    for details in (
        {"resource": "road", "jobs": {}, "multipliers": [], "after": None},
        {"resource": "out", "jobs": {}, "multipliers": [], "after": None},
        {"resource": "link", "jobs": {"add": [0]}, "multipliers": [], "after": None},
        {"resource": "link", "jobs": {"send": [0, 0]}, "multipliers": [], "after": None},
        {"resource": "link", "jobs": {"send": [3]}, "multipliers": [], "after": None},
        {"resource": "link", "jobs": {}, "multipliers": [[9, "1"]], "after": None},
        {"resource": "adder", "jobs": {}, "multipliers": [[1, "1"]], "after": None},
        {"resource": "link", "jobs": {}, "multipliers": [], "after": 77},
    ):
        bound = Bound(RESOURCE, 1, Evidence.PROVED, details)
        changed = replace(certificate, bounds=(*certificate.bounds, bound))
        assert not verify(document_of(changed)).valid, details


def test_a_device_that_is_too_small_is_said_to_be() -> None:
    problem = three_layers()
    tight = replace(problem, step=problem.step.with_memory(0))
    certificate = certify_devices(tight)
    assert certificate.status is SolveStatus.INFEASIBLE
    assert verify(document_of(certificate)).valid


def test_what_shares_a_link_already_shares_it_with_more() -> None:
    step = tiny_devices(0).step.plain().with_bandwidth("12", "6")
    shared = replace(step, platform=replace(step.platform, sharing=2))
    for kind, rate in ((Kind.OFFLOAD, 12), (Kind.PREFETCH, 6)):
        assert shared_link(step, 3).platform.rate(kind) == Fraction(rate, 3)
        assert shared_link(shared, 3).platform.rate(kind) == Fraction(rate, 6)


def test_a_rule_is_followed_alone() -> None:
    problem = random_devices(8, largest=3)
    ruled = certify_devices(problem, time_limit=1, rule="fifo")
    assert ruled.found_by == ruled.method == "fifo"
    assert ruled.settings == Settings(time_limit=1.0, workers=2, seed=0)
    assert ruled.notes == Notes()
    with pytest.raises(InputError, match="rule must be one of"):
        certify_devices(problem, rule="lifo")


def test_an_interrupt_keeps_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it comes, there is a schedule and a bound, and both hold."""
    problem = random_devices(8, largest=3)
    kept: list[DevicesCertificate] = []

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def interrupted_part(*arguments: Any, **options: Any) -> Certificate:
        certificate = certify(*arguments, **options)
        return replace(certificate, notes=replace(certificate.notes, interrupted=True))

    objectives = []
    for name, act in (
        ("certify", interrupted_part),
        ("devices_bounds", interrupt),
        ("improve", interrupt),
        ("solve_devices", interrupt),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(devices, name, act)
            certificate = certify_devices(problem, time_limit=1, keep=kept.append)
        assert certificate.objective is not None
        assert certificate.lower_bound > 0
        # Nothing is searched any more where the bound is met.
        interrupted = certificate.notes.interrupted
        assert interrupted or (name in ("improve", "solve_devices") and certificate.gap == 0)
        assert devices_summary(certificate).get("interrupted", False) is interrupted
        assert verify(document_of(certificate)).valid
        objectives.append(certificate.objective)
    assert objectives == sorted(objectives, reverse=True)
    assert all(verify(document_of(each)).valid for each in kept)
    assert {each.notes.unfinished for each in kept} >= {"rules", "bounds of resources"}


@pytest.mark.slow
def test_improvements_are_handed_on_at_once() -> None:
    """An interrupted search over orders costs nothing of what it had found."""
    problem = random_devices(10)
    alone = certify(problem.step.plain(), time_limit=1).result.schedule
    assert isinstance(alone, Schedule)
    begin = best_by_rules(problem, [alone.plan(problem.step.trace)], ["gradients-first"])
    assert begin is not None
    told: list[int] = []
    best = improve(problem, begin[0], steps=300, found=lambda each: told.append(each.makespan))
    assert told == sorted(set(told), reverse=True)
    assert best.makespan == told[-1] < begin[0].makespan


def test_progress_is_told_of_every_step() -> None:
    told: list[SearchProgress] = []
    certificate = certify_devices(random_devices(8, largest=3), time_limit=1, progress=told.append)
    steps = [each.step for each in told]
    assert steps[0] == "plans for one device"
    assert {"rules", "bounds of resources"} <= set(steps)
    assert (told[-1].objective, told[-1].lower_bound) == (
        certificate.objective,
        certificate.lower_bound,
    )


def test_a_part_that_nothing_can_end_ends_with_what_the_whole_knows() -> None:
    ended: list[object] = []
    with ending_with(ended.append), ending_whole(lambda: "the whole"):
        act = interrupts._last_resort.get()
        assert act is not None
        act("a part")
    assert ended == ["the whole"]
    with ending_whole(lambda: "the whole"):
        assert interrupts._last_resort.get() is None


@pytest.mark.parametrize("place", list(AdditionPlace))
def test_activations_that_need_not_move_prove_nothing(place: AdditionPlace) -> None:
    # A tensor of 20 bytes could leave while the second operation runs, but everything fits.
    trace = Trace([Operation(f"o{o}", 1) for o in range(3)], [Tensor("x", 20, (0, 2))])
    step = Problem("roomy", trace, Platform(20, Fraction(1), Link.DUPLEX))
    gradient = Gradient("g", 1, 2, 2)
    problem = DevicesProblem("roomy", step, 1, [gradient], Accumulation(place, Fraction(1)))
    proof = ResourceProof(Resource.BACK, {}, {1: Fraction(1)})
    # Head and tail of a transfer that does not take place came to 22 ticks.
    assert "only, not 4" in str(resource_fault(problem, 3, 4, proof))


@pytest.mark.parametrize(
    ("bound", "fault"),
    [
        (Bound(DEVICE, 19, Evidence.PROVED), "one device is known to take 18 only"),
        (Bound(DEVICE, 1, Evidence.PROVED, {"more": 1}), 'the field "details.more" is not known'),
        (Bound(DEVICE, 1, Evidence.ATTESTED), "no attested bound is known by this name"),
        (Bound(MODEL, 1, Evidence.CROSS_ATTESTED), "no cross-attested bound is known by this name"),
        (Bound(MODEL, 1, Evidence.PROVED), "no proof is known for a bound of this kind"),
        (Bound("prop3", 1, Evidence.PROVED), "no proof is known for a bound of this kind"),
        (Bound(MODEL, 35, Evidence.ATTESTED), "the bound 35 exceeds the objective 34"),
        (Bound(MODEL, 34, Evidence.ATTESTED), None),
    ],
)
def test_a_bound_that_nobody_can_establish_is_refused(bound: Bound, fault: str | None) -> None:
    schedule = certify_devices(three_layers(), time_limit=1, workers=1).schedule
    forged = DevicesCertificate(three_layers(), schedule, (bound,))
    expected = [] if fault is None else [f"bounds[0] ({bound.method}): {fault}"]
    assert verify(document_of(forged)).faults == expected


def test_what_bounds_rest_on_has_to_be_established() -> None:
    problem = three_layers()
    tight = replace(problem, step=problem.step.with_memory(0))
    device = Bound(DEVICE, 18, Evidence.PROVED)
    faults = verify(document_of(DevicesCertificate(tight, None, (device,)))).faults
    assert faults == ["bounds: no schedule exists, so there must be none"]
    # As much as the operations take, which is true, but only said.
    alone = Bound("fractional", 18, Evidence.ATTESTED)
    attested = DevicesCertificate(problem, None, (device,), alone)
    faults = verify(document_of(attested)).faults
    assert faults == ["alone: it must be proved, not attested"]
    # What takes too long is no fault, nor is what rests on it.
    proved = replace(attested, alone=replace(alone, evidence=Evidence.PROVED))
    assert verify(document_of(proved)).valid
    found = verify(document_of(proved), Limits(seconds=1e-9))
    assert found.faults == []
    assert [each.partition(" ")[0] for each in found.unverified] == ["alone:", "bounds[0]"]
    more = replace(proved, bounds=(replace(device, value=19),))
    found = verify(document_of(more), Limits(seconds=1e-9))
    assert found.faults == []
    assert [each.partition(" ")[0] for each in found.unverified] == ["alone:", "bounds[0]"]
    assert verify(document_of(more)).faults
    # What is wrong besides is said all the same.
    found = verify(document_of(more) | {"gap": "1/2"}, Limits(seconds=1e-9))
    assert len(found.unverified) == 2
    assert any(fault.startswith("gap: ") for fault in found.faults)
