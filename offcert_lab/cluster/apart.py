"""The program that computes tasks for a cluster's worker: a pool of one process."""

from __future__ import annotations

import os
import pickle
import sys

from offcert.campaign.pool import ProcessPool, end_with


def main() -> None:
    """Read tasks from the standard input; write answers to a pipe, which is given by its number."""
    pipe = int(sys.argv[1])
    end_with(pipe)
    with os.fdopen(pipe, "wb") as answers:
        while True:
            try:
                work, task, most_bytes, preload = pickle.load(sys.stdin.buffer)
            except EOFError:
                return
            pool = ProcessPool(work, 1, most_bytes=most_bytes, preload=preload)
            # One process at a time: answers come in the order of the items.
            for _, answer in pool.run([task]):
                pickle.dump(answer, answers)
                answers.flush()


if __name__ == "__main__":
    main()
