"""Test the moDNN paper's measurements: a section of docs/claims.md, and its picture.

    python benchmarks/devices.py measure -o out/devices.json
    python benchmarks/claims_modnn.py measure --devices out/devices.json
    python benchmarks/claims_modnn.py

`measure` computes what the paper's Figures 9 to 14 show, each number with what is certified beside
it, takes those of Figures 17 to 19 from the other benchmark, and keeps all in
``docs/claims-modnn.json``. Section and picture are then made of that, also without measuring.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from claims_sections import replaced
from modnn import Case
from modnn_numbers import offloading_alone

from offcert.certification.ladder import certify
from offcert.certification.splitting import certify_split
from offcert.core.documents import read_json, write_atomically, write_json
from offcert.core.errors import NoPlanError
from offcert.core.result import SolveStatus
from offcert.core.trace import Trace
from offcert.heuristics.modnn.memory import bytes_of
from offcert.heuristics.modnn.scheduler import algorithm_1
from offcert.heuristics.modnn.vdnn_tasks import best_vdnn, vdnn_least, vdnn_tasks
from offcert.proofs.split_certificate import SplitCertificate
from offcert.questions.schedule.check import check
from offcert.questions.split.problem import Round
from offcert.verification import document
from offcert_lab.modnn.algorithms import GIGABYTE
from offcert_lab.modnn.networks import NETWORKS
from offcert_lab.modnn.problems import modnn_step
from offcert_lab.modnn.tasks import step_round, step_split
from papers.claims.evidence import EvidenceFile, evidence_path, read_evidence
from papers.claims.modnn import HEADING, modnn_section
from papers.claims.modnn_figure import save_figure
from papers.claims.modnn_rows import rows_from_json
from papers.sub_batch import least_memory, select_sub_batch

DOCS = Path(__file__).parent.parent / "docs"
ROWS, FIGURE = "claims-modnn.json", "claims-modnn.png"
_LOADED = ("X", "labels")
Row = dict[str, Any]


def placed_apart(trace: Trace) -> int:
    """Return the bytes of all tensors and the largest workspace, each in a place of its own."""
    largest = max(operation.workspace for operation in trace.operations)
    return sum(tensor.size for tensor in trace.tensors) + largest


def memory_row(network: str, image: int, seconds: float) -> Row:
    """Return the numbers of Figures 9, 13 and 14 for a network: bytes, and ns of a batch."""
    case = Case(network, 12 * GIGABYTE, False, image)
    whole, one = case.profile(case.batch), case.profile(1)
    fastest, leanest = (whole.chosen(each) for each in (whole.menu.fastest(), whole.menu.leanest()))
    single = one.chosen(one.menu.fastest())
    row: Row = {
        "network": network,
        "ideal": placed_apart(fastest),
        "live": fastest.peak_memory,
        "loaded": sum(each.size for each in whole.trace.tensors if each.name in _LOADED),
        "kept_12": kept(case, fastest, 12 * GIGABYTE),
        "kept_24": kept(case, fastest, 24 * GIGABYTE),
        "offloading": fastest.least_memory,
        "sub_batches": placed_apart(single),
        "algorithms": placed_apart(leanest),
        "whole_least": leanest.least_memory,
        "vdnn_least": vdnn_least(whole.trace, whole.menu),
        "ideal_time": case.ideal,
        "sub_batches_time": case.batch * single.compute_time,
        "algorithms_time": leanest.compute_time,
    }
    for name, leave in (("", False), ("_weights", True)):
        each = step_round(case.layers, 1, weights_leave=leave)
        row |= {f"{key}{name}": value for key, value in _least(case, each, leave, seconds).items()}
    return row | offloading(case, fastest, seconds)


def kept(case: Case, trace: Trace, memory: int) -> bool:
    """Return whether Algorithm 1 places everything so that nothing leaves and nothing waits."""
    at = Case(case.network, memory, False, case.image)
    try:
        outcome = algorithm_1(at.problem(trace))
    except NoPlanError:
        return False
    return not outcome.schedule.transfers and outcome.schedule.makespan == trace.compute_time


def _least(case: Case, one: Round, leave: bool, seconds: float) -> Row:
    """Return Eq. 7, and what is certified with so much memory and with a byte less."""
    least = least_memory(one.trace, one.menu)
    at = Case(case.network, least, False, case.image)
    found = certified(at, least, leave, seconds)
    below = certified(at, least - 1, leave, seconds)
    return {
        "least": least,
        "least_time": found.objective,
        "least_bound": found.lower_bound,
        "below_infeasible": below.status is SolveStatus.INFEASIBLE,
        "least_modnn": attempt(at, one, case.batch),
    }


def attempt(case: Case, one: Round, count: int) -> int | None:
    """Return the time of Algorithm 1 for rounds one after the other; None if it finds no room."""
    try:
        return count * case.modnn(one)
    except NoPlanError:
        return None


def certified(case: Case, memory: int, leave: bool, seconds: float) -> SplitCertificate:
    """Return a verified certificate of the step with all its choices."""
    step = modnn_step(case.network, memory=memory, image=case.image, weights_leave=leave)
    found = certify_split(step, time_limit=seconds, workers=1, target_gap=0.0005)
    require_valid(found)
    return found


def require_valid(certificate: Any) -> None:
    """Leave the program if a certificate does not verify."""
    verification = document.verify(certificate)
    if not verification.valid:
        sys.exit(f"a certificate is not valid: {verification.faults}")


def offloading(case: Case, fastest: Trace, seconds: float) -> Row:
    """Return the whole batch in the least memory with the fastest algorithms.

    Algorithm 1's time, and what is certified: Figure 14 is about the most that each technique
    saves alone.
    """
    outcome = offloading_alone(fastest)
    at = Case(case.network, fastest.least_memory, False, case.image)
    found = certify(at.problem(fastest), time_limit=seconds, workers=1, target_gap=0.0005)
    require_valid(found)
    assert found.result.objective is not None
    return {
        "offloading_time": outcome.schedule.makespan,
        "offloading_best": min(found.result.objective, outcome.schedule.makespan),
        "offloading_bound": found.result.lower_bound,
    }


def time_row(network: str, memory: int, image: int, seconds: float) -> Row:
    """Return the numbers of Figures 10 to 12 for a network with a memory."""
    case = Case(network, memory, False, image)
    row: Row = {"network": network, "memory": memory, "ideal_time": case.ideal}
    size = select_sub_batch(case.profile, case.batch, memory).size
    row |= {"modnn_size": size, **measured(case, size, "modnn", _modnn)}
    row |= _plus(case, size, "plus", _vdnn) | _plus(case, size, "dynamic", _dynamic)
    row |= measured(case, case.batch, "whole", _modnn)
    row |= measured(case, case.batch, "vdnn", _vdnn)
    found = certified(case, memory, False, seconds)
    if found.split is None:
        sys.exit(f"no schedule is known for {network} with {memory} bytes")
    assert found.objective is not None
    known = best_known(row, case.batch, (found.objective, found.problem.sizes[found.split]))
    return row | known | {"bound": found.lower_bound, "whole_bound": found.split_bound(0)}


def best_known(row: Row, batch: int, searched: tuple[int, int]) -> Row:
    """Return the least time that is known and its sub-batch: of the search, or of a method.

    The search does not begin with what the methods find, and its seconds are few.
    """
    sizes = {name: row[f"{name}_size"] for name in ("modnn", "plus", "dynamic")}
    sizes |= {"whole": batch, "vdnn": batch}
    plans = ((row[f"{name}_time"], size) for name, size in sizes.items())
    ticks, size = min((searched, *(plan for plan in plans if plan[0] is not None)))
    return {"best_time": ticks, "best_size": size}


def _plus(case: Case, size: int, name: str, method: Any) -> Row:
    """Return vDNN with a sub-batch, or with the next smaller one in which it finds room."""
    while True:
        found = measured(case, size, name, method)
        if found[f"{name}_time"] is not None or size == 1:
            return {f"{name}_size": size, **found}
        size = 1 << ((size - 1).bit_length() - 1)


def measured(case: Case, size: int, name: str, method: Any) -> Row:
    """Return time and moved bytes of a batch in sub-batches, None if a method finds no room.

    Leaves the program if a schedule is not feasible.
    """
    ticks = moved = 0
    try:
        for each in step_split(case.layers, case.batch, size).rounds:
            outcome = method(case, each)
            faults = check(case.problem(outcome.trace), outcome.schedule)
            if faults:
                sys.exit(f"{name} has a schedule for {case.network} that fails: {faults[0]}")
            ticks += each.count * outcome.schedule.makespan
            moved += each.count * bytes_of(outcome.schedule.transfers, outcome.trace)
    except NoPlanError:
        return {f"{name}_time": None, f"{name}_moved": None}
    return {f"{name}_time": ticks, f"{name}_moved": moved}


def _modnn(case: Case, each: Round) -> Any:
    return algorithm_1(case.problem(each), each.menu)


def _vdnn(case: Case, each: Round) -> Any:
    return vdnn_tasks(case.problem(each), each.menu, "all")


def _dynamic(case: Case, each: Round) -> Any:
    return best_vdnn(case.problem(each), each.menu)


def devices_rows(path: Path) -> list[Row]:
    """Return the verified rows of the other benchmark, as far as the claims need them."""
    names = ("network", "case", "devices", "sub_batch", "makespan", "lower_bound", "one_gpu")
    rows = read_json(path)["rows"]
    if not all(row["valid"] for row in rows):
        sys.exit(f"{path} has certificates that are not valid")
    return [{name: row[name] for name in names} for row in rows]


def certificates(docs: Path) -> EvidenceFile | None:
    """Return the evidence that `claims_modnn_check.py` has made, if it is there."""
    path = evidence_path(docs, "modnn")
    return read_evidence(path) if path.exists() else None


def measure(options: argparse.Namespace) -> Row:
    """Return all rows."""
    image, seconds = options.image, options.time_limit
    memory, times = [], []
    for network in options.networks:
        memory.append(memory_row(network, image, seconds))
        for size in options.memory:
            times.append(time_row(network, int(size * GIGABYTE), image, seconds))
            print(network, size, times[-1]["best_time"] / times[-1]["ideal_time"], flush=True)
    return {
        "format": "offcert-modnn-rows",
        "version": 2,
        "seconds": seconds,
        "memory": memory,
        "times": times,
        "devices": devices_rows(options.devices),
    }


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure if asked to, and write section and picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("action", nargs="?", choices=["measure"])
    parser.add_argument("--devices", type=Path, default=Path("out/devices.json"))
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument(
        "--memory", nargs="+", type=float, default=[12, 10, 8, 6, 5, 4, 3, 2], help="in GB"
    )
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--time-limit", type=float, default=6.0)
    parser.add_argument("--docs", type=Path, default=DOCS)
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.action == "measure":
        write_json(options.docs / ROWS, measure(options))
    rows = rows_from_json(read_json(options.docs / ROWS))
    save_figure(rows, options.docs / FIGURE)
    path = options.docs / "claims.md"
    section = modnn_section(rows, FIGURE, certificates(options.docs))
    text = replaced(path.read_text(encoding="utf-8"), HEADING, section)
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))
    print(f"wrote the section about moDNN of {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
