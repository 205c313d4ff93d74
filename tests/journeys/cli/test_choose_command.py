"""`offcert choose`: from a file to a certificate that `offcert verify` accepts."""

import json
from pathlib import Path

import pytest

from offcert.cli import main
from offcert.core.documents import canonical_digest
from offcert.questions.split.problem import read_split

# A command that fails writes nothing.
MADE = ("generate", "modnn", "-o", "unwritten.json")
SMALL = ("resnet34", "--batch", "2", "--sub-batches", "2,1")


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(list(arguments)) == code
    told = capsys.readouterr()
    return told.out if code in (0, 1) else told.err


def test_a_step_is_written_chosen_for_and_verified(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    step, certificate = str(tmp_path / "step.json"), str(tmp_path / "certificate.json")
    text = said(capsys, "generate", "modnn", *SMALL, "-o", step)
    assert text.startswith("modnn-resnet34: batch 2\n  sub-batch     2  ")
    assert read_split(step).sizes == (2, 1)
    arguments = ("--memory", "240MiB", "--time-limit", "10", "-o", certificate)
    text = said(capsys, "choose", step, *arguments)
    assert text.startswith("modnn-resnet34, batch 2, at 240.00 MiB: OPTIMAL\n")
    summary = json.loads(said(capsys, "choose", step, *arguments, "--json"))
    assert summary["status"] == "OPTIMAL"
    assert summary["objective"] == summary["lower_bound"]
    assert {each["size"] for each in summary["sub_batches"]} == {1, 2}
    assert "winograd" in summary["alternatives"]
    text = said(capsys, "verify", certificate)
    assert text.startswith("VALID: OPTIMAL\n  step ")
    document = json.loads(Path(certificate).read_text())
    document["rounds"][0]["choice"][0] += 1
    del document["digest"]
    document["digest"] = canonical_digest(document)
    Path(certificate).write_text(json.dumps(document))
    text = said(capsys, "verify", certificate, code=1)
    assert "INVALID\n  rounds[0]: " in text


def test_what_does_not_fit_is_a_result(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    step = str(tmp_path / "step.json")
    said(capsys, "generate", "modnn", *SMALL, "-o", step)
    text = said(capsys, "choose", step, "--memory", "50MiB", "--time-limit", "5")
    assert "INFEASIBLE\n  sub-batch     2  does not fit\n" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("choose", "vgg11"), "vgg11 cannot be read"),
        ((*MADE, "vgg16", "--batch", "0"), "batch must be at least 1, not 0"),
        (
            (*MADE, "vgg16", "--sub-batches", "512"),
            "sub_batches must be at most the batch, 256, not 512",
        ),
        ((*MADE, "vgg16", "--memory", "6"), 'size "6" needs a unit|memory'),
        (("generate", "modnn", "vgg16", "-o", "/dev/null/c.json"), "/dev/null is no folder"),
    ],
)
def test_bad_input_gets_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    error = said(capsys, *arguments, code=2)
    assert any(part in error for part in message.split("|"))
    assert error.count("\n") == 1
