"""The library is whole, is what its sources say, and refuses files that are not."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from offcert.core.errors import InputError
from offcert.core.result import Evidence, SolveStatus
from offcert.instances.kinds import KINDS, from_source
from offcert.instances.library import (
    FOLDER,
    Family,
    Library,
    default_library,
    entries,
    family_from_json,
    family_to_text,
    load,
    names,
    record,
)
from offcert.questions.schedule.check import check
from offcert.questions.schedule.files import problem_to_json
from offcert.questions.schedule.problem import Minimise, Recompute
from offcert.questions.schedule.simulate import simulate
from offcert.verification.execution import execution_faults
from offcert_lab.hunts.adversarial.chains import AdversarialChains
from offcert_lab.hunts.adversarial.checkpoint_chains import AdversarialCheckpoints
from offcert_lab.hunts.phase import CoreProblems


@pytest.mark.slow
def test_there_are_at_least_120_problems_under_names_of_their_own() -> None:
    found = names()
    assert len(found) >= 120
    assert len(set(found)) == len(found)
    groups = Counter(family.group for family in default_library().families())
    for group in ("networks-224", "networks-500", "networks-1000", "cnn-8", "cnn-152", "unet"):
        assert groups[group] > 0
    known = {
        "resnet152-224-b32-m0",
        "gpt-1024-b8-m5",
        "vgg19-duplex-224-m0",
        "vgg19-duplex-224-m0_alone",
    }
    assert known <= set(found)


@pytest.mark.slow
def test_it_loads_completely_and_is_small() -> None:
    # Loading refuses problems whose hash is another one.
    found = {entry.name: entry for entry in entries()}
    assert list(found) == names()
    for path in FOLDER.glob("*.json"):
        document = json.loads(path.read_text())
        for item in document["entries"]:
            entry = found["-".join(filter(None, (document["family"], item["label"])))]
            assert entry.problem.platform.memory == item["memory"]
            assert entry.digest == item["sha256"]
    assert sum(path.stat().st_size for path in FOLDER.glob("*.json")) < 9_000_000


@pytest.mark.slow
def test_records_are_feasible_and_plans_attain_their_values() -> None:
    known = 0
    for entry in entries():
        problem, record = entry.problem, entry.record
        assert problem.least_memory <= problem.platform.memory
        if record.value is None:
            continue
        known += 1
        least_bytes = problem.minimise is Minimise.MEMORY
        assert record.value >= (problem.least_memory if least_bytes else problem.trace.compute_time)
        if record.plan is not None:
            executed = record.executed(problem)
            schedule = simulate(executed, record.plan)
            assert least_bytes or schedule.makespan == record.value
            assert check(executed, schedule) == []
    assert known >= 10


def test_what_runs_again_in_a_record_is_a_legal_execution() -> None:
    again = 0
    for entry in entries():
        strategy, network = entry.record.strategy, entry.problem.computed
        assert (strategy is None) == (
            entry.record.plan is None or entry.problem.recompute is Recompute.NONE
        )
        if strategy is not None and network is not None:
            execution = strategy.expand(network)
            assert execution_faults(network, execution) == []
            again += execution.repeated > 0
    assert again >= 10


def test_files_are_what_is_written() -> None:
    for family in default_library().families():
        text = (FOLDER / f"{family.name}.json").read_text()
        assert family_to_text(family) == text


def test_generated_problems_are_made_again_from_their_sources() -> None:
    checked = 0
    for family in default_library().families():
        source = family.problem.source
        assert source is not None
        assert family.origin
        if source.get("generator") in KINDS:
            again = from_source(source)
            assert again.network == family.problem.network, family.name
            assert again.platform.bandwidth == family.problem.platform.bandwidth
            assert again.transfers == family.problem.transfers
            assert again.recompute == family.problem.recompute
            assert again.offload == family.problem.offload
            checked += 1
        elif source.get("generator") not in (
            AdversarialChains.kind,
            AdversarialCheckpoints.kind,
            CoreProblems.kind,
        ):
            duplex = family.group.startswith("duplex-")
            assert source["hardware"] == ("h200" if duplex else "v100-pcie")
    assert checked >= 60


def test_what_overlaps_is_slower_in_half_of_the_duplex_entries() -> None:
    families = list(default_library().families(group="duplex-*"))
    assert len(families) == 37
    for family in families:
        by_label = {entry.label: entry for entry in family.entries}
        assert {label.removesuffix("_alone") for label in by_label} < set(by_label)
        for label, entry in by_label.items():
            platform, alone = entry.problem.platform, label.endswith("_alone")
            assert platform.duplex
            assert platform.slows != alone
            if alone:
                slowed = by_label[label.removesuffix("_alone")]
                assert slowed.problem.platform.alone == platform
                # What is proved with the rates alone holds for both.
                bound = entry.record.proved_bound or 0
                assert slowed.record.value is None or slowed.record.value >= bound


def test_answers_of_reductions_do_not_contradict_the_records() -> None:
    seen = set()
    for entry in entries(group="*-partition-*"):
        assert entry.problem.source is not None
        solution = entry.problem.source["solution"]
        seen.add(solution["answer"])
        if solution["answer"] == "yes":
            assert entry.record.value == solution["makespan"]
            assert entry.record.status is SolveStatus.OPTIMAL
            assert entry.record.best is not None
            assert entry.record.best.bound.evidence is Evidence.PROVED
        elif entry.record.value is not None:
            assert entry.record.value > solution["makespan"]
    assert seen == {"yes", "no"}


def test_filters() -> None:
    library = default_library()
    chains = list(library.entries(group="cnn-*", largest=24))
    assert {entry.name.split("-")[1] for entry in chains} == {"8", "12"}
    assert {e.name for e in library.entries(family="resnet50-224-b32")} == {
        f"resnet50-224-b32-m{percent}" for percent in (0, 5, 10, 25, 50, 75)
    }
    solved = list(library.entries(status=SolveStatus.OPTIMAL))
    assert solved
    assert all(entry.record.gap == 0 for entry in solved)
    unknown = list(library.entries(status=SolveStatus.UNKNOWN))
    assert all(entry.record.value is None for entry in unknown)


def test_lookups() -> None:
    entry = default_library().entry("cnn-8-0-m5")
    assert default_library().find(entry.digest) is entry
    assert default_library().find("0" * 64) is None
    assert record("cnn-8-0-m5") is entry.record
    for name in ("cnn-8-0-m6", "cnn-8-0", "", "../library/cnn-8-0-m5", "nothing"):
        with pytest.raises(InputError, match="there is no problem"):
            load(name)
    for name, meant in (("cnn-8-0-m55", "cnn-8-0-m5"), ("vg19-224-b32", "vgg19-224-b32")):
        with pytest.raises(InputError, match=rf"did you mean .*{meant}"):
            load(name)
    with pytest.raises(InputError, match="is not a folder"):
        Library("/nowhere")


def document(name: str = "two-partition-8-yes-atomic") -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def edited(*path: Any, value: Any) -> Any:
    changed = document()
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


RECORD = ("entries", 0, "record")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (edited("format", value="zip"), 'format must be "offcert-library"'),
        (edited("version", value=2), "version 2 of offcert-library is not known"),
        (edited("color", value="red"), 'the field "color" is not known'),
        (edited("problem", "memory", value=-1), r"problem.memory must be at least 0"),
        (edited("problem", "chain", "forward", 8, value=7), r"entries\[0\]\.sha256 must be the"),
        (edited("entries", value=[]), "entries must not be empty"),
        (edited("entries", value=2 * document()["entries"]), r"entries\[1\]\.label repeats"),
        (edited("entries", 0, "label", value="a-b"), r'entries\[0\]\.label must hold no "-"'),
        (edited("entries", 0, "memory", value=1), r"entries\[0\]\.sha256 must be the hash"),
        (edited("entries", 0, "best", value=1), r'"entries\[0\]\.best" is not known'),
        (edited(*RECORD, "value", value=1.5), r"entries\[0\]\.record\.value must be an integer"),
        (edited(*RECORD, "value", value=5), r"bounds\[0\]\.value must not exceed the value 5"),
        (edited(*RECORD, "value", value=None), "value must not be null if there is a plan"),
        (edited(*RECORD, "value_by", value=None), "value_by must say who attained the value"),
        (edited(*RECORD, "plan", 0, value=["x", 3, 9]), r'plan\[0\] must be \["o" or "p"'),
        (edited(*RECORD, "plan", 0, value=["o", 99, 9]), "plan: move 0 names gap 99"),
        (edited(*RECORD, "bounds", 0, "evidence", value="sure"), r"evidence must be one of"),
        (edited(*RECORD, "bounds", 0, "by", value=None), r"by must be a string, not null"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(changed: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "two-partition-8-yes-atomic.json"
    path.write_text(json.dumps(changed))
    with pytest.raises(InputError, match=message) as error:
        Library(tmp_path).names()
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_a_file_under_another_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps(document()))
    with pytest.raises(InputError, match="family must be the file's name"):
        Library(tmp_path).names()


def test_reading_gives_what_was_written(tmp_path: Path) -> None:
    family: Family = family_from_json(document("unet-3-0"))
    library = Library(tmp_path)
    library.write(family)
    again = Library(tmp_path).family("unet-3-0")
    assert problem_to_json(again.problem) == problem_to_json(family.problem)
    assert [entry.digest for entry in again.entries] == [e.digest for e in family.entries]
    with pytest.raises(InputError, match="there is no family"):
        library.family("unet-9-0")


def test_families_of_other_groups_are_not_made(tmp_path: Path) -> None:
    broken = edited("problem", "memory", value=-1)
    (tmp_path / "two-partition-8-yes-atomic.json").write_text(json.dumps(broken))
    assert not list(Library(tmp_path).families(group="cnn-*"))
    with pytest.raises(InputError, match=r"problem\.memory must be at least 0"):
        list(Library(tmp_path).families(group="two-*"))
