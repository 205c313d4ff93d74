"""The benchmark of the ladder: what it records, that it changes nothing, and what it would fit."""

import importlib
import json
import pickle
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from offcert.campaign.pool import Failure
from offcert.certification import ladder
from offcert.certification.ladders.joint import LADDERS, ladder_for
from offcert.certification.method import Effort, Method
from offcert.certification.methods import METHODS
from offcert.certification.rung import Rung
from offcert.certification.search import Search
from offcert.certification.search_steps.bounds import climb_combinatorial
from offcert.certification.search_steps.descents import descend_sequential
from offcert.core.errors import MethodError
from offcert.core.result import Bound, Evidence
from offcert.instances.cnn import CnnChains
from offcert.instances.library import default_library
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Minimise, Problem
from support.problems.random_instances import random_problem, seeded
from support.problems.random_networks import checkpoint_chain, recompute_problem

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
BASE = Rung(Method(descend_sequential), 1.0, "a plan", always=True)
# Seconds; nothing here takes them.
LIMIT = 1000.0


@pytest.fixture
def benchmark_(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = dict(LADDERS)
    module = importlib.import_module("ladder")
    # All of the library would take seconds to read.
    families = (f"two-partition-8-{answer}-atomic" for answer in ("no", "yes"))
    entries = [entry for name in families for entry in default_library().family(name).entries]
    monkeypatch.setattr(module, "Library", lambda: SimpleNamespace(entries=lambda: entries))
    yield module
    assert before == LADDERS


@pytest.fixture
def records(benchmark_: ModuleType) -> ModuleType:
    return importlib.import_module("ladder_records")


@pytest.fixture
def fitting(benchmark_: ModuleType) -> ModuleType:
    return importlib.import_module("ladder_fit")


def open_problem() -> tuple[Problem, Certificate]:
    """Return a problem that the first plan and the bounds without search leave open, solved."""
    problem = random_problem(17)
    known = ladder.certify(problem, time_limit=30, workers=1)
    search = Search(problem, LIMIT)
    descend_sequential(search, Effort(1.0))
    climb_combinatorial(search, Effort(1.0))
    assert known.result.objective is not None
    assert search.objective is not None
    assert search.lower_bound < known.result.objective < search.objective
    return problem, known


def closing(search: Search, effort: Effort) -> None:
    """Claim what is known to be the optimum, and halfway there at first."""
    search.begin("closing")
    assert search.objective is not None
    search.add(Bound("half", (search.lower_bound + search.objective) // 2, Evidence.ATTESTED))
    search.add(Bound("whole", search.objective, Evidence.ATTESTED))


def nothing(search: Search, effort: Effort) -> None:
    search.begin("nothing")


def refusing(search: Search, effort: Effort) -> None:
    search.begin("refusing")
    raise MethodError("for chains only")


def failing(search: Search, effort: Effort) -> None:
    search.begin("failing")
    raise RuntimeError("no licence")


def test_every_rung_is_printed_with_its_reason(
    benchmark_: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmark_.main(["print", "--json"]) == 0
    documents = json.loads(capsys.readouterr().out)
    assert benchmark_.main(["print"]) == 0
    ladders = LADDERS
    tables = dict(zip(ladders, capsys.readouterr().out.split("\n\n"), strict=True))
    assert list(documents) == list(ladders)
    for name, rungs in ladders.items():
        lines = tables[name].splitlines()
        assert lines[0] == name
        for rung, document, line in zip(rungs, documents[name], lines[2:], strict=True):
            assert document["step"] == rung.name == line.split()[1]
            assert document["reason"] == rung.reason
            assert rung.reason.strip()
            assert line.endswith(rung.reason)
            assert all(words in line for words in rung.conditions)
    assert benchmark_.main(["print", "--ladder", "rope"]) == 2
    assert "'rope' is none of 'repeated sizes', " in capsys.readouterr().err


def test_every_condition_of_a_rung_has_words() -> None:
    """A new field must be said, too, or be none of the conditions."""
    others = {"method", "share", "reason", "at_least", "at_most", "always", "fallback"}
    for field in fields(Rung):
        if field.name not in others:
            value: Any = True if field.default is False else 3.5
            rung = replace(BASE, **{field.name: value})
            assert len(rung.conditions) == 1, field.name
    assert BASE.conditions == []
    assert Rung(METHODS["pivot"], 1.0, "").conditions == ["atomic transfers"]


def test_the_record_says_who_ran_improved_and_closed(
    benchmark_: ModuleType, records: ModuleType
) -> None:
    problem, known = open_problem()

    def better(search: Search, effort: Effort) -> None:
        search.begin("better")
        search.offer(known.result.schedule)  # type: ignore[arg-type]

    rungs = (
        BASE,
        Rung(Method(climb_combinatorial), 1.0, "", always=True),
        Rung(Method(nothing), 1.0, "", relaxed_only=True),
        Rung(Method(nothing), 1.0, "", at_most=3.0, needs=500.0),
        Rung(Method(refusing), 0.5, ""),
        Rung(Method(failing), 0.5, ""),
        Rung(Method(better), 0.25, ""),
        Rung(Method(closing), 1.0, ""),
        Rung(Method(nothing), 1.0, ""),
    )
    run = records.run_of(problem, rungs, time_limit=LIMIT)
    events = run.events
    assert events[3].outcome == "too little time"
    assert [(event.position, event.step) for event in events] == [
        (place, rung.name) for place, rung in enumerate(rungs, start=1)
    ]
    # On a busy machine a step may have longer.
    assert str(events[3].why).endswith("s of at least 500 s")
    assert [(event.outcome, event.why) for event in events if event.position != 4] == [
        ("ran", None),
        ("ran", None),
        ("skipped", "transfers that are not atomic"),
        ("did not apply", "for chains only"),
        ("failed", "RuntimeError: no licence"),
        ("ran", None),
        ("ran", None),
        ("closed before", None),
    ]
    flags = [(event.better_schedule, event.better_bound, event.closed) for event in events]
    T, F = True, False
    assert flags[:2] == [(T, F, F), (F, T, F)]
    assert flags[6:8] == [(T, F, F), (F, T, T)]
    assert set(flags[2:6] + flags[8:]) == {(F, F, F)}
    assert (run.objective, run.gap) == (known.result.objective, 0.0)
    # What is known goes from one rung to the next, and all of the gap is closed by the end.
    assert all(one.after == two.before for one, two in pairwise(events[4:8]))
    gap = events[6].before.gap
    assert events[6].part_closed == pytest.approx(1 - events[6].after.gap / gap)
    assert events[7].part_closed == 1.0
    assert LIMIT / 4 - 30 < events[6].allowed <= LIMIT / 4
    assert 0 < events[6].seconds <= run.seconds
    assert events[6].cpu_seconds > 0
    rows = benchmark_.summaries([run, replace(run, events=events)])[run.ladder]
    assert [row["better_schedule"] for row in rows] == [2, 0, 0, 0, 0, 0, 2, 0, 0]
    assert [row["better_bound"] for row in rows] == [0, 2, 0, 0, 0, 0, 0, 2, 0]
    assert [row["closed"] for row in rows] == [0] * 7 + [2, 0]
    assert rows[4]["why_not"] == {"did not apply: for chains only": 2}
    table = benchmark_.contributions(rows).splitlines()
    assert table[3].endswith("2 skipped: transfers that are not atomic")
    assert " ".join(table[8].split()).startswith("8 closing 2/2 ")
    assert " ".join(table[8].split()).endswith(" 0 2 100 % 2")


def test_recording_changes_nothing(records: ModuleType) -> None:
    def known(certificate: Certificate) -> tuple[Any, ...]:
        result = certificate.result
        return result.status, result.schedule, result.bounds, certificate.notes

    for seed in (3, 7, 11):
        problem = random_problem(seed, 6)
        recorded, events = records.certify_recorded(problem, time_limit=30.0, workers=1)
        plain = ladder.certify(problem, time_limit=30.0, workers=1)
        assert known(recorded) == known(plain)
        assert recorded.settings == plain.settings
        assert len(events) == len(LADDERS[ladder_for(problem)])
        assert sum(event.closed for event in events) == 1


@pytest.mark.parametrize("minimise", Minimise)
def test_ladders_of_what_runs_again_are_recorded_as_well(
    records: ModuleType, minimise: Minimise
) -> None:
    # So small that an early rung closes the gap, however slow the machine is.
    drawn = recompute_problem(seeded(13), checkpoint_chain(seeded(13), 2))
    problem = replace(drawn, minimise=minimise)
    run = records.run_of(problem, time_limit=60.0, workers=1)
    name = "least time" if minimise is Minimise.TIME else "least memory"
    assert run.ladder == name
    assert [event.step for event in run.events] == [rung.name for rung in LADDERS[name]]
    assert run.objective is not None
    assert run.lower_bound == run.objective
    (closing,) = (event for event in run.events if event.closed)
    expected = {"least time": "joint-labels", "least memory": "sequential-least-memory"}
    assert closing.step == expected[name]
    improved = [event for event in run.events if event.better_schedule]
    assert improved[-1].after.objective == run.objective


def spend(search: Search, seconds: float) -> None:
    """Let the clock of a search go on."""
    search._begin -= seconds
    search._deadline -= seconds


def wasting(search: Search, effort: Effort) -> None:
    """Take its time for nothing."""
    spend(search, effort.seconds)


def useful(search: Search, effort: Effort) -> None:
    """Bound the better the more time it has."""
    spend(search, effort.seconds)
    assert search.objective is not None
    part = 0.9 * round(effort.seconds / LIMIT, 2)
    search.add(Bound("useful", int(part * search.objective), Evidence.ATTESTED))


# Its makespan is so long that rounding bounds to ticks changes little.
PROBLEM = CnnChains(stages=8).problem(0).with_memory("0%")
WASTEFUL = (
    BASE,
    Rung(Method(nothing), 1.0, ""),
    Rung(Method(wasting), 0.5, ""),
    Rung(Method(useful), 0.8, ""),
)


def fit_of(fitting: ModuleType, records: ModuleType, **changes: Any) -> Any:
    def trial(rungs: Any, problem: Problem, seed: int) -> Any:
        return records.run_of(problem, rungs, time_limit=LIMIT, seed=seed)

    values = {"trial": trial, "score": fitting.gap_score, "problems": [PROBLEM]}
    return fitting.Fit(**(values | changes))


def test_a_ladder_that_is_better_is_proposed(fitting: ModuleType, records: ModuleType) -> None:
    fitted = fit_of(fitting, records).run(WASTEFUL, [1, 2, 3, 4])
    verdicts = {
        (tried.position, tried.factor): tried.comparison and tried.comparison.verdict
        for tried in fitted.tried
    }
    assert verdicts == {
        # These end by themselves: what they get changes nothing.
        (1, 0.5): None, (1, 2.0): None, (2, 0.5): None, (2, 2.0): None,
        (3, 0.5): "better", (3, 2.0): "worse", (4, 0.5): "worse", (4, 2.0): "better",
    }  # fmt: skip
    assert [rung.share for rung in fitted.rungs] == [1.0, 1.0, 0.25, 1.0]
    # Gaps of 1 - 0.9 * 0.4 and, with half the waste, of 1 - 0.9 * 0.6.
    first = next(tried for tried in fitted.tried if tried.position == 3)
    assert first.comparison.ratio == pytest.approx((1 - 0.9 * 0.6) / (1 - 0.9 * 0.4), rel=0.02)
    assert first.comparison.noise == 0
    assert fitted.holds
    assert fitting.proposals(WASTEFUL, fitted.rungs) == [
        "rung 3 wasting: share 0.5 -> 0.25",
        "rung 4 useful: share 0.8 -> 1",
    ]


def test_a_difference_below_the_noise_is_none(fitting: ModuleType, records: ModuleType) -> None:
    found = fitting.Comparison((-2.0, -1.0), (-1.5, -1.0), (-1.7, -1.7), 2)
    # Means -1.5 and -1.25; the first repetition differed by 0.5 from itself.
    assert found.difference == pytest.approx(-0.325)
    assert (found.noise, found.verdict) == (0.5, "none")
    assert replace(found, other=(-2.0, -2.0)).verdict == "better"
    assert replace(found, other=(-0.5, -0.5)).verdict == "worse"

    turns: list[int] = []

    def fickle(search: Search, effort: Effort) -> None:
        spend(search, effort.seconds)
        turns.append(len(turns))
        assert search.objective is not None
        # After a survey of two turns: the ladder, two others, and the ladder again.
        part = (0.1, 0.3, 0.32, 0.5)[turns[-1] % 4 - 2]
        search.add(Bound("fickle", int(part * search.objective), Evidence.ATTESTED))

    fitted = fit_of(fitting, records).run((BASE, Rung(Method(fickle), 0.4, "")), [2])
    assert len(turns) == 2 + 2 * 4
    assert all(tried.comparison.noise > 0 for tried in fitted.tried)


def test_what_does_not_hold_with_other_seeds_is_not_proposed(
    benchmark_: ModuleType, fitting: ModuleType, records: ModuleType
) -> None:
    def lucky(search: Search, effort: Effort) -> None:
        useful(
            search, effort if effort.seed < 2 else replace(effort, seconds=LIMIT - effort.seconds)
        )

    rungs = (BASE, Rung(Method(lucky), 0.4, ""))
    fit = fit_of(fitting, records)
    fitted = fit.run(rungs, [2])
    assert fitted.rungs[1].share == 0.8
    assert (fitted.check.verdict, fitted.holds) == ("worse", False)
    text = benchmark_.fitted_text("long traces", fitted, fit)
    assert text.endswith("It does not hold there: nothing is proposed.")
    assert "1 problem(s), 2 repetition(s)" in text
    unchanged = fit.run((BASE, Rung(Method(nothing), 1.0, "")), [1, 2])
    text = benchmark_.fitted_text("long traces", unchanged, fit)
    assert text.endswith("nothing is proposed.")
    assert text.count("not tried") == 4
    assert "ladder differed from itself\nin 2 comparison(s)" in text


def test_the_scores(fitting: ModuleType) -> None:
    def run(gap: float, seconds: float) -> Any:
        return SimpleNamespace(gap=gap, seconds=seconds)

    by_time = fitting.time_score(10.0)
    assert by_time(run(0.0, 2.0)) < by_time(run(0.0, 9.0)) < by_time(run(1e-6, 0.5))
    assert fitting.gap_score(run(0.1, 9.0)) < fitting.gap_score(run(0.2, 1.0))
    assert fitting.gap_score(run(0.0, 9.0)) == fitting.gap_score(run(1e-12, 1.0))


def test_what_goes_to_a_process_can_be_sent(benchmark_: ModuleType) -> None:
    for rungs in LADDERS.values():
        item = benchmark_.Item(random_problem(7), rungs, 1.0, 1, 0)
        assert pickle.loads(pickle.dumps(item)) == item


def test_the_commands(
    benchmark_: ModuleType,
    records: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def answer(item: Any) -> Any:
        if item.problem.name.endswith("yes-atomic"):
            return Failure("killed", 1.0)
        limit = LIMIT if item.rungs else item.time_limit
        return records.run_of(item.problem, item.rungs, time_limit=limit, seed=item.seed)

    monkeypatch.setattr(benchmark_, "answer", answer)
    output = tmp_path / "rows.json"
    only = ["--only", "two-partition-8-*", "-o", str(output)]
    assert benchmark_.main(["measure", *only, "--time-limit", "30"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("distinct sizes\n")
    assert "/2 two-partition-8-no-atomic: distinct sizes, gap 0 % in" in said.err
    document = json.loads(output.read_text())
    assert document["failed"] == {"two-partition-8-yes-atomic": "killed"}
    assert [run["problem"] for run in document["runs"]] == ["two-partition-8-no-atomic"]
    closed = [row["step"] for row in document["ladders"]["distinct sizes"] if row["closed"]]
    closers = [event["step"] for event in document["runs"][0]["events"] if event.get("closed")]
    assert closed == closers
    assert len(closed) == 1

    monkeypatch.setitem(LADDERS, "distinct sizes", WASTEFUL)
    only[1] = "two-partition-8-no-atomic"
    asked = ["fit", "--ladder", "distinct sizes", "--rung", "3", "--repetitions", "1", *only]
    assert benchmark_.main(asked) == 0
    assert capsys.readouterr().out.endswith("rung 3 wasting: share 0.5 -> 0.25\n")
    document = json.loads(output.read_text())["ladders"]["distinct sizes"]
    assert document["proposed"] == ["rung 3 wasting: share 0.5 -> 0.25"]
    assert [tried["verdict"] for tried in document["tried"]] == ["better", "worse"]
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["measure", "--only", "no-such-*"],
            "no problem in the library matches --only 'no-such-*'",
        ),
        (["measure", "--time-limit", "0"], "--time-limit must be a positive number of seconds"),
        (["fit", "--rung", "2"], "--rung needs --ladder"),
        (["fit", "--ladder", "long traces", "--rung", "99"], "--rung 99: the ladder 'long traces'"),
        (["fit", "--factors", "1"], "--factors: 1 is not"),
        (["measure", "-o", "/no/such/folder/x.json"], "there is no such folder"),
    ],
)
def test_bad_options_are_named(
    benchmark_: ModuleType,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert benchmark_.main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
