"""Make the instance library again from scratch; records of problems that stay the same are kept.

    python benchmarks/build_library.py [--only 'cnn-*'] [--folder DIR]

Networks are profiled on fake tensors with the V100-PCIe roofline, at the image sizes of the
offloading paper (224, 500, 1000) and batch sizes that are powers of two; those with a link that
runs both ways with the H200 roofline and the link measured on one. Everything is deterministic;
running it twice changes nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import library_recompute

from offcert.certification.records import add
from offcert.core.platform import Link, Platform
from offcert.core.result import SolveStatus
from offcert.formulations.combinatorial.relaxations import prop3_bound
from offcert.instances.kinds import generator
from offcert.instances.library import FOLDER, Family, Library, make_entry
from offcert.instances.records import Record
from offcert.instances.three_partition import schedule_of_triples
from offcert.instances.two_partition import TwoPartition, schedule_of_half
from offcert.proofs.certificate import Certificate, current_versions
from offcert.questions.schedule.files import problem_to_json
from offcert.questions.schedule.problem import Problem, Recompute
from offcert.questions.schedule.result import Result
from offcert.questions.schedule.schedule import Schedule

if TYPE_CHECKING:
    from offcert.runtime.hardware.model import Hardware

HARDWARE = "v100-pcie"
NETWORK_MEMORY = (0, 5, 10, 25, 50, 75)
CHAIN_MEMORY = (0, 5, 10)
TRACE_MEMORY = (0, 10, 25, 50)
FINE_MEMORY = (2, 10, 25, 50)
FINE_CLOCKS = ("modules", "operators")
RESNETS = tuple(f"resnet{depth}" for depth in (18, 34, 50, 101, 152))
DENSENETS = tuple(f"densenet{depth}" for depth in (121, 161, 169, 201))
ON_IMAGES = (*RESNETS, *DENSENETS, "inception_v3", "vgg19", "alexnet")
# GB/s out and back, alone and both at once: copies of 64 MiB on an H200, PCIe 5 x 16, rounded.
# Measured with `offcert.profile(step, measure=True)`.
DUPLEX = "h200"
DUPLEX_RATES: dict[str, Any] = {
    "bandwidth": Fraction("54.3"),
    "prefetch_bandwidth": Fraction("52.9"),
    "busy_bandwidth": Fraction("50.7"),
    "busy_prefetch_bandwidth": Fraction("45.9"),
}


@dataclass(frozen=True)
class Recipe:
    """A family to be made: its name, group and origin, how, and at which memory limits.

    ``percents`` is empty where the problem dictates its memory.
    """

    name: str
    group: str
    origin: str
    make: Callable[..., Problem]
    percents: tuple[int, ...] = ()


def recipes() -> Iterator[Recipe]:
    """Yield every family of the library."""
    yield from networks()
    yield from fine_networks()
    yield from duplex_networks()
    yield from chains()
    yield from traces()
    yield from reductions()
    yield from adversarial()
    yield from core()
    yield from recomputed()


def networks() -> Iterator[Recipe]:
    """Yield the zoo's networks at the paper's image sizes."""
    images = [(model, 224, 32) for model in ON_IMAGES]
    images += [(model, 500, 32) for model in ON_IMAGES]
    images += [(model, 1000, 8) for model in (*RESNETS[2:], "densenet121", "inception_v3")]
    for model, size, batch in images:
        shape, suffix = f"{batch}x3x{size}x{size}", f"{size}-b{batch}"
        if model in DENSENETS:
            yield network(model, shape, suffix, f"networks-{size}", stages="blocks")
            yield network(model, shape, f"layers-{size}", "networks-layers", stages="layers")
        else:
            yield network(model, shape, suffix, f"networks-{size}")
    yield network("gpt", "8x1024", "1024-b8", "networks-text")


def network(model: str, shape: str, suffix: str, group: str, stages: str | None = None) -> Recipe:
    """Return a network as stages; `stages` says what those of a DenseNet are."""

    def make(card: str = HARDWARE) -> Problem:
        from offcert_lab.stages.problem import stage_problem

        asked = {} if stages is None else {"stages": stages}
        problem = stage_problem(model, shape, known_card(card), options=asked)
        if stages != "blocks":
            return problem
        # The zoo builds blocks where nothing is said, and these problems have always said nothing.
        return replace(problem, source={**(problem.source or {}), "options": {}})

    view = "" if stages is None else f", every dense {stages.removesuffix('s')} a stage"
    origin = (
        f"{model} of the zoo{view}, input {shape}, profiled on fake tensors, {HARDWARE} roofline"
    )
    return Recipe(f"{model}-{suffix}", group, origin, make, NETWORK_MEMORY)


def known_card(name: str) -> Hardware:
    """Return a card: the paper's at its peaks, others at what they reach of theirs."""
    from offcert.runtime.hardware import hardware

    return hardware(name, peak=name == HARDWARE)


