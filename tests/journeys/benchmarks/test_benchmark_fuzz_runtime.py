"""Random plans on random small networks: what streams do is what was planned; see the benchmark."""

import importlib
import json
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    threads = torch.get_num_threads()
    yield importlib.import_module("fuzz_runtime")
    torch.set_num_threads(threads)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_plans_are_followed(fuzz, seed, tmp_path):
    path = tmp_path / "found.json"
    arguments = ["--count", "50", "--each", "25", "--seed", str(100 + seed), "-o", str(path)]
    assert fuzz.main(arguments) == 0
    found = json.loads(path.read_text())
    assert found["failures"] == []
    counts = found["counts"]
    assert counts["plans"] == 50
    assert counts["that move something"] > 30
    assert counts["simplex link"] + counts["duplex link"] == 50


@pytest.mark.parametrize(
    ("seed", "network", "plan"),
    [
        # Kept in a segment inside of another, where nothing asks for it twice.
        (0, 15, 15),
        # Kept, and changed in place after it was saved: copied too early.
        (0, 4, 1),
        # Handed out to a segment that saves it again, and told to leave.
        (0, 0, 12),
        (2, 0, 49),
    ],
)
def test_plans_that_were_not_followed_once(fuzz, seed, network, plan):
    numbers = {"--seed": seed, "--network": network, "--plan": plan}
    assert fuzz.main([str(each) for pair in numbers.items() for each in pair]) == 0


def test_what_goes_wrong_is_found_and_written(fuzz, monkeypatch, tmp_path, capsys):
    from offcert.runtime.streaming.stream_mover import StreamMover

    class Forgets(StreamMover):
        def _await_sent(self, tensor):
            sent = self._sent.pop(tensor, None)
            if sent is not None:
                sent.flight._data = ()

    monkeypatch.setattr("offcert.runtime.streaming.mover_makers.StreamMover", Forgets)
    path = tmp_path / "found.json"
    # Interrupted after the first network.
    tell = []
    written = fuzz.write_json

    def once(*arguments):
        written(*arguments)
        tell.append(1)
        if len(tell) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(fuzz, "write_json", once)
    assert fuzz.main(["--count", "12", "--each", "4", "--seed", "100", "-o", str(path)]) == 1
    failures = json.loads(path.read_text())["failures"]
    assert failures
    assert {each["network"] for each in failures} == {0}
    assert "interrupted" in capsys.readouterr().err
