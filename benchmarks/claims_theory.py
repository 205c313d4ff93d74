"""Instances on which the offloading paper's theorems are tried, and what is certified of them.

    python benchmarks/claims_theory.py

Certifies all of them, in a minute or two, and writes their evidence. The page says what follows as
part of `benchmarks/claims.py`, which does the same.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from no_wait import no_wait_makespan

from offcert.certification.ladder import certify
from offcert.core.chain import Chain
from offcert.core.platform import Kind, Platform
from offcert.formulations.combinatorial.relaxations import fractional_bound
from offcert.heuristics.evictions.dynprog import algorithm_1
from offcert.instances.cnn import CnnChains
from offcert.instances.library import default_library
from offcert.instances.three_partition import ThreePartition
from offcert.instances.two_partition import TwoPartition
from offcert.proofs.certificate import Certificate
from offcert.questions.schedule.problem import Problem, Transfers
from offcert.questions.schedule.schedule import Schedule
from offcert_lab.hunts.adversarial.values import ordered_optimum
from papers.claims.document import theory_verdict
from papers.claims.evidence import EvidenceFile, EvidenceRow, Figures
from papers.claims.evidence_check import Again, Judge, proved_range, schedule_certificate
from papers.claims.published import THEORY_COMMAND, THEORY_SECTION, theory_evidence
from papers.claims.theory import THEORY, Experiment

DOCS = Path(__file__).parent.parent / "docs"
TIME_LIMIT = 5.0
CERTIFICATES = "theory"


def printed_reduction(values: list[int]) -> Problem:
    """Return the instance of Theorem 1 exactly as the paper prints it (§3.3), in ticks of 1 / V.

    From 3m on, ``F_i`` of even offset last one unit (V ticks here) and have an empty input; those
    of odd offset last nothing, and V stands on their *input*, which the long operation before
    writes. Indices are read as the proof uses them: values from ``x_0`` on, k up to m - 1.
    """
    m = len(values) // 3
    target = sum(values) // m
    stages = 5 * m + 1
    forward, backward = [0] * stages, [0] * stages
    activation = list(values) + [0] * (stages + 1 - 3 * m)
    for k in range(m):
        forward[3 * m + 2 * k] = target
        activation[3 * m + 2 * k + 1] = target
    backward[3 * m] = m * target
    chain = Chain(forward, backward, activation, [0] * (stages + 1))
    return Problem(f"three-partition-{m}-as-printed", chain, Platform(m * target, Fraction(1)))


def counterexample() -> Problem:
    """Return the chain on which a tensor must return before another leaves."""
    chain = Chain(
        forward=[40, 10, 40, 60, 1, 1, 1],
        backward=[1, 1, 1, 1, 60, 1, 1],
        activation=[40, 0, 0, 60, 0, 0, 60, 0],
        gradient=[0] * 8,
        forward_workspace=[0, 100, 0, 0, 0, 0, 0],
    )
    platform = Platform(100, Fraction(1))
    return Problem("early-spike", chain, platform, Transfers.INTERRUPTIBLE)


def spiky_chain(seed: int) -> Problem:
    """Return a small chain with few sizes and a workspace spike in a third of its operations."""
    rng = random.Random(seed)
    stages = 5

    def spikes() -> list[int]:
        return [rng.randint(2, 20) if rng.random() < 0.35 else 0 for _ in range(stages)]

    chain = Chain(
        forward=[rng.choice((1, 2, 5, 10)) for _ in range(stages)],
        backward=[rng.choice((1, 2, 5, 10)) for _ in range(stages)],
        activation=[rng.choice((0, 3, 4, 8, 12)) for _ in range(stages + 1)],
        gradient=[0] * (stages + 1),
        forward_workspace=spikes(),
        backward_workspace=spikes(),
    )
    problem = Problem(f"spiky-5-{seed}", chain, Platform(0, Fraction(1)), Transfers.INTERRUPTIBLE)
    return problem.with_memory(problem.memory_at(Fraction(1, 4)))


def experiments(folder: Path, time_limit: float) -> Iterator[Experiment]:
    """Yield every experiment; certificates are written below the folder."""
    certified = Certified(folder, time_limit)
    for seed in range(10):
        problem = CnnChains(stages=8).problem(seed, Fraction(1, 4))
        problem = replace(problem, name=f"cnn-8-{seed}-atomic")
        yield certified("proposition-1", problem, no_wait(problem, certified.schedule(problem)))
        yield from at_the_peak(certified, problem)
    yield from _reductions(certified)
    for seed in range(20):
        problem = replace(CnnChains(stages=8).problem(seed), transfers=Transfers.FRACTIONAL)
        limited = problem.with_memory(problem.memory_at(Fraction(1, 4)))
        limited = replace(limited, name=f"cnn-8-{seed}-fractional")
        value = fractional_bound(limited, False).value
        yield certified("theorem-2", limited, Fraction(value))
        yield from at_the_peak(certified, limited)
    yield from _orders(certified)


def _reductions(certified: Certified) -> Iterator[Experiment]:
    for m in (2, 3):
        for answer in ("yes", "no"):
            problem = ThreePartition(m=m, target=100, answer=answer).problem(0)
            assert problem.source is not None
            stated = problem.source["solution"]["makespan"]
            name = f"three-partition-{m}-{answer}"
            stated += answer == "no"
            yield certified(f"theorem-1-{answer}", replace(problem, name=name), Fraction(stated))
            if answer == "yes":
                printed = printed_reduction(_sizes(problem))
                yield certified("theorem-1-as-printed", printed, Fraction(stated))
    for count in (6, 8):
        for answer in ("yes", "no"):
            problem = TwoPartition(
                count=count, largest=100, answer=answer, transfers="interruptible"
            ).problem(0)
            assert problem.source is not None
            stated = problem.source["solution"]["makespan"] + (answer == "no")
            name = f"two-partition-{count}-{answer}"
            yield certified(f"theorem-3-{answer}", replace(problem, name=name), Fraction(stated))


def _sizes(problem: Problem) -> list[int]:
    """Return the values of a reduction as it uses them."""
    assert problem.chain is not None
    assert problem.source is not None
    return list(problem.chain.activation[: len(problem.source["values"])])


def _orders(certified: Certified) -> Iterator[Experiment]:
    library = default_library()
    names = ("adversarial-ordered-interruptible", "adversarial-ordered-interruptible-small")
    problems = [counterexample(), *(library.load(name) for name in names)]
    for problem in problems + [spiky_chain(seed) for seed in range(20)]:
        ordered = ordered_optimum(problem)
        if ordered is not None:
            yield certified("lemma-3", problem, Fraction(ordered))
        assert problem.chain is not None
        platform = problem.platform
        value, _ = algorithm_1(problem.chain, platform.memory, platform.bandwidth)
        # A schedule ends at whole ticks, so one as short as the value ends at the next.
        yield certified("algorithm-1", problem, Fraction(math.ceil(value)))
        yield from at_the_peak(certified, problem)


def at_the_peak(certified: Certified, problem: Problem) -> Iterator[Experiment]:
    """Yield Propositions 2 and 3 tried on a problem; of a schedule's bytes only whole ones."""
    moved = math.floor(bytes_out(certified.certificate(problem)))
    if excess(problem):
        yield certified("proposition-2", problem, excess(problem), (moved, moved))
    yield certified("proposition-3", problem, proposition_3(problem))


