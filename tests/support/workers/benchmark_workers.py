"""What stands in for certifying when the benchmark around it is tested."""

import importlib
import os
import time
from typing import Any

from offcert.certification.methods import solve
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.simulate import Simulator
from offcert.verification.document import verify

__all__ = ["Simulator", "crash_at_m5", "quick", "sequential", "sleep"]


def quick(task: Any) -> Any:
    """Answer at once."""
    certify = importlib.import_module("certify")

    verification = verify(solve(task.entry.problem, "sequential").to_json())
    return certify.result_facts(verification, 0.1), verification


def crash_at_m5(task: Any) -> Any:
    """Die without a word on one of the problems."""
    if task.entry.name.endswith("m5"):
        os._exit(9)
    return quick(task)


def sleep(task: Any) -> None:
    """Never answer."""
    time.sleep(600)
