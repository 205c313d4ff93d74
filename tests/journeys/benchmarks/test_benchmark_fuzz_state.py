"""Random modules with random kinds of state, plainly and with parts that run again."""

import contextlib
import importlib
import json
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"

# Loops in which nothing happens that recomputation could not know of.
ORDINARY = ["plain", "accumulating", "evaluating", "retained", "two forwards", "autocast, both"]


@pytest.fixture
def fuzz(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    threads = torch.get_num_threads()
    yield importlib.import_module("fuzz_state")
    torch.set_num_threads(threads)


def found(fuzz, path, *arguments):
    """Run the benchmark, and return its exit code and what it has written."""
    code = fuzz.main([*map(str, arguments), "-o", str(path)])
    return code, json.loads(path.read_text())


def without_segments(fuzz, monkeypatch):
    """Let nothing run again, whatever was drawn."""
    for name in fuzz.DOORS:
        monkeypatch.setitem(fuzz.DOORS, name, lambda *_: lambda model: contextlib.nullcontext())


def test_training_twice_without_segments_is_the_same(fuzz, monkeypatch, tmp_path):
    without_segments(fuzz, monkeypatch)
    _, document = found(fuzz, tmp_path / "found.json", "--count", 36, "--seed", 7)
    counts = document["counts"]
    # Some random programs are wrong by themselves: autograd refuses what they change.
    assert counts["same"] + counts.get("both raised", 0) == counts["programs"] == 36
    assert counts["same"] > 32


def test_it_fails_where_nothing_runs_again(fuzz, monkeypatch, tmp_path):
    without_segments(fuzz, monkeypatch)
    code, document = found(fuzz, tmp_path / "found.json", "--count", 5, "--kinds", "pure")
    assert code == 1
    assert document["failures"] == []


def test_what_is_pure_runs_again(fuzz, tmp_path):
    arguments = ["--count", 12, "--kinds", "pure", "--loops", *ORDINARY]
    code, document = found(fuzz, tmp_path / "found.json", *arguments)
    assert code == 0
    assert document["failures"] == []
    counts = document["counts"]
    assert counts["of pure kinds, in which something ran again at last"] > 8


# The first way is the fastest by far.
@pytest.mark.parametrize(("door", "count"), [("hand", 90), ("certificate", 10), ("way", 10)])
def test_no_state_makes_training_silently_another_one(fuzz, tmp_path, door, count):
    arguments = ["--count", count, "--seed", 1, "--doors", door]
    code, document = found(fuzz, tmp_path / "found.json", *arguments)
    assert [row for row in document["failures"] if row["verdict"] == "silent"] == []
    assert code == 0


def unguard(monkeypatch):
    """Take away what guards recomputation: nothing is compared, and nothing is put back."""
    from offcert.runtime.segments import lines as calls
    from offcert.runtime.segments import reachable
    from offcert.runtime.segments.saved import ComparisonMode

    monkeypatch.setattr(calls.Calls, "mode", lambda *_: ComparisonMode.TRUSTED)
    monkeypatch.setattr(reachable.Reach, "visit", lambda *_: reachable.Reached())


SEEN = ("tensor rebound", "bn_in_list", "counter: dict", "hidden: eval", "closure set by the loop")


@pytest.mark.parametrize("kind", SEEN)
def test_without_the_guard_the_difference_is_found(fuzz, monkeypatch, tmp_path, capsys, kind):
    unguard(monkeypatch)
    arguments = ["--count", 8, "--kinds", kind, "--loops", "plain", "--doors", "by hand"]
    code, document = found(fuzz, tmp_path / "found.json", *arguments)
    assert code == 1
    silent = [row for row in document["failures"] if row["verdict"] == "silent"]
    assert len(silent) >= 2
    assert {tuple(row["kinds"]) for row in silent} == {(kind,)}
    # One program alone is the same one, and says what differs.
    row = silent[0]
    capsys.readouterr()
    assert fuzz.main([*map(str, arguments[2:]), "--program", str(row["program"])]) == 1
    assert row["what"][1] in capsys.readouterr().out


def test_a_wrong_gradient_at_an_exception_is_a_silent_difference(fuzz):
    program = fuzz.program_of(0, 0, ["pure"], ["plain"], ["by hand"])
    plain, ours = fuzz.turn(program)[0], fuzz.turn(program)[0]
    for each in (plain, ours):
        each.note()
    plain.note()
    assert fuzz.judge(program, plain, ours, [], ValueError("no"), None).verdict == "raised"
    next(ours.model.parameters()).grad = torch.ones(4, 4)
    assert fuzz.judge(program, plain, ours, [], ValueError("no"), None).verdict == "silent"


def test_unknown_kinds_are_named(fuzz):
    with pytest.raises(SystemExit, match="is called no such thing"):
        fuzz.main(["--kinds", "no such thing"])
