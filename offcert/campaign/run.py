"""Campaigns: missing cells are computed, each in a process of its own, here or on a cluster."""

from __future__ import annotations

import contextlib
import os
import re
import time
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

from offcert.campaign.cells import CERTIFY, Cell
from offcert.campaign.pool import Failure, PoolTask, ProcessPool
from offcert.campaign.storage import FAILED, NO_PLAN, Row
from offcert.campaign.table import CampaignTable
from offcert.certification.ladder import certify
from offcert.certification.ladders.plain import PLAIN_LADDERS
from offcert.certification.methods import METHODS, solve
from offcert.core.documents import make_folder, write_json
from offcert.core.errors import InputError, MethodError
from offcert.core.lab import lab_part
from offcert.core.options import require_count
from offcert.core.result import Evidence
from offcert.core.threads import cores
from offcert.instances.cnn import cnn_chain
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Recompute, Transfers
from offcert.verification.document import verify

# A cell may take its limit times PATIENCE, and GRACE seconds more, to end and be verified.
# Arbitrary.
PATIENCE = 3.0
GRACE = 120.0
# Seconds after its limit at which a function of a user's own is killed: importing its module takes
# time. Arbitrary.
OWN_GRACE = 30.0
# Cheap cells that one process computes: enough to outweigh the start of the process, few enough to
# keep all cores busy. Arbitrary.
LARGEST_BATCH = 32
AGAIN = ("no", "failed", "all")
# Loaded once, by the process that all others are forked from.
PRELOADED = ("offcert.campaign.preload",)
PRELOADED_TO_SEARCH = ("offcert.campaign.preload_search",)


@dataclass(frozen=True)
class CampaignProgress:
    """The argument of a progress callback: the number of cells done, and the last of them."""

    done: int
    missing: int
    row: Row


@dataclass(frozen=True)
class Summary:
    """The outcome of a campaign."""

    cells: int  # Asked for.
    kept: int  # Of them in the table before.
    computed: int  # Of them computed now, `failed` ones included.
    failed: int  # Of all cells asked for, those whose row says ``FAILED``.
    damaged: int  # Lines of the journal that were lost when an earlier campaign was killed.
    seconds: float  # Of everything.
    rows: tuple[Row, ...]  # Of the cells asked for, in their order.


def run(
    cells: Iterable[Cell],
    table: CampaignTable,
    *,
    jobs: int | None = None,
    scheduler: Any = None,
    again: str = "no",
    certificates: str | Path | None = None,
    most_bytes: int = 0,
    progress: Callable[[CampaignProgress], None] | None = None,
) -> Summary:
    """Compute the cells that the table has no row of.

    Parameters
    ----------
    cells : iterable of Cell
        As from `offcert.campaign.cells.grid`.
    table : CampaignTable
        Takes every row as soon as it is there, so that an interrupt loses none.
    jobs : int, optional
        Processes at a time; by default one for every core this process may use.
    scheduler : str or distributed.Client, optional
        A Dask cluster that computes instead of this machine; then `jobs` is the cluster's affair.
    again : str
        ``"no"``: rows of the table are kept; ``"failed"``: those that failed are computed again;
        ``"all"``.
    certificates : str or Path, optional
        Folder for the certificates of ``certify``; a row without one does not count as done then.
    most_bytes : int
        Address space of each process; 0: no limit.
    progress : callable, optional
        Told of every row.
    """
    begun = time.monotonic()
    if again not in AGAIN:
        raise InputError(f'again must be one of {", ".join(AGAIN)}, not "{again}"')
    processes = cores() if jobs is None else require_count(jobs, "jobs")
    folder = None if certificates is None else Path(certificates)
    wanted = {cell.key: cell for cell in cells}
    missing = [cell for cell in wanted.values() if not _is_done(cell, table, again, folder)]
    if folder is not None:
        make_folder(folder)
    with closing(_answers(missing, processes, scheduler, most_bytes)) as answers:
        for number, (cell, answer) in enumerate(answers, start=1):
            row = cell.row(_facts(cell, answer, table, folder))
            table.put(row)
            if progress is not None:
                progress(CampaignProgress(number, len(missing), row))
    rows = tuple(table.rows[key] for key in wanted)
    return Summary(
        cells=len(rows),
        kept=len(rows) - len(missing),
        computed=len(missing),
        failed=sum(row["status"] == FAILED for row in rows),
        damaged=table.damaged,
        seconds=time.monotonic() - begun,
        rows=rows,
    )


def _is_done(cell: Cell, table: CampaignTable, again: str, certificates: Path | None) -> bool:
    row = table.rows.get(cell.key)
    if row is None or again == "all":
        return False
    if row["status"] == FAILED:
        return again != "failed"
    if certificates is None or cell.method != CERTIFY:
        return True
    return row["certificate"] is not None and (_folder(table) / row["certificate"]).is_file()


def _folder(table: CampaignTable) -> Path:
    return Path() if table.path is None else table.path.parent


def _facts(cell: Cell, answer: Any, table: CampaignTable, certificates: Path | None) -> Row:
    """Return the columns of a row beside those that identify it; write the certificate."""
    if isinstance(answer, Failure):
        return {"status": FAILED, "seconds": answer.seconds, "reason": answer.reason}
    facts, document = answer
    if document is None or certificates is None:
        return dict(facts)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", cell.point.name).lstrip(".")
    path = certificates / f"{name}-{cell.point.problem.platform.memory}-{cell.key}.json"
    write_json(path, document)
    return facts | {"certificate": os.path.relpath(path, _folder(table))}


