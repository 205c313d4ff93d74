"""Every command and every line of Python in the README is executed, in its order; then the commands
of the page that says what was measured, but for benchmarks that have tests of their own.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from offcert.cli.command_line import parser
from support.docs.typed_commands import reads_its_arguments, run_command

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


PAGES = (ROOT / "README.md", ROOT / "docs" / "measured.md")
# Benchmarks on that page that are run on smaller networks in a test each: here they only read what
# the page has readers type.
TESTED = {
    "benchmarks/networks.py": "journeys/benchmarks/test_benchmark_networks.py",
    "benchmarks/overhead.py": "journeys/benchmarks/test_benchmark_overhead.py",
    "benchmarks/host_time.py": "facts/runtime/follow/test_calls_of_the_host.py",
    "benchmarks/runtime.py": "journeys/benchmarks/test_benchmark_runtime.py",
    "benchmarks/certify_joint.py": "journeys/benchmarks/test_benchmark_certify_joint.py",
    "benchmarks/ways.py": "journeys/benchmarks/test_benchmark_ways.py",
}


def blocks(language: str, page: Path = PAGES[0]) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def shell_lines() -> list[str]:
    joined = "".join(text for page in PAGES for text in blocks("sh", page)).replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip()]


def benchmark_of(line: str) -> str:
    """Return the path of the benchmark that a line runs, or nothing."""
    return line.removeprefix("python ").split()[0] if line.startswith("python ") else ""


@pytest.mark.parametrize("line", [each for each in shell_lines() if benchmark_of(each) in TESTED])
def test_a_benchmark_that_has_a_test_reads_what_readers_type(line: str) -> None:
    benchmark = benchmark_of(line)
    test = ROOT / "tests" / TESTED[benchmark]
    assert Path(benchmark).stem in test.read_text()
    reads_its_arguments(line)
    with pytest.raises(SystemExit):
        reads_its_arguments(f"{line} --no-such-option")


def test_the_two_commands_come_first_and_the_second_is_what_ci_runs() -> None:
    first = blocks("sh")[0].split("\n")
    assert first[:2] == ["make demo", "make test"]
    assert "exec make test" in (ROOT / ".ci" / "run").read_text()


def test_every_code_block_is_of_a_kind_that_is_executed() -> None:
    kinds = {kind for page in PAGES for kind, _ in BLOCK.findall(page.read_text())}
    # What a command of a minute printed is no test; that there is such a command is one.
    assert kinds == {"sh", "python", "text"}
    (printed,) = blocks("text")
    command = printed.splitlines()[0].removeprefix("$ offcert ")
    assert parser().parse_args(command.split()).batches == [64, 128, 256, 512]


def test_pictures_and_links_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text()):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with this very environment as its `.venv`."""
    copy = tmp_path_factory.mktemp("readme") / "offcert"
    ignored = ("offcert", "tests", ".venv", "out", ".git", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*ignored))
    (copy / ".venv").mkdir()
    (copy / ".venv" / "bin").symlink_to(Path(sys.executable).parent, target_is_directory=True)
    (copy / ".venv" / ".installed").touch()
    return copy


def run_the_commands() -> None:
    """Run every command but the tests themselves and the documentation, in the folder at hand."""
    for line in shell_lines():
        # These tests are that, and test_docs_site builds the site as the Makefile does.
        if line not in ("make test", "make docs") and benchmark_of(line) not in TESTED:
            run_command(line)


# One test, because what follows needs what the commands left, and two workers would run them twice.
def test_every_command_runs_and_then_the_python(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("HOME", str(checkout))
    # A smaller batch and a shorter search of the same network: what is made of them is the same.
    monkeypatch.setenv("MAKEFLAGS", "INPUT=2x3x224x224 LIMIT=2")
    run_the_commands()
    left = {path.name for path in (checkout / "out").iterdir()}
    assert {"certificate.json", "plan.png", "report.md", "training.json"} <= left
    a_second_demo_does_no_work_twice(checkout)
    the_python_runs()


def a_second_demo_does_no_work_twice(checkout: Path) -> None:
    pending = subprocess.run(
        ["make", "--dry-run", "demo"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "out/report.md" in pending  # it is shown again
    assert "bin/" not in pending


def the_python_runs() -> None:
    code = "\n".join(blocks("python"))
    assert not blocks("python", PAGES[1])
    assert code
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
