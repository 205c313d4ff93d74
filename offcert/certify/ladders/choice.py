"""All ladders for schedules by name, and which one suits a problem."""

from __future__ import annotations

from offcert.certify.ladders.joint import JOINT_LADDERS, joint_ladder_for
from offcert.certify.ladders.plain import PLAIN_LADDERS, plain_ladder_for
from offcert.certify.rung import Rung
from offcert.certify.search import chooses_execution
from offcert.questions.schedule.problem import Problem

LADDERS: dict[str, tuple[Rung, ...]] = {**PLAIN_LADDERS, **JOINT_LADDERS}


def rungs_for(problem: Problem) -> tuple[Rung, ...]:
    """Return the rungs of the ladder that suits a problem."""
    return LADDERS[ladder_for(problem)]


def ladder_for(problem: Problem) -> str:
    """Return the name of the ladder that suits a problem."""
    return joint_ladder_for(problem) if chooses_execution(problem) else plain_ladder_for(problem)
