"""Put the offloading paper's claims to the test: a campaign over its networks, then docs/claims.md.

    python benchmarks/claims.py [--batches 8,32] [--memory 0:90:10] [--time-limit 4] [--jobs 2]
    python benchmarks/claims.py --report-only

Profiles the ResNets, the DenseNets and Inception v3 at the paper's image sizes (V100-PCIe
roofline), and runs every heuristic and ``certify`` on the chains that the paper's methods see, at
ten memory limits. Chains of small images that usually close (all but DenseNets, which are cut at
every dense layer) are searched again with more time where they stay open. Of small images
and large batches there are also the traces behind the chains, at five limits, and, as a variant,
the chains of DenseNets with every dense block as one stage. An empty folder begins with what the
evidence has; what is in the folder is not computed again, but for searches whose certificates are
not: the campaign may be interrupted, extended by other options, and repeated. Then the page and the
certificates that it links to are written from the table; the same table gives the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

from claims_restore import restore
from claims_sections import replaced, section_of
from claims_theory import experiments

from offcert.campaign.cells import CERTIFY, Cell, CellSettings, grid
from offcert.campaign.run import CampaignProgress, run
from offcert.campaign.selection import parse_limits
from offcert.campaign.table import CampaignTable, read
from offcert.core.documents import read_json, write_atomically, write_json
from offcert.core.errors import InputError
from offcert.heuristics.evictions.dynprog import chain_view
from offcert.questions.schedule.files import read_problem, write_problem
from offcert.questions.schedule.problem import Problem
from offcert_lab.comparisons.curve_figures import save_grid
from offcert_lab.comparisons.curves import Curves, curves_of
from offcert_lab.comparisons.points import Point, by_problem, plain_rows, points_of
from papers.claims import combined, field, figures, layers, modnn, program, recomputation
from papers.claims.document import FOLDER, Report, write_report
from papers.claims.exhibits import exhibits_to_json
from papers.claims.facts import BY_BLOCKS, facts_of
from papers.claims.offloading import SLOTS
from papers.claims.predicates import CHAINS, view_of
from papers.claims.published import with_table
from papers.claims.theory import experiments_from_json, experiments_to_json

HARDWARE = "v100-pcie"
CHAIN, TRACE, BLOCKS = "chain", "trace", "blocks"
# Of that hardware, in bytes per nanosecond.
BANDWIDTH = Fraction(61, 5)
RESNETS = tuple(f"resnet{depth}" for depth in (18, 34, 50, 101, 152))
DENSENETS = tuple(f"densenet{depth}" for depth in (121, 161, 169, 201))
NETWORKS = (*RESNETS, *DENSENETS, "inception_v3")
METHODS = ("greedy", "dynprog", SLOTS, "vdnn", "tflms")
RANDOM = "autoswap"
TABLE, EXPERIMENTS, CERTIFICATES, PROBLEMS = (
    "table.jsonl",
    "theory.json",
    "certificates",
    "problems",
)
FIGURE = "claims-224.png"
DOCS = Path(__file__).parent.parent / "docs"


def problems(options: argparse.Namespace, blocks: bool = False) -> Iterator[Problem]:
    """Yield every network as a trace, profiled once and kept in the folder; or those of blocks."""
    for network, image, batch in product(options.networks, options.images, options.batches):
        searched = image in options.small_images and batch in options.open_batches
        if blocks and (network not in DENSENETS or not searched):
            continue
        name = f"{network}-{image}-b{batch}"
        path = options.folder / PROBLEMS / f"{name}{f'-{BLOCKS}' * blocks}.json"
        if not path.exists():
            from offcert.runtime.hardware import hardware
            from offcert_lab.stages.problem import stage_problem

            say(f"profiling {name}")
            shape = f"{batch}x3x{image}x{image}"
            path.parent.mkdir(parents=True, exist_ok=True)
            asked = {"stages": BLOCKS if blocks else "layers"} if network in DENSENETS else {}
            found = stage_problem(network, shape, hardware(HARDWARE, peak=True), options=asked)
            write_problem(path, replace(found, name=name))
        yield read_problem(path)


def stages_of(folder: Path) -> dict[str, int]:
    """Return how many stages each network of the folder has, the loss among them."""
    found: dict[str, int] = {}
    for path in sorted((folder / PROBLEMS).glob("*.json")):
        problem = read_problem(path)
        network, stages = network_of(problem), len(problem.trace) // 2
        network += f" {BY_BLOCKS}" if path.stem.endswith(f"-{BLOCKS}") else ""
        if found.setdefault(network, stages) != stages:
            raise InputError(f"{path}: {network} has {stages} stages, elsewhere {found[network]}")
    return found


def as_chain(problem: Problem, ending: str = CHAIN) -> Problem:
    """Return the problem whose network is the chain that the paper's methods see."""
    # A chain is not what its source profiles to, and training must not take it for that.
    source = {"view": "chain", **(problem.source or {})}
    chain = chain_view(problem).chain
    return replace(problem, name=f"{problem.name}-{ending}", network=chain, source=source)


