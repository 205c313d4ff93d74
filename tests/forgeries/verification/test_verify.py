"""Tampering with any part of a certificate is noticed, and verify says where."""

import copy
import json
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from offcert.certification.ladder import certify
from offcert.certification.methods import solve
from offcert.core.chain import Chain
from offcert.core.documents import canonical_digest
from offcert.core.errors import InputError
from offcert.core.platform import Platform
from offcert.proofs.certificate import certificate_from_json, read_certificate
from offcert.proofs.registry import PROOFS
from offcert.questions.schedule.files import problem_digest, problem_from_json
from offcert.questions.schedule.problem import Problem
from offcert.verification.document import verify, verify_file


def problem() -> Problem:
    chain = Chain(
        forward=[3, 6, 2, 5, 4, 1],
        backward=[6, 9, 5, 8, 8, 2],
        activation=[9, 14, 8, 12, 6, 3, 1],
        gradient=[9, 14, 8, 12, 6, 3, 1],
        forward_workspace=[0, 4, 0, 0, 2, 0],
        backward_workspace=[2, 0, 0, 5, 0, 0],
        names=list("abcdef"),
    )
    # With a second rate, so that changing and deleting it is tried, too.
    platform = Platform(10**6, Fraction(3, 2), prefetch_bandwidth=Fraction(4, 3))
    found = Problem("p", chain, platform, source={"model": "none"})
    return found.with_memory(found.memory_at(Fraction(1, 10)))


@cache
def document_text() -> str:
    """A certificate with proved and attested bounds, and transfers both ways."""
    from offcert.core.result import Bound, Evidence
    from offcert.questions.schedule.result import Result

    certificate = certify(problem(), time_limit=20, seed=3)
    result = certificate.result
    assert result.schedule is not None
    assert len(result.schedule.transfers) >= 4
    attested = Bound("some-solver", result.lower_bound - 1, Evidence.ATTESTED, {"solver": "x"})
    result = Result(result.status, result.schedule, (*result.bounds, attested))
    again = replace(certificate, result=result)
    return json.dumps(again.to_json())


def document() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(document_text())
    return loaded


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return [path]
    found = [path] if path else []
    for key, inner in items:
        found += leaves(inner, (*path, key))
    return found