def _answers(
    cells: list[Cell], processes: int, scheduler: Any, most_bytes: int
) -> Generator[tuple[Cell, Any]]:
    searching = any(not cell.batchable for cell in cells)
    preload = PRELOADED_TO_SEARCH if searching else PRELOADED
    if scheduler is not None:
        run_on_cluster = lab_part("cluster", "a scheduler")
        # Starting a program there costs seconds, so batches are as large as they may be.
        tasks = batches(cells, 1)
        yield from run_on_cluster(execute, tasks, scheduler, most_bytes=most_bytes, preload=preload)
        return
    # What only this program knows cannot be named elsewhere: processes begin as copies of it.
    start = "fork" if any(cell.given for cell in cells) else "forkserver"
    pool = ProcessPool(execute, processes, most_bytes=most_bytes, preload=preload, start=start)
    with closing(pool.run(batches(cells, processes))) as answers:
        yield from answers


def batches(cells: list[Cell], processes: int) -> list[PoolTask]:
    """Return cheap cells of one problem together, and every other cell alone."""
    cheap: dict[str, list[Cell]] = {}
    tasks: list[PoolTask] = []
    for cell in cells:
        if cell.batchable:
            cheap.setdefault(cell.point.name, []).append(cell)
        else:
            tasks.append(PoolTask((cell,), _patience(cell)))
    count = sum(len(group) for group in cheap.values())
    size = min(LARGEST_BATCH, max(1, ceil(count / (2 * processes))))
    for group in cheap.values():
        for first in range(0, len(group), size):
            part = tuple(group[first : first + size])
            tasks.append(PoolTask(part, _patience(part[0])))
    # Cheap ones first: a campaign that is interrupted has them at least.
    return sorted(tasks, key=lambda task: not task.items[0].batchable)


def _patience(cell: Cell) -> float:
    if cell.own:
        return cell.settings.time_limit + OWN_GRACE
    return PATIENCE * cell.settings.time_limit + GRACE


# Stages of the chain on which kernels are compiled: enough for a tensor to have to leave. Assumed.
_WARMING_STAGES = 8

Answer = tuple[Row, dict[str, Any] | None]


def execute(cell: Cell) -> Answer:
    """Compute a cell; return the columns of the row that say what came of it, and the certificate.

    A row with a bound comes from a certificate that `verify` found valid; others return None.
    """
    choice = cell.choice
    # The simulator, at least.
    warm_up(CERTIFY if choice is None else "sequential" if cell.own else choice.name)
    begun = time.monotonic()
    try:
        certificate = _run(cell)
    except (MethodError, InputError) as error:
        # The method says itself that it does not apply: to this network, to such transfers.
        seconds = time.monotonic() - begun
        return {"status": NO_PLAN, "seconds": seconds, "reason": str(error)}, None
    result = certificate.result
    facts: Row = {
        "status": str(result.status),
        "makespan": result.objective,
        "seconds": result.runtime,
    }
    failed = certificate.notes.failed
    if failed and cell.method != CERTIFY:
        reason = "; ".join(dict.fromkeys(failed.values()))
        return {"status": FAILED, "seconds": result.runtime, "reason": reason}, None
    if failed:
        # What the other steps found is as good as ever.
        facts["reason"] = "; ".join(f"{step} failed: {message}" for step, message in failed.items())
    no_plan = certificate.notes.no_plan
    if no_plan is not None:
        facts |= {"status": NO_PLAN, "makespan": None, "reason": no_plan}
    if choice is not None and choice.method.heuristic:
        return facts, None
    document = certificate.to_json()
    verification = verify(document)
    if not verification.valid:
        return {
            "status": FAILED,
            "seconds": result.runtime,
            "reason": f"the certificate does not verify: {verification.reason}",
        }, None
    if result.bounds:
        evidence = verification.evidence
        facts["lower_bound"] = result.lower_bound
        facts["evidence"] = None if evidence is None else str(evidence)
    if cell.method != CERTIFY:
        return facts, None
    proved = [bound.value for bound in result.bounds if bound.evidence is Evidence.PROVED]
    return facts | {"proved_bound": max(proved, default=None)}, document


def _run(cell: Cell) -> Certificate:
    settings = asdict(cell.settings)
    with warnings.catch_warnings():
        # The row says what failed.
        warnings.filterwarnings("ignore", message=".*the search goes on without it")
        if cell.method == CERTIFY:
            return certify(cell.point.problem, **settings)
        return solve(cell.point.problem, cell.method, **settings)


@cache
def warm_up(method: str) -> None:
    """Load and compile what a method needs, so that no cell's seconds pay for it."""
    base = cnn_chain(_WARMING_STAGES, 0)
    tiny = base.with_memory((base.trace.least_memory + base.trace.peak_memory) // 2)
    if method == CERTIFY:
        for rungs in PLAIN_LADDERS.values():
            for act in {act for rung in rungs for act in rung.method.warm}:
                act()
        for heuristic in ("sequential", "greedy"):
            warm_up(heuristic)
        return
    chosen = METHODS[method]
    if Recompute.NONE not in chosen.recompute:
        tiny = replace(tiny, recompute=min(chosen.recompute))
    if chosen.relaxed_only:
        tiny = replace(tiny, transfers=Transfers.INTERRUPTIBLE)
    # What is wrong with a method is found out by its cells.
    with contextlib.suppress(Exception):
        solve(tiny, method, time_limit=1.0, workers=1)