def excess(problem: Problem) -> Fraction:
    """Return the bytes that are missing where most are needed."""
    return Fraction(max(0, problem.peak_memory - problem.platform.memory))


def proposition_3(problem: Problem) -> Fraction:
    """Return the lower bound of Proposition 3, in ticks and not rounded."""
    moving = sum(excess(problem) / problem.platform.rate(kind) for kind in Kind)
    return max(Fraction(problem.trace.compute_time), moving)


def bytes_out(certificate: Certificate) -> Fraction:
    """Return how many bytes a certificate's schedule copies to the host."""
    schedule = certificate.result.schedule
    assert schedule is not None
    if not isinstance(schedule, Schedule):
        return schedule.offloaded_size
    trace = certificate.executed.trace
    out = [each.gap for each in schedule.transfers if each.kind is Kind.OFFLOAD]
    return Fraction(sum(trace.tensors[trace.gaps[gap].tensor].size for gap in out))


def no_wait(problem: Problem, schedule: Schedule) -> Fraction | None:
    """Return the length of the no-wait schedule with a schedule's set and order; None if stuck."""
    order = [(transfer.kind, transfer.gap) for transfer in schedule.transfers]
    makespan = no_wait_makespan(problem, order)
    return None if makespan is None else Fraction(makespan)


