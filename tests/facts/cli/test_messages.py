"""What is said beside the result: a live line, log lines and warnings, each where it is read."""

import json
import os
import pty
import re
import resource
import sys
import warnings
from pathlib import Path

import pytest

from offcert.certification import methods
from offcert.certification.method import Effort
from offcert.certification.search import Search
from offcert.cli import main
from offcert.core import kernel_cache
from offcert.instances.cnn import cnn_chain
from offcert.questions.schedule.files import write_problem


@pytest.fixture
def problem_file(tmp_path: Path) -> str:
    problem = cnn_chain(8, 2)
    write_problem(tmp_path / "p.json", problem.with_memory(problem.trace.least_memory))
    return str(tmp_path / "p.json")


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """Return what a command sends to a terminal that is its stderr."""
    terminal, end = pty.openpty()
    with os.fdopen(end, "w") as stderr, monkeypatch.context() as during:
        during.setattr(sys, "stderr", stderr)
        during.setenv("TERM", "xterm")
        assert main([*arguments]) == 0
        print("<end>", file=stderr, flush=True)
        sent = b""
        while b"<end>" not in sent:
            sent += os.read(terminal, 1 << 16)
    os.close(terminal)
    return sent.decode().partition("<end>")[0]


def test_a_terminal_gets_one_line_that_is_gone_in_the_end(
    problem_file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["solve", problem_file, "--method", "greedy"]
    clear = "\x1b[2K"
    *_, last, rest = on_a_terminal(monkeypatch, *command).split(clear)
    assert re.search(r" [0-9.]+ s  bound \d+  best \d+  gap [0-9.]+ %  greedy\r\n", last)
    assert rest == ""
    assert capsys.readouterr().out.startswith("cnn-8-2 at ")
    assert on_a_terminal(monkeypatch, *command, "--quiet") == ""


def test_elsewhere_news_are_log_lines_if_asked_for(
    problem_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["solve", problem_file, "--method", "greedy"]
    assert main(command) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    assert main([*command, "-v"]) == 0
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert len(lines) > 2
    assert all(line.startswith("offcert: ") and " s bound " in line for line in lines)
    assert lines[-1].endswith("greedy")
    assert told.out.splitlines()[0] == quiet.out.splitlines()[0]


def warn_and_find_nothing(search: Search, effort: Effort) -> None:
    """Stand for a method whose solver warns."""
    warnings.warn("the solver\nis old", stacklevel=1)


def test_a_warning_is_one_line_without_files(
    problem_file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    method = methods.Method(warn_and_find_nothing, "warns")
    monkeypatch.setitem(methods.METHODS, "warning", method)
    command = ["solve", problem_file, "--method", "warning", "--json"]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(command) == 0
        told = capsys.readouterr()
        assert told.err == "offcert: warning: the solver is old\n"
        assert json.loads(told.out)["lower_bound"] > 0
        assert main([*command, "--quiet"]) == 0
        assert capsys.readouterr().err == ""


def test_a_full_disk_costs_the_file_and_not_the_result(
    problem_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    command = ["solve", problem_file, "--method", "bounds", "-o", str(tmp_path / "c.json")]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file may grow beyond so many bytes: a disk that is full, for this process alone.
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        assert main(command) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    told = capsys.readouterr()
    assert "(proved)" in told.out
    first, last = told.err.splitlines()
    assert first.startswith("offcert: warning: what is known could not be kept")
    assert "c.json cannot be written" in first
    assert "c.json cannot be written" in last
    assert not (tmp_path / "c.json").exists()


def test_a_certificate_that_cannot_be_where_it_should_is_put_elsewhere(
    problem_file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, other = tmp_path / "full", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(other))

    def vanish(search: Search, effort: Effort) -> None:
        folder.rename(tmp_path / "gone")
        folder.touch()

    monkeypatch.setitem(methods.METHODS, "vanish", methods.Method(vanish, "loses the folder"))
    command = ["solve", problem_file, "--method", "vanish", "-o", str(folder / "c.json")]
    assert main(command) == 2
    message = capsys.readouterr().err
    (rescued,) = other.iterdir()
    assert f"the certificate is in {rescued} instead" in message
    assert main(["verify", str(rescued)]) == 0


def test_what_is_compiled_is_said_also_where_nothing_else_is(
    problem_file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compiling(search: Search, effort: Effort) -> None:
        kernel_cache._say_once.cache_clear()
        kernel_cache._say_once("a folder")
        kernel_cache._say_once("a folder")

    monkeypatch.setitem(methods.METHODS, "compiling", methods.Method(compiling, "compiles"))
    command = ["solve", problem_file, "--method", "compiling"]
    assert main(command) == 0
    said = "offcert: compiling kernels, seconds each, which are kept in a folder\n"
    assert capsys.readouterr().err == said
    assert main([*command, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
