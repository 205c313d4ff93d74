"""Messages stay short: whatever stands in a document, and wherever, is cut and in one line."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from offcert.certification.methods import solve
from offcert.core.chain import Chain
from offcert.core.errors import InputError
from offcert.core.messages import cut, short_repr, show
from offcert.core.platform import Platform
from offcert.instances.library import Family, family_from_json, family_to_text, make_entry
from offcert.proofs.certificate import Certificate, certificate_from_json
from offcert.questions.schedule.files import problem_from_json, problem_to_json
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.verification.document import verify
from support.problems.random_instances import random_problem

LONG = "x" * 100_000
VALUES = [LONG, "two\nlines", 10**4000, [0] * 10**4, {LONG: [LONG]}]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of everything in a JSON value, of lists the first and last entry only."""
    yield path
    if isinstance(value, dict):
        for name, part in value.items():
            yield from places(part, (*path, name))
    elif isinstance(value, list) and value:
        for index in sorted({0, len(value) - 1}):
            yield from places(value[index], (*path, index))


def edited(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return the document with another value at a place."""
    if not path:
        return value
    changed = copy.copy(document)
    changed[path[0]] = edited(document[path[0]], path[1:], value)
    return changed


def renamed(document: Any, path: tuple[Any, ...], name: str) -> Any:
    """Return the document with another name for a field."""
    if len(path) > 1:
        changed = copy.copy(document)
        changed[path[0]] = renamed(document[path[0]], path[1:], name)
        return changed
    return {(name if key == path[0] else key): part for key, part in document.items()}


def forgeries(document: Any) -> Iterator[Any]:
    for path in places(document):
        for value in VALUES:
            yield edited(document, path, value)
        if path and isinstance(path[-1], str):
            yield renamed(document, path, LONG)
            yield renamed(document, path, "two\nlines")


def problem_document() -> Any:
    problem = replace(random_problem(4), network=Chain([3, 4], [4, 2], [10, 2, 1], [0, 0, 0]))
    return problem_to_json(problem) | {"prefetch_bandwidth": "7/3", "source": {"a": 1}}


def trace_document() -> Any:
    document = problem_document()
    trace = random_problem(4, 3).trace
    del document["chain"]
    document["trace"] = {
        "operations": [{"name": o.name, "duration": 1, "workspace": 0} for o in trace.operations],
        "tensors": [{"name": "x", "size": 3, "uses": [-1, 2], "evictable": True}],
    }
    return document


def certificate_document(transfers: Transfers = Transfers.ATOMIC) -> Any:
    chain = Chain([3, 4], [4, 2], [10, 2, 1], [0, 0, 0], [0, 8])
    problem = Problem("p", chain, Platform(12, Fraction(2)), transfers)
    method = "sequential" if transfers is Transfers.ATOMIC else "fluid-exact"
    document = json.loads(json.dumps(solve(problem, method, time_limit=5).to_json()))
    assert document["schedule"]["transfers" if transfers is Transfers.ATOMIC else "pieces"]
    return document


def infeasible_document() -> Any:
    problem = random_problem(4, 3)
    problem = problem.with_memory(problem.trace.least_memory - 1)
    return solve(problem, "bounds").to_json()


def library_document() -> Any:
    problem = random_problem(4, 3)
    entry = make_entry(problem, "f", "m", problem.platform.memory)
    return json.loads(family_to_text(Family("f", "g", "o", problem, (entry,))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "read"),
    [
        (problem_document, problem_from_json),
        (trace_document, problem_from_json),
        (certificate_document, certificate_from_json),
        (lambda: certificate_document(Transfers.INTERRUPTIBLE), certificate_from_json),
        (infeasible_document, certificate_from_json),
        (library_document, family_from_json),
    ],
    ids=["problem", "trace", "certificate", "fluid", "infeasible", "library"],
)
def test_what_is_wrong_in_a_document_is_said_in_one_short_line(
    make: Callable[[], Any], read: Callable[[Any], Any]
) -> None:
    document = make()
    read(document)
    refused = 0
    for forged in forgeries(document):
        try:
            found = read(forged)
        except InputError as error:
            refused += 1
            messages = [str(error)]
        else:
            messages = said_of(forged) if isinstance(found, Certificate) else []
        for message in messages:
            assert len(message) < 400, message[:2000]
            assert message.isprintable(), message
    assert refused > 100


def said_of(document: Any) -> list[str]:
    verification = verify(document)
    return [*verification.faults, *(bound.finding for bound in verification.bounds)]


def test_values_are_shown_as_they_are_spelled_up_to_sixty_characters() -> None:
    assert show({"a": [1.5, None, "é"]}) == '{"a": [1.5, null, "\\u00e9"]}'
    assert short_repr(("a", True)) == "('a', True)"
    assert cut("x" * 60) == "x" * 60
    assert cut("x" * 61) == "x" * 57 + "..."
    assert cut("a\nb") == "a\\nb"
    itself: list[Any] = []
    itself.append(itself)
    for value in (LONG, [LONG] * 3, 10**5000, [10**5000], itself, {(1, 2): LONG}, [0] * 10**6):
        for text in (show(value), short_repr(value)):
            assert 0 < len(text) <= 60
            assert text.isprintable()
