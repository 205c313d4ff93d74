"""Files that say the version agree, and templates and workflows name what is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from offcert.cli import main

ROOT = Path(__file__).parents[3]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import release

    return release


def test_all_files_say_the_same_version(release) -> None:
    says = release.versions(ROOT)
    assert len(set(says.values())) == 1, says


def test_a_version_that_differs_and_a_change_that_is_not_committed_are_in_the_way(
    release, tmp_path: Path
) -> None:
    for name in (
        "pyproject.toml",
        "lab/pyproject.toml",
        "offcert/_version.py",
        "CITATION.cff",
        "CHANGELOG.md",
    ):
        copy = tmp_path / name
        copy.parent.mkdir(exist_ok=True)
        copy.write_text((ROOT / name).read_text())
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-qm", "All")):
        subprocess.run([*git, *arguments], check=True)
    assert release.in_the_way(tmp_path) == []
    version = release.versions(tmp_path)["pyproject.toml"]
    (tmp_path / "offcert/_version.py").write_text('__version__ = "9.9"\n')
    assert release.in_the_way(tmp_path) == [
        "not committed: offcert/_version.py",
        f"offcert/_version.py: says version 9.9, pyproject.toml {version}",
    ]


def test_workflows_and_templates_name_targets_and_options_that_exist(
    capsys: pytest.CaptureFixture[str],
) -> None:
    github = ROOT / ".github"
    texts = [path.read_text() for path in (*github.rglob("*.yml"), *github.glob("*.md"))]
    asked = {name for text in texts for name in re.findall(r"\bmake ([\w-]+)", text)}
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"setup", "test", "docs", "release"} <= asked <= set(targets)
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--versions"])
    assert ended.value.code == 0
    said = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert said["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"offcert", "system", "numpy", "torch"} <= said.keys()


def test_tables_of_two_versions_say_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import between_commits

    text = between_commits.table("v1", {"lines": 1000, "gone": 1}, {"lines": 900, "new": 2})
    assert text.splitlines()[2:] == [
        "| lines | 1,000 | 900 | -100 |",
        "| new | - | 2 |  |",
        "| gone | 1 | - |  |",
    ]
