"""Lines about what goes on while a training starts."""

import io
import logging

import pytest
from torch import nn

from offcert.questions.schedule.plan import Plan
from offcert.runtime.follow.accounts import LOG, Accounts, say
from offcert.runtime.plan.step_plan import step_plan
from offcert.runtime.watch.guard import SegmentProof
from support.runtime.captured import mean_step
from support.runtime.joint_training import again, carried_by, problem_of


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "level", "said"),
    [
        (Terminal, logging.NOTSET, "offcert: a line\\x1b[2J\n"),
        (io.StringIO, logging.NOTSET, ""),
        (Terminal, logging.WARNING, ""),
    ],
    ids=["on a terminal", "elsewhere", "where it is not wanted"],
)
def test_a_line_is_said_on_a_terminal_to_who_wants_it(monkeypatch, stream, level, said):
    # As without any handler.
    monkeypatch.setattr(LOG, "propagate", False)
    monkeypatch.setattr(LOG, "level", level)
    shown = stream()
    monkeypatch.setattr("sys.stderr", shown)
    say("a line\x1b[2J")
    assert shown.getvalue() == said


def test_who_logs_finds_it_in_the_log_only(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "offcert.training")
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    say("a line")
    assert [record.getMessage() for record in caplog.records] == ["a line"]
    assert shown.getvalue() == ""


def test_it_is_said_once_that_all_segments_were_rehearsed(caplog):
    caplog.set_level(logging.INFO, "offcert.training")
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    problem, captured = problem_of(mean_step(model, 4, 8))
    found = carried_by(captured, again("1", "2"))
    made = step_plan(problem, Plan(), found.execution)
    accounts = Accounts(strict=False)
    accounts.promise(made, {})
    proofs = [SegmentProof("1"), SegmentProof("2")]
    proofs[0].accept()
    accounts.rehearsed(made, proofs)
    assert caplog.records == []
    assert accounts.rehearses(made)
    proofs[1].refuse("it differs")
    accounts.rehearsed(made, proofs)
    assert not accounts.rehearses(made)
    (record,) = caplog.records
    assert record.getMessage() == "tested: 1 of 2 segments of test have made the same again"
