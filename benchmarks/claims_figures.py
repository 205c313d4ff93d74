"""Test two papers' measurements of recomputation: a section of docs/claims.md.

    python benchmarks/claims_figures.py [--time-limit 30]

Everything is computed anew, in some minutes: the evidence and the section, which is replaced.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from claims_printed import (
    FIGURE_5,
    FIGURE_7,
    PARAMETERS,
    PEAKS,
    PLAIN_ALEXNET,
    PUBLISHED,
    RETURNED,
    SECONDS,
)
from claims_sections import replace_section
from claims_table_1 import (
    HARDWARE,
    MIB,
    ROWS,
    chen_rows,
    eighty_rows,
    overhead_rows,
    table_1_rows,
)

from offcert.certification.ladder import certify
from offcert.core.checkpoint_chain import CheckpointChain
from offcert.core.platform import Platform
from offcert.core.units import Units
from offcert.heuristics.checkpoint.live import live_bytes, recomputed_time
from offcert.heuristics.checkpoint.selections import linear_selection
from offcert.questions.schedule.files import problem_digest
from offcert.questions.schedule.problem import Minimise, Problem, Recompute
from papers.checkpoint_chains.lemmas import steps_linear, steps_static
from papers.checkpoint_chains.memory_models import dynamic_memory
from papers.checkpoint_chains.networks import selection_network
from papers.checkpoint_chains.stage_ends import stage_end_bytes
from papers.claims.evidence import EvidenceFile, EvidenceRow, Figures, evidence_of
from papers.claims.evidence_check import Again, Judge, proved_range, rows_again
from papers.claims.figures import (
    FIGURES,
    HEADING,
    STATEMENTS,
    figure_row,
    recomputation_figures_section,
    statement_verdict,
)
from papers.claims.selection_certificate import SelectionCertificate
from papers.claims.theory import Experiment

DOCS = Path(__file__).parent.parent / "docs"
SECTION, COMMAND = "figures", "python benchmarks/claims_figures.py"
# A parameter has a gradient and a momentum, four bytes each.
_STATES, _FLOAT = 3, 4
Shown = tuple[EvidenceRow, list[Any]]


def memory_rows() -> Iterator[EvidenceRow]:
    """Yield differences of peaks (Table 2)."""
    for (name, batch), peaks in PEAKS.items():
        chain = selection_network(name, batch, pytorch=True)
        own = {method: stage_end_bytes(chain, PUBLISHED[name][method]) for method in peaks}
        for method in list(peaks)[1:]:
            paper = peaks[method] - peaks["Algorithm 6"]
            here = Fraction(own[method] - own["Algorithm 6"], MIB)
            case = f"{name}, {batch} images, {method}"
            yield figure_row("selection-memory", case, paper, here, "MiB", digit=Fraction(1))


def savings_rows() -> Iterator[EvidenceRow]:
    """Yield the savings in percent of the whole peak, and of what is not weights."""
    chain = selection_network("vgg19", 128, pytorch=True)
    own = {name: stage_end_bytes(chain, each) for name, each in PUBLISHED["vgg19"].items()}
    rows = (("√n", "√n", "23", 2), ("the arbitrary-graph solver", "Algorithm 3", "57/10", 392))
    for reading, beside in (("", _states("vgg19")), ("without weights", 0)):
        for case, method, paper, _ in rows:
            here = 100 * Fraction(own[method] - own["Algorithm 6"], own[method] + beside)
            yield figure_row("selection-savings", f"against {case}", paper, here, "%", reading)
    for (case, method, _, paper), unit in zip(rows, (2**30, MIB), strict=True):
        here = Fraction(own[method] - own["Algorithm 6"], unit)
        name = "MiB" if unit == MIB else "GiB"
        yield figure_row("selection-savings", f"against {case}, in {name}", paper, here, name)


def _states(name: str) -> int:
    """Return the bytes of parameters, gradients and momenta."""
    return _STATES * _FLOAT * PARAMETERS[name]


def published_rows() -> Iterator[Shown]:
    """Yield Eq. (9) of published checkpoints beside its certified least."""
    claim = "selection-published-checkpoints"
    for case, (name, checkpoints) in RETURNED.items():
        sizes = selection_network(name, 128).output
        found = linear_selection(sizes)
        values = found.checkpoints, found.memory, found.memory
        document = SelectionCertificate(name, "dynamic", sizes, None, *values).to_json()
        stated = Fraction(dynamic_memory(sizes, checkpoints))
        row = Experiment(claim, case, stated, found.memory, found.memory).row(document["digest"])
        yield row, [document]


def prediction_rows() -> Iterator[EvidenceRow]:
    """Yield the mean error of Eqs. (9) and (10), in percent."""
    chain, model = (selection_network("vgg19", 128, pytorch=each) for each in (True, False))
    beside = _states("vgg19")
    errors = [
        abs(Fraction(predicted + beside, counted + beside) - 1)
        for predicted, counted in zip(
            predicted_bytes(model.output, FIGURE_5), counted_bytes(chain, FIGURE_5), strict=True
        )
    ]
    here = 100 * sum(errors, Fraction(0)) / len(errors)
    yield figure_row("selection-prediction", "VGG-19, 128 images", "28/10", here, "%")


def predicted_bytes(sizes: Sequence[int], checkpoints: Sequence[int]) -> Iterator[int]:
    """Yield m(i) of every layer's backward operation (Eqs. 9 and 10), from the last layer on."""
    for h, i in reversed(list(pairwise(checkpoints))):
        stored = sum(sizes[each] for each in checkpoints if each <= h)
        for k in reversed(range(h + 1, i + 1)):
            yield stored + sum(sizes[h + 1 : k + 1]) + max(sizes[h:i])


