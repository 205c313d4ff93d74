"""One cell computed, in a process of its own: a solver may do there what it wants."""

from __future__ import annotations

import contextlib
import time
import warnings
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from offcert.campaign.cells import CERTIFY, Cell
from offcert.campaign.storage import FAILED, NO_PLAN, Row
from offcert.certify.ladder import certify
from offcert.certify.ladders.plain import PLAIN_LADDERS
from offcert.certify.methods import METHODS, solve
from offcert.core.errors import InputError, MethodError
from offcert.core.result import Evidence
from offcert.instances.cnn import cnn_chain
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Recompute, Transfers
from offcert.questions.schedule.result import Result
from offcert.verify.document import verify

# Stages of the chain on which kernels are compiled: enough for a tensor to have to leave. Assumed.
_WARMING_STAGES = 8

Answer = tuple[Row, dict[str, Any] | None]


def execute(cell: Cell) -> Answer:
    """Compute a cell.

    Returns
    -------
    facts : dict
        Those columns of the row that say what came of it. A row with a bound comes from a
        certificate that `verify` found valid.
    certificate : dict or None
        The document, for ``certify``.
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
        facts |= {"lower_bound": result.lower_bound, "evidence": _text(verification.evidence)}
    if cell.method != CERTIFY:
        return facts, None
    return facts | {"proved_bound": _proved(result)}, document


def _run(cell: Cell) -> Certificate:
    settings = asdict(cell.settings)
    with warnings.catch_warnings():
        # The row says what failed.
        warnings.filterwarnings("ignore", message=".*the search goes on without it")
        return _certificate(cell, settings)


def _certificate(cell: Cell, settings: dict[str, Any]) -> Certificate:
    if cell.method == CERTIFY:
        return certify(cell.point.problem, **settings)
    return solve(cell.point.problem, cell.method, **settings)


def _proved(result: Result) -> int | None:
    proved = [bound.value for bound in result.bounds if bound.evidence is Evidence.PROVED]
    return max(proved, default=None)


def _text(evidence: Evidence | None) -> str | None:
    return None if evidence is None else str(evidence)


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