def fine_networks() -> Iterator[Recipe]:
    """Yield the zoo's networks at the clocks that training follows."""
    shapes = dict.fromkeys(ON_IMAGES, "32x3x224x224") | {"gpt": "8x1024"}
    for clock in FINE_CLOCKS:
        for model, shape in shapes.items():
            yield fine_network(model, shape, clock)


def fine_network(model: str, shape: str, clock: str) -> Recipe:
    def make(card: str = HARDWARE) -> Problem:
        from offcert.runtime.profiling.profile import profile

        problem = profile(model, shape, hardware=known_card(card), clock=clock, recompute="none")
        assert problem.source is not None
        # What only the runtime needs is half of a file; profiling gives it again.
        source = {key: value for key, value in problem.source.items() if key != "capture"}
        # What is computed from what is left to be captured again, too.
        return replace(problem.plain(), source=source)

    origin = (
        f"{model} of the zoo, input {shape}, one operation a tick of the clock {clock}, captured "
        f"on fake tensors, {HARDWARE} roofline"
    )
    return Recipe(f"{model}-{clock}", f"networks-{clock}", origin, make, FINE_MEMORY)


def duplex_networks() -> Iterator[Recipe]:
    """Yield the networks of batch 32, and those by modules, on a link that runs both ways."""
    for recipe in (*networks(), *fine_networks()):
        model, _, view = recipe.name.partition("-")
        if recipe.group in ("networks-224", "networks-500") or view == "modules":
            view = view.removesuffix("-b32")
            name, group = f"{model}-duplex-{view}", f"duplex-{view}"
            origin = f"{recipe.origin.replace(HARDWARE, DUPLEX)}; link as measured on an H200"
            yield replace(
                recipe, name=name, group=group, origin=origin, make=partial(duplex, recipe)
            )


def duplex(recipe: Recipe) -> Problem:
    """Return the problem that a recipe makes on another machine, one with a duplex link."""
    problem: Problem = recipe.make(DUPLEX)
    platform = Platform(problem.platform.memory, link=Link.DUPLEX, **DUPLEX_RATES)
    return replace(problem, platform=platform)


def generated(
    name: str, group: str, kind: str, seed: int, percents: tuple[int, ...] = (), **knobs: Any
) -> Recipe:
    text = ", ".join(f"{key} {value}" for key, value in knobs.items())
    return Recipe(
        name,
        group,
        f"generator {kind}, {text}, seed {seed}",
        lambda: generator(kind, knobs).problem(seed),
        percents,
    )


def chains() -> Iterator[Recipe]:
    """Yield random chains in the hard regime, where moving takes as long as computing."""
    counts = {8: 4, 12: 4, 16: 4, 24: 4, 36: 3, 50: 3, 101: 2, 152: 2}
    for stages, count in counts.items():
        for seed in range(count):
            name, group = f"cnn-{stages}-{seed}", f"cnn-{stages}"
            yield generated(name, group, "cnn", seed, CHAIN_MEMORY, stages=stages)
    for stages in (24, 48, 96):
        name, group = f"uniform-{stages}-alike", "uniform-alike"
        yield generated(name, group, "uniform", 0, CHAIN_MEMORY, stages=stages, spread="1")
    for stages in (16, 36):
        for seed in range(2):
            name, group = f"uniform-{stages}-{seed}", "uniform"
            yield generated(name, group, "uniform", seed, CHAIN_MEMORY, stages=stages)


def traces() -> Iterator[Recipe]:
    """Yield traces that are no chains: transformers with internals, U-Nets with skips."""
    for blocks in (6, 12, 24, 48):
        name = f"transformer-{blocks}-0"
        yield generated(name, "transformer", "transformer", 0, TRACE_MEMORY, blocks=blocks)
    name = "transformer-24-alike"
    yield generated(name, "transformer", "transformer", 0, TRACE_MEMORY, blocks=24, jitter=0)
    for depth in (3, 4, 5):
        for hold in (True, False):
            name = f"unet-{depth}-0" if hold else f"unet-{depth}-0-free"
            group = "unet" if hold else "unet-free"
            yield generated(name, group, "unet", 0, TRACE_MEMORY, depth=depth, hold=hold)