def counted_bytes(chain: CheckpointChain, checkpoints: Sequence[int]) -> Iterator[int]:
    """Yield the bytes at the end of every layer's backward operation, from the last on.

    As `papers.checkpoint_chains.stage_ends` counts, of which this is each stage's number.
    """
    for h, i in reversed(list(pairwise(checkpoints))):
        stored = sum(chain.output[each] for each in checkpoints if each <= h)
        for k in reversed(range(h, i)):
            segment = sum(chain.output[each + 1] + chain.extra[each] for each in range(h, k))
            yield stored + segment + chain.gradient[k] + chain.gradient[k + 1]


def granularity_rows() -> Iterator[EvidenceRow]:
    """Yield the difference between the plain and the extended AlexNet."""
    plain = selection_network("plain-alexnet", 128, pytorch=True)
    extended = selection_network("alexnet", 128, pytorch=True)
    more = stage_end_bytes(plain, PLAIN_ALEXNET)
    less = stage_end_bytes(extended, PUBLISHED["alexnet"]["Algorithm 6"])
    here = Fraction(more - less, MIB)
    yield figure_row("selection-granularity", "AlexNet, 128 images", 100, here, "MiB")


def again_whole(chain: CheckpointChain, checkpoints: Sequence[int]) -> int:
    """Return the ticks that run again if every segment does, with the checkpoint at its end."""
    return sum(sum(chain.forward[h:i]) for h, i in pairwise(checkpoints))


def again_missing(chain: CheckpointChain, checkpoints: Sequence[int]) -> int:
    """Return the ticks of the layers whose outputs are no checkpoints (Algorithms 2 and 4)."""
    return sum(sum(chain.forward[h : i - 1]) for h, i in pairwise(checkpoints))


READINGS: dict[str, Callable[[CheckpointChain, Sequence[int]], int]] = {
    "": again_whole,
    "no checkpoint runs again (Algorithms 2 and 4 to the letter)": again_missing,
    "the last segment does not run again (ours, and PyTorch's `checkpoint_sequential`)": (
        recomputed_time
    ),
}


