"""Sub-batches and menus: the best of all by enumeration, and certificates that are refused."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from offcert.certification.ladder import certify
from offcert.certification.running import SearchProgress
from offcert.certification.splitting import certify_split
from offcert.core.documents import canonical_digest
from offcert.core.errors import InputError
from offcert.core.platform import Link, Platform
from offcert.core.result import SolveStatus
from offcert.core.trace import Operation, Tensor, Trace
from offcert.proofs.any_certificate import Notes, Settings
from offcert.proofs.certificate import Certificate
from offcert.proofs.split_certificate import (
    CaseDivision,
    SplitCertificate,
)
from offcert.questions.split.menu import Alternative, Menu
from offcert.questions.split.problem import (
    Round,
    Split,
    SplitProblem,
    split_from_json,
    split_to_json,
)
from offcert.report.question_texts import describe_step, step_summary
from offcert.verification.document import verify
from offcert.verification.limits import Limits
from support.docs.docs_pages import READING
from support.oracles.schedules import brute_force
from support.problems.random_instances import seeded

SEEDS = 30


def random_round(seed: int, images: int, count: int) -> Round:
    """Return a tiny round whose sizes grow with its images, and times less than that."""
    rng = seeded(seed)
    length = 5
    steps = [Operation(f"o{i}", 2 + rng.randint(0, 6) * images) for i in range(length)]
    tensors = [Tensor("weights", 3, (-1, length - 1), evictable=False)]
    for number in range(3):
        uses = sorted(rng.sample(range(length), rng.randint(2, 3)))
        tensors.append(Tensor(f"t{number}", rng.randint(1, 4) * images, tuple(uses)))
    menu = Menu(
        {
            operation: [
                Alternative("lean", 6 + 4 * images),
                Alternative("fast", 1 + images, rng.randint(1, 4) * images),
                Alternative("fastest", 1, rng.randint(4, 8) * images),
            ][: rng.randint(2, 3)]
            for operation in rng.sample(range(length), 2)
        }
    )
    return Round(images, count, Trace(steps, tensors), menu)


def random_step(seed: int) -> SplitProblem:
    rng = seeded(1000 + seed)
    splits = (
        Split([random_round(seed, 3, 1)]),
        Split([random_round(seed, 2, 1), random_round(seed, 1, 1)]),
        Split([random_round(seed, 1, 3)]),
    )
    link = Link.DUPLEX if seed % 4 == 0 else Link.SIMPLEX
    return SplitProblem("tiny", splits, Platform(rng.randint(8, 26), Fraction(2, 3), link))


def optimum(step: SplitProblem) -> int | None:
    """Return the least ticks of a step, by enumeration of splits and choices."""
    best: int | None = None
    for split in step.splits:
        total: int | None = 0
        for each in split.rounds:
            rows = [range(len(row)) for _, row in each.menu.offers]
            values = (
                brute_force(step.scheduling(each.chosen(choice))) for choice in product(*rows)
            )
            least = min((value for value in values if value is not None), default=None)
            total = None if total is None or least is None else total + each.count * least
        if total is not None and (best is None or total < best):
            best = total
    return best


def document_of(certificate: SplitCertificate) -> Any:
    return json.loads(json.dumps(certificate.to_json()))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_best_split_and_choice_by_enumeration(seed: int) -> None:
    step = random_step(seed)
    expected = optimum(step)
    found = certify_split(step, time_limit=10, workers=1)
    document = document_of(found)
    verification = verify(document)
    assert verification.faults == []
    assert verification.valid
    assert SplitCertificate.from_json(document).to_json() == found.to_json()
    if expected is None:
        assert found.status is SolveStatus.INFEASIBLE
        return
    assert found.lower_bound is not None
    assert found.objective is not None
    assert found.lower_bound <= expected <= found.objective
    # Two operations on a menu: dividing them leaves nothing open but what bounds do not see.
    assert found.objective == expected
    # However little time there is, what is said is true.
    hasty = certify_split(step, time_limit=0.01, workers=1)
    assert verify(document_of(hasty)).faults == []
    assert hasty.lower_bound is not None
    assert hasty.lower_bound <= expected


@pytest.mark.slow
def test_some_cases_had_to_be_divided() -> None:
    divided = 0
    for seed in range(SEEDS):
        found = certify_split(random_step(seed), time_limit=10, workers=1)
        divided += sum(isinstance(case, CaseDivision) for row in found.cases for case in row)
    assert divided > 2


def signed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document whose derived fields say what they should, as far as they can."""
    document = {name: value for name, value in document.items() if name != "digest"}
    again = SplitCertificate.from_json(document | {"digest": ""}).to_json()
    for name in ("status", "objective", "lower_bound", "gap", "split_bounds"):
        document[name] = again[name]
    document["digest"] = canonical_digest(document)
    return document