def cells(options: argparse.Namespace) -> list[Cell]:
    """Return everything to be computed."""
    traces = list(problems(options))
    few = parse_limits(options.few)
    chosen: list[Cell] = []
    for view in options.views:
        found, limits = traces, parse_limits(options.memory)
        if view == CHAIN:
            found = [as_chain(each) for each in traces]
        elif view == BLOCKS:
            found = [as_chain(each, BLOCKS) for each in problems(options, blocks=True)]
        else:
            found = [each for each in traces if image_of(each) in options.small_images]
            found = [each for each in found if batch_of(each) in options.open_batches]
            limits = few
        chosen += grid(found, METHODS, limits)
        for problem in found:
            if image_of(problem) in options.certify_images:
                settings = CellSettings(time_limit=seconds_for(problem, view, options))
                chosen += grid([problem], (CERTIFY,), limits, settings)
        small = [each for each in found if image_of(each) in options.small_images]
        for seed in range(options.seeds):
            chosen += grid(small, (RANDOM,), few, CellSettings(seed=seed))
    return chosen


def seconds_for(problem: Problem, view: str, options: argparse.Namespace) -> float:
    """Return the time limit of the search for an optimum."""
    closes = view == BLOCKS or (view == CHAIN and network_of(problem) not in DENSENETS)
    if image_of(problem) not in options.small_images:
        return float(options.large_time_limit)
    if not closes and batch_of(problem) not in options.open_batches:
        return float(options.large_time_limit)
    return float(options.time_limit if closes else options.open_time_limit)


def open_again(
    options: argparse.Namespace, wanted: Iterable[Cell], table: CampaignTable
) -> list[Cell]:
    """Return longer searches for chains that usually close, and that the table leaves open."""
    found = []
    for cell in wanted:
        short = cell.method == CERTIFY and cell.settings.time_limit == options.time_limit
        if short and table.rows[cell.key]["status"] in ("FEASIBLE", "UNKNOWN"):
            settings = replace(cell.settings, time_limit=options.again_time_limit)
            found.append(replace(cell, settings=settings))
    return found


def network_of(problem: Problem) -> str:
    """Return the zoo's name of a profiled network."""
    return str((problem.source or {}).get("model"))


def image_of(problem: Problem) -> int:
    """Return the pixels a side that a network was profiled with."""
    return int((problem.source or {})["input"][-1])


def batch_of(problem: Problem) -> int:
    """Return the images of a step that a network was profiled with."""
    return int((problem.source or {})["input"][0])


def measure(options: argparse.Namespace) -> None:
    """Run the campaign and the experiments, as far as they are not in the folder."""
    options.folder.mkdir(parents=True, exist_ok=True)
    wanted = cells(options)
    with CampaignTable(options.folder / TABLE) as table:
        _compute(options, wanted, table)
        if options.again_time_limit > options.time_limit:
            _compute(options, open_again(options, wanted, table), table)
    # These take seconds, so they are always made anew.
    found = list(experiments(options.folder, max(options.time_limit, 5.0)))
    write_json(options.folder / EXPERIMENTS, experiments_to_json(found))


def _compute(options: argparse.Namespace, wanted: Sequence[Cell], table: CampaignTable) -> None:
    certificates = options.folder / CERTIFICATES
    summary = run(
        wanted,
        table,
        jobs=options.jobs,
        certificates=certificates,
        progress=lambda step: say(_line(step)),
    )
    say(f"{summary.computed} cells computed, {summary.kept} kept, {summary.failed} failed")


def _line(step: CampaignProgress) -> str:
    row = step.row
    # Rows of what failed have no makespan.
    return (
        f"{step.done}/{step.missing} {row['problem']} {row['memory_percent']:g} % {row['method']}: "
        f"{row['status']} {row.get('makespan')} in {row['seconds']:.2f} s"
    )