class Certified:
    """Certifies each problem once, and keeps the certificate."""

    def __init__(self, folder: Path, time_limit: float) -> None:
        self._folder = folder
        self._time_limit = time_limit
        self._found: dict[str, Certificate] = {}

    def certificate(self, problem: Problem) -> Certificate:
        """Return the certificate of a problem."""
        if problem.name not in self._found:
            certificate = certify(problem, time_limit=self._time_limit, workers=1)
            (self._folder / CERTIFICATES).mkdir(parents=True, exist_ok=True)
            certificate.write(self._folder / _path(problem))
            self._found[problem.name] = certificate
        return self._found[problem.name]

    def schedule(self, problem: Problem) -> Schedule:
        """Return the certified schedule of a problem with atomic transfers."""
        schedule = self.certificate(problem).result.schedule
        assert isinstance(schedule, Schedule)
        return schedule

    def __call__(
        self,
        claim: str,
        problem: Problem,
        stated: Fraction | None,
        shown: tuple[int, int] | None = None,
    ) -> Experiment:
        """Return an experiment; what its certificate shows is the range of its makespan.

        A bound that a solver claims is none here.
        """
        lower, best = shown or proved_range(self.certificate(problem))
        assert best is not None, problem.name
        return Experiment(claim, problem.name, stated, lower, best, _path(problem))


def _path(problem: Problem) -> str:
    return f"{CERTIFICATES}/{problem.name}.json"


def evidence() -> EvidenceFile:
    """Certify everything and return its evidence."""
    with tempfile.TemporaryDirectory() as folder:
        return theory_evidence([*experiments(Path(folder), TIME_LIMIT)], Path(folder))


def judges(known: EvidenceFile) -> dict[str, Judge]:
    """Return the function that judges each theorem by the rows of its cases."""

    def of(claim: Any) -> Judge:
        return lambda rows: [theory_verdict(claim.judge([*map(Experiment.of, rows)]))]

    return {claim.key: of(claim) for claim in THEORY}


def published(docs: Path) -> EvidenceFile:
    """Return empty evidence, where there is no file of it."""
    return EvidenceFile(THEORY_SECTION, THEORY_COMMAND, (), {})


def stated_again() -> dict[str, Again]:
    """Return functions that compute the value of each statement on a certificate's problem."""

    def of(value: Any) -> Again:
        def again(row: EvidenceRow, held: Any) -> Figures:
            stated = value(schedule_certificate(held))
            return {"stated": None if stated is None else str(stated)}

        return again

    def out(row: EvidenceRow, held: Any) -> Figures:
        certificate = schedule_certificate(held)
        moved = math.floor(bytes_out(certificate))
        return {"stated": str(excess(certificate.problem)), "lower": moved, "best": moved}

    def reduced(more: int) -> Again:
        return of(lambda held: 2 * held.problem.platform.memory + more)

    def solution(more: int) -> Again:
        return of(lambda held: held.problem.source["solution"]["makespan"] + more)

    def without_wait(held: Certificate) -> Fraction | None:
        assert isinstance(held.result.schedule, Schedule)
        return no_wait(held.problem, held.result.schedule)

    def first(held: Certificate) -> int:
        chain, platform = held.problem.chain, held.problem.platform
        assert chain is not None
        return math.ceil(algorithm_1(chain, platform.memory, platform.bandwidth)[0])

    return {
        "proposition-1": of(without_wait),
        "proposition-2": out,
        "proposition-3": of(lambda held: proposition_3(held.problem)),
        "theorem-1-as-printed": reduced(0),
        "theorem-1-yes": reduced(0),
        "theorem-1-no": reduced(1),
        "theorem-2": of(lambda held: fractional_bound(held.problem, False).value),
        "theorem-3-yes": solution(0),
        "theorem-3-no": solution(1),
        "lemma-3": of(lambda held: ordered_optimum(held.problem)),
        "algorithm-1": of(first),
    }


def main() -> None:
    """Certify everything and write the evidence."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    evidence().write(DOCS)
    print(f"wrote the evidence of the theorems in {DOCS}", file=sys.stderr)


if __name__ == "__main__":
    main()
