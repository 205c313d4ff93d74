"""Completion scripts: they name what there is, and a shell completes with them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from offcert.certification.methods import METHODS
from offcert.cli import main
from offcert.cli.completion import SHELLS
from support.docs.typed_commands import command_names


@pytest.fixture
def scripts(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    found = {}
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        found[shell] = capsys.readouterr().out
    return found


def completed(script: Path, *words: str) -> list[str]:
    """Return what bash offers for the last of the words of a command line."""
    line = " ".join(f"'{word}'" for word in ("offcert", *words))
    code = (
        f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; "
        '_shtab_offcert offcert; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    run = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert "syntax error" not in run.stderr
    return run.stdout.split()


def test_every_command_and_method_is_named(scripts: dict[str, str]) -> None:
    names = set(command_names())
    assert {"certify", "plot-table", "completion", "import"} <= names
    for shell, script in scripts.items():
        for name in names | {"three-partition"}:
            assert name in script, (shell, name)
    for shell in ("bash", "zsh"):
        assert all(method in scripts[shell] for method in METHODS)
        assert "--device-memory" in scripts[shell]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(
    scripts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "offcert.bash"
    script.write_text(scripts["bash"])
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert completed(script, "ver") == ["verify"]
    assert completed(script, "library", "sh") == ["show"]
    assert completed(script, "solve", "p.json", "--method", "vdnn-a") == ["vdnn-all"]
    assert completed(script, "certify", "p.json", "--transfers", "int") == ["interruptible"]
    assert completed(script, "certify", "--time") == ["--time-limit"]
    monkeypatch.chdir(tmp_path)
    Path("net.json").touch()
    assert completed(script, "certify", "ne") == ["net.json"]