def divided_certificate() -> dict[str, Any]:
    for seed in range(SEEDS):
        found = certify_split(random_step(seed), time_limit=10, workers=1)
        cases = [case for row in found.cases for case in row]
        if found.objective and any(isinstance(case, CaseDivision) for case in cases):
            return document_of(found)
    raise AssertionError


def first_division(document: dict[str, Any]) -> dict[str, Any]:
    return next(case for row in document["bounds"] for case in row if "operation" in case)


def other_choice(document: dict[str, Any]) -> None:
    answer = document["rounds"][0]
    answer["choice"][0] = 1 - min(1, answer["choice"][0])


def beyond_the_menu(document: dict[str, Any]) -> None:
    document["rounds"][0]["choice"][0] = 7


def shorter(document: dict[str, Any]) -> None:
    """Run an operation that is not on the menu in less time, and say so everywhere."""
    certificate = document["rounds"][0]["certificate"]
    offered = {item["operation"] for item in document_menu(document)}
    index = next(i for i in range(5) if i not in offered)
    certificate["problem"]["trace"]["operations"][index]["duration"] = 0


def document_menu(document: dict[str, Any]) -> list[dict[str, Any]]:
    rounds: list[dict[str, Any]] = document["problem"]["splits"][document["split"]]["rounds"]
    menu: list[dict[str, Any]] = rounds[0]["menu"]
    return menu


def left_out(document: dict[str, Any]) -> None:
    first_division(document)["parts"].pop()


def narrowed(document: dict[str, Any]) -> None:
    parts = first_division(document)["parts"]
    parts[0]["alternatives"] = parts[1]["alternatives"]


def invented(document: dict[str, Any]) -> None:
    case = document["bounds"][document["split"]][0]
    said = {"method": "fractional", "value": 1, "evidence": "proved", "details": {}}
    case["bounds"] = [said]


def attested(document: dict[str, Any]) -> None:
    case = document["bounds"][0][0]
    said = {"method": "interval-cpsat", "value": 1, "evidence": "attested", "details": {}}
    case["bounds"] = [said]


def more_memory(document: dict[str, Any]) -> None:
    document["rounds"][0]["certificate"]["problem"]["memory"] += 1


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (other_choice, "but what is chosen takes"),
        (beyond_the_menu, "is not on the menu"),
        (shorter, "but what is chosen takes|digest"),
        (left_out, "no case is about alternative"),
        (narrowed, "no case is about alternative"),
        (invented, "fractional"),
        (attested, "only proved bounds count here"),
        (more_memory, "it is about <Platform"),
    ],
)
def test_forged_choices_and_cases_are_refused(
    forge: Callable[[dict[str, Any]], None], message: str
) -> None:
    document = divided_certificate()
    assert verify(document).valid
    forge(document)
    assert not verify(document).valid
    faults = verify(signed(document)).faults
    assert any(re.search(message, fault) for fault in faults), faults


def test_derived_fields_cannot_be_changed() -> None:
    document = divided_certificate()
    for name in ("objective", "lower_bound", "gap", "status", "problem_sha256"):
        changed = document | {name: 1 if name in ("objective", "lower_bound") else "1/2"}
        changed.pop("digest")
        changed["digest"] = canonical_digest(changed)
        assert any(fault.startswith(f"{name}:") for fault in verify(changed).faults)


def test_verification_keeps_to_its_limits() -> None:
    document = divided_certificate()
    verification = verify(document, Limits(seconds=1e-9))
    assert not verification.faults
    has_bounds = '"method"' in json.dumps(document["bounds"])
    assert bool(verification.unverified) is has_bounds or verification.unverified


def test_steps_are_written_and_read() -> None:
    step = random_step(3)
    document = json.loads(json.dumps(split_to_json(step)))
    assert split_from_json(document) == step
    assert "sharing" not in document
    platform = replace(step.platform, prefetch_bandwidth=Fraction(5, 7), sharing=2)
    shared = replace(step, platform=platform)
    assert split_from_json(json.loads(json.dumps(split_to_json(shared)))) == shared
    document["splits"][0]["rounds"][0]["menu"][0]["alternatives"][0]["speed"] = 1
    with pytest.raises(InputError, match=r'alternatives\[0\]\.speed" is not known'):
        split_from_json(document)
    document = split_to_json(step)
    document["splits"][0]["rounds"][0]["menu"] *= 2
    with pytest.raises(InputError, match=r"must not be \d again"):
        split_from_json(document)
    document = split_to_json(step) | {"transfers": "some"}
    with pytest.raises(InputError, match="transfers must be one of"):
        split_from_json(document)


