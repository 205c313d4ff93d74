"""The moDNN paper's choices beside the best ones: sub-batches, algorithms, schedules.

    python benchmarks/modnn.py [--networks vgg16 fcn] [--memory 12 6 3] [--seconds 60] [--apart]
                               [--output FILE]

Every figure is the time of a whole batch by that of the ideal case: all images at once, the fastest
algorithms, as much memory as it takes. "Whole" is Algorithm 1 with all images at once; beside it is
what is proved for any schedule and any algorithms then. "Eq. 8" is the sub-batch that the paper
selects, moDNN the time of Algorithm 1 with it, vDNN+ that of vDNN with it (or with the next smaller
one in which it fits), vDNN that of vDNN with the whole batch. "Best" is what `certify_split`
chooses; "bound" is proved for every sub-batch that is regular and every choice of algorithms. "Task
graph" is the largest gap that `certify` leaves on a trace whose sub-batch and algorithms are
chosen: those of moDNN, those of the best choice, and the whole batch with the leanest algorithms,
where they fit.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from offcert.certification.ladder import certify
from offcert.certification.splitting import certify_split
from offcert.core.documents import write_json
from offcert.core.errors import NoPlanError
from offcert.core.platform import Platform
from offcert.core.trace import Trace
from offcert.heuristics.modnn.scheduler import algorithm_1
from offcert.heuristics.modnn.vdnn_tasks import vdnn_tasks
from offcert.proofs.split_certificate import SplitCertificate
from offcert.questions.schedule.problem import Problem
from offcert.questions.split.problem import Round
from offcert.verification import document
from offcert_lab.modnn.algorithms import GIGABYTE
from offcert_lab.modnn.networks import NETWORKS, modnn_network
from offcert_lab.modnn.problems import RATE, UNITS, modnn_step
from offcert_lab.modnn.tasks import step_round, step_split
from papers.sub_batch import select_sub_batch, vdnn_plus

Row = dict[str, Any]


class Case:
    """A network with a memory."""

    def __init__(self, network: str, memory: int, apart: bool, image: int) -> None:
        self.network = network
        self.platform = Platform(memory, RATE)
        self.apart = apart
        self.image = image
        self.batch = NETWORKS[network].batch
        self.layers = modnn_network(network, image, apart=apart)
        self.profile: Callable[[int], Round] = cache(lambda images: step_round(self.layers, images))
        found = self.profile(self.batch)
        self.ideal = found.chosen(found.menu.fastest()).compute_time

    def problem(self, found: Round | Trace) -> Problem:
        """Return the problem of a round whose algorithms are open, or of a trace."""
        trace = found if isinstance(found, Trace) else found.trace
        return Problem(self.network, trace, self.platform, units=UNITS)

    def modnn(self, found: Round) -> int:
        """Return the ticks of Algorithm 1 for a round."""
        return algorithm_1(self.problem(found), found.menu).schedule.makespan

    def relative(self, size: int, time_of: Callable[[Round], int]) -> float | None:
        """Return the time of a batch in sub-batches of a size, by that of the ideal case."""
        try:
            rounds = step_split(self.layers, self.batch, size).rounds
            return sum(each.count * time_of(each) for each in rounds) / self.ideal
        except NoPlanError:
            return None


def measure(case: Case, seconds: float, workers: int) -> Row:
    """Return the values of the paper's algorithms and ours for a network and a memory."""
    memory = case.platform.memory
    selected = select_sub_batch(case.profile, case.batch, memory)
    began = time.process_time()
    modnn = case.relative(selected.size, case.modnn)
    row: Row = {
        "network": case.network,
        "memory": memory,
        "apart": case.apart,
        "tasks": len(case.profile(1).trace),
        "eq_8": selected.size,
        "modnn": modnn,
        "modnn_seconds": time.process_time() - began,
        "vdnn_plus": _vdnn_plus(case),
        "vdnn": case.relative(
            case.batch, lambda found: vdnn_tasks(case.problem(found), found.menu).schedule.makespan
        ),
    }
    step = modnn_step(case.network, memory=memory, image=case.image, apart=case.apart)
    began = time.monotonic()
    found = certify_split(step, time_limit=seconds, workers=workers, target_gap=0.0005)
    row["whole"] = case.relative(case.batch, case.modnn)
    row |= {"best_seconds": time.monotonic() - began, **_best(case, found)}
    row["valid"] = document.verify(found).valid
    row["gaps"] = {
        name: certify(
            case.problem(trace), time_limit=seconds, workers=workers, target_gap=0.0005
        ).result.gap
        for name, trace in _traces(case, selected.size, found)
    }
    return row


def _vdnn_plus(case: Case) -> Row | None:
    try:
        size, _ = vdnn_plus(case.profile, case.batch, case.problem)
    except NoPlanError:
        return None
    value = case.relative(
        size, lambda found: vdnn_tasks(case.problem(found), found.menu).schedule.makespan
    )
    return {"size": size, "time": value}


def _best(case: Case, found: SplitCertificate) -> Row:
    size = None if found.split is None else found.problem.sizes[found.split]
    objective, bound = found.objective, found.lower_bound
    # The whole batch is offered first.
    whole = found.split_bound(0)
    return {
        "whole_bound": None if whole is None else whole / case.ideal,
        "best_size": size,
        "best": None if objective is None else objective / case.ideal,
        "bound": None if bound is None else bound / case.ideal,
        "gap": None if objective is None else found.gap,
        "status": str(found.status),
    }


def _traces(case: Case, selected: int, found: SplitCertificate) -> Iterator[tuple[str, Trace]]:
    """Yield traces whose sub-batch and algorithms are chosen."""
    each = case.profile(selected)
    with suppress(NoPlanError):
        yield "modnn", algorithm_1(case.problem(each), each.menu).trace
    if found.rounds:
        yield "best", found.rounds[0].certificate.problem.trace
    whole = case.profile(case.batch)
    lean = whole.chosen(whole.menu.leanest())
    if lean.least_memory <= case.platform.memory:
        yield "whole", lean


def table(rows: list[Row]) -> str:
    """Return the rows as a table for people."""
    heads = ("network", "GB", "whole", "bound", "Eq. 8", "moDNN", "vDNN+", "vDNN")
    heads += ("best", "time", "bound", "gap")
    lines = [
        f"| {' | '.join(heads)} | task graph |",
        "| --- |" + " ---: |" * len(heads),
    ]
    for row in rows:
        plus = row["vdnn_plus"]
        cells = (
            row["network"],
            f"{row['memory'] / GIGABYTE:g}",
            _said(row["whole"]),
            _said(row["whole_bound"]),
            row["eq_8"],
            _said(row["modnn"]),
            _said(plus and plus["time"]),
            _said(row["vdnn"]),
            "–" if row["best_size"] is None else row["best_size"],
            _said(row["best"]),
            _said(row["bound"]),
            "–" if row["gap"] is None else f"{100 * row['gap']:.2f} %",
            f"{100 * max(row['gaps'].values(), default=0):.2f} %",
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _said(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--memory", nargs="+", type=float, default=[12, 6, 3], help="in GB")
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    rows = []
    for network in options.networks:
        for size in options.memory:
            case = Case(network, int(size * GIGABYTE), options.apart, options.image)
            rows.append(measure(case, options.seconds, options.workers))
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    print(table(rows))
    if options.output is not None:
        settings = {"seconds": options.seconds, "workers": options.workers}
        write_json(options.output, {"settings": settings, "rows": rows})


if __name__ == "__main__":
    main()