def report(options: argparse.Namespace) -> tuple[Report, list[Curves]]:
    """Return the page that the folder's table and experiments give, and what its figure shows."""
    frame = read(options.folder / TABLE)
    theory = experiments_from_json(read_json(options.folder / EXPERIMENTS))
    points = points_of(frame, BANDWIDTH)
    panels = representative(points)
    facts = facts_of(frame, theory, stages_of(options.folder))
    figure = FIGURE if panels else None
    page = write_report(points, theory, facts, options.folder, figure)
    tables, theorems = page.evidence
    tables = with_table(tables, plain_rows(frame), options.folder)
    return replace(page, evidence=(tables, theorems)), panels


def representative(points: Sequence[Point]) -> list[Curves]:
    """Return the curves of the paper's Figure 5: every network, small images, batches of 32."""
    chosen = [p for p in points if view_of(p) == CHAINS and (p.image, p.batch) == (224, 32)]
    return [curves_of(group) for group in by_problem(chosen).values()]


def publish(page: Report, panels: Sequence[Curves], docs: Path) -> None:
    """Write page, figure and certificates, and remove certificates that are no longer linked to."""
    folder = docs / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    named = {exhibit.name: exhibit.source for exhibit in page.exhibits}
    for name, source in named.items():
        content = source.read_bytes()
        write_atomically(folder / name, lambda part, content=content: part.write_bytes(content))
    write_json(folder / "index.json", exhibits_to_json(page.exhibits))
    for each in page.evidence:
        each.write(docs)
    for path in folder.glob("*.json"):
        if path.name not in (*named, "index.json"):
            path.unlink()
    if panels:
        save_grid(panels, docs / FIGURE)
    path = docs / "claims.md"
    text, before = page.text, path.read_text(encoding="utf-8") if path.exists() else ""
    # The sections about other papers have benchmarks of their own.
    for heading in (
        recomputation.HEADING,
        figures.HEADING,
        combined.HEADING,
        program.HEADING,
        modnn.HEADING,
        layers.HEADING,
        field.HEADING,
    ):
        text = replaced(text, heading, section_of(before, heading))
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _words(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in _words(text)]


def _parse(arguments: Iterable[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--networks", type=_words, default=list(NETWORKS))
    parser.add_argument("--images", type=_numbers, default=[224, 500, 1000])
    parser.add_argument("--batches", type=_numbers, default=[8, 32])
    parser.add_argument("--views", type=_words, default=[CHAIN, TRACE, BLOCKS])
    parser.add_argument("--memory", default="0:90:10", help="limits of chains (%(default)s)")
    parser.add_argument(
        "--few", default="0:80:20", help="limits of traces, and of AUTOSWAP (%(default)s)"
    )
    parser.add_argument(
        "--certify-images",
        type=_numbers,
        default=[224, 500, 1000],
        help="on which an optimum is looked for (%(default)s)",
    )
    parser.add_argument(
        "--small-images",
        type=_numbers,
        default=[224],
        help="on which searches take longer, and traces and AUTOSWAP are used (%(default)s)",
    )
    parser.add_argument(
        "--open-batches",
        type=_numbers,
        default=[32],
        help="of which DenseNets are searched longer, and traces are used (%(default)s)",
    )
    parser.add_argument(
        "--time-limit", type=float, default=20.0, help="of certify, for chains (%(default)s)"
    )
    parser.add_argument(
        "--again-time-limit",
        type=float,
        default=90.0,
        help="of another search for chains that stay open, if larger (%(default)s)",
    )
    parser.add_argument(
        "--open-time-limit",
        type=float,
        default=12.0,
        help="for what stays open whatever the seconds: DenseNets and traces (%(default)s)",
    )
    parser.add_argument(
        "--large-time-limit",
        type=float,
        default=8.0,
        help="for larger images, and DenseNets of other batches (%(default)s)",
    )
    parser.add_argument("--seeds", type=int, default=2, help=f"of {RANDOM} (%(default)s)")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--folder", type=Path, default=Path("out/claims"))
    parser.add_argument("--docs", type=Path, default=DOCS)
    parser.add_argument("--report-only", action="store_true")
    return parser.parse_args(None if arguments is None else list(arguments))


def main(arguments: Iterable[str] | None = None) -> None:
    """Carry out the command line's choices."""
    options = _parse(arguments)
    try:
        restore(options.folder, options.docs, TABLE, EXPERIMENTS)
        if not options.report_only:
            measure(options)
        page, panels = report(options)
    except InputError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted; what is finished is in the folder and need not be computed again")
    publish(page, panels, options.docs)
    say(f"wrote {options.docs / 'claims.md'} and {len(page.exhibits)} links to certificates")


if __name__ == "__main__":
    main()