def reductions() -> Iterator[Recipe]:
    """Yield reductions from partition problems whose answers are known."""
    kind = "three-partition"
    for m in range(2, 7):
        for answer in ("yes", "no"):
            for target in (100, 1000):
                name = f"{kind}-{m}-{target}-{answer}"
                group = f"{kind}-{answer}"
                yield generated(name, group, kind, 0, m=m, target=target, answer=answer)
    kind = "two-partition"
    for transfers in ("atomic", "interruptible"):
        for count in (8, 12, 16, 20):
            for answer in ("yes", "no"):
                name = f"{kind}-{count}-{answer}-{transfers}"
                knobs = {"largest": 10**6, "answer": answer, "transfers": transfers}
                yield generated(name, f"{kind}-{transfers}", kind, 0, count=count, **knobs)


# Who shall look bad, and what makes the search differ from the default. Chosen so that each takes
# a few minutes at most. What is exact cannot look bad; searches
# against local-search have found nothing so far, and against ordered with atomic transfers little:
# most chains on which order costs something are far from what is drawn.
ADVERSARIAL: dict[str, dict[str, Any]] = {
    "greedy": {"seed": 6},
    "sequential": {},
    "dynprog": {},
    "dynprog-exact": {},
    "vdnn": {},
    "vdnn-all": {},
    "tflms": {},
    "ordered": {"most": 7, "largest": 30, "steps": 2500, "seed": 2},
    "ordered-interruptible": {
        "against": "ordered",
        "transfers": "interruptible",
        "most": 7,
        "largest": 30,
    },
    "ordered-interruptible-small": {
        "against": "ordered",
        "transfers": "interruptible",
        "largest": 5,
        "steps": 1000,
    },
    "prop3": {"steps": 600, "seed": 1},
    "prop3-subset-sum": {},
    "fractional": {},
    "fractional-subset-sum": {},
    "atomic-heads": {},
    "fluid-milp": {},
    "fluid-milp-interruptible": {"against": "fluid-milp", "transfers": "interruptible"},
    "stage-milp": {"steps": 600},
}


def adversarial() -> Iterator[Recipe]:
    """Yield the worst problems that searches found, for methods and for bounds."""
    for name, knobs in ADVERSARIAL.items():
        settings = {"against": name} | knobs
        text = ", ".join(f"{key} {value}" for key, value in settings.items())
        yield Recipe(
            f"adversarial-{name}",
            "adversarial",
            f"search for the worst problem, minimised: {text}",
            partial(search, settings),
        )


def recomputed() -> Iterator[Recipe]:
    """Yield the problems in which computations may run again."""
    for name, group, kind, percents, knobs in library_recompute.generated():
        yield generated(name, group, kind, 0, percents, **knobs)
    for name, knobs in library_recompute.ADVERSARIAL.items():
        settings = {"against": name} | knobs
        text = ", ".join(f"{key} {value}" for key, value in settings.items())
        yield Recipe(
            f"adversarial-checkpoint-{name}",
            "adversarial-checkpoint",
            f"search for the chain on which checkpoints do worst, minimised: {text}",
            partial(library_recompute.search, settings),
        )


def search(knobs: dict[str, Any]) -> Problem:
    """Return the problem that a search finds, by the seed among its knobs or seed 0."""
    from offcert_lab.hunts.adversarial.chains import AdversarialChains

    seed = knobs.get("seed", 0)
    return AdversarialChains(**{k: v for k, v in knobs.items() if k != "seed"}).problem(seed)


# Stages and seed by shape. Chosen so that some are solved within 1 s, 10 s and 60 s and some are
# not; `grade_core.py` says which, by measuring.
CORE = {
    "uniform": ((8, 0), (10, 0), (16, 0), (28, 0), (40, 0)),
    "uniform-spiky": ((10, 0), (16, 0), (40, 0)),
    "narrow": ((8, 0), (10, 0), (16, 0), (40, 0)),
    "narrow-spiky": ((8, 0), (16, 0), (40, 0)),
    "broad": ((10, 0), (16, 0), (32, 0), (40, 0)),
    "cnn": ((10, 0), (16, 0), (36, 0), (36, 1), (40, 0), (40, 1), (40, 2)),
    "cnn-spiky": ((40, 3), (40, 4)),
}
# Where nearly every point stays open, few labels tell them apart, and a part of the map will do.
FEW_FROM = 32
FEW = {"labels": 20_000}
FEWER_FROM = 36
FEWER = {"labels": 5_000, "points": 10}
UNGRADED = "core-ungraded"


