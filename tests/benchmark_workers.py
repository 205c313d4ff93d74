"""What stands in for certifying when the benchmark around it is tested."""

import os
import time
from multiprocessing.connection import Connection
from typing import Any

from offcert.certify.methods import solve
from offcert.certify.verify import verify
from offcert.core.problem import Problem
from offcert.core.simulate import Simulator
from offcert.heuristics.sequential import sequential

__all__ = ["Simulator", "crash_at_m5", "quick", "sequential", "sleep"]


def quick(problem: Problem, settings: Any, most_bytes: int, sender: Connection) -> None:
    """Answer at once."""
    import certify

    verification = verify(solve(problem, "sequential").to_json())
    sender.send((certify.result_facts(verification, 0.1), verification))


def crash_at_m5(problem: Problem, settings: Any, most_bytes: int, sender: Connection) -> None:
    """Die without a word on one of the problems."""
    if problem.name.endswith("m5"):
        os._exit(9)
    quick(problem, settings, most_bytes, sender)


def sleep(problem: Problem, settings: Any, most_bytes: int, sender: Connection) -> None:
    """Never answer."""
    time.sleep(600)
