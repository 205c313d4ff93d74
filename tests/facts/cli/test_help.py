"""What help texts promise: options explained, their defaults said, examples that work."""

import argparse
import inspect
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields

import pytest

from offcert.cli import (
    chosen,
    main,
    profile,
    searching,
    train,
)
from offcert.cli import (
    command_line as program,
)
from offcert_lab.commands import adversarial, core


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the parsers of all commands that do something, at any depth."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for below in group.choices.values():
            yield from commands(below)


EVERY = {parser.prog: parser for parser in commands(program.parser())}


@pytest.mark.parametrize("prog", EVERY)
def test_every_argument_is_explained_with_its_default(prog: str) -> None:
    parser = EVERY[prog]
    assert (parser.epilog or "").startswith("example")
    for action in parser._actions:
        assert action.help, f"{prog} {action.dest}"
        flag = action.nargs == 0
        if action.option_strings and not flag and not action.required:
            formatter = parser._get_formatter()
            assert isinstance(formatter, argparse.ArgumentDefaultsHelpFormatter)
            said = formatter._expand_help(action)
            assert said.count("default") == 1, f"{prog} {action.dest}: {said}"


@pytest.mark.parametrize("prog", EVERY)
def test_examples_are_accepted(prog: str) -> None:
    lines = (EVERY[prog].epilog or "").splitlines()[1:]
    for line in lines:
        name, *arguments = shlex.split(line.partition(" > ")[0])
        assert name == "offcert"
        assert program.parser().parse_args(arguments).parser.prog == prog


def test_what_the_help_repeats_of_other_rooms_is_what_they_say() -> None:
    """Loading them for a help text would take seconds."""
    from offcert.runtime.capture import Clock
    from offcert.runtime.hardware import HARDWARE
    from offcert.runtime.hardware.files import CALIBRATED
    from offcert.runtime.pairs.train_device import DeviceKind
    from offcert.runtime.profiling.profile import profile as profile_function
    from offcert.runtime.workloads.workload import _DTYPES, DEFAULT_DTYPE, DEFAULT_LOSS, LOSSES
    from offcert_lab.hunts.adversarial.chains import AdversarialChains
    from offcert_lab.hunts.phase import CoreProblems

    assert tuple(DeviceKind) == train.DEVICES
    assert tuple(Clock) == profile.CLOCKS
    assert tuple(HARDWARE) == chosen.HARDWARE
    assert chosen.CALIBRATED == CALIBRATED
    assert tuple(LOSSES) == chosen.LOSSES
    assert chosen.DTYPES == _DTYPES
    assert (chosen.DTYPES[0], chosen.LOSSES[0]) == (DEFAULT_DTYPE, DEFAULT_LOSS)
    given = {action.dest for action in EVERY["offcert profile"]._actions}
    # The command line has words of its own for `input_shape` and `options`, and measures where the
    # model runs; a `device` is an object.
    own = {"input_shape", "options", "device"}
    wanted = set(inspect.signature(profile_function).parameters) - own
    assert wanted | {"input", "option"} <= given
    for module, cls in ((adversarial, AdversarialChains), (core, CoreProblems)):
        for item in fields(cls):
            if isinstance(item.default, int) and item.name in module._NUMBERS and item.default:
                assert f"(default: {item.default})" in module._NUMBERS[item.name]


def test_searches_begin_as_the_help_says() -> None:
    from offcert.certification.ladder import certify
    from offcert.certification.methods import solve

    for function in (certify, solve):
        parameters = inspect.signature(function).parameters
        for name, value in searching.DEFAULTS.items():
            assert parameters[name].default == value


def test_help_loads_no_library() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "offcert", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "certify" in done.stdout
    assert "offcert.cli" in loaded
    assert not loaded & {"numpy", "numba", "scipy", "networkx", "ortools", "pulp", "rich", "torch"}


def exit_code(arguments: list[str]) -> object:
    """Return what the process would end with."""
    try:
        return main(arguments)
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize(
    "arguments",
    [
        ["LONG"],
        ["certify", "p.json", "--LONG"],
        ["certify", "p.json", "--seed", "LONG"],
        ["certify", "p.json", "--time-limit", "LONG"],
        ["certify", "p.json", "--transfers", "LONG"],
        ["verify", "c.json", "--max-size", "LONGB!"],
        ["generate", "cnn", "--ratio", "LONG"],
        ["generate", "cnn", "--stages", "LONG"],
        ["library", "show", "LONG"],
        ["solve", "p.json", "--method", "LONG"],
    ],
)
def test_long_arguments_are_not_echoed_whole(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    long = [word.replace("LONG", "1" * 3000) for word in arguments]
    assert exit_code(long) == 2
    errors = capsys.readouterr().err
    assert len(errors) < 700
    assert errors.count("\n") == 1