def core() -> Iterator[Recipe]:
    """Yield the problems at the hardest memory and bandwidth of their chains."""
    for shape, stages, seed in ((s, *numbers) for s, rows in CORE.items() for numbers in rows):
        yield Recipe(
            f"core-{shape}-{stages}-{seed}",
            UNGRADED,
            f"hardest point of a map over memory and bandwidth: shape {shape}, {stages} stages, "
            f"seed {seed}",
            partial(hardest, shape, stages, seed),
        )


def hardest(shape: str, stages: int, seed: int) -> Problem:
    """Return the problem that the search of a map finds."""
    from offcert_lab.hunts.phase import CoreProblems

    less = FEWER if stages >= FEWER_FROM else FEW if stages >= FEW_FROM else {}
    return CoreProblems(shape=shape, stages=stages, **less).problem(seed)


def record_optimum(library: Library, name: str) -> None:
    """Certify a find of a search, which is small, and record what comes of it."""
    from offcert_lab.hunts.adversarial.chains import certified

    problem = library.load(name)
    found = (problem.source or {}).get("generator") == "adversarial"
    if found and library.record(name).status is not SolveStatus.OPTIMAL:
        add(library, certified(problem).to_json())


def build(recipe: Recipe, old: Family | None) -> Family:
    """Return a family, with the old one's records where the problem is the same."""
    problem = replace(recipe.make(), name=recipe.name)
    if old is not None and comparable(old.problem) == comparable(problem):
        problem = old.problem
    known = {} if old is None else {entry.digest: entry.record for entry in old.entries}
    limits = {f"m{p}": problem.memory_at(Fraction(p, 100)) for p in recipe.percents}
    entries = []
    for label, memory in (limits or {"": problem.platform.memory}).items():
        made = [make_entry(problem, recipe.name, label, memory)]
        if problem.platform.slows:
            made += [make_entry(problem, recipe.name, f"{label}_alone", memory, alone=True)]
        entries += [replace(each, record=known.get(each.digest, Record())) for each in made]
    group, origin = recipe.group, recipe.origin
    if group == UNGRADED and old is not None and problem is old.problem:
        group, origin = old.group, old.origin
    return Family(recipe.name, group, origin, problem, tuple(entries))


def comparable(problem: Problem) -> dict[str, Any]:
    """Return a problem's document without the version of the program that traced it."""
    document = problem_to_json(problem)
    document["source"] = {k: v for k, v in document["source"].items() if k != "torch"}
    return document


def record_construction(library: Library, name: str) -> None:
    """Record the schedule that a partition gives, which Proposition 3 proves optimal."""
    problem = library.load(name)
    assert problem.source is not None
    solution = problem.source.get("solution", {})
    if problem.recompute is not Recompute.NONE:
        return
    if solution.get("answer") != "yes" or library.record(name).status is SolveStatus.OPTIMAL:
        return
    values, parts = problem.source["values"], solution["partition"]
    two = problem.source["generator"] == TwoPartition.kind
    schedule: Schedule = (schedule_of_half if two else schedule_of_triples)(values, parts)
    result = Result(SolveStatus.OPTIMAL, schedule, (prop3_bound(problem, False),))
    method = "construction from the partition"
    add(library, Certificate(problem, result, method=method, versions=current_versions()).to_json())


def main() -> None:
    """Build the problems that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="*", help="pattern of family names")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    library = Library(options.folder)
    every = list(recipes())
    chosen = [recipe for recipe in every if fnmatchcase(recipe.name, options.only)]
    known = lost = problems = 0
    for number, recipe in enumerate(chosen, start=1):
        path = options.folder / f"{recipe.name}.json"
        old = library.family(recipe.name) if path.exists() else None
        family = build(recipe, old)
        if family != old:
            library.write(family)
        for entry in family.entries:
            record_construction(library, entry.name)
            record_optimum(library, entry.name)
            library_recompute.record_first(library, entry.name)
        problems += len(family.entries)
        known += sum(library.record(entry.name) != Record() for entry in family.entries)
        if old is not None:
            digests = {entry.digest for entry in family.entries}
            gone = [e for e in old.entries if e.digest not in digests and e.record != Record()]
            lost += len(gone)
        print(f"{number}/{len(chosen)} {recipe.name}", file=sys.stderr)
    names = {recipe.name for recipe in every}
    strangers = sorted(p.stem for p in options.folder.glob("*.json") if p.stem not in names)
    report = {"families": len(chosen), "problems": problems, "records": known}
    print(json.dumps(report | {"records_lost": lost, "not_built_here": strangers}))


if __name__ == "__main__":
    main()
