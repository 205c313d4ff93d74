"""Main functions say in `help` how they are called, with which defaults, an example and errors."""

from __future__ import annotations

import doctest
import inspect
import pydoc
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import offcert
from offcert.certification.ladder import certify
from offcert.verification.document import verify

MAIN = ("certify", "doctor", "offload", "profile", "solve", "verify")
SECTIONS = ("Parameters", "Returns", "Raises", "Examples")


@pytest.mark.parametrize("name", MAIN)
@pytest.mark.parametrize("by_name", [True, False])
def test_help_shows_signature_defaults_errors_and_an_example(name: str, by_name: bool) -> None:
    asked = f"offcert.{name}" if by_name else getattr(offcert, name)
    shown = pydoc.plain(pydoc.render_doc(asked))
    for section in SECTIONS:
        assert re.search(rf"^ *{section}\n *-{{{len(section)}}}$", shown, re.M), section
    spaceless = re.sub(r"[\s']", "", shown)
    for parameter in inspect.signature(getattr(offcert, name)).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            assert re.sub(r"[\s']", "", str(parameter)) in spaceless
            documented = rf"^ *(\w+, )*{parameter.name}(, \w+)* : "
            assert re.search(documented, shown, re.M), parameter.name


@pytest.mark.parametrize("name", MAIN)
def test_the_first_line_says_what_it_does_without_pointing_elsewhere(name: str) -> None:
    first = (inspect.getdoc(getattr(offcert, name)) or "").split("\n")[0]
    assert re.match(r"(Find|Train|Turn|Compute) .*\.$", first)
    assert "see `" not in first


@pytest.mark.parametrize("name", MAIN)
def test_examples_are_executed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function = _function(name)
    (example,) = doctest.DocTestFinder(recurse=False).find(function, name, globs={})
    assert 5 <= len(example.examples) <= 12
    wrong = doctest.DocTestRunner(verbose=False).run(example, out=sys.stdout.write)
    assert wrong.failed == 0
    assert wrong.attempted == len(example.examples)


def _function(name: str) -> Callable[..., Any]:
    """Return the function itself, also where a package of the same name stands for it."""
    return {"certify": certify, "verify": verify}.get(name) or getattr(offcert, name)