def time_rows() -> Iterator[EvidenceRow]:
    """Yield the overheads of Table 3, reading by reading, in percent."""
    for reading, again in READINGS.items():
        for (name, batch), seconds in SECONDS.items():
            chain = selection_network(name, batch, pytorch=True)
            claim = "selection-time" if name == "vgg19" else "selection-time-alexnet"
            for method in ("Algorithm 6", "Algorithm 3", "√n"):
                paper = 100 * (Fraction(seconds[method], seconds["plain"]) - 1)
                ticks = again(chain, PUBLISHED[name][method])
                here = 100 * Fraction(ticks, chain.network().compute_time)
                yield figure_row(claim, f"{batch} images, {method}", paper, here, "%", reading)


def figure_7_rows() -> Iterator[EvidenceRow]:
    """Yield how the two selections of Fig. 7 differ: at their peaks, and in their first segment.

    A part of the segment counts only if it is as the paper says: the first half and more, in which
    the arbitrary-graph solver's takes more, and all the rest, in which it takes less.
    """
    chain = selection_network("vgg19", 128, pytorch=True)
    ours, theirs = (list(counted_bytes(chain, each)) for each in (FIGURE_5, FIGURE_7))
    apart = [b - a for a, b in zip(ours, theirs, strict=True)][: FIGURE_7[-1] - FIGURE_7[-2]]
    first = next((at for at, each in enumerate(apart) if each <= 0), len(apart))
    more, less = apart[:first], apart[first:]
    parts = {
        "at the peak": (0, abs(max(ours) - max(theirs))),
        "more at first": (2, max(more) if 2 * len(more) >= len(apart) else 0),
        "less afterwards": (2, -min(less) if less and max(less) < 0 else 0),
    }
    for case, (paper, here) in parts.items():
        yield figure_row("selection-figure-7", case, paper, Fraction(here, 2**30), "GiB")


def search_rows() -> Iterator[EvidenceRow]:
    """Yield how many times longer Algorithm 3 searches than Algorithm 6."""
    sizes = selection_network("vgg19", 128).output
    here = Fraction(steps_static(sizes), steps_linear(sizes))
    yield figure_row("selection-search", "VGG-19", Fraction(200, 11), here, "×")


def needed_problem(name: str) -> Problem:
    """Return a network of the selection paper with the memory of Algorithm 6's checkpoints."""
    chain = selection_network(name, 128, pytorch=True)
    memory = live_bytes(chain, PUBLISHED[name]["Algorithm 6"])
    platform = Platform(memory, Fraction(1))
    return Problem(name, chain, platform, recompute=Recompute.ANY, offload=False)


def eighty_problem() -> Problem:
    """Return ResNet-152 as in Table 1, whose memory is minimised with 40 % more time."""
    import torch

    from offcert.runtime import zoo
    from offcert.runtime.hardware import hardware
    from offcert.runtime.workloads.workload import Workload
    from papers.combined.checkpoints import profile_checkpoints

    row = ROWS["resnet152"]
    with torch.device("meta"):
        module = zoo.build(row.name)
    workload = Workload(row.name, (row.batch, 3, row.image, row.image))
    model = hardware(HARDWARE, peak=True)
    chain = profile_checkpoints(module, workload, model)
    network = chain.network()
    platform = Platform(network.trace().peak_memory, Fraction(model.link_bandwidth, 10**9))
    return Problem(
        row.name,
        chain,
        platform,
        units=Units("ns", "B"),
        recompute=Recompute.ANY,
        offload=False,
        minimise=Minimise.MEMORY,
        deadline=network.compute_time * 7 // 5,
    )


def asked(claim: str, name: str) -> Problem:
    """Return the problem that a statement is about."""
    return needed_problem(name) if claim == "selection-time-needed" else eighty_problem()


def stated_of(claim: str, problem: Problem) -> Fraction:
    """Return the ticks or bytes of a statement: a step and a forward pass, a fifth of the peak."""
    network = problem.computed
    assert network is not None
    if claim == "selection-time-needed":
        again = sum(each.duration for each in network.computations if each.repeatable)
        return Fraction(network.compute_time + again)
    return Fraction(network.trace().peak_memory, 5)


