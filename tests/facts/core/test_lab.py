"""Commands of the lab: those that an older or a newer installation lists are not there."""

from importlib.metadata import EntryPoint

import pytest

from offcert.core import lab


def test_what_is_listed_and_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    group = lab.GENERATORS
    listed = [
        EntryPoint("core", "offcert_lab.commands.core", group),
        EntryPoint("gone", "offcert_lab.commands.gone", group),
        EntryPoint("other", "package_that_is_nowhere.commands", group),
    ]
    monkeypatch.setattr(lab, "entry_points", lambda group: listed)
    assert list(lab.lab_points(group)) == ["core"]
