"""Records of problems in which computations run again, or memory is minimised."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from offcert.certification.records import add, merged
from offcert.certification.search import UnsoundError
from offcert.core.errors import InputError
from offcert.core.result import Bound, Evidence
from offcert.core.strategy import Strategy
from offcert.instances.library import Entry, Library, make_entry
from offcert.instances.records import Record
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.check import check
from offcert.questions.schedule.problem import Minimise, Recompute
from offcert.questions.schedule.simulate import simulate
from support.problems.joint_certificates import (
    certificate_of,
    chain_problem,
    checkpointed,
    least_memory_certificate,
    random_certificate,
)


def entry_of(certificate: Certificate) -> Entry:
    problem = certificate.problem
    return make_entry(problem, "family", "m0", problem.platform.memory)


def simulated(entry: Entry) -> int:
    """Return what the plan of a record takes, after checking it."""
    record = entry.record
    assert record.plan is not None
    executed = record.executed(entry.problem)
    schedule = simulate(executed, record.plan)
    assert not check(executed, schedule)
    return schedule.makespan


def test_a_certificate_with_an_execution_becomes_strategy_and_plan(tmp_path: Path) -> None:
    certificate = checkpointed()
    library = Library(tmp_path)
    entry = add(library, certificate.to_json(), new=True)
    assert entry.name == "four-any-m0"
    reread = Library(tmp_path).entry("four-any-m0")
    record = reread.record
    assert record.value == certificate.result.objective == 41
    assert record.strategy is not None
    network = reread.problem.computed
    assert network is not None
    assert record.strategy.expand(network) == replace(
        certificate.result.execution or record.strategy.expand(network), program=None
    )
    assert simulated(reread) == 41
    assert len((tmp_path / "four-any.json").read_text()) < 3000


def test_records_improve_with_strategies_and_never_get_worse(tmp_path: Path) -> None:
    library = Library(tmp_path)
    first = checkpointed()
    add(library, first.to_json(), new=True)
    network = first.problem.computed
    assert network is not None
    plain = certificate_of(first.problem, Strategy.plain(network))
    assert plain.result.objective is not None
    assert plain.result.objective < 41
    entry = add(library, plain.to_json())
    assert entry.record.value == plain.result.objective
    assert entry.record.strategy is not None
    assert entry.record.strategy.order == tuple(range(8))
    with pytest.raises(InputError, match="does not improve"):
        add(library, first.to_json())


def test_values_of_least_memory_are_bytes(tmp_path: Path) -> None:
    certificate = least_memory_certificate(deadline=45)
    entry = add(Library(tmp_path), certificate.to_json(), new=True)
    assert entry.name == "four-any-memory45-m100"
    assert entry.record.value == 23
    assert entry.record.executed(entry.problem).platform.memory == 23
    assert simulated(Library(tmp_path).entry(entry.name)) <= 45


def test_one_network_in_several_problems_makes_several_families(tmp_path: Path) -> None:
    library = Library(tmp_path)
    problem = chain_problem()
    variants = [
        problem,
        replace(problem, recompute=Recompute.NONE),
        replace(problem, recompute=Recompute.CHAIN),
        replace(problem, offload=False),
        replace(problem, minimise=Minimise.MEMORY),
    ]
    documents: list[Any] = []
    for variant in variants:
        from offcert.questions.schedule.files import problem_to_json

        documents.append(problem_to_json(variant))
    names = [add(library, document, new=True).name for document in documents]
    families = [library.family_of(name).name for name in names]
    assert families == ["four-any", "four", "four-chain", "four-any-held", "four-any-memory"]
    assert [add(library, document, new=True).name for document in documents] == names


def test_an_execution_that_no_strategy_makes_keeps_its_value_without_a_plan() -> None:
    certificate = checkpointed()
    execution = certificate.result.execution
    assert execution is not None
    noise = replace(execution, values=(-1, *execution.values[1:]))
    forged = replace(certificate, result=replace(certificate.result, execution=noise))
    record = merged(entry_of(forged), forged)
    assert (record.value, record.plan, record.strategy) == (41, None, None)


def test_a_proved_bound_above_a_value_is_an_error_of_the_program() -> None:
    certificate = least_memory_certificate()
    bound = Bound("x", 24, Evidence.PROVED)
    result = replace(certificate.result, bounds=(bound,))
    with pytest.raises(UnsoundError, match="exceeds the value 23 of a valid schedule"):
        merged(entry_of(certificate), replace(certificate, result=result))


@pytest.mark.parametrize("seed", range(4))
def test_random_executions_survive_a_library(seed: int, tmp_path: Path) -> None:
    certificate = random_certificate(seed)
    entry = add(Library(tmp_path), certificate.to_json(), new=True)
    again = Library(tmp_path).entry(entry.name)
    assert again == entry
    assert again.record.value is not None
    assert certificate.result.objective is not None
    assert simulated(again) == again.record.value <= certificate.result.objective


def test_records_without_such_choices_hold_no_strategy() -> None:
    from offcert.instances.records import record_to_json

    assert "strategy" not in record_to_json(Record())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strategy": None}, "plan and entries.* go together where computations may run again"),
        ({"strategy": [0, 1]}, r"record\.plan.*"),
        ({"strategy": [5, 0]}, r"record\.strategy: runs\[0\] \(B2\) reads a2, which is not there"),
        ({"strategy": ["x"]}, r"record\.strategy\[0\] must consist of integers"),
        ({"plan": None}, "go together where computations may run again"),
    ],
)
def test_a_record_whose_strategy_is_none_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    add(Library(tmp_path), checkpointed().to_json(), new=True)
    path = tmp_path / "four-any.json"
    document = json.loads(path.read_text())
    document["entries"][0]["record"] |= change
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=message):
        Library(tmp_path).entry("four-any-m0")


def test_a_strategy_where_nothing_may_run_again_is_refused(tmp_path: Path) -> None:
    plain = replace(chain_problem(), recompute=Recompute.NONE)
    from offcert.certification.methods import solve

    add(Library(tmp_path), solve(plain, "greedy").to_json(), new=True)
    path = tmp_path / "four.json"
    document = json.loads(path.read_text())
    document["entries"][0]["record"]["strategy"] = list(range(8))
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="strategy is for problems in which computations may run"):
        Library(tmp_path).entry("four-m100")