def statement_rows(time_limit: float) -> Iterator[Shown]:
    """Yield the rows and certificates of statements."""
    cases = [("selection-time-needed", name) for name in PUBLISHED]
    for claim, name in [*cases, ("reforwarding-eighty-possible", "resnet152")]:
        problem = asked(claim, name)
        certificate = certify(problem, time_limit=time_limit, workers=1)
        document = certificate.to_json()
        lower, best = proved_range(certificate)
        assert best is not None, problem.name
        found = Experiment(claim, problem.name, stated_of(claim, problem), lower, best)
        yield found.row(document["digest"]), [document]


def evidence(time_limit: float = 30.0) -> EvidenceFile:
    """Compute everything and return it."""

    def rows() -> Iterator[Shown]:
        for make in _COMPUTED:
            for row in make():
                yield row, []
        yield from published_rows()
        yield from statement_rows(time_limit)

    return evidence_of(SECTION, COMMAND, rows())


_COMPUTED: tuple[Callable[[], Iterator[EvidenceRow]], ...] = (
    memory_rows,
    savings_rows,
    prediction_rows,
    granularity_rows,
    time_rows,
    chen_rows,
    overhead_rows,
    figure_7_rows,
    search_rows,
    table_1_rows,
    eighty_rows,
)


def judges(known: EvidenceFile) -> dict[str, Judge]:
    """Return the function that judges each claim by the rows of its cases."""
    found: dict[str, Judge] = {
        claim.key: lambda rows, claim=claim: [str(claim.verdict(rows))] for claim in FIGURES
    }
    return found | {
        claim.key: lambda rows, claim=claim: [statement_verdict(claim, rows)]
        for claim in STATEMENTS
    }


def published(docs: Path) -> EvidenceFile:
    """Return empty evidence, where there is no file of it."""
    return EvidenceFile(SECTION, COMMAND, (), {})


def stated_again() -> dict[str, Again]:
    """Return the functions that compute every figure again."""

    def stated(row: EvidenceRow, held: Any) -> Figures:
        if held is None:
            return {}
        problem = asked(row.claim, row.case)
        if problem_digest(problem) != problem_digest(held.problem):
            return {"problem": problem.name}
        return {"stated": str(stated_of(row.claim, problem))}

    def published(row: EvidenceRow, held: Any) -> Figures:
        name, checkpoints = RETURNED[row.case]
        sizes = selection_network(name, 128).output
        if held is None or held.sizes != sizes:
            return {"network": name}
        return {"stated": str(dynamic_memory(sizes, checkpoints))}

    makers = {
        "selection-memory": memory_rows,
        "selection-savings": savings_rows,
        "selection-prediction": prediction_rows,
        "selection-granularity": granularity_rows,
        "selection-time": time_rows,
        "selection-time-alexnet": time_rows,
        "reforwarding-chen": chen_rows,
        "reforwarding-over-chen": chen_rows,
        "reforwarding-time": overhead_rows,
        "selection-figure-7": figure_7_rows,
        "selection-search": search_rows,
        "reforwarding-eighty": eighty_rows,
    }
    makers |= dict.fromkeys(
        (f"reforwarding-{name}" for name in ("regular", "memory", "cut")), table_1_rows
    )
    again = {make: rows_again(make) for make in set(makers.values())}
    found: dict[str, Again] = {key: again[make] for key, make in makers.items()}
    found |= {claim.key: stated for claim in STATEMENTS}
    return found | {"selection-published-checkpoints": published}


def main(arguments: Iterable[str] | None = None) -> None:
    """Compute everything, write the evidence and replace the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--time-limit", type=float, default=30.0, help="of each certificate")
    options = parser.parse_args(None if arguments is None else list(arguments))
    found = evidence(options.time_limit)
    found.write(DOCS)
    replace_section(DOCS / "claims.md", HEADING, recomputation_figures_section(found))
    for row in found.rows:
        print(row.claim, row.case, row.figures)
    print(f"wrote evidence and section about measurements in {DOCS}", file=sys.stderr)


if __name__ == "__main__":
    main()