def test_a_step_that_fits_nowhere() -> None:
    step = random_step(0).with_memory(2)
    found = certify_split(step, time_limit=5)
    assert found.status is SolveStatus.INFEASIBLE
    assert found.summary() == "INFEASIBLE: no sub-batch fits"
    assert verify(document_of(found)).valid


def test_what_is_known_is_kept_and_told() -> None:
    kept: list[SplitCertificate] = []
    told: list[SearchProgress] = []
    step = random_step(5)
    found = certify_split(step, time_limit=5, progress=told.append, keep=kept.append)
    assert kept
    assert {each.notes.unfinished for each in kept} == {"a search over choices"}
    assert found.notes == Notes()
    assert found.settings == Settings(time_limit=5.0, workers=2, target_gap=0.0, seed=0)
    assert (told[-1].lower_bound, told[-1].objective) == (found.lower_bound, found.objective)
    assert told[-1].step == "sub-batch 2"
    for each in kept:
        assert verify(document_of(each)).valid
        assert each.lower_bound is not None
        assert each.lower_bound <= (found.lower_bound or 0)


def test_an_interrupt_in_a_part_ends_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def interrupted(*arguments: Any, **options: Any) -> Certificate:
        calls.append("certify")
        certificate = certify(*arguments, **options)
        return replace(certificate, notes=replace(certificate.notes, interrupted=True))

    monkeypatch.setattr("offcert.certification.split_cases.certify", interrupted)
    found = certify_split(random_step(5), time_limit=5)
    assert calls == ["certify"]
    assert found.notes.interrupted
    assert step_summary(found)["interrupted"]
    assert found.objective is not None
    assert verify(document_of(found)).valid


def test_a_full_disk_costs_nothing() -> None:
    def keep(_: SplitCertificate) -> None:
        raise OSError(28, "No space left on device")

    with pytest.warns(UserWarning, match="could not be kept"):
        found = certify_split(random_step(5), time_limit=5, keep=keep)
    assert found.objective is not None


def test_what_failed_in_a_part_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: Any, **options: Any) -> Certificate:
        certificate = certify(*arguments, **options)
        return replace(certificate, notes=replace(certificate.notes, failed={"annealing": "why"}))

    monkeypatch.setattr("offcert.certification.split_cases.certify", failing)
    found = certify_split(random_step(5), time_limit=5)
    assert found.notes.failed == {"annealing": "why"}
    assert "  annealing failed: why" in describe_step(found).splitlines()
    document = document_of(found)
    assert document["settings"]["failed"] == {"annealing": "why"}
    assert SplitCertificate.from_json(document) == found


def test_a_version_before_is_refused_with_what_to_do() -> None:
    document = document_of(certify_split(random_step(0).with_memory(2), time_limit=1))
    del document["settings"]
    why = r'version 1 of offcert-step-certificate is not known; this program reads 2 \(.*"settings"'
    with pytest.raises(InputError, match=why):
        verify(document | {"version": 1})
    with pytest.raises(InputError, match=r"this program reads 2$"):
        verify(document | {"version": 3})


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="step must be a SplitProblem"):
        certify_split("vgg16")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="time_limit must be a positive"):
        certify_split(random_step(0), time_limit=0)


PAGE = Path(__file__).parents[3] / "docs" / "formats" / "step.md"


def test_the_step_on_the_page_about_the_format() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    step = split_from_json(json.loads(block))
    found = certify_split(step, time_limit=10)
    assert (found.objective, found.lower_bound) == (45, 45)
    # Every field that readers ask for is explained.
    sources = ("questions/split/problem.py", "core/platform.py", "proofs/split_certificate.py")
    text = "".join((PAGE.parents[2] / "offcert" / name).read_text() for name in sources)
    asked = set(READING.findall(text))
    assert {"splits", "alternatives", "choice", "parts"} <= asked
    assert all(re.search(rf"\b{name}\b", PAGE.read_text()) for name in asked)


def test_cases_by_an_operation_that_offers_nothing_are_refused() -> None:
    step = random_step(0)
    document = json.loads(json.dumps(certify_split(step, time_limit=1).to_json()))
    fixed = next(o for o in range(5) if o not in step.splits[0].rounds[0].menu.of)
    document["bounds"][0][0] = {"bounds": [], "operation": fixed, "parts": []}
    with pytest.raises(InputError, match=f"{fixed} is not on the menu"):
        verify(document)


def test_a_round_that_takes_no_time_is_verified() -> None:
    trace = Trace([Operation("o", 0)], [Tensor("x", 1, (0,))])
    step = SplitProblem("zero", (Split((Round(1, 1, trace, Menu({})),)),), Platform(1, Fraction(1)))
    certificate = certify_split(step, time_limit=5, workers=1)
    assert certificate.status is SolveStatus.OPTIMAL
    assert verify(certificate.to_json()).valid
