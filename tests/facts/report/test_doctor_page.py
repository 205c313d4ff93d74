"""The page about the answer of doctor: sizes in words, what takes the memory, ways to train."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from offcert.certification.doctor import Size, diagnose
from offcert.cli import main
from offcert.core.chain import Chain
from offcert.core.errors import InputError
from offcert.core.platform import Platform
from offcert.core.units import Units
from offcert.questions.schedule.problem import Problem
from offcert.report.doctor import doctor_summary, doctor_view

UNCOUNTED = {"parameters": 10, "optimiser": 20, "buffers": 0}


def size(samples: int) -> Size:
    chain = Chain([3, 4], [4, 2], [2 * samples, samples, 1], [0, 0, 0], [0, samples])
    units, source = Units("ns", "B"), {"uncounted": UNCOUNTED}
    problem = Problem("step", chain, Platform(0, Fraction(1)), units=units, source=source)
    return Size({"batch": samples}, samples, lambda: problem)


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    found = diagnose([size(1), size(4), size(30)], 45, time_limit=30.0, workers=1)
    document: dict[str, Any] = json.loads(
        json.dumps(doctor_summary(replace(found, title="a step", notes=("a note",))))
    )
    return document


def test_each_size_is_said_in_words_with_all_that_takes_its_memory(answer: dict[str, Any]) -> None:
    view = doctor_view("doctor.json", answer)
    assert view["title"] == "a step"
    assert view["about"] == "Does a training step fit into 45 B, and how fast is it?"
    assert view["facts"] == [("assumed", "a note")]
    assert view["status"]["said"] == "Fits with a plan up to batch 4"
    said = [each["said"] for each in view["sizes"]]
    assert said == ["fits without a plan", "fits with a plan", "cannot fit"]
    for each, row in zip(view["sizes"], answer["sizes"], strict=True):
        # Parts are the whole; what takes nothing is no part.
        assert sum(bytes_ for _, bytes_, _ in each["parts"]) == row["peak"] == each["peak"]
        names = [name for name, *_ in each["parts"]]
        assert names[:2] == ["parameters", "optimiser"]
        assert "buffers" not in names
    assert view["sizes"][2]["why"] == answer["sizes"][2]["why_not"]
    values = {tile["name"]: tile["value"] for tile in view["tiles"]}
    assert (values["device memory"], values["largest that fits"]) == ("45 B", "batch 4")


def test_ways_to_train_stand_by_their_memory_and_time(answer: dict[str, Any]) -> None:
    small, planned, never = doctor_view("doctor.json", answer)["sizes"]
    assert [way["name"] for way in never["ways"] if way["fits"]] == []
    row = answer["sizes"][1]
    ways = {way["name"]: way for way in planned["ways"]}
    assert (ways["no plan"]["size"], ways["no plan"]["step"]) == (row["peak"], row["computing"])
    assert not ways["no plan"]["fits"]
    best = ways["the best plan found"]
    assert best["step"] == row["step"] > row["computing"]
    assert 30 < best["size"] <= 45 < row["peak"]
    assert [way["size"] for way in planned["ways"]] == sorted(
        (way["size"] for way in planned["ways"]), reverse=True
    )
    assert {way["name"] for way in small["ways"] if way["fits"]} >= {"no plan"}


def test_nothing_that_fits_is_said_and_no_name_rules_the_page(answer: dict[str, Any]) -> None:
    alone = diagnose([size(30)], 45, time_limit=5.0, workers=1)
    view = doctor_view(
        "d", json.loads(json.dumps(doctor_summary(replace(alone, title="a\u202eb"))))
    )
    assert view["status"] == {
        "tone": "bad",
        "said": "No plan was found at any of these sizes",
        "mark": "",
        "checked": "",
    }
    assert view["title"].isprintable()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "d: version must be 1"),
        ({"sizes": []}, "d is no complete answer of doctor"),
        ({"sizes": [{}]}, "is missing"),
    ],
)
def test_what_is_no_answer_is_refused(
    answer: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        doctor_view("d", answer | change)


def test_what_no_answer_holds_is_said_in_one_sentence(answer: dict[str, Any]) -> None:
    for value in (10**400, -1, 1e308, "text", None, [], {}, [{}]):
        for size in answer["sizes"]:
            for field in size:
                sizes = [size | {field: value}]
                try:
                    doctor_view("d", answer | {"sizes": sizes, "largest": size["asked"]})
                except InputError as error:
                    said = str(error)
                    assert said.startswith("d is no complete answer of doctor: ")
                    assert len(said) < 120


def test_the_answer_stands_before_the_plans_of_a_folder(
    answer: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = diagnose([size(4)], 45, time_limit=30.0, workers=1)
    assert found[0].certificate is not None
    found[0].certificate.write(tmp_path / "batch-4.json")
    (tmp_path / "doctor.json").write_text(json.dumps(answer))
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    (data,) = (part.split("</script>")[0] for part in page.split('id="data">')[1:])
    assert [each.get("kind", "plan") for each in json.loads(data)["plans"]] == ["doctor", "plan"]
    (tmp_path / "doctor.json").write_text(json.dumps(answer | {"version": 9}))
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "s.html")]) == 2
    assert "version must be 1" in capsys.readouterr().err
    assert not (tmp_path / "s.html").exists()


def test_the_card_its_kernel_and_a_budget_that_is_short_are_said(answer: dict[str, Any]) -> None:
    small, planned, never = answer["sizes"]
    short = planned | {"short": "host memory for pinned copies"}
    asked = {"hardware": "rtx-4090", "attention": "flash-2", "interrupted": True}
    view = doctor_view(
        "d", answer | asked | {"sizes": [small, short, never], "largest": {"batch": 1}}
    )
    assert "on rtx-4090" in view["about"]
    assert "attention by flash-2" in view["about"]
    assert view["status"]["said"] == "Fits up to batch 1, without a plan"
    said = view["sizes"][1]
    assert (said["tone"], said["said"]) == ("bad", "short of host memory for pinned copies")
    (best,) = [way for way in said["ways"] if way["name"] == "the best plan found"]
    assert not best["fits"]
    assert "interrupted" in dict(view["facts"])


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        (0, "none is better"),
        (0.0101, "at most 1.1 %"),
        (0.2501, "at most 26 %"),
        (1e-6, "at most 0.01 %"),
    ],
)
def test_a_distance_from_the_best_is_a_promise(
    answer: dict[str, Any], gap: float, said: str
) -> None:
    sizes = [answer["sizes"][0] | {"gap": gap}]
    assert doctor_view("d", answer | {"sizes": sizes})["sizes"][0]["away"] == said