def parent_of(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        value = value[key]
    return value


def other(value: Any) -> Any:
    """A different value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list):
        return [*value, copy.deepcopy(value[-1])] if value else [0]
    if isinstance(value, dict):
        return value | {"unheard-of": 1}
    return 0


def faults(tampered: Any) -> list[str]:
    """What verify says; a refusal to read the document at all counts, too."""
    try:
        return verify(tampered).faults
    except InputError as error:
        return [str(error)]


def resealed(tampered: dict[str, Any]) -> dict[str, Any]:
    """As a forger would leave it: with a digest that fits."""
    content = {name: value for name, value in tampered.items() if name != "digest"}
    return content | {"digest": canonical_digest(content)}


def test_a_real_certificate_is_valid() -> None:
    verification = verify(document())
    assert verification.faults == []
    assert {bound.evidence for bound in verification.bounds} >= {"proved", "attested"}
    assert verification.evidence == "proved"


@pytest.mark.slow
def test_every_changed_field_is_noticed() -> None:
    original = document()
    paths = leaves(original)
    assert len(paths) > 200
    for path in paths:
        tampered = document()
        parent = parent_of(tampered, path)
        parent[path[-1]] = other(parent[path[-1]])
        assert faults(tampered), f"changing {path} went unnoticed"


def test_every_deleted_field_is_noticed() -> None:
    for path in leaves(document()):
        tampered = document()
        del parent_of(tampered, path)[path[-1]]
        assert faults(tampered), f"deleting {path} went unnoticed"


@pytest.mark.parametrize(
    "room", ["problem", "problem_sha256", "schedule", "objective", "lower_bound", "gap", "status"]
)
def test_what_can_be_recomputed_needs_no_digest(room: str) -> None:
    original = document()
    paths = [path for path in leaves(original) if path[0] == room]
    assert paths
    for path in paths:
        tampered = document()
        parent = parent_of(tampered, path)
        parent[path[-1]] = other(parent[path[-1]])
        found = [text for text in faults(resealed(tampered)) if not text.startswith("digest")]
        assert found, f"a forged {path} went unnoticed"


def test_a_forged_proved_bound_is_recomputed() -> None:
    count = 0
    for index, bound in enumerate(document()["bounds"]):
        if bound["evidence"] == "proved":
            # What a search establishes may be claimed in part.
            for by in (1,) if PROOFS[bound["method"]].searched else (-1, 1):
                tampered = document()
                tampered["bounds"][index]["value"] += by
                found = faults(resealed(tampered))
                assert any(f"bounds[{index}]" in text for text in found), (bound, by)
                count += 1
    assert count >= 8


def test_an_attested_bound_cannot_be_called_proved() -> None:
    for level in ("proved", "cross-attested"):
        tampered = document()
        tampered["bounds"][-1]["evidence"] = level
        found = faults(resealed(tampered))
        assert any("some-solver" in text for text in found)


def test_another_problem_does_not_fit_the_schedule() -> None:
    tampered = document()
    tampered["problem"]["memory"] -= 1
    tampered["problem_sha256"] = problem_digest(problem_from_json(tampered["problem"]))
    assert faults(resealed(tampered))


def test_faults_say_where() -> None:
    tampered = document()
    tampered["schedule"]["transfers"][0]["start"] += 1
    tampered["settings"]["seed"] += 1
    found = faults(tampered)
    assert any(text.startswith("schedule: the offload of") for text in found)
    assert any(text.startswith("digest") for text in found)


def test_an_infeasible_problem_is_a_certificate_too(tmp_path: Path) -> None:
    tight = problem().with_memory(problem().trace.least_memory - 1)
    certificate = certify(tight, time_limit=5)
    assert certificate.result.status == "INFEASIBLE"
    assert certificate.result.gap == float("inf")
    certificate.write(tmp_path / "c.json")
    assert verify_file(tmp_path / "c.json").valid
    for path in leaves(json.loads((tmp_path / "c.json").read_text())["infeasibility"]):
        tampered = json.loads((tmp_path / "c.json").read_text())
        parent = parent_of(tampered["infeasibility"], path)
        parent[path[-1]] = other(parent[path[-1]])
        assert any("infeasibility" in text for text in faults(resealed(tampered)))


def test_an_infeasible_problem_cannot_be_dressed_up() -> None:
    tight = problem().with_memory(problem().trace.least_memory - 1)
    forged = certify(tight, time_limit=5).to_json()
    bound = {"method": "pivot", "value": 9, "evidence": "proved"}
    bound["details"] = {"pivot": -1, "front_limit": 0, "back_limit": 0, "once": []}
    forged |= {"bounds": [bound], "lower_bound": 9}
    assert any("hold no bounds" in text for text in faults(resealed(forged)))
    forged |= {"infeasibility": None, "status": "UNKNOWN"}
    assert any("must say so" in text for text in faults(resealed(forged)))


def test_an_invalid_certificate_has_no_evidence() -> None:
    tampered = document()
    tampered["settings"]["seed"] += 1
    assert verify(tampered).evidence is None


def test_a_feasible_problem_cannot_be_called_infeasible() -> None:
    tight = problem().with_memory(problem().trace.least_memory - 1)
    forged = certify(tight, time_limit=5).to_json()
    forged["problem"]["memory"] += 1
    forged["problem_sha256"] = problem_digest(problem_from_json(forged["problem"]))
    assert any("every operation fits" in text for text in faults(resealed(forged)))


def test_a_certificate_survives_a_round_trip(tmp_path: Path) -> None:
    certificate = solve(problem(), "sequential")
    certificate.write(tmp_path / "c.json")
    again = read_certificate(tmp_path / "c.json")
    assert again.to_json() == certificate.to_json()
    assert again.result.schedule == certificate.result.schedule


def test_a_certificate_names_no_machine() -> None:
    import getpass
    import os
    import socket

    text = document_text()
    for name in (socket.gethostname(), os.getcwd(), str(Path.home())):
        assert name not in text
    assert getpass.getuser() not in json.loads(text)["settings"]


def test_the_same_search_gives_the_same_certificate() -> None:
    first, second = (solve(problem(), "greedy", time_limit=5).to_json() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("value", [None, 3, [], {}, {"format": "offcert-problem", "version": 1}])
def test_what_is_no_certificate_is_refused(value: Any) -> None:
    with pytest.raises(InputError):
        certificate_from_json(value)
