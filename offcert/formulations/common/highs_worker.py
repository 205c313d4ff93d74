"""The process in which HiGHS runs: reads programs, writes what SciPy says of them.

Started by `offcert.formulations.common.highs`, and by its path, so that it loads SciPy and
nothing of ours. It ends when whoever started it does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from scipy import optimize

PROGRAMS: dict[str, Callable[..., Any]] = {"milp": optimize.milp, "linprog": optimize.linprog}


def main() -> None:
    """Answer one program after the other over the connection whose number the arguments give."""
    with Connection(int(sys.argv[1])) as pipe, suppress(EOFError, OSError):
        pipe.send("ready")
        while True:
            name, arguments = pipe.recv()
            try:
                answer = PROGRAMS[name](**arguments)
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
            pipe.send(answer)


if __name__ == "__main__":
    main()
