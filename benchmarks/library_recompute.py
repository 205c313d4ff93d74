"""The library's problems in which computations may run again: how they are made, and first records.

``build_library.py`` makes these families with all others; ``certify.py --update-library`` improves
their records.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain as joined
from itertools import combinations
from typing import Any

from offcert.certification.methods import solve
from offcert.certification.records import add
from offcert.core.errors import InputError, MethodError, NoPlanError
from offcert.core.result import SolveStatus
from offcert.core.strategy import Strategy
from offcert.heuristics.checkpoint.persistent import persistent
from offcert.heuristics.evictions.rules import sequential
from offcert.instances.library import Library
from offcert.instances.records import Record
from offcert.instances.two_partition import RecomputePartition, strategy_of_part
from offcert.proofs.certificate import Certificate, current_versions
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.simulate import simulate

MEMORY = (20, 40, 70)
_SECONDS = 5.0
# What a first record is from; longer searches improve it.
_METHODS = ("offload-alone", "checkpoints", "joint-lp")

Generated = tuple[str, str, str, tuple[int, ...], dict[str, Any]]


def generated() -> Iterator[Generated]:
    """Yield name, group, kind, memory limits in per cent, and knobs of what generators draw."""
    for stages in (8, 16, 32):
        for offload in (True, False):
            group = "checkpoint-chain" if offload else "checkpoint-chain-held"
            knobs = {"stages": stages, "offload": offload}
            yield f"{group}-{stages}-0", group, "checkpoint-chain", MEMORY, knobs
    for blocks in (4, 8, 16):
        name, kind = f"recompute-network-{blocks}-0", "recompute-network"
        yield name, kind, kind, MEMORY, {"blocks": blocks}
    for count in (6, 10):
        for answer in ("yes", "no"):
            kind = RecomputePartition.kind
            yield f"{kind}-{count}-{answer}", kind, kind, (), {"count": count, "answer": answer}


# Who shall look bad, by what, and how hard to search: a minute each at most.
ADVERSARIAL: dict[str, dict[str, Any]] = {
    "sqrt": {},
    "budget": {},
    "reforwarding": {},
    "algorithm-3": {},
    "algorithm-6": {},
    "live-selection": {"by": "persistent-memory"},
    "persistent": {"steps": 150, "stages": 3},
    "offload-alone": {"by": "combined", "steps": 150, "stages": 3},
}


def search(knobs: dict[str, Any]) -> Problem:
    """Return the problem that a search finds with seed 0."""
    from offcert_lab.hunts.adversarial.checkpoint_chains import AdversarialCheckpoints

    return AdversarialCheckpoints(**knobs).problem(0)


def record_first(library: Library, name: str) -> None:
    """Record the solutions and bounds of quick methods, where nothing is known yet."""
    problem = library.load(name)
    if problem.recompute is Recompute.NONE or library.record(name) != Record():
        return
    construction = _construction(problem)
    certificates = [] if construction is None else [construction]
    for method in _METHODS:
        try:
            certificates.append(solve(problem, method, time_limit=_SECONDS, workers=1))
        except (InputError, MethodError):
            # It is for other problems: with another objective, or no chain.
            continue
    for certificate in certificates:
        try:
            add(library, certificate.to_json())
        except InputError as error:
            # Others have found more.
            if "does not improve" not in str(error) and "which the certificate" not in str(error):
                raise


def _construction(problem: Problem) -> Certificate | None:
    """Return a schedule of what is known to be good: the closest sum, or what is best if stored."""
    strategy = _strategy(problem)
    network = problem.computed
    if strategy is None or network is None or problem.minimise is Minimise.MEMORY:
        return None
    execution = strategy.expand(network)
    executed = problem.executed(execution)
    schedule = simulate(executed, sequential(executed))
    result = Result(SolveStatus.FEASIBLE, schedule, execution=execution)
    return Certificate(problem, result, method="construction", versions=current_versions())


def _strategy(problem: Problem) -> Strategy | None:
    source, chain = problem.source or {}, problem.checkpoint_chain
    if source.get("generator") == RecomputePartition.kind:
        return strategy_of_part(source["values"], _closest(source["values"]))
    if chain is None:
        return None
    try:
        return persistent(chain, problem.platform.memory)
    except (NoPlanError, MethodError):
        return None


def _closest(values: list[int]) -> tuple[int, ...]:
    """Return the indices of the largest sum that is at most half of everything, by trying all."""
    parts = joined.from_iterable(
        combinations(range(len(values)), size) for size in range(len(values))
    )
    sums = ((sum(values[index] for index in part), part) for part in parts)
    return max(each for each in sums if 2 * each[0] <= sum(values))[1]
