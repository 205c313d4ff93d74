"""Methods that end as solvers do at times, registered wherever this module is imported."""

import os
import signal
import time
from typing import Any

from offcert.campaign.cells import Cell
from offcert.campaign.run import Answer, execute
from offcert.certification.method import Effort
from offcert.certification.methods import METHODS, Method
from offcert.certification.search import Search
from offcert.heuristics.evictions.rules import sequential
from offcert.questions.schedule.simulate import simulate

# Whichever test starts the server that processes are forked from, it has loaded this.
PRELOADED = ("offcert.campaign.preload",)
# Warming up runs every method on a problem of another name.
DOOMED = "doomed"


def _sometimes(end: Any) -> Method:
    """Return a method that works, but not where the memory is odd."""

    def run(search: Search, effort: Effort) -> None:
        problem = search.problem
        if problem.name == DOOMED and problem.platform.memory % 2:
            end()
        search.offer(simulate(problem, sequential(problem)))

    return Method(run=run, summary="for tests")


def _raise() -> None:
    raise RuntimeError("no luck\nat all")


def _eat() -> None:
    raise MemoryError


METHODS |= {
    "segfault": _sometimes(lambda: os.kill(os.getpid(), signal.SIGSEGV)),
    "kill": _sometimes(lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "exit": _sometimes(lambda: os._exit(9)),
    "raise": _sometimes(_raise),
    "eat": _sometimes(_eat),
    "hang": _sometimes(lambda: time.sleep(600)),
}


def work(cell: Cell) -> Answer:
    """Compute a cell with the methods above known."""
    return execute(cell)
